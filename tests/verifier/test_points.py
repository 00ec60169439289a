"""Points for identity tests: signs and sizes, and a point in every cell of formulas whose kinks are known by hand."""

import itertools

import sympy
from sympy import Max, Rational, Symbol, floor, log, sqrt
from sympy.abc import n, x, y

from d3s.verifier.points import GENERIC, domain, kinks, points

R, r_0, fx = Symbol("R"), Symbol("r_0"), Symbol("opaquef(x)")


def drawn(expression: sympy.Expr) -> list[dict]:
    return list(points(expression, sympy.Integer(0)))


def test_points_are_fixed_and_distinct() -> None:
    found = drawn(abs(x - y) + R)
    assert found == drawn(abs(x - y) + R) and len({tuple(point.values()) for point in found}) == len(found) >= GENERIC


def test_letters_have_independent_signs_and_names_are_positive() -> None:
    found = drawn(x + y + R + r_0 + fx)
    for first, second in itertools.combinations((x, y, fx), 2):
        assert len({(point[first] > 0, point[second] > 0) for point in found}) == 4
    assert sum(all(number > 0 for number in point.values()) for point in found) >= GENERIC // 2
    assert all(point[R] > 0 and point[r_0] > 0 for point in found)


def test_sizes_cover_many_decades_outside_exponents() -> None:
    sizes = [abs(point[x]) for point in drawn(x + 2**y)]
    assert min(sizes) < Rational(1, 10) and max(sizes) > 10**4
    assert all(0 < abs(point[y]) < 7 for point in drawn(x + 2**y))


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


def test_cells_of_two_names_have_points() -> None:
    formula = abs(x + y - 100) + abs(x * y)
    signs = {(p[x] + p[y] > 100, p[x] > 0, p[y] > 0) for p in drawn(formula)}
    assert len(signs) == 7  # two negative names have no sum above 100


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
