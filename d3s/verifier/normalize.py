r"""Spelling of answers: one canonical LaTeX string for the many ways of writing the same formula.

Only spelling changes here (`\dfrac12`, `\left(`, `\text{ cm }`, `−`, `10^33`), never a value, except that the
currency sign is dropped. Nothing here parses mathematics; every function is linear in the length of its input and
never raises.
"""

# ruff: noqa: SIM905 (word lists read best as one string)

import re
import unicodedata
from functools import lru_cache

LONGEST_ANSWER = 5_000  # characters; longer answers are right only when identical to the gold answer

_UNICODE = {
    "−": "-", "–": "-", "—": "-", "‐": "-", "×": r"\times ", "·": r"\cdot ", "⋅": r"\cdot ", "∙": r"\cdot ", "÷": "/",
    "⁄": "/", "∕": "/", "±": r"\pm ", "∓": r"\mp ", "≤": r"\leq ", "⩽": r"\leq ", "≥": r"\geq ", "⩾": r"\geq ",
    "≠": r"\neq ", "≈": r"\approx ", "≡": r"\equiv ", "∞": r"\infty ", "∈": r"\in ", "∉": r"\notin ", "∪": r"\cup ",
    "∩": r"\cap ", "∅": r"\emptyset ", "∖": r"\setminus ", "°": "°", "º": "°", "′": "'", "’": "'", "√": r"\sqrt ",
    "∛": r"\sqrt[3]", "ℝ": r"\mathbb{R}", "ℤ": r"\mathbb{Z}", "ℕ": r"\mathbb{N}", "ℚ": r"\mathbb{Q}",
    "ℂ": r"\mathbb{C}",
    "½": r"\frac{1}{2}", "⅓": r"\frac{1}{3}", "⅔": r"\frac{2}{3}", "¼": r"\frac{1}{4}", "¾": r"\frac{3}{4}",
    "⅕": r"\frac{1}{5}", "⅙": r"\frac{1}{6}", "⅛": r"\frac{1}{8}", "⅜": r"\frac{3}{8}", "⅝": r"\frac{5}{8}",
    "⌊": r"\lfloor ", "⌋": r"\rfloor ", "⌈": r"\lceil ", "⌉": r"\rceil ", "∠": r"\angle ", "△": r"\triangle ",
    "∑": r"\sum ", "∏": r"\prod ", "∫": r"\int ", "…": r"\dots ", "€": "", "£": "", "¥": "", "¢": r"\text{cents}",
    "→": r"\to ", "“": "", "”": "", "‘": "'", "，": ",", "。": ".", "：": ":", "；": ";", "（": "(", "）": ")",
    "\u00a0": " ", "\u2009": " ", "\u202f": " ", "\u2002": " ", "\u2003": " ", "\u3000": " ",
}  # fmt: skip
GREEK = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho varsigma sigma tau "
    "upsilon phi chi psi omega"
).split()
_UNICODE |= {chr(0x3B1 + i): f"\\{name} " for i, name in enumerate(GREEK)}
_UNICODE |= {
    c: f"\\{n} "
    for c, n in zip("ΓΔΘΛΞΠΣΦΨΩ", ["Gamma", "Delta", "Theta", "Lambda", "Xi", "Pi", "Sigma", "Phi", "Psi", "Omega"])
}
_TRANSLATE = str.maketrans(_UNICODE)
_SUPER = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺ⁿ", "0123456789-+n"))
_SUB = dict(zip("₀₁₂₃₄₅₆₇₈₉ₙ", "0123456789n"))
_RAISED = re.compile("[" + "".join(_SUPER) + "]+")
_LOWERED = re.compile("[" + "".join(_SUB) + "]+")

