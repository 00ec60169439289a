r"""Do two answers say the same? Layers from cheap to dear, each deciding what it can and passing on the rest.

1. spelling     equal canonical strings
2. numbers      written-out numbers: exact value, per cent, degrees, units, bases (d3s/verifier/quantities.py)
3. words        text, choice letters, clock times (d3s/verifier/words.py)
4. shape        lists, tuples, intervals, sets, unions, matrices, relations: item by item, in order where it matters
5. formula      whatever is left is one formula against another: with sympy (d3s/verifier/symbolic.py, in a worker)

Every function answers True, False, or None for "a formula comparison would be needed". Layers 1 to 4 are bounded and
run anywhere; layer 5 is handed in as `formulas`, and is absent in the calling process.
"""

import re
from collections.abc import Callable, Iterable
from fractions import Fraction

from d3s.verifier.normalize import LONGEST_ANSWER, canonical, compact
from d3s.verifier.quantities import (
    Quantity,
    equal_quantities,
    quantity,
    split_unit,
    strip_lead,
    without_description,
    without_letter_unit,
)
from d3s.verifier.structure import (
    FLIPPED,
    Structure,
    distance,
    interval_of,
    is_name,
    is_set_operation,
    shape,
    split_top,
    without_marks,
)
from d3s.verifier.words import Verdict, equal_words

Formulas = Callable[[str, str], Verdict]
MAX_DEPTH = 6
MAX_UNORDERED = 40  # items; longer lists are compared in order

_PLAIN = re.compile(r"-?[0-9]{1,400}(?:\.[0-9]{1,40})?")
_GROUPS = re.compile(r"[0-9]{1,3}(?:,[0-9]{3})+")
_LETTER = re.compile(r"[A-Za-z]")
_SUM_OF_NAMES = re.compile(r"[A-Za-z](?:\s*\+\s*[A-Za-z]){1,5}")


def unknown(gold: str, answer: str) -> Verdict:
    """The formula layer of a process without sympy: it cannot tell."""
    return None


def equivalent(gold: str, answer: str, formulas: Formulas = unknown) -> Verdict:
    """Is `answer` the same mathematical answer as `gold`? Raw texts in; None only when `formulas` answers None.

    Not symmetric in one respect: precision and form are those of the gold answer.
    """
    if _PLAIN.fullmatch(gold) and _PLAIN.fullmatch(answer):
        return gold == answer or Fraction(gold) == Fraction(answer)
    gold, answer = canonical(gold), canonical(answer)
    if not gold or not answer:
        return False
    if len(gold) > LONGEST_ANSWER or len(answer) > LONGEST_ANSWER:
        return gold == answer
    return _equal(gold, answer, formulas, 0)


def all_of(verdicts: Iterable[Verdict]) -> Verdict:
    """Three-valued "and": False as soon as one is False."""
    result: Verdict = True
    for verdict in verdicts:
        if verdict is False:
            return False
        if verdict is None:
            result = None
    return result


def any_of(verdicts: Iterable[Verdict]) -> Verdict:
    """Three-valued "or": True as soon as one is True."""
    result: Verdict = False
    for verdict in verdicts:
        if verdict:
            return True
        if verdict is None:
            result = None
    return result


def _equal(gold: str, answer: str, formulas: Formulas, depth: int) -> Verdict:
    if compact(gold) == compact(answer):
        return bool(gold)
    if depth > MAX_DEPTH:
        return False
    gold, stated = _exact_side(without_description(strip_lead(gold)))
    answer, _ = _exact_side(strip_lead(answer))
    gold, answer = _without_conditions(gold, answer)
    if not gold or not answer:
        return False
    number = quantity(gold)
    other = quantity(without_letter_unit(answer, number) if number else answer)
    if other and other.step is not None and stated and equal_quantities(stated, other):
        return True  # `\sqrt{2} \approx 1.41` states both
    if number and other:
        if equal_quantities(number, other):
            return True
        return _as_lists(gold, answer, formulas, depth) if _is_grouped(gold) and _is_grouped(answer) else False
    worded = equal_words(gold, answer)
    if worded is not None:
        return worded
    return _equal_shapes(gold, answer, formulas, depth)


