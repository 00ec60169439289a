r"""Normalize answers: one LaTeX spelling for the many ways of writing the same formula.

Only the spelling changes (`\dfrac12`, `\left(`, `\text{ cm }`, `−`, `10^33`), never a value, except that the currency
sign is dropped. Nothing here parses mathematics. Every function is linear in the length of its input and never raises.
"""

import re
import unicodedata
from functools import lru_cache

from d3s.verifier.notation import ESCAPES, FUNCTIONS, HAN, IGNORED_COMMANDS, SUBSCRIPTS, SUPERSCRIPTS, SYNONYMS, UNICODE
from d3s.verifier.units import is_unit

LONGEST_ANSWER = 5_000  # characters; longer answers are right only when identical to the gold answer

_TRANSLATE = str.maketrans(UNICODE)
_SUPERSCRIPT = re.compile("[" + "".join(SUPERSCRIPTS) + "]+")
_SUBSCRIPT = re.compile("[" + "".join(SUBSCRIPTS) + "]+")
_HAN_WORD = re.compile(r"[\u4e00-\u9fff]+")
# `]0,1]` for `(0,1]`
_FRENCH_INTERVAL = re.compile(
    r"(?:(?<![0-9A-Za-z)}])|(?<=\\c[ua]p))([\]\[])([^\[\],;]{1,60}[,;][^\[\],;]{1,60})([\]\[])(?![0-9A-Za-z])"
)
_AMOUNT = re.compile(r"(\\\$\s*-?[0-9][0-9.,]{0,20})\s?([KkMB]|[Mm]n|[Bb]n)(?![A-Za-z])")
_CURRENCY_FIRST = re.compile(r"\A\s*(?:\\text\{\s*)?(USD|EUR)\s*\}?\s*([0-9][0-9.,]*)\s*\Z")
_AMOUNTS = {"K": "thousand", "M": "million", "B": "billion"}
_BARE_STYLE = re.compile(r"\\(mathbf|mathbb|Bbb|boldsymbol|bm|vec|hat|mathrm|mathit)\s+([A-Za-z])(?![A-Za-z])")
_TEXT = re.compile(
    r"\\(text|textbf|textit|textrm|textsf|texttt|textnormal|emph|mbox|hbox|mathrm|mathbf|mathit|mathsf|mathtt|mathnormal|"
    r"boldsymbol|bm|operatorname\*?)\s*\{((?:[^{}^_]|[\^_](?:\{[^{}]{0,20}\})?)*+)\}"
)
_STYLE = re.compile(
    r"\\(?:textbf|textit|textsf|texttt|emph|mathrm|mathbf|mathit|mathsf|boldsymbol|bm|underline|uline)\s*(?=\{)"
)
# what is printed around an answer: numbers of equations, colors, spaces, the end of a proof
_DECORATION = re.compile(
    r"\\(?:tag\*?|label|[hv]space\*?|[hv]?phantom|(?:text)?color|colorbox)\s*+(?:\[[^\[\]]{0,20}\])?\s*+\{[^{}]{0,60}\}"
    r"|\\(?:left|right|[bB]igg?[lr]?)\s*\.|\\(?:[hm]skip|m?kern)\s*+-?[0-9.]{1,6}\s*+(?:em|ex|pt|mu|cm|mm)(?![A-Za-z])"
)
_END_OF_PROOF = re.compile(r"(?:\\(?:blacksquare|square|Box|qed|checkmark)(?![A-Za-z])|[∎■□✓✔✅])[\s$.]*+$")
_JOINED = re.compile(r"([A-Za-z][A-Za-z ]*?)(,|,? (?:and|or))")  # `3\text{ boys and }4\text{ girls}`
_CHOICE_LABEL = re.compile(r"\([A-J]\)[.:]?|[A-J][).:]")
_UPRIGHT = (
    r"\\(?:text|mathrm|textrm|textup)\s*\{[^{}]{1,20}\}\s*(?:\^\s*(?:\{\s*-?[0-9]\s*\}|[0-9]))?(?:\s|\\[,;:!]|\\cdot)*+"
)
# `\frac{\text{m}}{\text{s}^2}` after a value: a quotient of units
_UNIT_FRACTION = re.compile(
    rf"(?<=[0-9)}}\s,;~])\\[dt]?frac\s*\{{\s*((?:{_UPRIGHT}){{1,4}}+)\}}\s*\{{\s*((?:{_UPRIGHT}){{1,4}}+)\}}"
)
_ROMAN = re.compile(r"\{\s*\\rm\s+([^{}]{1,40})\}|\\rm\s*\{([^{}]{1,40})\}")
_HAN_LEAD = re.compile(r"\A\s*(?:答案|选项?|结果|共)[是为]?\s*:?")
_INFINITY = re.compile(r"(?:\\text\{\s*)?\b(?:(negative|minus)|positive|plus) infinity(?:\s*\})?", re.IGNORECASE)
_SLASHED = re.compile(r"(?<![0-9A-Za-z)}])(?:\{\})?\^\{?([0-9]{1,9})\}?\s*/\s*_\{?([0-9]{1,9})\}?")  # `^3/_4`
_ROOT_OF = re.compile(r"\\root\s*\{?\s*([0-9A-Za-z]{1,9})\s*\}?\s*\\of(?![A-Za-z])")
_PLAIN_TEXT = ("text", "textrm", "textnormal", "mbox", "hbox", "mathrm", "mathsf", "mathnormal")
_SPACED = re.compile(r"\\[,;:! ]|~")
_TERM = re.compile(r"[-+=<>&](?![0-9]\s*\}|[0-9])|\\(?:leq?|geq?|in|pm)(?![A-Za-z])")
_MATHEMATICS = re.compile(r"[-+*/^_=<>(\[0-9\\]")
_EMPHASIZED = re.compile(
    r"[\s$]*(\*{1,3}|_{1,3}|`{1,3})(?=[^\s*_`])((?:[^*`]|(?<!\*)\*(?!\*))+)(?<=[^\s*_`])\1[\s$.,;:]*"
)
_BOLD_PART = re.compile(r"(?<!\S)\*\*(?=\S)([^*]{1,400})(?<=\S)\*\*(?=[\s.,;:)]|$)")
_NAMED_BRACKETS = {"floor": (r"\lfloor ", r"\rfloor "), "ceil": (r"\lceil ", r"\rceil "), "abs": ("|", "|")}
_BRACKET_NAME = re.compile(
    r"(?:\\text\{\s*|\\|(?<![A-Za-z\\]))(floor|ceil|abs)(?:(?<=ceil)ing)?(?![A-Za-z])\s*\}?\s*(?=[({\[])", re.IGNORECASE
)
_COMMAND = re.compile(r"\\(?:([A-Za-z]+)\*?|(.))", re.DOTALL)
_FRACTION_START = re.compile(r"\\(frac|binom)\s*(\{|[0-9A-Za-z]|\\[A-Za-z]+(?![A-Za-z{]))")
_SQRT = re.compile(r"\\sqrt\s*(\[[^\[\]]{0,40}\])?\s*([0-9A-Za-z]|\\[A-Za-z]+(?![A-Za-z{]))")
# `\log_23` prints the base 2, as TeX takes one digit; `\log_10 5` has the base 10
_LOG_DIGITS = re.compile(r"\\log\s*_\s*([0-9])([0-9]+)(?=\s*(?:$|[-+=,)}\]/]|\\cdot|\\times))")
_POWER_DIGITS = re.compile(r"([\^_])\s*([-+]?[0-9]{2,}|[-+][0-9A-Za-z])(?![.0-9])")
_POWER_PAREN = re.compile(r"\^\s*\(([^()]{1,80})\)")
_SINGLE_SCRIPT = re.compile(r"([\^_])\s*\{\s*([0-9A-Za-z])\s*\}(?!\s*[0-9])")
_ROOT_SIGN = re.compile(r"([√∛∜])\s*([0-9]+(?:\.[0-9]+)?)")
_DEGREES = re.compile(
    r"\s*\^\s*(?:\\circ(?![A-Za-z])|\{\s*\\circ\s*\}|°|\{\s*[°o]\s*\})|\\circ(?![A-Za-z])\s*$|(?<=[0-9}])\s*\\deg(?![A-Za-z])"
)
_PLAIN_FUNCTION = re.compile(
    r"(?<![A-Za-z\\])(?:np\.|math\.|sympy\.)?(sqrt|pi|infinity|Infinity|infty|inf|oo|arcsin|arccos|arctan|sinh|cosh|tanh|exp|sin|cos|tan|cot|csc|log|ln)(?![A-Za-z])"
)
_SPACES = re.compile(r"\s+")
_BRACKET_SPACING = re.compile(r"(?<=[(\[]) | (?=[)\]_^])")
# `\pmod 3`, `(\bmod 3)`, `(mod 3)`
_MOD = r"(?:\\b?mod|mod(?:ulo)?(?![A-Za-z])|\\text\{\s*+mod(?:ulo)?\s*+\})"
_MODULUS = re.compile(
    r"(?<!\s)\s*+(?:\\pmod\s*+(?:\{([^{}]{1,40})\}|([0-9A-Za-z]))"
    rf"|(?:\(\s*+{_MOD}|\\text\{{\s*+\(\s*+mod\s*+\}})\s*+\{{?+\s*+([^(){{}}\s][^(){{}}]{{0,39}}+)\}}?+\s*+\)"
    r"|\\text\{\s*+\(\s*+mod\s++([^(){}\s][^(){}]{0,39}+)\)\s*+\}"
    rf"|(?<=[0-9A-Za-z}})\s]){_MOD}\s*+(?:\{{([^{{}}]{{1,40}})\}}|([0-9]{{1,20}}|[a-z]))\s*+$)"
)
# `10{,}000`, `75,\!075`, `75, \!075`, `1\,000`: each becomes `1 000`
_THOUSANDS_MARK = re.compile(r"(?<=[0-9])(?:(?:\{,\}|,)\s*\\!|\{,\}|\\,)\s*(?=[0-9]{3}(?![0-9]))")
# what prints nothing at the ends of an answer: spaces, delimiters of mathematics, styles, empty groups
_WITHOUT_INK = "|".join(sorted(IGNORED_COMMANDS - {"text", "unit", "hline"}))
_INVISIBLE = (
    rf"\\[,;:!> /()\[\]]|\\(?:q?quad|(?:en|thin|med|thick|negthin)space|hfil|null|relax|{_WITHOUT_INK})(?![A-Za-z])"
    r"|\{\s*\}(?!\s*[_^])"
)
_SPACING = re.compile(rf"(?:{_INVISIBLE}|[~\s])+$")
_LEADING = re.compile(rf"(?:[\s~$=:]|{_INVISIBLE})++")
_TRAILING = re.compile(rf"(?:{_INVISIBLE})\Z")
# an environment of one row around the entire answer, and a style around an entire formula
_DISPLAY = re.compile(
    r"\\begin\s*\{(aligned|align\*?|gathered|gather\*?|split|equation\*?|displaymath|math|center|array)\}\s*"
    r"(?:\{[lcr|\s]{0,20}\}|\[[tbc]\])?(.*)\\end\s*\{\1\}",
    re.DOTALL,
)
_ALIGNED = re.compile(r"(?<!\\)&(?=\s*(?:[=<>]|\\(?:[lg]eq?|approx)(?![A-Za-z])))")
_STYLED = re.compile(
    r"\\(?:text(?:bf|it|rm|sf|tt|normal)?|emph|[mh]box|math(?:rm|sf|tt)|(math(?:bf|it|normal)|boldsymbol|bm|underline))"
    r"\s*(?=\{)"
)
_OPERATOR = re.compile(r"[_^=+/<>]")
_FORMULA_INSIDE = re.compile(r"\\(?!text|math|[mh]box|emph|bf|it|rm|bm|bold)[A-Za-z]+\s*\{|\A\s*\$[^$]*\$\s*\Z")
_PRINTED_LAST = " \n\t~$.,;:\\"  # stripped as single characters, which takes `\,` and `\\` whole
_EMPTY_GROUP = re.compile(r"(?<![A-Za-z}\]^_*\\])(?:\{\s*\}\s*)*\{\s*\}(?!\s*(?:_(?!_)|\^))")
_MATRIX_SPACING = re.compile(r"\\\\\s*\[-?[0-9.]{1,6}\s*(?:pt|em|ex|mm|cm)\]")
_MEANINGLESS_SPACE = re.compile(
    r"(?<![0-9]) (?![A-Za-z])|(?<=[0-9]) (?![0-9A-Za-z])|(?<![A-Za-z0-9]) (?=[A-Za-z])|(?<=[0-9]) (?=[A-Za-z])"
)
_PLAIN_OPERATORS = (
    ("<=", r"\leq "), (">=", r"\geq "), ("!=", r"\neq "), ("==", "="), ("+/-", r"\pm "), ("+-", r"\pm "),
)  # fmt: skip
_BRACKET = re.compile(r"\\?[{}]|[()\[\]]")
_LETTER_COMMAND = re.compile(r"\\[A-Za-z]+")