_RENAMED = {
    "dfrac": r"\frac", "tfrac": r"\frac", "cfrac": r"\frac", "dbinom": r"\binom", "tbinom": r"\binom",
    "le": r"\leq ", "leqslant": r"\leq ", "leqq": r"\leq ", "ge": r"\geq ", "geqslant": r"\geq ", "geqq": r"\geq ",
    "lt": "<", "gt": ">", "ne": r"\neq ", "lbrace": r"\{", "rbrace": r"\}", "lbrack": "[", "rbrack": "]",
    "langle": "(", "rangle": ")",
    "lor": r" \text{or} ", "vee": r" \text{or} ", "land": r" \text{and} ", "wedge": r" \text{and} ",
    "lvert": "|", "rvert": "|", "vert": "|", "colon": ":", "ldots": r"\dots ", "cdots": r"\dots ", "dotsc": r"\dots ",
    "varnothing": r"\emptyset ", "degree": "°", "infin": r"\infty ", "div": "/", "ast": "*", "R": r"\mathbb{R}",
    "rightarrow": r"\to ", "quad": " ", "qquad": " ", "backslash": r"\setminus ", "thinspace": " ", "enspace": " ",
    "euro": "", "pounds": "", "textdollar": "", "thickspace": " ", "arctg": r"\arctan ", "tg": r"\tan ",
    "ctg": r"\cot ",
    "iff": "=", "simeq": r"\approx ", "Or": r" \text{or} ", "lg": r"\log_{10}", "textdegree": "°", "cis": r"\text{cis}",
}  # fmt: skip
_DROPPED = frozenset(
    (
        "left right middle big Big bigg Bigg bigl bigr Bigl Bigr biggl biggr Biggl Biggr displaystyle textstyle "
        "scriptstyle limits nolimits normalsize large Large small rm bf it boxed fbox mathstrut nonumber hline "
        "strut text unit"
    ).split()
)
_ESCAPED = {",": " ", ";": " ", ":": " ", " ": " ", "!": "", "(": " ", ")": " ", "[": " ", "]": " ", "%": "%", "$": "",
            "&": "&", "#": "#", "_": "_", "/": "", "-": "", ">": " ", "\n": " "}  # fmt: skip
