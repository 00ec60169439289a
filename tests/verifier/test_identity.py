"""Identity tests, against identities known by hand and differences far below double precision."""

import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st
from sympy import I, Integer, Rational, Symbol, cos, cosh, exp, floor, log, pi, sin, sinh, sqrt, tan, tanh
from sympy.abc import a, n, x, y

from d3s.verifier.identity import equal_expressions, evaluate, opaque, proportional
from d3s.verifier.latex import UnreadableError

R = Symbol("R")
IDENTITIES = {
    "pythagoras": (sin(x) ** 2 + cos(x) ** 2, Integer(1)),
    "difference of squares": ((x - y) * (x + y), x**2 - y**2),
    "double angle": (sin(2 * x), 2 * sin(x) * cos(x)),
    "half angle": (tan(x / 2), sin(x) / (1 + cos(x))),
    "hyperbolic": (cosh(x) ** 2 - sinh(x) ** 2, Integer(1)),
    "euler": (sympy.Pow(sympy.E, I * pi / 7), cos(pi / 7) + I * sin(pi / 7)),
    "nested roots": (sqrt(5 + 2 * sqrt(6)), sqrt(2) + sqrt(3)),
    "root of a positive quantity": (sqrt(R**2), R),
    "absolute value": (sqrt(x**2), abs(x)),
    "machin": (pi / 4, 4 * sympy.atan(Rational(1, 5)) - sympy.atan(Rational(1, 239))),
    "heptagon": (cos(2 * pi / 7) + cos(4 * pi / 7) + cos(6 * pi / 7), -Rational(1, 2)),
    "logarithms": (log(6), log(2) + log(3)),
    "binomial": (sympy.binomial(n + 1, 2), n * (n + 1) / 2),
    "hermite": (floor(2 * x), floor(x) + floor(x + Rational(1, 2))),
    "floor at integers": (floor(n / 5), floor(n / 5 + Rational(1, 10))),
    "infinities": (sympy.oo, sympy.oo + 1),
}
DIFFERENT = {
    "sign": (sqrt(x**2), x),
    "constant": (x + 1, x + 2),
    "ramanujan": (exp(pi * sqrt(163)), Integer(262537412640768744)),
    "tiny constant": (pi, pi + Integer(10) ** -150),
    "tiny term": (x, x + exp(-(x**2) - 1000)),
    "saturation": (tanh(100 * a**2 + 10), Integer(1)),
    "logarithm of nearly one": (log(1 + Integer(10) ** -150, evaluate=False), Integer(0)),
    "step": (floor(x / 5), floor(x / 5 + Rational(1, 20))),
    "imaginary unit": (exp(I * x), cos(x)),
    "undefined": (sympy.zoo, sympy.zoo),
    "not a number": (sympy.nan, sympy.nan),
    "infinities": (sympy.oo, -sympy.oo),
    "rationals": (Rational(1, 3), Rational(333333333333, 10**12)),
}
polynomials = st.lists(st.integers(-5, 5), min_size=1, max_size=4)


@pytest.mark.parametrize("name", IDENTITIES)
def test_identity_holds(name: str) -> None:
    left, right = IDENTITIES[name]
    assert equal_expressions(left, right) and equal_expressions(right, left)


@pytest.mark.parametrize("name", DIFFERENT)
def test_near_identity_fails(name: str) -> None:
    left, right = DIFFERENT[name]
    for pair in ((left, right), (right, left)):
        try:
            assert not equal_expressions(*pair)
        except UnreadableError as error:  # refused: too many digits are needed to tell
            assert "too" in str(error) and name in ("tiny term", "saturation")


@given(polynomials, polynomials, polynomials)
@settings(max_examples=20)
def test_polynomials_are_equal_by_coefficients(first: list[int], second: list[int], third: list[int]) -> None:
    left, middle, right = (sympy.Add(*(c * x**k for k, c in enumerate(p))) for p in (first, second, third))
    product = [0] * (len(first) + len(second) - 1)
    for i, p in enumerate(first):
        for j, q in enumerate(second):
            product[i + j] += p * q
    length = max(len(product), len(third))
    padded = [coefficients + [0] * (length - len(coefficients)) for coefficients in (product, third)]
    assert equal_expressions(left * middle, right) is (padded[0] == padded[1])


def test_too_many_digits_are_unreadable() -> None:
    first, second = (sympy.Pow(2, Rational(1, 10**k), evaluate=False) for k in (13_000, 13_001))
    with pytest.raises(UnreadableError):
        equal_expressions(first, second)


def test_functions_that_differ_above_a_bound_are_different() -> None:
    for size in (10, 10_000, 500_000):
        assert not equal_expressions(floor(x), sympy.Min(floor(x), size) + floor(sympy.Max(x - size, 0) / 2))
        assert not equal_expressions(sympy.Max(x, size), x) and not equal_expressions(sympy.Max(x, -size), x)


def test_domain_may_be_anywhere() -> None:
    for end in (3, 1_000, 10**6, -(10**6)):
        root = sqrt(x - end)
        assert equal_expressions(root, abs(root)) and not equal_expressions(root, sqrt(x - end - 1))
        assert equal_expressions(root * sqrt(y + end), sqrt((x - end) * (y + end)))
        assert not equal_expressions(log(x - end) * log(x), log(x * (x - end)))


@given(st.integers(-9, 9), st.integers(1, 9))
@settings(max_examples=15)
def test_constant_multiples_are_proportional(numerator: int, denominator: int) -> None:
    factor = Rational(numerator, denominator)
    left, right = x**2 - y + 1, factor * (x**2 - y + 1)
    assert proportional(left, right, positive=False) is (numerator != 0)
    assert proportional(left, right, positive=True) is (numerator > 0)


@pytest.mark.parametrize("right", [x**2 - y + 2, x * (x**2 - y + 1), Integer(3), x**2 - y + 1 + Rational(1, 10**40)])
def test_other_expressions_are_not_proportional(right: sympy.Expr) -> None:
    assert not proportional(x**2 - y + 1, right, positive=False)
    assert not proportional(Integer(2), Integer(4), positive=False)  # constants alone


def test_undefined_functions_become_symbols() -> None:
    f, g = sympy.Function("f"), sympy.Function("g")
    assert opaque(f(x) + 1).is_Add and opaque(f(x)).is_Symbol
    assert opaque(f(x)) == opaque(f(x)) != opaque(g(x)) and opaque(f(x)) != opaque(f(y))
    assert equal_expressions(2 * f(x), f(x) + f(x)) and not equal_expressions(f(x), f(y))
    assert opaque(x + 1) == x + 1


def test_values_have_the_digits_asked_for() -> None:
    assert str(evaluate(pi, 30)) == "3.14159265358979323846264338328"
    assert evaluate(x + y, 20, {x: Integer(1), y: Integer(2)}) == sympy.Float(3, 20)
    assert [evaluate(sympy.S(value), 20) for value in ("x", "zoo", "oo", "nan")] == [None] * 4