@lru_cache(maxsize=8192)
def normalize(text: str) -> str:
    """Return the normalized spelling with single spaces; "" for an empty answer or one with invisible characters."""
    if text.isascii() and text.isdigit():
        return text
    if has_hidden_characters(text):
        return ""
    if not text.isascii():
        text = _ROOT_SIGN.sub(r"\1{\2}", text)
        text = _SUPERSCRIPT.sub(lambda m: "^{" + "".join(SUPERSCRIPTS[c] for c in m.group()) + "}", text)
        text = _SUBSCRIPT.sub(lambda m: "_{" + "".join(SUBSCRIPTS[c] for c in m.group()) + "}", text)
        text = _HAN_LEAD.sub("", text.translate(_TRANSLATE))
        text = _HAN_WORD.sub(lambda m: rf"\text{{ {HAN[m[0]]} }}" if m[0] in HAN else m[0], text)
    if len(text) > LONGEST_ANSWER:
        return _SPACES.sub(" ", text).strip()
    if "\\" in text:
        text = _DECORATION.sub(" ", text)
    text = _CURRENCY_FIRST.sub(r"\2 \\text{\1}", text.replace("{:}", ":"))
    if "$" in text:
        text = text.removeprefix("US")
        text = _AMOUNT.sub(lambda m: rf"{m[1]} \text{{{_AMOUNTS[m[2][0].upper()]}}}", text)
    text = _strip_outer(text.replace("...", r"\dots "))
    if end := _END_OF_PROOF.search(text, max(0, len(text) - 40)):
        text = text[: end.start()].rstrip("\\ \n")
    if "{" in text:
        text = _EMPTY_GROUP.sub(" ", text)
    if "*" in text or "_" in text or "`" in text:
        text = _strip_outer(_remove_emphasis(text.strip()))
    text = _THOUSANDS_MARK.sub(" ", text)
    if "\\" in text:
        text = _normalize_commands(_ROOT_OF.sub(r"\\sqrt[\1]", text))
    if "/" in text and "^" in text:
        text = _SLASHED.sub(r"\\frac{\1}{\2}", text)
    if "mod" in text:
        text = _MODULUS.sub(lambda m: rf" \pmod{{{next(filter(None, m.groups())).strip()}}}", text)
    if "loor" in text or "eil" in text or "abs" in text or "Abs" in text:
        text = _replace_bracket_names(text)
    text = text.replace("$", "").replace("~", " ").replace("**", "^")
    if "nfinity" in text:
        text = _INFINITY.sub(lambda m: r"-\infty " if m[1] else r"\infty ", text)
    for plain, latex in _PLAIN_OPERATORS:
        text = text.replace(plain, latex)
    text = _PLAIN_FUNCTION.sub(
        lambda m: r"\infty " if m[1] in ("infinity", "Infinity", "infty", "inf", "oo") else f"\\{m[1]} ", text
    )
    if "^" in text or "_" in text or "\\" in text:
        text = _normalize_scripts(text)
    if "[" in text or "]" in text:
        text = _FRENCH_INTERVAL.sub(_replace_french_interval, text)
    return _strip_outer(_BRACKET_SPACING.sub("", _SPACES.sub(" ", text).strip()))