FUNCTIONS = frozenset(
    (
        "lcm sin cos tan cot sec csc arcsin arccos arctan arccot sinh cosh tanh coth log ln exp det gcd max min "
        "lim arcsinh arccosh arctanh sech csch"
    ).split()
)
_TEXT = re.compile(
    r"\\(text|textbf|textit|textrm|textsf|texttt|textnormal|emph|mbox|hbox|mathrm|mathbf|mathit|mathsf|mathtt|mathnormal|"
    r"boldsymbol|bm|operatorname\*?)\s*\{([^{}]{0,400})\}"
)
_STYLE = re.compile(
    r"\\(?:textbf|textit|textsf|texttt|emph|mathrm|mathbf|mathit|mathsf|boldsymbol|bm|underline|uline)\s*(?=\{)"
)
_MATHEMATICS = re.compile(r"[-+*/^_=<>(\[0-9\\]")
_EMPHASIZED = re.compile(
    r"[\s$]*(\*{1,3}|_{1,3}|`{1,3})(?=[^\s*_`])((?:[^*`]|(?<!\*)\*(?!\*))+)(?<=[^\s*_`])\1[\s$.,;:]*"
)
_BOLD_PART = re.compile(r"(?<!\S)\*\*(?=\S)([^*]{1,400})(?<=\S)\*\*(?=[\s.,;:)]|$)")
_NAMED_BRACKETS = {
    "floor": (r"\lfloor ", r"\rfloor "), "ceil": (r"\lceil ", r"\rceil "), "ceiling": (r"\lceil ", r"\rceil "),
    "abs": ("|", "|"),
}  # fmt: skip
_BRACKET_NAME = re.compile(
    r"(?:\\text\{\s*|\\|(?<![A-Za-z\\]))(floor|ceil|ceiling|abs)(?![A-Za-z])\s*\}?\s*(?=[({\[])", re.IGNORECASE
)
_COMMAND = re.compile(r"\\(?:([A-Za-z]+)\*?|(.))", re.DOTALL)
_ONE_ARGUMENT = r"\s*(\{|[0-9A-Za-z]|\\[A-Za-z]+(?![A-Za-z{]))"
_FRAC_FIRST = re.compile(r"\\(frac|binom)" + _ONE_ARGUMENT)
_SQRT = re.compile(r"\\sqrt\s*(\[[^\[\]]{0,40}\])?\s*([0-9A-Za-z]|\\[A-Za-z]+(?![A-Za-z{]))")
_POWER_DIGITS = re.compile(r"([\^_])\s*([-+]?[0-9]{2,}|[-+][0-9A-Za-z])(?![.0-9])")
_POWER_PAREN = re.compile(r"\^\s*\(([^()]{1,80})\)")
_SINGLE_SCRIPT = re.compile(r"([\^_])\s*\{\s*([0-9A-Za-z])\s*\}")
_DEGREES = re.compile(r"\s*\^\s*(?:\\circ(?![A-Za-z])|\{\s*\\circ\s*\}|°|\{\s*°\s*\})|\\circ(?![A-Za-z])\s*$")
_PLAIN_FUNCTION = re.compile(
    r"(?<![A-Za-z\\])(?:np\.|math\.|sympy\.)?(sqrt|pi|infinity|infty|arcsin|arccos|arctan|sinh|cosh|tanh|exp|sin|cos|tan|cot|csc|log|ln)(?![A-Za-z])"
)
_SPACES = re.compile(r"\s+")
_MODULUS = re.compile(
    r"\s*(?:\\pmod\s*(?:\{([^{}]{1,40})\}|([0-9A-Za-z]))"
    r"|\(\s*(?:\\bmod|\\mod|mod|\\text\{\s*mod\s*\})\s*\{?([^(){}]{1,40})\}?\s*\))"
)  # `\pmod 3` `(\bmod 3)` `(mod 3)`
_THOUSANDS_MARK = re.compile(
    r"(?<=[0-9])(?:\{,\}(?:\\!)?|,\\!|\\,)\s*(?=[0-9]{3}(?![0-9]))"
)  # `10{,}000` `75,\!075` `1\,000` -> `1 000`
_MATRIX_SPACING = re.compile(r"\\\\\s*\[-?[0-9.]{1,6}\s*(?:pt|em|ex|mm|cm)\]")


@lru_cache(maxsize=8192)
def canonical(text: str) -> str:
    """The canonical spelling of an answer, single spaces kept; "" for an empty answer or one with invisible
    characters."""
    if not text.isascii():
        if has_hidden_characters(text):
            return ""
        text = _RAISED.sub(lambda m: "^{" + "".join(_SUPER[c] for c in m.group()) + "}", text)
        text = _LOWERED.sub(lambda m: "_{" + "".join(_SUB[c] for c in m.group()) + "}", text)
        text = text.translate(_TRANSLATE)
    elif text.isdigit():
        return text
    elif has_hidden_characters(text):
        return ""
    if len(text) > LONGEST_ANSWER:
        return _SPACES.sub(" ", text).strip()
    if "*" in text or "_" in text or "`" in text:
        text = _without_emphasis(text)
    text = _THOUSANDS_MARK.sub(" ", text)
    if "\\" in text:
        text = _canonical_commands(text)
    if "mod" in text:
        text = _MODULUS.sub(lambda m: rf" \pmod{{{(m[1] or m[2] or m[3]).strip()}}}", text)
    if "loor" in text or "eil" in text or "abs" in text or "Abs" in text:
        text = _named_brackets(text)
    text = text.replace("$", "").replace("~", " ").replace("**", "^").replace("...", r"\dots ")
    for plain, latex in (
        ("<=", r"\leq "),
        (">=", r"\geq "),
        ("!=", r"\neq "),
        ("==", "="),
        ("+/-", r"\pm "),
        ("+-", r"\pm "),
    ):
        text = text.replace(plain, latex)
    text = _PLAIN_FUNCTION.sub(_plain_function, text)
    if "^" in text or "_" in text or "\\" in text:
        text = _canonical_scripts(text)
    return _outer(_SPACES.sub(" ", text).strip())


