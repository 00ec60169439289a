r"""LaTeX as sympy expressions, against expressions built by hand, and the limits on size."""

import math

import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st
from sympy import I, Integer, Matrix, Rational, Symbol, cos, log, pi, sin
from sympy.abc import a, b, d, n, x, y

from d3s.verifier import latex
from d3s.verifier.latex import UnreadableError, parse_formula, written_digits
from d3s.verifier.normalize import normalize

FORMULAS = {
    r"x^{n+1}": x ** (n + 1), r"(x+1)(x-1)": (x + 1) * (x - 1), r"50\%": Rational(1, 2), "100!": math.factorial(100),
    r"1\frac{3}{4}": Rational(7, 4), "2.5e3": Integer(2500), r"10\,000x": 10_000 * x, r"\sin 2x": sin(2 * x),
    r"\sin^{-1} 1": pi / 2, r"\sin 30°": Rational(1, 2), "30°": Integer(30), r"\log_2 8": Integer(3),
    "2^{1000}": 2**1000, r"\log_e x": log(x), r"e^{i\pi}": Integer(-1), "2i": 2 * I, r"\binom{5}{2}": Integer(10),
    r"\log 100": Integer(2), r"{5 \choose 2}": Integer(10), r"\sum_{k=1}^{4} k^2": Integer(30),
    r"\sum_{i=1}^{4} i": Integer(10), "da": d * a, r"\sqrt[3]{-8}": Integer(-2), r"(-8)^{\frac{2}{3}}": Integer(4),
    r"\cos(a+b)": cos(a + b), r"|{-3}|": Integer(3), r"i+\sum_{k=1}^{4} k": I + 10,
    r"i+\sum_{i=1}^{4} i": Symbol("i") + 10,
}  # fmt: skip


def test_formulas_are_those_built_by_hand() -> None:
    for text, formula in FORMULAS.items():
        assert sympy.simplify(parse_formula(normalize(text)).doit() - formula) == 0, text
    assert parse_formula(r"\log 100", natural_log=True).equals(2 * log(10))
    assert parse_formula("0.1") == Rational(1, 10)  # exact
    matrix = parse_formula(normalize(r"\begin{pmatrix}1&\frac12\\x&-i\end{pmatrix}")).doit()
    assert Matrix(matrix) == Matrix([[1, Rational(1, 2)], [x, -I]])


PRODUCTS = {  # of whole numbers from 2 to 9: the formula, its value
    r"\ln %d\cdot %d+0\cdot %d": lambda a, b, c: math.log(a) * b,
    r"\sin %d\times\cos\frac{%d}{%d}": lambda a, b, c: math.sin(a) * math.cos(b / c),
    r"\arctan\sqrt{%d}\cdot %d!*%d": lambda a, b, c: math.atan(math.sqrt(a)) * math.factorial(b) * c,
    r"\log_{%d}%d\cdot\log_3 %d": lambda a, b, c: math.log(b, a) * math.log(c, 3),
    r"%d^{%d}\sqrt{%d}7^{2}": lambda a, b, c: a**b * math.sqrt(c) * 49,
    r"\sum_{k=1}^{%d}%dk+%d": lambda a, b, c: a * (a + 1) * b / 2 + c,
    r"\int_{0}^{%d}%dx\,dx+%d": lambda a, b, c: a * a * b / 2 + c,
    r"\binom{%d}{1}\frac{%d}{%d}": lambda a, b, c: a * b / c,
    r"\sin %d\cos %d\cdot %d": lambda a, b, c: math.sin(a) * math.cos(b) * c,
    r"%d\binom{%d}{1}\binom{%d}{2}": lambda a, b, c: a * b * c * (c - 1) / 2,
    r"\frac{%d\frac{1}{9}}{%d}+%d": lambda a, b, c: (a + 1 / 9) / b + c,
    r"√%d%d+%d": lambda a, b, c: math.sqrt(10 * a + b) + c,
    r"2^{%d^{2^{1}}}+%d-%d": lambda a, b, c: 2.0 ** (a * a) + b - c,
    r"|\begin{pmatrix}%d&%d\\1&%d\end{pmatrix}|": lambda a, b, c: a * c - b,
}


@pytest.mark.parametrize("text", PRODUCTS)
@given(st.tuples(*[st.integers(2, 9)] * 3))
@settings(max_examples=8)
def test_products_have_their_value(text: str, numbers: tuple[int, int, int]) -> None:
    value = parse_formula(normalize(text % numbers)).doit()
    assert float(value) == pytest.approx(PRODUCTS[text](*numbers)), text % numbers


def test_names_are_symbols_of_their_own() -> None:
    other = {"I": "i", "E": "e", r"\gamma": "0.5772156649", "a_1": "a_2", "x'": "x", r"\hat{x}": r"\bar{x}", "X": "x",
             r"\lambda_{red}": r"\lambda", "a_{12}": "a_{13}"}  # fmt: skip
    for letter in other:
        name = parse_formula(normalize(letter))
        assert name != parse_formula(normalize(other[letter])) and len(name.free_symbols) == 1, letter
    for left, right in ((r"\lambda_{\text{red}}", r"\lambda_{red}"), (r"y^{\prime}", "y'"), ("a_{1}", "a_1")):
        assert parse_formula(normalize(left)) == parse_formula(normalize(right))


UNREADABLE = [
    "", "1 2", r"\sqrt{7}1", "x2", "1+@", "x" * (latex.MAX_LENGTH + 1), "é", r"1,\dots ,5", "9" * 1_000, "5!!!",
    "(" * (latex.MAX_NESTING + 1) + "1", "9^{9^{9^9}}", "(10^{10})!", r"\binom{10^9}{10^8}", r"\exp(\exp(100))",
    rf"\sum_{{k=1}}^{{{latex.MAX_TERMS + 2}}} k", "+".join(f"x_{{{i}}}" for i in range(400)), r"\frac{1}{9^{9^9}}",
    "10000!", "n!!", "(x^2)'", r"\frac{x}{3}'", r"\vec u\times\vec v",
]  # fmt: skip


@pytest.mark.parametrize("text", UNREADABLE)
def test_unreadable_or_too_large(text: str) -> None:
    with pytest.raises(UnreadableError):
        parse_formula(normalize(text))


def test_number_of_parts_is_bounded() -> None:
    """A term `-a` has three parts, so these 1,480 characters have more than latex.MAX_NODES."""
    assert len(parse_formula("-a" * 400).args) == 400
    with pytest.raises(UnreadableError, match="too large"):
        parse_formula("-a" * 740)


@given(st.integers(1, 10**30), st.integers(1, 10**30), st.integers(1, 40))
@settings(max_examples=50)
def test_digit_bound_holds_for_written_constants(first: int, second: int, power: int) -> None:
    expression = sympy.Add(first, sympy.Pow(second, power, evaluate=False), evaluate=False)
    assert written_digits(expression) >= len(str(first)) - 1 + len(str(second**power)) - 1


def test_digit_bound_ignores_names() -> None:
    assert written_digits(x + y * sin(x)) <= 2
    assert written_digits(10**100 * x) >= 100
    with pytest.raises(UnreadableError):
        written_digits(sympy.Pow(10, int(latex.MAX_LOG10) + 1, evaluate=False) + x)
