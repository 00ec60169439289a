r"""Tables of notation: Unicode signs, LaTeX synonyms, spacing commands, Greek letters, functions."""

# ruff: noqa: SIM905 (word lists read best as one string)

import unicodedata

UNICODE = {
    "−": "-", "–": "-", "—": "-", "‐": "-", "×": r"\times ", "·": r"\cdot ", "⋅": r"\cdot ", "∙": r"\cdot ", "÷": "/",
    "⁄": "/", "∕": "/", "±": r"\pm ", "∓": r"\mp ", "≤": r"\leq ", "⩽": r"\leq ", "≥": r"\geq ", "⩾": r"\geq ",
    "≠": r"\neq ", "≈": r"\approx ", "≡": r"\equiv ", "∞": r"\infty ", "∈": r"\in ", "∉": r"\notin ", "∪": r"\cup ",
    "∩": r"\cap ", "∅": r"\emptyset ", "∖": r"\setminus ", "°": "°", "º": "°", "′": "'", "’": "'", "√": r"\sqrt ",
    "∛": r"\sqrt[3]", "ℝ": r"\mathbb{R}", "ℤ": r"\mathbb{Z}", "ℕ": r"\mathbb{N}", "ℚ": r"\mathbb{Q}",
    "ℂ": r"\mathbb{C}",
    "½": r"\frac{1}{2}", "⅓": r"\frac{1}{3}", "⅔": r"\frac{2}{3}", "¼": r"\frac{1}{4}", "¾": r"\frac{3}{4}",
    "⅖": r"\frac{2}{5}", "⅗": r"\frac{3}{5}", "⅘": r"\frac{4}{5}", "⅚": r"\frac{5}{6}", "⅞": r"\frac{7}{8}",
    "⅐": r"\frac{1}{7}", "⅑": r"\frac{1}{9}", "⅒": r"\frac{1}{10}", "∜": r"\sqrt[4]", "∣": "|", "ℓ": r"\ell ",
    "＋": "+", "－": "-", "＝": "=", "％": "%", "｛": "{", "｝": "}",
    "⅕": r"\frac{1}{5}", "⅙": r"\frac{1}{6}", "⅛": r"\frac{1}{8}", "⅜": r"\frac{3}{8}", "⅝": r"\frac{5}{8}",
    "⌊": r"\lfloor ", "⌋": r"\rfloor ", "⌈": r"\lceil ", "⌉": r"\rceil ", "∠": r"\angle ", "△": r"\triangle ",
    "∑": r"\sum ", "∏": r"\prod ", "∫": r"\int ", "…": r"\dots ", "€": "", "£": "", "¥": "", "¢": r"\text{cents}",
    "→": r"\to ", "“": "", "”": "", "‘": "'", "，": ",", "。": ".", "：": ":", "；": ";", "（": "(", "）": ")",
    "\u2011": "-", "\u2012": "-", "➖": "-",
    "µ": r"\mu ", "\u2126": r"\Omega ", "Å": r"\AA ", "\u212b": r"\AA ", "℃": "°C", "℉": "°F",
    "\u00a0": " ", "\u2009": " ", "\u202f": " ", "\u2002": " ", "\u2003": " ", "\u3000": " ",
}  # fmt: skip
GREEK = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho varsigma sigma tau "
    "upsilon phi chi psi omega"
).split()
UNICODE |= {chr(0x3B1 + i): f"\\{name} " for i, name in enumerate(GREEK)}
UNICODE |= {
    c: f"\\{n} "
    for c, n in zip("ΓΔΘΛΞΠΣΦΨΩ", ["Gamma", "Delta", "Theta", "Lambda", "Xi", "Pi", "Sigma", "Phi", "Psi", "Omega"])
}
# full-width forms, squared units and the letters and digits of mathematical alphabets
UNICODE = {
    c: plain
    for c in map(
        chr, (*range(0x3300, 0x3400), *range(0xFE50, 0xFE70), *range(0xFF01, 0xFFEF), *range(0x1D400, 0x1D800))
    )
    if (plain := unicodedata.normalize("NFKC", c)).isascii() and plain.isprintable()
} | UNICODE
UNICODE |= {"、": ",", "∶": ":", "≦": r"\leq ", "≧": r"\geq ", "⟨": "(", "⟩": ")", "₹": "", "£": "", "￡": "", "￥": ""}
HAN = {  # units, counters and answers in Chinese
    han: latin
    for latin, words in {
        "mm": "毫米", "cm": "厘米", "m": "米", "km": "千米 公里", "cm^2": "平方厘米", "m^2": "平方米",
        "cm^3": "立方厘米", "m^3": "立方米", "g": "克", "kg": "千克 公斤", "tons": "吨", "L": "升",
        "mL": "毫升", "s": "秒", "min": "分钟", "h": "小时",
        "days": "天", "years": "年 岁", "dollars": "美元", "yuan": "元", "degrees": "度",
        "items": "个 只 人 名 本 次 种 条 张 支 块 棵 辆 件 组 位 枚 颗 对", "yes": "是", "no": "否", "true": "正确",
        "false": "错误", "no solution": "无解", "does not exist": "不存在", "and": "和 且", "or": "或",
    }.items()
    for han in words.split()
}  # fmt: skip
SUPERSCRIPTS = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺ⁿ", "0123456789-+n"))
SUBSCRIPTS = dict(zip("₀₁₂₃₄₅₆₇₈₉₋₊ₙ", "0123456789-+n"))

