"""Identity tests and their points, against identities and kinks known by hand, and exact values on a grid."""

import contextlib
import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cache
from operator import itemgetter
from types import SimpleNamespace
from typing import Any

import pytest
import sympy
from sympy import I, Integer, Max, Rational, Symbol, cos, cosh, exp, floor, log, pi, sin, sinh, sqrt, tan, tanh
from sympy.abc import a, n, x, y

from d3s.verifier.identity import equal_expressions, proportional
from d3s.verifier.latex import UnreadableError
from d3s.verifier.points import domain, kinks, points

R = Symbol("R")
f, g = sympy.symbols("f g", cls=sympy.Function)
tiny = Integer(10) ** -150
IDENTITIES = [
    (sin(x) ** 2 + cos(x) ** 2, Integer(1)), ((x - y) * (x + y), x**2 - y**2), (sin(2 * x), 2 * sin(x) * cos(x)),
    (tan(x / 2), sin(x) / (1 + cos(x))), (cosh(x) ** 2 - sinh(x) ** 2, Integer(1)), (sympy.oo, sympy.oo + 1),
    (sympy.Pow(sympy.E, I * pi / 7), cos(pi / 7) + I * sin(pi / 7)), (sqrt(5 + 2 * sqrt(6)), sqrt(2) + sqrt(3)),
    (sqrt(R**2), R), (sqrt(x**2), abs(x)), (pi / 4, 4 * sympy.atan(Rational(1, 5)) - sympy.atan(Rational(1, 239))),
    (cos(2 * pi / 7) + cos(4 * pi / 7) + cos(6 * pi / 7), -Rational(1, 2)), (log(6), log(2) + log(3)),
    (sympy.binomial(n + 1, 2), n * (n + 1) / 2), (floor(2 * x), floor(x) + floor(x + Rational(1, 2))),
    (floor(n / 5), floor(n / 5 + Rational(1, 10))), (2 * f(x), f(x) + f(x)),
]  # fmt: skip
DIFFERENT = [
    (sqrt(x**2), x), (x + 1, x + 2), (exp(pi * sqrt(163)), Integer(262537412640768744)), (pi, pi + tiny),
    (log(1 + tiny, evaluate=False), Integer(0)), (floor(x / 5), floor(x / 5 + Rational(1, 20))), (exp(I * x), cos(x)),
    (sympy.zoo, sympy.zoo), (sympy.nan, sympy.nan), (sympy.oo, -sympy.oo), (f(x), f(y)), (f(x), g(x)),
    (Rational(1, 3), Rational(333333333333, 10**12)),
]  # fmt: skip


def test_identities_hold_near_identities_fail() -> None:
    for pairs, equal in ((IDENTITIES, True), (DIFFERENT, False)):
        for left, right in pairs:
            assert equal_expressions(left, right) is equal is equal_expressions(right, left), (left, right)


def test_differences_of_too_many_digits_are_never_equal() -> None:
    """Some are refused, as too many digits would be needed to tell."""
    for left, right in ((x, x + exp(-(x**2) - 1000)), (tanh(100 * a**2 + 10), Integer(1))):
        for pair in ((left, right), (right, left)):
            with contextlib.suppress(UnreadableError):
                assert not equal_expressions(*pair)
    with pytest.raises(UnreadableError):
        equal_expressions(*(sympy.Pow(2, Rational(1, 10**k), evaluate=False) for k in (13_000, 13_001)))


def test_functions_that_differ_above_a_bound_are_different() -> None:
    for size in (10, 10_000, 500_000):
        assert not equal_expressions(floor(x), sympy.Min(floor(x), size) + floor(Max(x - size, 0) / 2))
        assert not equal_expressions(Max(x, size), x) and not equal_expressions(Max(x, -size), x)


def test_domain_may_be_anywhere() -> None:
    for end in (3, 1_000, 10**6, -(10**6)):
        root = sqrt(x - end)
        assert equal_expressions(root, abs(root)) and not equal_expressions(root, sqrt(x - end - 1))
        assert equal_expressions(root * sqrt(y + end), sqrt((x - end) * (y + end)))
        assert not equal_expressions(log(x - end) * log(x), log(x * (x - end)))


@pytest.mark.parametrize("right", [x**2 - y + 2, x * (x**2 - y + 1), Integer(3), x**2 - y + 1 + Rational(1, 10**40)])
def test_other_expressions_are_not_proportional(right: sympy.Expr) -> None:
    assert not proportional(x**2 - y + 1, right, positive=False)
    assert not proportional(Integer(2), Integer(4), positive=False)  # constants alone


def drawn(expression: sympy.Expr) -> list[dict]:
    return list(points(expression, Integer(0)))