def compact(text: str) -> str:
    r"""Remove the meaningless spaces of a normalized string. Those between digits and after a command stay."""
    return _MEANINGLESS_SPACE.sub("", text)


def has_hidden_characters(text: str) -> bool:
    """Does the text hold control, format (zero-width, right-to-left), surrogate or private characters?

    With them the visible text is not the actual text.
    """
    return not text.isprintable() and any(unicodedata.category(c)[0] == "C" and c not in "\n\t\r" for c in text)


def find_closing(text: str, start: int, kinds: str = "()[]{}") -> int:
    """Return the index of the bracket that closes the one at `start`, or -1. All kinds count alike: `[0,1)` closes."""
    depth = 0
    for match in _BRACKET.finditer(text, start):
        if match.group()[-1] not in kinds:
            continue
        if match.group()[-1] in "([{":
            depth += 1
        else:
            depth -= 1
            if depth == 0:
                return match.end() - 1
            if depth < 0:
                return -1
    return -1


def _replace_french_interval(match: re.Match[str]) -> str:
    opening, ends, closing = match.groups()
    return ("(" if opening == "]" else "[") + ends + (")" if closing == "[" else "]")


def _remove_emphasis(text: str) -> str:
    """Remove Markdown emphasis around the entire answer (`**C**`, `_C_`), and bold around words in it."""
    match = _EMPHASIZED.fullmatch(text)
    if match and match.group(1) not in match.group(2):
        text = match.group(2)
    return _BOLD_PART.sub(r"\1", text)


