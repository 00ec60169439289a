r"""What an answer claims after \approx: the decimal of an exact value, or the values of a list."""

import re
from itertools import permutations

from d3s.verifier.quantities import claims, equal_quantities, parse_quantity
from d3s.verifier.structure import is_name, parse_structure, split_top, split_words
from d3s.verifier.units import split_unit
from d3s.verifier.verdict import Compare, Verdict, all_of, any_of

MOST_PERMUTED = 4  # items that are compared in every order: being near is not transitive, so no match is certain
# after a decimal: dots, `\text{(3 s.f.)}`, `(nearest hundredth)`
_REMARK = re.compile(
    r"\\dots ?$|(?:\\text\{ ?)?\(?(?:\\text\{ ?)?(?:to )?(?:[0-9] ?)?[A-Za-z][^{}0-9]{0,60}[)} ]{1,4}$"
)


def exact_side(text: str) -> tuple[str, str]:
    r"""Split `\sqrt{2} \approx 1.41` into the exact value and its decimal; `x \approx 1.41` has the decimal alone.

    In a list each item has a sign of its own, `x \approx 1.5, y \approx 2.3`, unless both sides of one are lists.
    """
    if "\\approx" not in text:
        return text, ""
    sides = [side.strip() for side in split_top(text, "\\approx")]
    items = [item.strip() for part in split_words(text)[0] for item in split_top(part, ",")]
    if any("\\approx" in item for item in items[1:]) and not _are_lists(sides):
        pairs = [(item, [side.strip() for side in split_top(item, "\\approx")]) for item in items]
        return ", ".join(" = ".join(of) if len(of) == 2 and is_name(of[0]) else item for item, of in pairs), ""
    if not sides[0] or is_name(sides[0]):
        return sides[-1], ""
    claim = sides[-1] if len(sides) > 1 else ""
    short = _REMARK.sub("", claim).strip()
    return sides[0], short if parse_quantity(short) else claim


def _are_lists(sides: list[str]) -> bool:
    """Are these two lists of the same length, the first of values?"""
    items = [parse_structure(side).items for side in sides]
    return len(items) == 2 and len(items[0]) == len(items[1]) > 1 and not is_name(items[0][-1])


def is_near(exact: str, claim: str, formulas: Compare) -> Verdict:
    """Does the value that an answer states round, or is it cut, to the decimal that the answer claims for it?"""
    exact, claimed = split_unit(exact.rpartition("=")[2].strip())[0], parse_quantity(claim)
    number = parse_quantity(exact)
    if number and claimed:
        return claims(claimed, number.value)
    value, written = parse_structure(exact), parse_structure(claim)
    if written.kind == "formula":
        return formulas(rf"\approx {claim}", exact)
    if value.kind == "formula" and (written.signs == ("or",) or set(written.signs) == {"="}):
        same = [item.strip() for item in written.items if not is_name(item)]  # `0.867 = 86.7\%`, `x = 1.41`
        numbers = [parse_quantity(item) for item in same]
        are_equal = all(numbers) and all(equal_quantities(numbers[0], number) for number in numbers)
        return are_equal and is_near(exact, same[0], formulas)
    if len(value.items) != len(written.items):
        return False
    unordered = {value.kind, written.kind} <= {"list", "set"} and len(value.items) <= MOST_PERMUTED
    orders = permutations(written.items) if unordered else [written.items] * (value.kind == written.kind)
    return any_of(all_of(is_near(*pair, formulas) for pair in zip(value.items, order)) for order in orders)
