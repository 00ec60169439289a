r"""The outer shape of an answer: list, tuple, interval, set, union, matrix, relation, plain formula.

Only brackets, separators and relation signs at the top level are read here; what stands between them is left as text
for the number reader and, in the worker, for the LaTeX parser.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

from d3s.verifier.normalize import compact, matching
from d3s.verifier.quantities import quantity

MAX_ITEMS = 200
_MATRIX = re.compile(
    r"\\begin\s*\{([pbvBV]?matrix|smallmatrix|array)\}\s*(?:\{[lcr|\s]*\})?(.*?)\\end\s*\{\1\}", re.DOTALL
)
_CASES = re.compile(
    r"(?:\\\{\s*)?\\begin\s*\{(cases|array|aligned|gathered)\}\s*(?:\{[lcr]\})?(.*?)\\end\s*\{\1\}\.?", re.DOTALL
)
_WORD_SEPARATOR = re.compile(r"\\text\{\s*(?:,\s*)?(and|or)\s*\}|(?<![A-Za-z\\{])(and|or)(?![A-Za-z}])")
_RELATIONS = re.compile(r"\\(?:leq|geq|neq|in|approx|equiv|subset|subseteq)(?![A-Za-z])|[=<>]")
_TOKEN = re.compile(r"\\[A-Za-z]+|\\.|[A-Za-z]+|.", re.DOTALL)
_OPEN = frozenset(["(", "[", "{", r"\{", r"\begin", r"\lfloor", r"\lceil", r"\langle"])
_CLOSE = frozenset([")", "]", "}", r"\}", r"\end", r"\rfloor", r"\rceil", r"\rangle"])
FLIPPED = {"<": ">", ">": "<", r"\leq": r"\geq", r"\geq": r"\leq", "=": "=", r"\neq": r"\neq"}
_SUCH_THAT = re.compile(r"[A-Za-z]\s*(?:\\in\s*\\mathbb\s*\{R\}\s*)?(?:\\mid(?![A-Za-z])|\\?\||:)")  # {x | ...
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


@dataclass(frozen=True)
class Structure:
    """`kind`: list (unordered), groups (list of lists), bracket (tuple or interval, `style` its brackets), set,
    union, matrix,
    relation (items and `signs` between them), formula."""

    kind: str
    items: tuple[str, ...]
    style: str = ""
    signs: tuple[str, ...] = ()


@lru_cache(maxsize=4096)
def shape(text: str, commas: bool = True) -> Structure:
    """The outer shape of a canonical answer. `commas=False`: commas may be thousands separators and do not split."""
    text = text.strip()
    if found := _matrix(text) or _system(text):
        return found
    parts, words = split_words(text)
    if not all(parts):
        return Structure("formula", (text,))
    semicolons = [part for piece in parts for part in split_top(piece, ";")]
    if commas and len(semicolons) > 1 and all("," in part or "=" in part for part in semicolons):
        inner = [split_top(part, ",") for part in semicolons]
        if len({len(group) for group in inner}) == 1 and len(inner[0]) > 1:
            return Structure("groups", tuple(semicolons))
    pieces = [part.strip() for piece in semicolons for part in (split_top(piece, ",") if commas else [piece])]
    pieces = [re.sub(r"^(?:\\text\{\s*and\s*\}|and )", "", piece).strip() for piece in pieces if piece.strip()]
    if len(pieces) > MAX_ITEMS:
        return Structure("formula", (text,))
    if len(pieces) > 1:
        return Structure("union" if words == {"or"} and all(_inequality(p) for p in pieces) else "list", tuple(pieces))
    text = pieces[0] if pieces else text
    return (
        _bracketed(text, commas)
        or _relation(text)
        or _union(text)
        or _plus_minus(text)
        or Structure("formula", (text,))
    )


def _matrix(text: str) -> Structure | None:
    inner = text
    if text[:1] in "([" and text[:1] and matching(text, 0) == len(text) - 1:
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


def _system(text: str) -> Structure | None:
    """The equations of `\\begin{cases} x=1 \\\\ y=2 \\end{cases}`, as a list."""
    match = _CASES.fullmatch(text)
    lines = [line.replace("&", "").strip(" ,") for line in match.group(2).split("\\\\")] if match else []
    lines = [line for line in lines if line]
    return Structure("list", tuple(lines)) if len(lines) > 1 and all(map(_relation, lines)) else None


def _bracketed(text: str, commas: bool) -> Structure | None:
    """`(a,b)`, `[a,b)`, `\\{a,b\\}`; brackets around a single thing are redundant unless they make a set."""
    if text.startswith(("(", "[")) and matching(text, 0) == len(text) - 1:
        items = tuple(part.strip() for part in _split_any(text[1:-1])) if commas else (text[1:-1].strip(),)
        if len(items) == 1 and text[0] + text[-1] == "()":
            return shape(items[0], commas)
        return Structure("bracket", items, text[0] + text[-1]) if len(items) > 1 and all(items) else None
    if text.startswith("\\{") and matching(text, 0) == len(text) - 1:
        inside = text[2:-2].strip()
        if not inside:
            return Structure("set", ())
        if described := _SUCH_THAT.match(inside):
            return shape(inside[described.end() :].strip())
        return Structure("set", tuple(part.strip() for part in _split_any(inside)))
    return None


def _split_any(text: str) -> list[str]:
    by_semicolon = split_top(text, ";")
    return by_semicolon if len(by_semicolon) > 1 else split_top(text, ",")


def _relation(text: str) -> Structure | None:
    sides, signs = split_relation(text)
    return Structure("relation", tuple(sides), signs=tuple(signs)) if signs and all(sides) else None


def _union(text: str) -> Structure | None:
    parts = split_top(text, r"\cup")
    return (
        Structure("union", tuple(part.strip() for part in parts))
        if len(parts) > 1 and all(p.strip() for p in parts)
        else None
    )


def _plus_minus(text: str) -> Structure | None:
    r"""`3 \pm 2` is the list of both values; several \pm are independent unless a \mp couples them."""
    pieces = re.split(r"\\(pm|mp)(?![A-Za-z])", text)
    signs = pieces[1::2]
    if not signs or len(signs) > 3:
        return None
    if "mp" in signs:
        choices = [tuple("+-" if s == "pm" else "-+" for s in signs)]
        values = [tuple(pair[i] for pair in choices[0]) for i in (0, 1)]
    else:
        values = list(product("+-", repeat=len(signs)))
    made = []
    for value in values:
        made.append(
            "".join(piece if i % 2 == 0 else value[i // 2] for i, piece in enumerate(pieces)).strip().removeprefix("+")
        )
    return Structure("list", tuple(made))


def _inequality(text: str) -> bool:
    return any(sign in text for sign in ("<", ">", "\\leq", "\\geq"))


def split_top(text: str, separator: str) -> list[str]:
    """Split at a separator outside all brackets; every bracket kind counts alike."""
    if separator not in text:
        return [text]
    parts, depth, start = [], 0, 0
    for match in _TOKEN.finditer(text):
        token = match.group()
        if token in _OPEN:
            depth += 1
        elif token in _CLOSE:
            depth -= 1
        elif token == separator and depth == 0:
            parts.append(text[start : match.start()])
            start = match.end()
    parts.append(text[start:])
    return parts


def split_words(text: str) -> tuple[list[str], set[str]]:
    """Split at top-level `and` / `or`; also which of the two words occurred."""
    if "and" not in text and "or" not in text:
        return [text], set()
    parts, words, start = [], set(), 0
    for match in _WORD_SEPARATOR.finditer(text):
        if text.count("{", 0, match.start()) == text.count("}", 0, match.start()):
            parts.append(text[start : match.start()].strip().rstrip(","))
            words.add(match.group(1) or match.group(2))
            start = match.end()
    parts.append(text[start:].strip())
    if len(parts) > 1 and any(re.search(r"[A-Za-z]{3,} [A-Za-z]{2,}", part.replace("\\text", "")) for part in parts):
        return [text], set()  # a sentence, not a list
    return ([part for part in parts if part] if len(parts) > 1 else [text]), words


def split_relation(text: str) -> tuple[list[str], list[str]]:
    r"""Sides and signs of a top-level chain such as `0 < x \leq 1`."""
    if not _RELATIONS.search(text):
        return [text], []
    sides, signs, depth, start = [], [], 0, 0
    for match in _TOKEN.finditer(text):
        token = match.group()
        if token in _OPEN:
            depth += 1
        elif token in _CLOSE:
            depth -= 1
        elif depth == 0 and _RELATIONS.fullmatch(token):
            sides.append(text[start : match.start()].strip())
            signs.append(token)
            start = match.end()
    sides.append(text[start:].strip())
    return sides, signs


def is_name(text: str) -> bool:
    r"""A lone name, as on the left of `x = 5`, `f(x) = ..`, `|AB| = ..`, `a_3 = ..`, `\text{Area} = ..`; ASCII
    only."""
    return (
        len(text) <= 80
        and text.isascii()
        and _NAME.fullmatch(text.strip()) is not None
        and compact(text) not in ("e", "i")
    )


_VECTOR = re.compile(r"\\(?:vec\s*(?:\{\s*([A-Za-z])\s*\}|([A-Za-z]))|hat\s*(?:\{\s*([ijk])\s*\}|([ijk])))")
_UNIT_VECTOR = re.compile(r"\\(?:vec|hat)\s*(?:\{\s*([ijk])\s*\}|([ijk])(?![A-Za-z]))")
_CAPITALS = re.compile(r"[A-Z]{2,4}")
_FIGURE = re.compile(r"\\(?:overline|angle|triangle)\s*\{?\s*([A-Z]{2,4})\s*\}?")


def without_marks(gold: str, answer: str) -> tuple[str, str]:
    r"""`\vec{v}`, `\hat{i}`, `\overline{AB}` and `\angle ABC` without their marks, where the other side has none."""
    texts = [gold, answer]
    marks = [set(re.findall(r"\\(?:vec|hat)(?![A-Za-z])", text)) for text in texts]
    if marks[0] and marks[1] and marks[0] != marks[1]:
        texts = [_UNIT_VECTOR.sub(lambda m: m[1] or m[2], text) for text in texts]
    for marked, other in ((0, 1), (1, 0)):
        if _VECTOR.search(texts[marked]) and not re.search(r"\\(?:vec|hat)", texts[other]):
            texts[marked] = _VECTOR.sub(lambda m: next(filter(None, m.groups())), texts[marked])
        elif (found := _FIGURE.fullmatch(texts[marked])) and _CAPITALS.fullmatch(texts[other]):
            texts[marked] = found[1]
    return texts[0], texts[1]


_DISTANCE = re.compile(r"\|\s*([A-Za-z])\s*(?:([-+])\s*([^|]{1,60}))?\|")


def distance(text: str) -> re.Match[str] | None:
    """The distance `|x|` or `|x - a|` of one letter from a point: (letter, sign, point)."""
    return _DISTANCE.fullmatch(text.strip()) if "|" in text else None


def _around(found: re.Match[str], sign: str, radius: str) -> str | None:
    """The set of numbers that a distance below or above a written positive number describes."""
    size = quantity(radius)
    if size is None or size.value <= 0:
        return None
    center = found[3].strip() if found[3] else "0"
    low, high = -size.value, size.value
    if (point := quantity(center)) is not None:
        shift = point.value if found[2] == "-" else -point.value
        ends = [str(low + shift), str(high + shift)]
    else:
        minus = "" if found[2] == "-" else "-"
        ends = [f"{minus}({center})-({size.value})", f"{minus}({center})+({size.value})"]
    closed = sign in (r"\leq", r"\geq")
    if sign in ("<", r"\leq"):
        return f"{'[' if closed else '('}{ends[0]},{ends[1]}{']' if closed else ')'}"
    if closed:
        return rf"(-\infty,{ends[0]}]\cup[{ends[1]},\infty)"
    return rf"(-\infty,{ends[0]})\cup({ends[1]},\infty)"


def interval_of(relation: Structure) -> str | None:
    """The interval that `a < x <= b` or `x > a` describes, when exactly one side is a lone name; the interval or union
    of `|x - a| < b`."""
    items, signs = relation.items, relation.signs
    if len(items) == 2 and signs[0] in FLIPPED and signs[0] not in ("=", r"\neq"):
        for found, sign, radius in ((distance(items[0]), signs[0], 1), (distance(items[1]), FLIPPED[signs[0]], 0)):
            if found:
                return _around(found, sign, items[radius])
    if any(sign not in ("<", ">", r"\leq", r"\geq") for sign in signs) or len(items) > 3:
        return None
    if len(items) == 2 and is_name(items[1]) and not is_name(items[0]):
        items, signs = items[::-1], (FLIPPED[signs[0]],)
    if len(items) == 2 and is_name(items[0]) and not is_name(items[1]):
        closed = signs[0] in (r"\leq", r"\geq")
        if signs[0] in ("<", r"\leq"):
            return rf"(-\infty,{items[1]}{']' if closed else ')'}"
        return rf"{'[' if closed else '('}{items[1]},\infty)"
    if len(items) == 3 and is_name(items[1]):
        if signs[0] in (">", r"\geq"):
            items, signs = items[::-1], tuple(FLIPPED[sign] for sign in reversed(signs))
        if any(sign in (">", r"\geq") for sign in signs):
            return None
        opening, closing = "[" if signs[0] == r"\leq" else "(", "]" if signs[1] == r"\leq" else ")"
        return f"{opening}{items[0]},{items[2]}{closing}"
    return None


def is_set_operation(text: str) -> bool:
    """Does a canonical answer combine or name sets? Such answers are compared as sets of numbers."""
    return any(sign in text for sign in (r"\cup", r"\cap", r"\setminus", r"\emptyset", r"\mathbb"))