def _replace_bracket_names(text: str) -> str:
    r"""`floor(x)`, `\operatorname{ceil}(x)`, `abs(x)` -> `\lfloor x \rfloor`, `\lceil x \rceil`, `|x|`."""
    position = 0
    while match := _BRACKET_NAME.search(text, position):
        opening, closing = _NAMED_BRACKETS[match.group(1).lower()]
        end = find_closing(text, match.end())
        if end < 0:
            return text
        text = text[: match.start()] + opening + text[match.end() + 1 : end] + closing + text[end + 1 :]
        position = match.start() + len(opening)
    return text


def _normalize_commands(text: str) -> str:
    if "\\\\" in text:
        text = _MATRIX_SPACING.sub(r"\\\\ ", text)
    text = _BARE_STYLE.sub(r"\\\1{\2}", text)
    text = _UNIT_FRACTION.sub(r"\1/(\2)", _ROMAN.sub(lambda m: rf"\mathrm{{{m[1] or m[2]}}}", text))
    for _ in range(3):  # nested \text{\textbf{..}}
        text, count = _TEXT.subn(_replace_text_group, text)
        if not count:
            break
        text = text.replace("\\\x01", "\\text")
    return _COMMAND.sub(_replace_command, _STYLE.sub(" ", text.replace("\x01", "\\text")))


