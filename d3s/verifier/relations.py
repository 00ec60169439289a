"""Relations in answers: assignments, inequalities, distances; compared with relations and values.

Inequalities and distances are read as intervals.
"""

import re

from d3s.verifier.normalize import compact
from d3s.verifier.quantities import parse_quantity
from d3s.verifier.structure import Structure, is_name, is_set_operation, parse_structure
from d3s.verifier.verdict import Comparison, Verdict, all_of

FLIPPED = {"<": ">", ">": "<", r"\leq": r"\geq", r"\geq": r"\leq"} | {
    sign: sign for sign in ("=", r"\neq", r"\approx", r"\equiv")
}
FLIPPED |= {r"\subset": r"\supset", r"\supset": r"\subset", r"\subseteq": r"\supseteq", r"\supseteq": r"\subseteq"}
NEGATED = {"<": r"\geq", ">": r"\leq", r"\leq": ">", r"\geq": "<", "=": r"\neq", r"\neq": "="}
_DISTANCE = re.compile(r"\|\s*([A-Za-z])\s*(?:([-+])\s*([^|]{1,60}))?\|")
_SUM_OF_NAMES = re.compile(r"[A-Za-z](?:\s*\+\s*[A-Za-z]){1,5}")


def assignment(text: str) -> tuple[str, str] | None:
    r"""Return (name, value) of `x = 5`, `5 = x`, `x \in S` or `(p,q) = (3,2)`; None for anything else."""
    structure = parse_structure(text)
    if structure.kind != "relation" or len(structure.items) != 2 or structure.signs[0] not in ("=", r"\in", r"\approx"):
        return None
    left, right = structure.items
    if is_name_or_names(left):
        return left, right
    return (right, left) if structure.signs[0] == "=" and is_name(right) else None


def as_chain(structure: Structure) -> Structure:
    r"""`x \geq 2, x < 5` and `x < 5 \text{ and } x \geq 2` are `2 \leq x < 5`, unless the bounds are in no order."""
    parts = [parse_structure(item) for item in structure.items] if structure.kind == "list" else []
    if len(parts) != 2 or not all(part.kind == "relation" and len(part.items) == 2 for part in parts):
        return structure
    bounds = {}
    for (left, right), (sign,) in ((part.items, part.signs) for part in parts):
        if is_name(right) and not is_name(left):
            left, right, sign = right, left, FLIPPED.get(sign, "")
        if is_name(left):
            bounds[sign[:2] in (">", r"\g")] = (compact(left), sign, right)
    low, high = bounds.get(True), bounds.get(False)
    if not low or not high or low[0] != high[0] or high[1] not in ("<", r"\leq"):
        return structure
    numbers = parse_quantity(low[2]), parse_quantity(high[2])
    if numbers[0] and numbers[1] and numbers[0].value >= numbers[1].value:
        return structure  # `x < -1, x > 3` is a union
    return Structure("relation", (low[2], low[0], high[2]), signs=(FLIPPED[low[1]], high[1]))


def rows_of_cases(piecewise: Structure) -> list[tuple[str, str]]:
    """Return values and conditions of a piecewise function; of two rows, `otherwise` negates the other condition."""
    rows = [
        (value, "otherwise" if condition == "else" else condition)
        for value, condition in zip(piecewise.items[::2], piecewise.items[1::2])
    ]
    if len(rows) == 2 and rows[1][1] == "otherwise":
        condition = parse_structure(rows[0][1])
        if len(condition.signs) == 1 and (sign := NEGATED.get(condition.signs[0])):
            rows[1] = (rows[1][0], f"{condition.items[0]} {sign} {condition.items[1]}")
    return rows


def is_name_or_names(text: str) -> bool:
    """Is the text a lone name, or a tuple of names such as `(p,q)`?"""
    if is_name(text):
        return True
    structure = parse_structure(text) if text.startswith("(") else None
    return structure is not None and structure.kind == "bracket" and all(is_name(item) for item in structure.items)


def interval_of(relation: Structure) -> str | None:
    """Return the interval that `a < x <= b` or `x > a` describes, or the interval or union of `|x - a| < b`.

    None unless exactly one side is a lone name, or one side is a distance and the other a written positive number.
    """
    items, signs = relation.items, relation.signs
    if not set(signs) <= {"<", ">", r"\leq", r"\geq"} or len(items) > 3:
        return None
    if len(items) == 3:
        if signs[0] in (">", r"\geq"):
            items, signs = items[::-1], tuple(FLIPPED[sign] for sign in reversed(signs))
        is_rising = set(signs) <= {"<", r"\leq"}
        return _segment(items[0], *signs, items[2]) if is_rising and is_name(items[1]) else None
    readings = ((*items, signs[0]), (*items[::-1], FLIPPED[signs[0]]))
    for side, bound, sign in readings:
        if match := _distance(side):
            return _interval_around(match, sign, bound)
    half_lines = (_half_line(sign, bound) for side, bound, sign in readings if is_name(side) and not is_name(bound))
    return next(half_lines, None)


def _segment(low: str, left: str, right: str, high: str) -> str:
    r"""Write the numbers x with `low left x right high`; each sign is `<` or `\leq`."""
    return ("(" if left == "<" else "[") + f"{low},{high}" + (")" if right == "<" else "]")


