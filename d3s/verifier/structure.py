r"""Outer structure of an answer: list, tuple, interval, set, union, matrix, relation or formula.

Only brackets, separators and relation signs at the top level are read. The text between them is left to the number
parser and, in the worker, to the LaTeX parser.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

from d3s.verifier.normalize import compact, find_closing
from d3s.verifier.units import split_unit

MAX_ITEMS = 200
_MATRIX = re.compile(
    r"\\begin\s*\{([pbvBV]?matrix|smallmatrix|array)\}\s*(?:\{[lcr|\s]*\})?(.*?)\\end\s*\{\1\}", re.DOTALL
)
_TRANSPOSE = re.compile(r"(.{3,400}[)\]}])\s*\^\s*(?:T|\\top|\{\s*(?:T|\\top|\\mathrm T)\s*\})", re.DOTALL)
_CASES = re.compile(
    r"(?:\\\{\s*)?\\begin\s*\{(cases|array|aligned|gathered)\}\s*(?:\{[lcr]\})?(.*?)\\end\s*\{\1\}\.?", re.DOTALL
)
_IF = re.compile(r"\\text\{\s*(?:if|for|when|otherwise|else)\b")
_SIGN_FIRST = re.compile(r"\s*(?:[=<>]|\\(?:[gln]eq|in|approx)(?![A-Za-z]))")
_CONDITION_WORDS = re.compile(r"\\text(?=\{)|(?<=\{)\s*(?:if|for|when)\b|[{}]|\bis\b")
_WORD_SEPARATOR = re.compile(r"\\text\{\s*(?:,\s*)?(and|or)\s*\}|(?<![A-Za-z\\{])(and|or)(?![A-Za-z}])")
_RELATIONS = re.compile(r"\\(?:leq|geq|neq|in|approx|equiv|su[bp]set(?:eq)?)(?![A-Za-z])|[=<>]")
_TOKEN = re.compile(r"\\[A-Za-z]+|\\.|[A-Za-z]+|.", re.DOTALL)
_OPEN = frozenset(["(", "[", "{", r"\{", r"\begin", r"\lfloor", r"\lceil", r"\langle"])
_CLOSE = frozenset([")", "]", "}", r"\}", r"\end", r"\rfloor", r"\rceil", r"\rangle"])
_SUCH_THAT = re.compile(
    r"[A-Za-z]\s*(?:\\in\s*\\mathbb\s*\{R\}\s*)?(?:\\mid(?![A-Za-z])|\\?\||:)"
)  # `x |` of `{x | ...}`
_INDEXED = r"(?:_(?:[0-9A-Za-z]|\\[A-Za-z]+|\{[^{}]{1,40}\}))?"
_ARGUMENT = r"\(\s*(?:[^()=]|\([^()=]{0,30}\)){1,40}\s*\)"
_LETTERS = r"(?:[A-Za-z]|\\(?!frac|sqrt|pi(?![A-Za-z])|infty|text)[A-Za-z]+\s*(?:\{[A-Za-z]{1,4}\})?)"
_NAME = re.compile(
    # x, a_1, f(x), \theta, v'
    rf"{_LETTERS}{_INDEXED}'*(?:\^\{{?(?:\\prime|\*|')+\}}?)?{_INDEXED}\s*(?:{_ARGUMENT})?"
    # f^{-1}(x), A^{-1}, dy/dx, \sin\theta, \Delta x, \max f, E[X]
    rf"|{_LETTERS}{_INDEXED}\^\{{-1\}}\s*{_ARGUMENT}|[A-Z]\^\{{-1\}}"
    r"|\\frac\{\s*(?:d|\\partial)\s*[A-Za-z]?\s*\}\{\s*(?:d|\\partial)\s*[A-Za-z]\s*\}(?:\s*[A-Za-z](?:\([a-z]\))?)?"
    rf"|\\(?:sin|cos|tan|cot|sec|csc)\s*(?:\\angle\s*)?(?:[A-Z]{{1,3}}|{_LETTERS}{_INDEXED})"
    rf"|\\(?:Delta|delta|max|min|det|deg|dim|sup|inf)\s*{_LETTERS}{_INDEXED}(?:{_ARGUMENT})?"
    rf"|{_LETTERS}\[\s*{_LETTERS}\s*\]|\\text\{{[A-Za-z]{{2,10}}\}}\s*{_ARGUMENT}|\[\s*[A-Z]{{3,6}}\s*\]"
    # |AB|, \angle ABC
    rf"|\\?\|\s*(?:[A-Za-z]{{1,3}}|{_LETTERS}{_INDEXED})\s*\\?\|"
    r"|\\(?:angle|triangle|overline|widehat|vec|overrightarrow)\s*\{?\s*[A-Z]{1,4}\s*\}?"
    rf"|m\s*\\angle\s*[A-Z]{{1,3}}|(?:[A-Z]{_INDEXED}\s*){{2,4}}|P\s*\(.{{1,30}}\)|\\text\{{[^{{}}]{{1,60}}\}}[A-Za-z]?"
    rf"|[A-Za-z]{{1,4}}{_INDEXED}(?:\s*:\s*[A-Za-z]{{1,4}}{_INDEXED}){{1,3}}"
    r"|[A-Za-z]{4,20}(?: [A-Za-z]{2,20}){0,4}"
)
_VECTOR = re.compile(r"\\(?:vec\s*(?:\{\s*([A-Za-z])\s*\}|([A-Za-z]))|hat\s*(?:\{\s*([ijk])\s*\}|([ijk])))")
_UNIT_VECTOR = re.compile(r"\\(?:vec|hat)\s*(?:\{\s*([ijk])\s*\}|([ijk])(?![A-Za-z]))")
_COMPONENT = re.compile(
    r" ?([-+]?) ?((?:[^-+ijk{}()\\]|\\(?:frac|sqrt|pi)|\{[^{}ijk]*\}|\([^()ijk]*\)){0,60}?)"
    r" ?(?:\\(?:hat|vec) ?\{? ?(?:\\[ij]math)?)?([ijk]) ?\}? ?"
)
_CAPITALS = re.compile(r"[A-Z]{2,4}")
_FIGURE = re.compile(r"\\(?:overline|angle|triangle)\s*\{?\s*([A-Z]{2,4})\s*\}?")


@dataclass(frozen=True)
class Structure:
    """The kind of an answer and the texts of its parts.

    kind: list (unordered), groups (list of lists), bracket (tuple or interval), set, union, matrix, relation, formula,
    piecewise (values and conditions in turn).
    style: the brackets of a bracket, such as `[)`; the size of a matrix, such as `2x3`, or `det2x2` of a determinant.
    signs: the signs between the items of a relation, the words between those of a list.
    """

    kind: str
    items: tuple[str, ...]
    style: str = ""
    signs: tuple[str, ...] = ()


@lru_cache(maxsize=4096)
def parse_structure(text: str) -> Structure:
    """Parse a normalized answer."""
    text = text.strip()
    if structure := _parse_transpose(text) or _parse_matrix(text) or _parse_cases(text):
        return structure
    parts, separators = split_words(text)
    if not all(parts):
        return Structure("formula", (text,))
    semicolons = [part for piece in parts for part in split_top(piece, ";")]
    if len(semicolons) > 1 and all("," in part or "=" in part for part in semicolons):
        inner = [split_top(part, ",") for part in semicolons]
        if len({len(group) for group in inner}) == 1 and len(inner[0]) > 1:
            return Structure("groups", tuple(semicolons))
    pieces = [part.strip() for piece in semicolons for part in split_top(piece, ",")]
    pieces = [re.sub(r"^(?:\\text\{\s*and\s*\}|and )", "", piece).strip() for piece in pieces if piece.strip()]
    if len(pieces) > MAX_ITEMS:
        return Structure("formula", (text,))
    if len(pieces) > 1:
        is_union = separators == {"or"} and any(map(_has_inequality, pieces)) and all(map(_RELATIONS.search, pieces))
        return Structure("union" if is_union else "list", tuple(pieces), signs=tuple(sorted(separators)))
    text = pieces[0] if pieces else text
    return (
        _parse_brackets(text)
        or _parse_relation(text)
        or _parse_union(text)
        or _parse_plus_minus(text)
        or Structure("formula", (text,))
    )


def split_top(text: str, separator: str) -> list[str]:
    """Split at a separator outside all brackets. All kinds of brackets count alike."""
    if separator not in text:
        return [text]
    return _split_at(text, lambda token: token == separator)[0]


def _split_at(text: str, separates: Callable[[str], object]) -> tuple[list[str], list[str]]:
    """Return the parts between the separating tokens outside all brackets, and these tokens."""
    parts, separators, depth, start = [], [], 0, 0
    for match in _TOKEN.finditer(text):
        token = match.group()
        if token in _OPEN:
            depth += 1
        elif token in _CLOSE:
            depth -= 1
        elif depth == 0 and separates(token):
            parts.append(text[start : match.start()])
            separators.append(token)
            start = match.end()
    return [*parts, text[start:]], separators


def split_words(text: str) -> tuple[list[str], set[str]]:
    """Split at top-level `and` and `or`. Return the parts, and which of the two words occurred."""
    if "and" not in text and "or" not in text:
        return [text], set()
    parts, separators, start = [], set(), 0
    for match in _WORD_SEPARATOR.finditer(text):
        if text.count("{", 0, match.start()) == text.count("}", 0, match.start()):
            parts.append(text[start : match.start()].strip().rstrip(","))
            separators.add(match.group(1) or match.group(2))
            start = match.end()
    parts.append(text[start:].strip())
    if len(parts) > 1 and any(
        re.search(r"[A-Za-z]{3,} [A-Za-z]{2,}", part.replace("\\text", "")) and not split_unit(part)[0].isdigit()
        for part in parts
    ):
        return [text], set()  # a sentence, not a list such as `3 red balls and 4 blue balls`
    return ([part for part in parts if part] if len(parts) > 1 else [text]), separators


def split_relation(text: str) -> tuple[list[str], list[str]]:
    r"""Split a top-level chain such as `0 < x \leq 1` into its sides and its signs."""
    if not _RELATIONS.search(text):
        return [text], []
    sides, signs = _split_at(text, _RELATIONS.fullmatch)
    return [side.strip() for side in sides], signs


def is_name(text: str) -> bool:
    r"""Is the text a lone ASCII name, as on the left of `x = 5`, `f(x) = ..`, `|AB| = ..`, `\text{Area} = ..`?"""
    return (
        len(text) <= 80
        and text.isascii()
        and _NAME.fullmatch(text.strip()) is not None
        and compact(text) not in ("e", "i")
    )


def unit_vectors(text: str) -> tuple[str, ...] | None:
    r"""Return the components of `3\hat{i} - 2\hat{j}` or `i + 2j + k`, two without a k; None for anything else."""
    components, position = {}, 0
    while match := _COMPONENT.match(text, position):
        sign, factor, letter = match.groups()
        if letter in components or (position and not sign):
            return None
        components[letter] = sign.replace("+", "") + (factor.strip() or "1")
        position = match.end()
    if position < len(text) or len(components) < 2:
        return None
    return tuple(components.get(letter, "0") for letter in ("ijk" if "k" in components else "ij"))


def is_set_operation(text: str) -> bool:
    """Does a normalized answer combine or name sets? Such answers are compared as sets of numbers."""
    return any(sign in text for sign in (r"\cup", r"\cap", r"\setminus", r"\emptyset", r"\mathbb"))


def without_marks(gold: str, answer: str) -> tuple[str, str]:
    r"""Remove the marks of `\vec{v}`, `\hat{i}`, `\overline{AB}` and `\angle ABC` where the other side has none."""
    texts = [gold, answer]
    marks = [set(re.findall(r"\\(?:vec|hat)(?![A-Za-z])", text)) for text in texts]
    if marks[0] and marks[1] and marks[0] != marks[1]:
        texts = [_UNIT_VECTOR.sub(lambda m: m[1] or m[2], text) for text in texts]
    for marked, other in ((0, 1), (1, 0)):
        if _VECTOR.search(texts[marked]) and not re.search(r"\\(?:vec|hat)", texts[other]):
            texts[marked] = _VECTOR.sub(lambda m: next(filter(None, m.groups())), texts[marked])
        elif (figure := _FIGURE.fullmatch(texts[marked])) and _CAPITALS.fullmatch(texts[other]):
            texts[marked] = figure[1]
    return texts[0], texts[1]


def _parse_transpose(text: str) -> Structure | None:
    """Parse the transpose of a written matrix, or of a row in brackets: `[1,2]^T` is a column."""
    match = _TRANSPOSE.fullmatch(text)
    inner = parse_structure(match[1]) if match else None
    if inner is None or inner.kind not in ("matrix", "bracket") or inner.style.startswith("det"):
        return None
    rows, columns = map(int, inner.style.split("x")) if inner.kind == "matrix" else (1, len(inner.items))
    items = tuple(inner.items[row * columns + column] for column in range(columns) for row in range(rows))
    return Structure("matrix", items, f"{columns}x{rows}")


def _parse_matrix(text: str) -> Structure | None:
    inner = text
    if text.startswith(("(", "[")) and find_closing(text, 0) == len(text) - 1:
        inner = text[1:-1].strip()
    match = _MATRIX.fullmatch(inner)
    if not match or (match.group(1) == "array" and inner is text):
        return None
    rows = [row.strip() for row in match.group(2).split("\\\\")]
    while rows and not rows[-1]:
        rows.pop()
    cells = [tuple(cell.strip() for cell in row.split("&")) for row in rows]
    if not cells or len({len(row) for row in cells}) != 1 or len(cells) * len(cells[0]) > MAX_ITEMS:
        return None
    style = f"{'det' if match.group(1)[0] in 'vV' else ''}{len(cells)}x{len(cells[0])}"
    return Structure("matrix", tuple(cell for row in cells for cell in row), style)


def _parse_cases(text: str) -> Structure | None:
    r"""Parse a cases environment: rows `x & \text{if } x > 0` or `x, & x > 0` as piecewise, equations as a list."""
    match = _CASES.fullmatch(text)
    rows = [row for row in map(str.strip, match.group(2).split("\\\\")) if row] if match else []
    cells = [_value_and_condition(row) for row in rows]
    if len(cells) > 1 and all(map(all, cells)):
        return Structure("piecewise", tuple(text for pair in cells for text in pair))
    lines = [line for row in rows if (line := row.replace("&", "").strip(" ,"))]
    return Structure("list", tuple(lines)) if len(lines) > 1 and all(map(_parse_relation, lines)) else None


def _value_and_condition(row: str) -> tuple[str, str]:
    """Split a row at its `&` or before its `if`; "" for what it lacks."""
    value, mark, condition = row.partition("&")
    if not mark and (match := _IF.search(row)):
        value, condition = row[: match.start()], row[match.start() :]
    says_when = _RELATIONS.search(condition) or "\\text" in condition
    if "&" in condition or not says_when or _SIGN_FIRST.match(condition):
        return "", ""
    return value.strip(" ,"), " ".join(_CONDITION_WORDS.sub(" ", condition).split()).strip(" ,.;")


def _parse_brackets(text: str) -> Structure | None:
    r"""Parse `(a,b)`, `[a,b)`, `\{a,b\}`. Brackets around a single item are redundant unless they make a set."""
    if text.startswith(("(", "[")) and find_closing(text, 0) == len(text) - 1:
        items = _split_items(text[1:-1])
        if len(items) == 1 and text[0] + text[-1] == "()":
            return parse_structure(items[0])
        if text[0] + text[-1] == "()" and (several := _parse_plus_minus(text)):  # `(\pm3,0)` are two points
            return several
        return Structure("bracket", items, text[0] + text[-1]) if len(items) > 1 and all(items) else None
    if text.startswith("\\{") and find_closing(text, 0) == len(text) - 1:
        content = text[2:-2].strip()
        if not content:
            return Structure("set", ())
        if prefix := _SUCH_THAT.match(content):
            return parse_structure(content[prefix.end() :].strip())
        return Structure("set", _split_items(content))
    return None


def _split_items(text: str) -> tuple[str, ...]:
    by_semicolon = split_top(text, ";")
    return tuple(map(str.strip, by_semicolon if len(by_semicolon) > 1 else split_top(text, ",")))


def _parse_relation(text: str) -> Structure | None:
    sides, signs = split_relation(text)
    return Structure("relation", tuple(sides), signs=tuple(signs)) if signs and all(sides) else None


def _parse_union(text: str) -> Structure | None:
    parts = tuple(part.strip() for part in split_top(text, r"\cup"))
    return Structure("union", parts) if len(parts) > 1 and all(parts) else None


def _parse_plus_minus(text: str) -> Structure | None:
    r"""Parse `3 \pm 2` as the list of both values. Several \pm are independent unless a \mp couples them."""
    pieces = re.split(r"\\(pm|mp)(?![A-Za-z])", text)
    signs = pieces[1::2]
    if not signs or len(signs) > 3:
        return None
    coupled = zip(*("+-" if sign == "pm" else "-+" for sign in signs))
    values = []
    for choice in coupled if "mp" in signs else product("+-", repeat=len(signs)):
        terms = (piece if i % 2 == 0 else choice[i // 2] for i, piece in enumerate(pieces))
        values.append("".join(terms).strip().removeprefix("+"))
    return Structure("list", tuple(values))


def _has_inequality(text: str) -> bool:
    return any(sign in text for sign in ("<", ">", "\\leq", "\\geq"))