def _replace_text_group(match: re.Match[str]) -> str:
    r"""Replace a \text-like group: a function name by its command, mathematics by its content, the rest by \text{...}.

    Mathematics: digits, a formula without words, and a single letter. After a value, units stay text, and so do letters
    other than the constants `e` and `i`.
    """
    command, raw_content = match.groups()
    content = _SPACES.sub(" ", _SPACED.sub(" ", raw_content.replace(r"\$", "").replace("$", ""))).strip()
    before = _SPACING.sub("", match.string[max(0, match.start() - 40) : match.start()])[-1:]
    after_value = before.isalnum() or before in (")", "]", "}", "%", "°")
    if content in ("", "%", r"\%", ","):
        return f" {content}"
    if after_value and (joined := _JOINED.fullmatch(content)) and match.end() < len(match.string):
        separator = "," if joined[2] == "," else f" \x01{{{joined[2].lstrip(', ')}}} "
        return f" \x01{{{joined[1]}}}{separator}"
    if after_value and command in _PLAIN_TEXT and _is_last_unit(content, match):
        return f" \x01{{{content}}} "
    if _CHOICE_LABEL.fullmatch(content) and not match.string[: match.start()].strip():
        return f" \x01{{{content}}} "
    if content in FUNCTIONS:
        return f"\\{content} "
    if content in ("infinity", "Infinity"):
        return r"\infty "
    upright = command not in ("text", "mbox", "hbox", "textrm", "textnormal", "textbf", "textit")
    if upright and (len(content) == 1 or content[0] == "\\") and raw_content[:1] not in ("~", " "):
        return f" {content}" if before.isalpha() else content  # `\in\mathbf{Z}`
    if content[0] in "0123456789-.(" and not re.search(r"[A-Za-z]", content):
        return content
    if content[0] in "0123456789" or content in ("e", "i"):
        return content
    if not after_value:
        letters = re.sub(r"\\[A-Za-z]+", "", content)
        single = len(content) == 1 and content.isalpha()
        if single or (_MATHEMATICS.search(content) and not re.search(r"[A-Za-z]{2}", letters)):
            return content
    return f" \x01{{{content}}} "