def _is_grouped(text: str) -> bool:
    return _GROUPS.fullmatch(text.replace(", ", ",")) is not None


def _as_lists(gold: str, answer: str, formulas: Formulas, depth: int) -> Verdict:
    """`108,135` is one number or two: both sides as lists."""
    return _unordered(gold.split(","), answer.split(","), formulas, depth)


_CONDITION = re.compile(
    r"(.*[^,\s(])[,\s]*\(?\s*(?:\\text\{\s*(?:where|for|with)\s*\}\s*)?([a-zA-Z])\s*\\in\s*(\\mathbb\s*\{[ZN]\})\s*\)?"
)


def _without_conditions(gold: str, answer: str) -> tuple[str, str]:
    r"""`k\pi, k \in \mathbb{Z}` -> `k\pi`, unless both sides state different conditions."""
    if r"\mathbb" not in gold and r"\mathbb" not in answer:
        return gold, answer
    ours, theirs = (_CONDITION.fullmatch(text) for text in (gold, answer))
    if ours and theirs and compact(ours[3]) != compact(theirs[3]):
        return gold, answer
    bare = [match[1].rstrip() if match and match[2] in match[1] else None for match in (ours, theirs)]
    return bare[0] or gold, bare[1] or answer


def _exact_side(text: str) -> tuple[str, Quantity | None]:
    r"""`\sqrt{2} \approx 1.41` states an exact value, and a decimal beside it; `x \approx 1.41` only the decimal."""
    if "\\approx" not in text:
        return text, None
    sides = [side.strip() for side in split_top(text, "\\approx")]
    if not sides[0] or is_name(sides[0]):
        return sides[-1], None
    decimal = quantity(sides[-1]) if len(sides) > 1 else None
    return sides[0], decimal if decimal and decimal.step is not None else None


# ---------------------------------------------------------------------------------------------------------------- shape


def _equal_shapes(gold: str, answer: str, formulas: Formulas, depth: int) -> Verdict:
    left, right = _unnamed_list(shape(gold)), _unnamed_list(shape(answer))
    left = _as_solutions(left, "[]")
    right = _as_solutions(right, "[]()" if left.kind in ("list", "set") else "[]")
    kinds = (left.kind, right.kind)
    if kinds == ("formula", "formula"):
        return _equal_formulas(left.items[0], right.items[0], formulas, depth)
    if kinds == ("relation", "relation"):
        return _equal_relations(left, right, gold, answer, formulas, depth)
    if "relation" in kinds:
        return _relation_against_value(left, right, gold, answer, formulas, depth)
    if "matrix" in kinds or "groups" in kinds:
        return _equal_matrices_or_groups(left, right, formulas, depth)
    if kinds == ("union", "union") and _unordered(left.items, right.items, formulas, depth):
        return True
    if all(map(_may_be_set, (left, right))) and (is_set_operation(gold) or is_set_operation(answer)):
        return formulas(gold, answer)  # the same set written as different operations: `[0,2] \cap (1,3)`
    if "bracket" in kinds:
        return _equal_brackets(left, right, formulas, depth)
    if left.kind in ("list", "set") and right.kind in ("list", "set"):
        return _equal_lists(left, right, formulas, depth)
    several = right if left.kind == "formula" else left
    if len(several.items) == 1:
        return _equal(left.items[0], right.items[0], formulas, depth + 1)
    return False


def _as_solutions(found: Structure, styles: str) -> Structure:
    """`[(1,2), (3,4)]` is the list of its tuples; so is `((1,2), (3,4))` where the gold answer has no order."""
    if found.kind != "bracket" or found.style not in styles:
        return found
    inner = [shape(item) for item in found.items]
    tuples = all(item.kind == "bracket" and item.style == "()" for item in inner)
    return Structure("list", found.items) if tuples and len({len(item.items) for item in inner}) == 1 else found