def _without_emphasis(text: str) -> str:
    """Without Markdown emphasis (`**C**`, `_C_`) around the whole answer, or bold around whole words of it."""
    match = _EMPHASIZED.fullmatch(text)
    if match and match.group(1) not in match.group(2):
        text = match.group(2)
    return _BOLD_PART.sub(r"\1", text)


def _named_brackets(text: str) -> str:
    r"""`floor(x)`, `\operatorname{ceil}(x)`, `abs(x)` -> `\lfloor x \rfloor`, `\lceil x \rceil`, `|x|`."""
    position = 0
    while match := _BRACKET_NAME.search(text, position):
        opening, closing = _NAMED_BRACKETS[match.group(1).lower()]
        end = matching(text, match.end())
        if end < 0:
            return text
        text = text[: match.start()] + opening + text[match.end() + 1 : end] + closing + text[end + 1 :]
        position = match.start() + len(opening)
    return text


def has_hidden_characters(text: str) -> bool:
    """Control, format (zero-width, right-to-left), surrogate and private characters: what is seen is not what is
    written."""
    if text.isascii():
        return not text.isprintable() and any((c < " " and c not in "\n\t\r") or c == "\x7f" for c in text)
    return any(unicodedata.category(c)[0] == "C" and c not in "\n\t\r" for c in text)


def compact(text: str) -> str:
    r"""A canonical string without the spaces that carry no meaning: those between digits and after a command stay."""
    return _MEANINGLESS_SPACE.sub("", text)


_MEANINGLESS_SPACE = re.compile(
    r"(?<![0-9]) (?![A-Za-z])|(?<=[0-9]) (?![0-9A-Za-z])|(?<![A-Za-z0-9]) (?=[A-Za-z])|(?<=[0-9]) (?=[A-Za-z])"
)


def _canonical_commands(text: str) -> str:
    if "\\\\" in text:
        text = _MATRIX_SPACING.sub(r"\\\\ ", text)
    for _ in range(3):  # nested \text{\textbf{..}}
        text, count = _TEXT.subn(_text, text)
        if not count:
            break
        text = text.replace("\\\x01", "\\text")
    return _COMMAND.sub(_command, _STYLE.sub(" ", text.replace("\x01", "\\text")))


def _text(match: re.Match[str]) -> str:
    r"""One \text-like group: function names become commands, mathematics becomes plain, the rest is \text{...}.

    Mathematics: digits, a formula without words, and a single letter. After a value a letter is a unit, except for
    the constants `e` and `i`.
    """
    command, inside = match.groups()
    content = _SPACES.sub(" ", inside.replace("$", "").replace("~", " ")).strip()
    if content in FUNCTIONS:
        return f"\\{content} "
    if content in ("infinity", "Infinity"):
        return r"\infty "
    if not content:
        return " "
    upright = command not in ("text", "mbox", "hbox", "textrm", "textnormal", "textbf", "textit")
    if upright and (len(content) == 1 or content[0] == "\\") and inside[:1] not in ("~", " "):
        return content
    if content[0] in "0123456789-.(" and not re.search(r"[A-Za-z]", content):
        return content
    if content[0] in "0123456789" or content in ("e", "i"):
        return content
    after_value = match.string[: match.start()].rstrip()[-1:]
    if not (after_value.isalnum() or after_value in (")", "]", "}", "%")):
        letters = re.sub(r"\\[A-Za-z]+", "", content)
        single = len(content) == 1 and content.isalpha()
        if single or (_MATHEMATICS.search(content) and not re.search(r"[A-Za-z]{2}", letters)):
            return content
    return f" \x01{{{content}}} "