KINKED = {
    abs(x - 1_000): [1_000], Max(x, -70) + abs(x - 3): [-70, 3], sqrt(x**2 - 200 * x + 10_000): [100],
    abs(abs(x) - 30): [-30, 0, 30], log(x - 10**6): [10**6], abs((x - 5) * (x + 700)): [-700, 5],
    sympy.Piecewise((x, x < 5_000), (0, True)): [5_000],
    abs(100 * x - 1) + abs(100 * x - 2): [Rational(1, 100), Rational(2, 100)],
}  # fmt: skip


def test_every_cell_has_points() -> None:
    for formula, zeros in KINKED.items():
        values = [point[x] for point in drawn(formula)]
        for low, high in itertools.pairwise([-sympy.oo, *zeros, sympy.oo]):
            assert sum(bool(low < value < high) for value in values) >= 4, formula


def test_steps_are_met_at_their_ends() -> None:
    values = [(point[x] + 2) / 7 for point in drawn(floor((x + 2) / 7))]
    assert sum(bool(v.is_Integer) for v in values) >= 4
    assert sum(bool(0 < v - floor(v) < Rational(1, 1_000)) for v in values) >= 2
    assert sum(bool(0 < -v - floor(-v) < Rational(1, 1_000)) for v in values) >= 2
    numbers = [point[n] for point in drawn(floor(sqrt(n)))]
    assert all(number.is_Integer for number in numbers) and any(sqrt(v).is_Integer for v in numbers if v > 100)
    assert min(numbers) < -1_000 and max(numbers) > 100_000


def test_kinks_and_domain_are_the_terms_by_hand() -> None:
    assert kinks(x**2 + 1 / x, 2**x) == ([], [])
    assert kinks(abs(x - 1), floor(x / 3)) == ([x - 1], [x / 3])
    assert domain(sqrt(x - 1) + log(y), x ** Rational(1, 3)) == [x - 1, y]


# Formulas that agree on one branch only: each rule is written once and evaluated twice, on sympy terms for the verifier
# and on numbers for the verdict. Two formulas are equal if they agree wherever both are real.


def cube_root(value: Any) -> float:
    return math.copysign(abs(float(value)) ** (1 / 3), value)


ON_TERMS = SimpleNamespace(
    abs=sympy.Abs, max=sympy.Max, min=sympy.Min, floor=sympy.floor, ceil=sympy.ceiling, sqrt=sympy.sqrt, ln=sympy.log,
    sign=sympy.sign, cbrt=sympy.cbrt, atan=sympy.atan, half_pi=sympy.pi / 2,
    cases=lambda value, low, high: sympy.Piecewise((low, value < 0), (high, True)),
)  # fmt: skip
ON_NUMBERS = SimpleNamespace(
    abs=abs, max=max, min=min, floor=math.floor, ceil=math.ceil, sqrt=math.sqrt, ln=math.log, cbrt=cube_root,
    sign=lambda value: (value > 0) - (value < 0), atan=math.atan, half_pi=math.pi / 2,
    cases=lambda value, low, high: low if value < 0 else high,
)  # fmt: skip
TERMS: list[Callable] = [  # of the names x and y, with constants c > d > 0
    lambda x, y, c, d: x, lambda x, y, c, d: x - c, lambda x, y, c, d: d - x, lambda x, y, c, d: d * x + c,
    lambda x, y, c, d: x + y, lambda x, y, c, d: x - y + c, lambda x, y, c, d: x * y, lambda x, y, c, d: x / d - c,
    lambda x, y, c, d: (x - c) * (x + d), lambda x, y, c, d: x * x - c * c,
]  # fmt: skip
RULES: dict[str, Callable] = {  # (operations, g, h, constant) -> the two formulas
    "difference of absolute values": lambda f, g, h, c: (f.abs(g) - f.abs(h), f.abs(g - h)),
    "root of a square": lambda f, g, h, c: (f.sqrt(g * g), g),
    "absolute value as a root": lambda f, g, h, c: (f.sqrt(g * g), f.abs(g)),
    "root of a product": lambda f, g, h, c: (f.sqrt(g) * f.sqrt(h), f.sqrt(g * h)),
    "cube root": lambda f, g, h, c: (f.cbrt(g), f.cbrt(f.abs(g))),
    "smaller and larger": lambda f, g, h, c: (f.min(g, h) + f.max(g, h), g + h),
    "larger one as an absolute value": lambda f, g, h, c: (2 * f.max(g, h), g + h + f.abs(g - h)),
    "sign of a product": lambda f, g, h, c: (f.sign(g) * f.sign(h), f.sign(g * h)),
    "two cases": lambda f, g, h, c: (f.cases(g, -g, g), g),
    "ceiling of a negative": lambda f, g, h, c: (f.ceil(-g), -f.floor(g)),
    "floor of a double": lambda f, g, h, c: (f.floor(2 * g), 2 * f.floor(g)),
    "floor of a shift": lambda f, g, h, c: (f.floor(g + 3), f.floor(g) + 3),
    "product of logarithms": lambda f, g, h, c: (f.ln(g) * f.ln(h), f.ln(g * h)),
    "squared logarithm": lambda f, g, h, c: (f.ln(g) ** 2, f.ln(g * g)),
    "arctangents": lambda f, g, h, c: (f.atan(g) + f.atan(1 / g), f.half_pi),
}  # fmt: skip
KEPT_EQUAL = 2  # pairs of one rule, which take longer