def _has_sign(text: str) -> bool:
    r"""A per-cent or degree sign after the whole formula; in `\sin 30°` it belongs to the 30."""
    return text[-1:] in ("%", "°") and not re.search(r"\\(?:sin|cos|tan|cot|sec|csc)", text)


def _may_be_set(found: Structure) -> bool:
    return found.kind in ("union", "set", "bracket", "list") or is_set_operation(found.items[0])


def _equal_formulas(gold: str, answer: str, formulas: Formulas, depth: int) -> Verdict:
    """Two single formulas. A unit in words is dropped when only one side has one, or when both have the same."""
    (gold_core, gold_unit), (answer_core, answer_unit) = split_unit(gold), split_unit(answer)
    if (gold_unit or answer_unit) and gold_core and answer_core:
        if gold_unit and answer_unit and gold_unit != answer_unit and quantity(gold) and quantity(answer):
            return False
        if (gold_core, answer_core) != (gold, answer):
            return _equal(gold_core, answer_core, formulas, depth + 1)
    if _has_sign(gold) or _has_sign(answer):
        bare = [text[:-1].strip() if _has_sign(text) else text for text in (gold, answer)]
        verdict = _equal(*bare, formulas, depth + 1) if all(text and not _has_sign(text) for text in bare) else False
        if verdict or gold.endswith("°") == answer.endswith("°"):
            return verdict
        radians = [
            rf"\frac{{({b}) \pi}}{{180}}" if text.endswith("°") else text for text, b in zip((gold, answer), bare)
        ]
        return any_of((verdict, formulas(*radians)))
    if _LETTER.fullmatch(gold) and _LETTER.fullmatch(answer):
        return gold == answer
    if "\\" in gold or "\\" in answer:
        bare = without_marks(gold, answer)
        if bare != (gold, answer):
            return _equal(*bare, formulas, depth + 1)
    return formulas(gold, answer)


def _unnamed_list(found: Structure) -> Structure:
    """`x = 1, 2, 3` and `x = 1, x = 2` are the list of their values; so is `x \\in \\{1, 2\\}` after the caller
    strips it."""
    if found.kind not in ("list", "groups") or found.kind == "groups":
        return found
    named = [_assignment(item) for item in found.items]
    if named[0] and all(one is None and not _has_relation(item) for one, item in zip(named[1:], found.items[1:])):
        return Structure("list", (named[0][1], *found.items[1:]))
    names = {compact(one[0]) for one in named if one}
    if all(named) and len(names) == 1:
        return Structure("list", tuple(one[1] for one in named if one))
    return found


def _has_relation(text: str) -> bool:
    return shape(text).kind == "relation"


def _assignment(text: str) -> tuple[str, str] | None:
    """(name, value) of `x = 5`, `5 = x`, `x \\in S`, `(p,q) = (3,2)`; None for anything else."""
    found = shape(text)
    if found.kind != "relation" or len(found.items) != 2 or found.signs[0] not in ("=", r"\in", r"\approx"):
        return None
    left, right = found.items
    if _is_name_or_names(left):
        return left, right
    return (right, left) if found.signs[0] == "=" and is_name(right) else None


def _is_name_or_names(text: str) -> bool:
    if is_name(text):
        return True
    found = shape(text) if text.startswith("(") else None
    return found is not None and found.kind == "bracket" and all(is_name(item) for item in found.items)


def _equal_lists(left: Structure, right: Structure, formulas: Formulas, depth: int) -> Verdict:
    """Lists and sets: the same items in any order. Named items lose their names, in order, against unnamed ones."""
    if len(left.items) != len(right.items) and not any(r"\pm" in item for item in left.items + right.items):
        return False
    left_named, right_named = [_assignment(i) for i in left.items], [_assignment(i) for i in right.items]
    if all(left_named) != all(right_named) and (all(left_named) or all(right_named)):
        return _ordered(_values(left.items, left_named), _values(right.items, right_named), formulas, depth)
    return _unordered(_expand(left.items), _expand(right.items), formulas, depth)