def _half_line(sign: str, bound: str) -> str:
    """Write the numbers x with `x sign bound`."""
    if sign in (">", r"\geq"):
        return _segment(bound, FLIPPED[sign], "<", r"\infty")
    return _segment(r"-\infty", "<", sign, bound)


def equal_relations(
    gold: Structure, answer: Structure, gold_text: str, answer_text: str, comparison: Comparison
) -> Verdict:
    """Compare two relations: the same sides (also reversed), the same interval of the same name, or as formulas."""
    if gold.signs == answer.signs and comparison.in_order(gold.items, answer.items, quick=True):
        return True
    reversed_signs = tuple(FLIPPED.get(sign, "") for sign in reversed(answer.signs))
    if gold.signs == reversed_signs and comparison.in_order(gold.items, answer.items[::-1], quick=True):
        return True
    assigned = assignment(gold_text), assignment(answer_text)
    if assigned[0] and assigned[1]:
        (gold_name, gold_value), (answer_name, answer_value) = assigned
        if r"\in" in gold.signs + answer.signs:
            return comparison.full(gold_value, answer_value) if compact(gold_name) == compact(answer_name) else False
        if same_name(gold_name, answer_name):
            return comparison.full(gold_value, answer_value)
    intervals = interval_of(gold), interval_of(answer)
    bounds_same_name = _bounded_name(gold) == _bounded_name(answer)
    if intervals[0] and intervals[1]:
        return comparison.full(intervals[0], intervals[1]) if bounds_same_name else False
    if (intervals[0] and r"\in" in answer.signs) or (intervals[1] and r"\in" in gold.signs):
        sets = [interval or relation.items[-1] for interval, relation in zip(intervals, (gold, answer))]
        return comparison.full(sets[0], sets[1]) if bounds_same_name else False
    if any("set" in sign for sign in gold.signs + answer.signs):
        return False
    return comparison.formulas(gold_text, answer_text)


def equal_relation_and_value(
    gold: Structure, answer: Structure, gold_text: str, answer_text: str, comparison: Comparison
) -> Verdict:
    """Compare `x = 5` with `5`, `0 < x < 1` with `(0,1)`, `2 + 3 = 5` with `5`, when one side alone is a relation.

    Every side of an equation that is not a lone name counts.
    """
    gold_is_relation = gold.kind == "relation"
    relation, value = (gold, answer_text) if gold_is_relation else (answer, gold_text)
    interval = interval_of(relation)
    if interval is not None:
        return comparison.full(interval, value) if gold_is_relation else comparison.full(value, interval)
    if set(relation.signs) <= {"=", r"\in", r"\approx", r"\equiv"}:
        sides = [side for side in relation.items if not is_name_or_names(side)]
        if not gold_is_relation and _SUM_OF_NAMES.fullmatch(sides[0] if sides else "") and parse_quantity(gold_text):
            sides = sides[1:]  # `m + n = 809` answers what m + n is
        if not sides and len(relation.items) == 2:
            sides = [relation.items[1]]
        pairs = ((side, value) if gold_is_relation else (value, side) for side in sides)
        return all_of(comparison.full(*pair) for pair in pairs) if sides else False
    return comparison.formulas(gold_text, answer_text) if is_set_operation(value) else False


def _distance(text: str) -> re.Match[str] | None:
    """Match the distance `|x|` or `|x - a|` of one letter from a point: (letter, sign, point)."""
    return _DISTANCE.fullmatch(text.strip()) if "|" in text else None


def _interval_around(match: re.Match[str], sign: str, radius_text: str) -> str | None:
    """Return the set of numbers whose distance is below or above a written positive radius."""
    radius = parse_quantity(radius_text)
    if radius is None or radius.value <= 0:
        return None
    center = match[3].strip() if match[3] else "0"
    low, high = -radius.value, radius.value
    if (point := parse_quantity(center)) is not None:
        shift = point.value if match[2] == "-" else -point.value
        ends = [str(low + shift), str(high + shift)]
    else:
        minus = "" if match[2] == "-" else "-"
        ends = [f"{minus}({center})-({radius.value})", f"{minus}({center})+({radius.value})"]
    if sign in ("<", r"\leq"):
        return _segment(ends[0], sign, sign, ends[1])
    return rf"{_half_line(FLIPPED[sign], ends[0])}\cup{_half_line(sign, ends[1])}"


def same_name(gold: str, answer: str) -> bool:
    """Are the names equal? `y` and `f(x)` both name the function that an answer `y = ...` describes."""
    names = {compact(gold), compact(answer)}
    return len(names) == 1 or ("y" in names and any(re.fullmatch(r"[A-Za-z]\(x\)", name) for name in names))


def _bounded_name(relation: Structure) -> str:
    r"""Return `x` for `0 < x < 1`, `x > 0`, `0 < x`, `|x - 1| < 2` and `x \in S`; "" without a name."""
    sides = relation.items[1:2] if len(relation.items) == 3 else relation.items
    if match := next(filter(None, map(_distance, sides)), None):
        return match[1]
    return next((compact(side) for side in sides if is_name(side)), "")