SYNONYMS = {
    "dfrac": r"\frac", "tfrac": r"\frac", "cfrac": r"\frac", "nicefrac": r"\frac", "sfrac": r"\frac",
    "bigcup": r"\cup ", "bigcap": r"\cap ", "Bbb": r"\mathbb", "dbinom": r"\binom", "tbinom": r"\binom",
    "le": r"\leq ", "leqslant": r"\leq ", "leqq": r"\leq ", "ge": r"\geq ", "geqslant": r"\geq ", "geqq": r"\geq ",
    "lt": "<", "gt": ">", "ne": r"\neq ", "lbrace": r"\{", "rbrace": r"\}", "lbrack": "[", "rbrack": "]",
    "langle": "(", "rangle": ")",
    "lor": r" \text{or} ", "vee": r" \text{or} ", "land": r" \text{and} ", "wedge": r" \text{and} ",
    "lvert": "|", "rvert": "|", "vert": "|", "colon": ":", "ldots": r"\dots ", "cdots": r"\dots ", "dotsc": r"\dots ",
    "varnothing": r"\emptyset ", "degree": "°", "infin": r"\infty ", "div": "/", "ast": "*", "R": r"\mathbb{R}",
    "rightarrow": r"\to ", "quad": " ", "qquad": " ", "backslash": r"\setminus ", "thinspace": " ", "enspace": " ",
    "euro": "", "pounds": "", "textdollar": "", "thickspace": " ", "arctg": r"\arctan ", "tg": r"\tan ",
    "ctg": r"\cot ",
    "varepsilon": r"\epsilon ", "varphi": r"\phi ", "vartheta": r"\theta ",
    "iff": "=", "simeq": r"\approx ", "Or": r" \text{or} ", "lg": r"\log_{10}", "textdegree": "°", "cis": r"\text{cis}",
}  # fmt: skip
IGNORED_COMMANDS = frozenset(
    (
        "left right middle big Big bigg Bigg bigl bigr Bigl Bigr biggl biggr Biggl Biggr displaystyle textstyle "
        "scriptstyle limits nolimits normalsize large Large LARGE huge Huge small rm bf it boxed fbox mathstrut "
        "nonumber hline strut text unit ensuremath hfill"
    ).split()
)
ESCAPES = {",": " ", ";": " ", ":": " ", " ": " ", "!": "", "(": " ", ")": " ", "[": " ", "]": " ", "%": "%", "$": "",
            "&": "&", "#": "#", "_": "_", "/": "", "-": "", ">": " ", "\n": " "}  # fmt: skip
FUNCTIONS = frozenset(
    (
        "lcm sin cos tan cot sec csc arcsin arccos arctan arccot sinh cosh tanh coth log ln exp det gcd max min "
        "lim arcsinh arccosh arctanh sech csch"
    ).split()
)
