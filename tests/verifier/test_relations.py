r"""Relations in answers, against the numbers that satisfy them and hand-written names."""

import operator
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from d3s.verifier.relations import (
    FLIPPED,
    as_chain,
    assignment,
    equal_relation_and_value,
    equal_relations,
    interval_of,
    is_name_or_names,
)
from d3s.verifier.structure import parse_structure
from d3s.verifier.verdict import Comparison, Verdict

SIGNS = {"<": operator.lt, r"\leq": operator.le, ">": operator.gt, r"\geq": operator.ge}
signs = st.sampled_from(sorted(SIGNS))
numbers = st.integers(-9, 9)


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


@given(signs, numbers)
def test_half_lines_hold_the_numbers_that_satisfy_them(sign: str, bound: int) -> None:
    for text, compare in ((f"x {sign} {bound}", SIGNS[sign]), (f"{bound} {sign} x", SIGNS[FLIPPED[sign]])):
        interval = interval_of(parse_structure(text))
        for point in points_near(bound):
            assert contains(interval, point) is compare(point, bound)


@given(st.sampled_from(["<", r"\leq"]), st.sampled_from(["<", r"\leq"]), numbers, st.integers(1, 9), st.booleans())
def test_chains_hold_the_numbers_between(left: str, right: str, low: int, length: int, reverse: bool) -> None:
    high = low + length
    text = f"{low} {left} x {right} {high}"
    if reverse:
        text = f"{high} {FLIPPED[right]} x {FLIPPED[left]} {low}"
    interval = interval_of(parse_structure(text))
    for point in points_near(low, high):
        assert contains(interval, point) is (SIGNS[left](low, point) and SIGNS[right](point, high))


@given(signs, numbers, st.integers(1, 9), st.booleans())
def test_distances_hold_the_numbers_that_satisfy_them(sign: str, center: int, radius: int, reverse: bool) -> None:
    distance = f"|x - {center}|" if center >= 0 else f"|x + {-center}|"
    text = f"{radius} {FLIPPED[sign]} {distance}" if reverse else f"{distance} {sign} {radius}"
    interval = interval_of(parse_structure(text))
    for point in points_near(center - radius, center, center + radius):
        assert contains(interval, point) is SIGNS[sign](abs(point - center), radius)


def test_distance_from_a_formula_keeps_its_center() -> None:
    assert interval_of(parse_structure(r"|x - \sqrt{2}| < 1")) == r"((\sqrt{2})-(1),(\sqrt{2})+(1))"
    assert interval_of(parse_structure(r"|x + a| \leq 1")) == "[-(a)-(1),-(a)+(1)]"


@pytest.mark.parametrize(
    "text", ["x = 5", "x < y", "1 < 2", "0 < x > 1", "|x| < -1", "|x| < y", "a < b < c < d", r"x \neq 3", r"x \in A"]
)
def test_other_relations_are_no_interval(text: str) -> None:
    assert interval_of(parse_structure(text)) is None


@pytest.mark.parametrize(
    ("text", "pair"),
    [
        ("x = 5", ("x", "5")), ("5 = x", ("x", "5")), ("f(2) = 5", ("f(2)", "5")), (r"x \approx 3.14", ("x", "3.14")),
        ("(p,q) = (3,2)", ("(p,q)", "(3,2)")), (r"x \in [0,1)", ("x", "[0,1)")),
    ]
    + [(text, None) for text in ("2 + 3 = 5", "x < 5", "x = y = 5", "5")],
)  # fmt: skip
def test_assignments(text: str, pair: tuple[str, str] | None) -> None:
    assert assignment(text) == pair


def test_tuples_of_names() -> None:
    assert is_name_or_names("(p, q)") and is_name_or_names("x")
    assert not is_name_or_names("(p, 2)") and not is_name_or_names("[p, 2)")