def _command(match: re.Match[str]) -> str:
    word, other = match.groups()
    if word is None:
        return _ESCAPED.get(other, match.group())
    if word in _RENAMED:
        return _RENAMED[word]
    if word in _DROPPED and not (word == "text" and match.string[match.end() : match.end() + 1] == "{"):
        return " " if match.string[match.end() : match.end() + 1] != "." else "\x02"
    return match.group()


def _plain_function(match: re.Match[str]) -> str:
    name = match.group(1)
    return {"infinity": r"\infty ", "infty": r"\infty "}.get(name, f"\\{name} ")


def _canonical_scripts(text: str) -> str:
    text = text.replace("\x02.", " ").replace("\x02", " ")
    text = _DEGREES.sub("°", text)
    text = _brace_fraction_arguments(text)
    text = _SQRT.sub(lambda m: f"\\sqrt{m.group(1) or ''}{{{m.group(2)}}}", text)
    text = re.sub(r"\\sqrt\s*\(([^()]{1,200})\)", r"\\sqrt{\1}", text)
    text = re.sub(r"\\sqrt\s+([\[{])", r"\\sqrt\1", text)
    text = _POWER_DIGITS.sub(r"\1{\2}", text)
    text = _POWER_PAREN.sub(r"^{\1}", text)
    return _SINGLE_SCRIPT.sub(r"\1\2", text)


def _brace_fraction_arguments(text: str) -> str:
    r"""`\frac12`, `\frac9{5}`, `\frac{24}5`, `\frac 1 2` -> `\frac{..}{..}`; left to right, one pass."""
    out: list[str] = []
    position = 0
    if text.count("\\frac") > 60:
        return text
    while match := _FRAC_FIRST.search(text, position):
        out.append(text[position : match.start()])
        first, after = _argument(text, match.start(2))
        second, after = _argument(text, after)
        if first is None or second is None:
            out.append(match.group())
            position = match.end()
            continue
        out.append(f"\\{match.group(1)}{{")
        text = first + "}{" + second + "}" + text[after:] if "\\frac" in first + second else text
        if "\\frac" in first + second:  # go on inside the arguments
            position = 0
        else:
            out.append(first + "}{" + second + "}")
            position = after
    out.append(text[position:])
    return "".join(out)


def _argument(text: str, start: int) -> tuple[str | None, int]:
    """One TeX argument at `start`: a braced group without its braces, one character, or one command."""
    while start < len(text) and text[start] == " ":
        start += 1
    if start >= len(text):
        return None, start
    if text[start] == "{":
        end = matching(text, start)
        return (text[start + 1 : end].strip(), end + 1) if end > 0 else (None, start)
    if text[start] == "\\":
        command = re.compile(r"\\[A-Za-z]+").match(text, start)
        return (command.group(), command.end()) if command else (None, start)
    return (text[start], start + 1) if text[start].isalnum() else (None, start)


def matching(text: str, start: int) -> int:
    """Index of the bracket that closes the one at `start`, or -1; all bracket kinds count alike, so `[0,1)`
    matches."""
    depth = 0
    for match in _BRACKET.finditer(text, start):
        if match.group()[-1] in "([{":
            depth += 1
        else:
            depth -= 1
            if depth == 0:
                return match.end() - 1
            if depth < 0:
                return -1
    return -1


_BRACKET = re.compile(r"\\?[{}]|[()\[\]]")


def _outer(text: str) -> str:
    """Without outer punctuation, a leading `=` or `:`, and braces around the whole."""
    for _ in range(4):
        before = text
        text = text.strip(" \n").rstrip(".,;:").lstrip("=:").strip()
        while text.endswith("\\\\"):
            text = text[:-2].strip()
        if text.startswith("{") and matching(text, 0) == len(text) - 1 and not text.endswith("\\}"):
            text = text[1:-1]
        if text == before:
            break
    return text