def _values(items: tuple[str, ...], named: list[tuple[str, str] | None]) -> tuple[str, ...]:
    return tuple(one[1] for one in named if one) if all(named) else items


def _expand(items: Iterable[str]) -> list[str]:
    """Items with ± become two items."""
    out: list[str] = []
    for item in items:
        found = shape(item) if "\\pm" in item or "\\mp" in item else None
        out.extend(found.items if found and found.kind == "list" else [item])
    return out


def _ordered(left: Iterable[str], right: Iterable[str], formulas: Formulas, depth: int) -> Verdict:
    left, right = list(left), list(right)
    if len(left) != len(right):
        return False
    return all_of(_equal(a, b, formulas, depth + 1) for a, b in zip(left, right))


def _unordered(left: Iterable[str], right: Iterable[str], formulas: Formulas, depth: int) -> Verdict:
    """A one-to-one match between the items. Equality is transitive, so taking the first match never goes wrong."""
    left, rest = list(left), list(right)
    if len(left) != len(rest):
        return False
    if len(left) > MAX_UNORDERED:
        return all_of(_equal(a, b, formulas, depth + 1) for a, b in zip(left, rest))
    open_items: list[str] = []
    for item in left:  # cheap certain matches first, so that a formula comparison is only asked where it is needed
        match = next((i for i, other in enumerate(rest) if _equal(item, other, unknown, depth + 1)), None)
        if match is None:
            open_items.append(item)
        else:
            rest.pop(match)
    result: Verdict = True
    for item in open_items:
        verdicts: list[Verdict] = []
        for other in rest:
            verdicts.append(_equal(item, other, formulas, depth + 1))
            if verdicts[-1]:
                break
        verdict = any_of(verdicts)
        if verdict is False:
            return False
        if verdict is None:
            result = None
        else:
            rest.pop(len(verdicts) - 1)
    return result


def _equal_matrices_or_groups(left: Structure, right: Structure, formulas: Formulas, depth: int) -> Verdict:
    """Matrices entry by entry; a column or row vector equals the tuple of its entries. Groups: lists of ordered
    groups."""
    if left.kind == right.kind == "matrix":
        return left.style == right.style and _ordered(left.items, right.items, formulas, depth)
    if "matrix" in (left.kind, right.kind):
        matrix, other = (left, right) if left.kind == "matrix" else (right, left)
        vector = matrix.style in (f"{len(matrix.items)}x1", f"1x{len(matrix.items)}")
        if other.kind == "bracket" and other.style == "()" and vector:
            return _ordered(left.items, right.items, formulas, depth)
        if other.kind == "formula" and (not quantity(other.items[0]) or matrix.style.startswith("det")):
            return formulas(_rebuilt(left), _rebuilt(right))
        return False
    groups = [
        [f"({item})" if not item.startswith("(") else item for item in _group_items(side)] for side in (left, right)
    ]
    return _unordered(*groups, formulas, depth)


def _rebuilt(found: Structure) -> str:
    if found.kind != "matrix":
        return found.items[0]
    columns = int(found.style.rpartition("x")[2])
    rows = [" & ".join(found.items[i : i + columns]) for i in range(0, len(found.items), columns)]
    name = "vmatrix" if found.style.startswith("det") else "pmatrix"
    return rf"\begin{{{name}}}" + r" \\ ".join(rows) + rf"\end{{{name}}}"


def _group_items(found: Structure) -> list[str]:
    """`p=5, q=2` -> `5, 2`; other items as they are."""
    out = []
    for item in found.items:
        named = [_assignment(part) for part in split_top(item, ",")]
        out.append(", ".join(one[1] for one in named if one) if all(named) else item)
    return out