class Recorder:
    """A comparison by text that keeps what it is asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, ...]] = []

    def comparison(self) -> Comparison:
        return Comparison(full=self._record("full"), quick=lambda a, b: a == b, formulas=self._record("formulas"))

    def _record(self, layer: str):
        def compare(gold: str, answer: str) -> Verdict:
            self.asked.append((layer, gold, answer))
            return gold == answer if layer == "full" else None

        return compare


def compare(function, gold: str, answer: str) -> tuple[Verdict, list[tuple[str, ...]]]:
    recorder = Recorder()
    verdict = function(parse_structure(gold), parse_structure(answer), gold, answer, recorder.comparison())
    return verdict, recorder.asked


@pytest.mark.parametrize(
    ("gold", "answer", "verdict", "asked"),
    [
        ("x<y", "x<y", True, []),
        ("x<y", "y>x", True, []),
        ("x=5", "x=5", True, []),
        ("x=5", "x=6", False, [("full", "5", "6")]),
        ("y=2x", "f(x)=2x", True, [("full", "2x", "2x")]),
        (r"x \in A", r"y \in A", False, []),
        (r"x \in 5", "x = 5", True, [("full", "5", "5")]),
        ("x>2", "2<x", True, []),
        ("x>2", r"x \geq 2", False, [("full", r"(2,\infty)", r"[2,\infty)")]),
        ("x>2", "y>2", False, []),
        ("|x| < 2", "-2 < x < 2", True, [("full", "(-2,2)", "(-2,2)")]),
        (r"x \in (2,\infty)", "x > 2", True, [("full", r"(2,\infty)", r"(2,\infty)")]),
        ("x^2+y=1", "y+x^2=1", None, [("formulas", "x^2+y=1", "y+x^2=1")]),
    ],
)
def test_equal_relations(gold: str, answer: str, verdict: Verdict, asked: list) -> None:
    assert compare(equal_relations, gold, answer) == (verdict, asked)


@pytest.mark.parametrize(
    ("gold", "answer", "verdict", "asked"),
    [
        ("5", "x=5", True, [("full", "5", "5")]),
        ("5", "2+3=5", False, [("full", "5", "2+3")]),
        ("5", "x=y=5", True, [("full", "5", "5")]),
        ("809", "m+n=809", True, [("full", "809", "809")]),
        ("m+n=809", "809", False, [("full", "m+n", "809")]),
        ("y", "x=y", True, [("full", "y", "y")]),
        ("(0,1)", "0<x<1", True, [("full", "(0,1)", "(0,1)")]),
        ("x>2", r"(2,\infty)", True, [("full", r"(2,\infty)", r"(2,\infty)")]),
        ("5", r"x \neq 5", False, []),
        (r"x \neq 5", r"\mathbb{R}\setminus\{5\}", None, [("formulas", r"x \neq 5", r"\mathbb{R}\setminus\{5\}")]),
    ],
)
def test_relation_and_value(gold: str, answer: str, verdict: Verdict, asked: list) -> None:
    assert compare(equal_relation_and_value, gold, answer) == (verdict, asked)


@given(signs, signs, numbers, numbers, st.booleans())
def test_two_bounds_of_a_name_are_its_interval(low_sign: str, high_sign: str, low: int, high: int, swap: bool) -> None:
    parts = [f"x {low_sign} {low}", f"{high} {FLIPPED[high_sign]} x"]
    chain = as_chain(parse_structure(r" \text{and} ".join(parts[::-1] if swap else parts)))
    is_low, is_high = (sign in (">", r"\geq") for sign in (low_sign, high_sign))
    bounds = (low, high) if is_low else (high, low)
    if is_low == is_high or bounds[0] >= bounds[1]:
        assert chain.kind == "list"
    else:
        for point in points_near(low, high):
            inside = SIGNS[low_sign](point, low) and SIGNS[high_sign](point, high)
            assert contains(interval_of(chain), point) is inside


@pytest.mark.parametrize("text", ["x > 1, y < 2", "x > 1, x = 2", "x > 1, 2", "x > 1, x < 2, x < 3", "1 < x, 2 < x"])
def test_other_lists_are_no_chain(text: str) -> None:
    assert as_chain(parse_structure(text)).kind == "list"
