r"""Formulas that agree on one branch only, against exact values on a grid.

Each rule is written once and evaluated twice: on sympy terms for the verifier, on fractions and floats for the verdict.
Two formulas are equal if they agree wherever both are real; outside its domain Python raises ValueError.
"""

import math
import random
from collections import Counter
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
import sympy

from d3s.verifier.identity import equal_expressions


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
    "absolute value": lambda f, g, h, c: (f.abs(g), g),
    "shifted absolute value": lambda f, g, h, c: (f.abs(g - c), f.abs(g) - c),
    "difference of absolute values": lambda f, g, h, c: (f.abs(g) - f.abs(h), f.abs(g - h)),
    "one absolute value": lambda f, g, h, c: (f.abs(g) * h, f.abs(g * h)),
    "root of a square": lambda f, g, h, c: (f.sqrt(g * g), g),
    "absolute value as a root": lambda f, g, h, c: (f.sqrt(g * g), f.abs(g)),
    "root of a product": lambda f, g, h, c: (f.sqrt(g) * f.sqrt(h), f.sqrt(g * h)),
    "root of a sum": lambda f, g, h, c: (f.sqrt(g) + f.sqrt(h), f.sqrt(g + h)),
    "cube root": lambda f, g, h, c: (f.cbrt(g), f.cbrt(f.abs(g))),
    "larger one": lambda f, g, h, c: (f.max(g, c), g),
    "smaller and larger": lambda f, g, h, c: (f.min(g, h) + f.max(g, h), g + h),
    "larger one as an absolute value": lambda f, g, h, c: (2 * f.max(g, h), g + h + f.abs(g - h)),
    "sign": lambda f, g, h, c: (f.sign(g) * g, g),
    "sign of a product": lambda f, g, h, c: (f.sign(g) * f.sign(h), f.sign(g * h)),
    "two cases": lambda f, g, h, c: (f.cases(g, -g, g), g),
    "floor and ceiling": lambda f, g, h, c: (f.ceil(g), f.floor(g) + 1),
    "ceiling of a negative": lambda f, g, h, c: (f.ceil(-g), -f.floor(g)),
    "floor of a double": lambda f, g, h, c: (f.floor(2 * g), 2 * f.floor(g)),
    "floor of a shift": lambda f, g, h, c: (f.floor(g + 3), f.floor(g) + 3),
    "product of logarithms": lambda f, g, h, c: (f.ln(g) * f.ln(h), f.ln(g * h)),
    "quotient of logarithms": lambda f, g, h, c: (f.ln(g) / f.ln(h), f.ln(g) - f.ln(h)),
    "squared logarithm": lambda f, g, h, c: (f.ln(g) ** 2, f.ln(g * g)),
    "arctangents": lambda f, g, h, c: (f.atan(g) + f.atan(1 / g), f.half_pi),
}  # fmt: skip
x, y = sympy.symbols("x y")
KEPT_EQUAL = 2  # pairs of one rule, which take longer
COUNTS: Counter[bool] = Counter()


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


def pairs(rule: Callable) -> Iterator[tuple[sympy.Expr, sympy.Expr, bool]]:
    """Two formulas of each term, another one and drawn constants, and whether they are equal."""
    generator = random.Random(str(rule.__code__.co_firstlineno))
    for index, term in enumerate(TERMS):
        other = TERMS[(index + generator.randrange(1, len(TERMS))) % len(TERMS)]
        d = generator.choice((2, 3, 7, 20))
        c = d + generator.choice((1, 5, 40, 90))

        def on(f: SimpleNamespace, x: Any, y: Any, side: int) -> Any:
            return rule(f, term(x, y, c, d), other(x, y, d, c), c)[side]  # noqa: B023 (called at once)

        left, right = (lambda *point, side=side: on(ON_NUMBERS, *point, side) for side in (0, 1))
        if (equal := agree(left, right, grid(c, d))) is not None:
            yield on(ON_TERMS, x, y, 0), on(ON_TERMS, x, y, 1), equal


@pytest.mark.parametrize("name", RULES)
def test_formulas_are_equal_on_all_branches_only(name: str) -> None:
    cases = list(pairs(RULES[name]))
    equal_cases = [case for case in cases if case[2]]
    cases = [case for case in cases if not case[2]] + equal_cases[:KEPT_EQUAL]
    COUNTS.update(equal for _, _, equal in cases)
    assert [case for case in cases if equal_expressions(*case[:2]) is not case[2]] == []


def test_suite_had_many_pairs_of_both_kinds() -> None:
    assert COUNTS[False] >= 130 and COUNTS[True] >= 12, COUNTS