def _equal_brackets(left: Structure, right: Structure, formulas: Formulas, depth: int) -> Verdict:
    """Tuples and intervals: brackets and items agree, in order. `1, 2` in this order also answers `(1, 2)`."""
    if left.kind == right.kind == "bracket":
        return left.style == right.style and _ordered(left.items, right.items, formulas, depth)
    bracket, other = (left, right) if left.kind == "bracket" else (right, left)
    if other.kind == "list" and bracket.style == "()":
        return _ordered(_stripped(left), _stripped(right), formulas, depth)
    return False


def _stripped(found: Structure) -> tuple[str, ...]:
    named = [_assignment(item) for item in found.items]
    return _values(found.items, named)


# ------------------------------------------------------------------------------------------------------------ relations


def _relation_against_value(
    left: Structure, right: Structure, gold: str, answer: str, formulas: Formulas, depth: int
) -> Verdict:
    """`x = 5` against `5`, `0 < x < 1` against `(0,1)`, `2 + 3 = 5` against `5`: every side that is not a lone name
    counts."""
    relation = left if left.kind == "relation" else right
    value = answer if left.kind == "relation" else gold
    as_interval = interval_of(relation)
    if as_interval is not None:
        pair = (as_interval, value) if left.kind == "relation" else (value, as_interval)
        return _equal(*pair, formulas, depth + 1)
    if set(relation.signs) <= {"=", r"\in", r"\approx", r"\equiv"}:
        sides = [side for side in relation.items if not _is_name_or_names(side)]
        if relation is right and _SUM_OF_NAMES.fullmatch(sides[0] if sides else "") and quantity(gold):
            sides = sides[1:]  # `m + n = 809` answers what m + n is
        if not sides and len(relation.items) == 2:
            sides = [relation.items[1]]
        pairs = ((side, value) if left.kind == "relation" else (value, side) for side in sides)
        return all_of(_equal(*pair, formulas, depth + 1) for pair in pairs) if sides else False
    return formulas(gold, answer) if is_set_operation(value) else False


def _same_name(gold: str, answer: str) -> bool:
    """Equal names; `y` and `f(x)` both name the function that an answer `y = ...` describes."""
    names = {compact(gold), compact(answer)}
    return len(names) == 1 or ("y" in names and any(re.fullmatch(r"[A-Za-z]\(x\)", name) for name in names))


def _bounded_name(relation: Structure) -> str:
    """`x` of `0 < x < 1`, `x > 0`, `0 < x`, and `x \\in S`."""
    sides = relation.items[1:2] if len(relation.items) == 3 else relation.items
    if found := next(filter(None, map(distance, sides)), None):
        return found[1]
    return next((compact(side) for side in sides if is_name(side)), "")


def _equal_relations(
    left: Structure, right: Structure, gold: str, answer: str, formulas: Formulas, depth: int
) -> Verdict:
    """Two relations: the same sides (also turned round), the same interval of the same name, or equivalent as
    formulas."""
    if left.signs == right.signs and _ordered(left.items, right.items, unknown, depth):
        return True
    turned = tuple(FLIPPED.get(sign, sign) for sign in reversed(right.signs))
    if left.signs == turned and _ordered(left.items, right.items[::-1], unknown, depth):
        return True
    ours, theirs = _assignment(gold), _assignment(answer)
    if ours and theirs and r"\in" in left.signs + right.signs:
        return _equal(ours[1], theirs[1], formulas, depth + 1) if compact(ours[0]) == compact(theirs[0]) else False
    if ours and theirs and _same_name(ours[0], theirs[0]):
        return _equal(ours[1], theirs[1], formulas, depth + 1)
    intervals = interval_of(left), interval_of(right)
    names = [_bounded_name(left), _bounded_name(right)]
    if intervals[0] and intervals[1]:
        return _equal(intervals[0], intervals[1], formulas, depth + 1) if names[0] == names[1] else False
    if (intervals[0] and r"\in" in right.signs) or (intervals[1] and r"\in" in left.signs):
        values = [interval or shape_.items[-1] for interval, shape_ in zip(intervals, (left, right))]
        return _equal(values[0], values[1], formulas, depth + 1) if names[0] == names[1] else False
    return formulas(gold, answer)