def _is_last_unit(content: str, match: re.Match[str]) -> bool:
    r"""Is the content a unit, with no term, relation or open brace after it? In `\frac{3\mathrm{m}}{2}` it is none."""
    rest = match.string[match.end() :]
    return len(rest) < 100 and not _TERM.search(rest) and rest.count("{") == rest.count("}") and is_unit(content)


def _replace_command(match: re.Match[str]) -> str:
    name, escaped = match.groups()
    if name is None:
        return ESCAPES.get(escaped, match.group())
    if name in SYNONYMS:
        return SYNONYMS[name]
    if name in IGNORED_COMMANDS and not (name == "text" and match.string[match.end() : match.end() + 1] == "{"):
        return " "
    return match.group()


def _normalize_scripts(text: str) -> str:
    text = _DEGREES.sub("°", text)
    text = _brace_fraction_arguments(text)
    text = _SQRT.sub(lambda m: f"\\sqrt{m.group(1) or ''}{{{m.group(2)}}}", text)
    text = re.sub(r"\\sqrt\s*\(([^()]{1,200})\)", r"\\sqrt{\1}", text)
    text = re.sub(r"\\sqrt\s+([\[{])", r"\\sqrt\1", text)
    text = _LOG_DIGITS.sub(r"\\log_\1 \2", text)
    text = _POWER_DIGITS.sub(r"\1{\2}", text)
    text = _POWER_PAREN.sub(r"^{\1}", text)
    return _SINGLE_SCRIPT.sub(r"\1\2", text)


def _brace_fraction_arguments(text: str) -> str:
    r"""Brace `\frac12`, `\frac9{5}`, `\frac{24}5` and `\frac 1 2` as `\frac{..}{..}`, the inner ones first."""
    matches = list(_FRACTION_START.finditer(text)) if text.count("\\frac") <= 60 else []
    for match in reversed(matches):
        first, after = _argument(text, match.start(2))
        second, after = _argument(text, after)
        if first is not None and second is not None:
            text = f"{text[: match.start()]}\\{match[1]}{{{first}}}{{{second}}}{text[after:]}"
    return text


def _argument(text: str, start: int) -> tuple[str | None, int]:
    """Return the TeX argument at `start` (a braced group without braces, a character, a command) and its end."""
    while start < len(text) and text[start] == " ":
        start += 1
    if start >= len(text):
        return None, start
    if text[start] == "{":
        end = find_closing(text, start)
        return (text[start + 1 : end].strip(), end + 1) if end > 0 else (None, start)
    if text[start] == "\\":
        command = _LETTER_COMMAND.match(text, start)
        return (command.group(), command.end()) if command else (None, start)
    return (text[start], start + 1) if text[start].isalnum() else (None, start)


def _strip_outer(text: str) -> str:
    """Remove outer punctuation and layout, a leading `=` or `:`, and braces around the entire text."""
    for _ in range(4):
        before = text
        text = _without_layout(text)
        if len(text) > 2 and text[0] == text[-1] == '"':
            text = text[1:-1]
        if text.startswith("{") and find_closing(text, 0, "{}") == len(text) - 1 and not text.endswith("\\}"):
            text = text[1:-1]
        if text.startswith("\\"):
            text = _without_wrapper(text)
        if text == before:
            break
    return text


def _without_wrapper(text: str) -> str:
    """Remove a style around an entire formula, and an environment around its only row."""
    if (style := _STYLED.match(text)) and find_closing(text, style.end()) == len(text) - 1:
        inner = text[style.end() + 1 : -1]
        return inner if _FORMULA_INSIDE.search(inner) or (style[1] and _OPERATOR.search(inner)) else text
    if (display := _DISPLAY.fullmatch(text)) and "\\\\" not in (row := _without_layout(display[2])):
        row = _ALIGNED.sub("", row)
        return text if "&" in row else row
    return text


def _without_layout(text: str) -> str:
    start = _LEADING.match(text)
    text = text[start.end() :] if start else text
    end = len(text.rstrip(_PRINTED_LAST))
    while match := _TRAILING.search(text, max(0, end - 20), end):
        end = len(text[: match.start()].rstrip(_PRINTED_LAST))
    return text[:end]