@cache
def grid(c: int, d: int) -> list[tuple[Fraction, Fraction]]:
    """Exact values of x and y: both signs, near 0 and the constants and far beyond, integers, halves and others."""
    generator = random.Random(0)
    centers = (0, c, -c, d, -d, c * d, -c * d, Fraction(c, d), Fraction(-c, d), Fraction(-d, c))
    values = [
        center + size * Fraction(generator.randrange(-q, q + 1), q)
        for center in centers
        for size in (Fraction(1, 4 * c), 1, c, 9 * c, 2 * c * c)
        for q in (2, 7, 60)
    ]
    return [(generator.choice(values), generator.choice(values)) for _ in range(1_200)]


def agree(left: Callable, right: Callable, values: list[tuple[Fraction, Fraction]]) -> bool | None:
    """Do two functions agree wherever both have a value? None if that is almost nowhere."""
    compared = set()
    for point in values:
        try:
            a, b = left(*point), right(*point)
        except (ValueError, ZeroDivisionError):
            continue
        compared.add(point[0])
        if abs(a - b) > 1e-9 * max(1.0, abs(a), abs(b)):
            return False
    return True if len(compared) > 5 else None


def pairs(name: str) -> Iterator[tuple[sympy.Expr, sympy.Expr, bool]]:
    """Two formulas of each term, another one and drawn constants, and whether they are equal."""
    rule, generator = RULES[name], random.Random(name)
    for index, term in enumerate(TERMS):
        other = TERMS[(index + generator.randrange(1, len(TERMS))) % len(TERMS)]
        d = generator.choice((2, 3, 7, 20))
        c = d + generator.choice((1, 5, 40, 90))

        def on(f: SimpleNamespace, x: Any, y: Any, side: int) -> Any:
            return rule(f, term(x, y, c, d), other(x, y, d, c), c)[side]  # noqa: B023 (called at once)

        left, right = (lambda *point, side=side: on(ON_NUMBERS, *point, side) for side in (0, 1))
        if (equal := agree(left, right, grid(c, d))) is not None:
            yield on(ON_TERMS, x, y, 0), on(ON_TERMS, x, y, 1), equal


def test_formulas_are_equal_on_all_branches_only() -> None:
    counts: Counter[bool] = Counter()
    for name in RULES:
        cases = sorted(pairs(name), key=itemgetter(2))  # unequal pairs first
        cases = cases[: sum(not equal for _, _, equal in cases) + KEPT_EQUAL]
        counts.update(equal for _, _, equal in cases)
        assert [case for case in cases if equal_expressions(*case[:2]) is not case[2]] == [], name
    assert counts[False] >= 70 and counts[True] >= 12, counts


NONLINEAR = [cos(y), sqrt(x), x**2 / 5 + Rational(1, 3), x * y, sqrt(2) * x, log(x), exp(x) + sin(y), x * sin(x)]


@pytest.mark.parametrize("u", [*NONLINEAR, x / 3])
def test_steps_of_nonlinear_arguments_are_equal_for_all_values_only(u: sympy.Expr) -> None:
    """Also where the arguments meet the ends of their steps at irrational points alone."""
    half, up, frac = Rational(1, 2), sympy.ceiling, sympy.frac
    equal = [(up(u), -floor(-u)), (floor(2 * u), floor(u) + floor(u + half)), (frac(u), u - floor(u)),
             (floor(u / 2 + 1), floor(sympy.expand(u + 2) / 2))]  # fmt: skip
    other = [(up(u), floor(u) + 1), (floor(2 * u), 2 * floor(u)), (floor(-u), -floor(u)),
             (floor(u + half), up(u - half)), (frac(-u), 1 - frac(u))]  # fmt: skip
    assert [equal_expressions(*pair) for pair in equal + other] == [True] * len(equal) + [False] * len(other)


def test_steps_of_equal_arguments_are_equal() -> None:
    assert equal_expressions(floor(cos(2 * y)), floor(2 * cos(y) ** 2 - 1))
    assert equal_expressions(floor(sin(y) ** 2), 1 - sympy.ceiling(cos(y) ** 2))
    assert equal_expressions(floor(n**2 / 4), floor(n / 2) * sympy.ceiling(n / 2))
