r"""Relations in answers, against the numbers that satisfy them and hand-written names."""

import operator
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from d3s.verifier import relations
from d3s.verifier.equivalence import equivalent
from d3s.verifier.relations import FLIPPED, as_chain, assignment, interval_of
from d3s.verifier.structure import parse_structure

SIGNS = {"<": operator.lt, r"\leq": operator.le, ">": operator.gt, r"\geq": operator.ge}
signs = st.sampled_from(sorted(SIGNS))
numbers = st.integers(-9, 9)
LESS = ("<", r"\leq")


def contains(interval: str, point: Fraction) -> bool:
    """Is the point in an interval such as `[1,2)`, or in a union of intervals?"""
    if r"\cup" in interval:
        return any(contains(part, point) for part in interval.split(r"\cup"))
    low, high = interval[1:-1].split(",")
    above = low == r"-\infty" or point > Fraction(low) or (interval[0] == "[" and point == Fraction(low))
    below = high == r"\infty" or point < Fraction(high) or (interval[-1] == "]" and point == Fraction(high))
    return above and below


def points_near(*ends: int) -> list[Fraction]:
    return [Fraction(2 * end + step, 2) for end in ends for step in (-1, 0, 1)]


@given(signs, numbers, st.integers(1, 9), st.booleans())
def test_bounds_hold_the_numbers_that_satisfy_them(sign: str, bound: int, radius: int, reverse: bool) -> None:
    """A bound of x, and one of its distance from a number."""
    distance = f"|x - {bound}|" if bound >= 0 else f"|x + {-bound}|"
    for side, limit, size in (("x", bound, lambda p: p), (distance, radius, lambda p: abs(p - bound))):
        text = f"{limit} {FLIPPED[sign]} {side}" if reverse else f"{side} {sign} {limit}"
        interval = interval_of(parse_structure(text))
        for point in points_near(bound - radius, bound, bound + radius):
            assert contains(interval, point) is SIGNS[sign](size(point), limit)


def test_distance_from_a_formula_keeps_its_center() -> None:
    assert interval_of(parse_structure(r"|x - \sqrt{2}| < 1")) == r"((\sqrt{2})-(1),(\sqrt{2})+(1))"
    assert interval_of(parse_structure(r"|x + a| \leq 1")) == "[-(a)-(1),-(a)+(1)]"


def test_other_relations_are_no_interval() -> None:
    texts = ["x = 5", "x < y", "1 < 2", "0 < x > 1", "|x| < -1", "|x| < y", "a < b < c < d", r"x \neq 3", r"x \in A"]
    assert [text for text in texts if interval_of(parse_structure(text))] == []


def test_assignments_are_names_with_values() -> None:
    pairs = {
        "x = 5": ("x", "5"), "5 = x": ("x", "5"), "f(2) = 5": ("f(2)", "5"), r"x \approx 3.14": ("x", "3.14"),
        "(p,q) = (3,2)": ("(p,q)", "(3,2)"), r"x \in [0,1)": ("x", "[0,1)"), "2 + 3 = 5": None, "x < 5": None,
        "x = y = 5": None, "5": None,
    }  # fmt: skip
    assert {text: assignment(text) for text in pairs} == pairs
    assert relations.is_name_or_names("(p, q)") and relations.is_name_or_names("x")
    assert not relations.is_name_or_names("(p, 2)") and not relations.is_name_or_names("[p, 2)")


VERDICTS = {  # gold, answer: the verdict without the formula layer
    ("x<y", "y>x"): True, ("x=5", "x=6"): False, ("y=2x", "f(x)=2x"): True, ("x<y", "x=y"): None,
    (r"x \in A", r"y \in A"): False, (r"x \in 5", "x = 5"): True, ("x>2", "2<x"): True, ("x>2", "y>2"): False,
    ("x>2", r"x \geq 2"): False, ("|x| < 2", "-2 < x < 2"): True, (r"x \in (2,\infty)", "x > 2"): True,
    ("x^2+y=1", "y+x^2=1"): None, ("5", "x=5"): True, ("5", "2+3=5"): None, ("5", r"x \neq 5"): False,
    ("5", "x=y=5"): True, ("809", "m+n=809"): True, ("m+n=809", "809"): None, ("y", "x=y"): True,
    ("(0,1)", "0<x<1"): True, ("x>2", r"(2,\infty)"): True, (r"x \neq 5", r"\mathbb{R}\setminus\{5\}"): None,
}  # fmt: skip


def test_relations_and_values_are_compared_by_parts() -> None:
    assert {pair: equivalent(*pair) for pair in VERDICTS} == VERDICTS


@given(signs, signs, numbers, numbers, st.booleans())
def test_two_bounds_of_a_name_are_its_interval(first: str, second: str, low: int, high: int, swap: bool) -> None:
    """Written as a chain, and as a list, which stays one where the bounds are in no order."""
    parts = [f"x {first} {low}", f"{high} {FLIPPED[second]} x"]
    both = as_chain(parse_structure(r" \text{and} ".join(parts[::-1] if swap else parts)))
    chain = parse_structure(f"{low} {FLIPPED[first]} x {second} {high}")
    if (first in LESS) == (second in LESS):
        assert both.kind == "list" and interval_of(chain) is None
        return
    assert (both.kind == "list") is (low >= high if second in LESS else high >= low)
    for structure in (both, chain) if both.kind == "relation" else (chain,):
        for point in points_near(low, high):
            inside = SIGNS[first](point, low) and SIGNS[second](point, high)
            assert contains(interval_of(structure), point) is inside


def test_other_lists_are_no_chain() -> None:
    for text in ("x > 1, y < 2", "x > 1, x = 2", "x > 1, 2", "x > 1, x < 2, x < 3", "1 < x, 2 < x"):
        assert as_chain(parse_structure(text)).kind == "list", text
