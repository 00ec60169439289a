r"""Formulas, relations and sets in sympy, against single members and hand-made multiples."""

import math
import time
from fractions import Fraction

import pytest
import sympy
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from d3s.verifier.latex import UnreadableError
from d3s.verifier.normalize import normalize
from d3s.verifier.symbolic import equal_formulas, to_set

small = st.integers(-4, 4)


def equal(gold: str, answer: str) -> bool:
    return equal_formulas(normalize(gold), normalize(answer))


def matrix(*entries: int) -> str:
    return r"\begin{{pmatrix}}{}&{}\\{}&{}\end{{pmatrix}}".format(*entries)


@given(st.tuples(small, small, small), st.integers(-5, 5), st.sampled_from(["=", "<", r"\leq"]))
@settings(max_examples=25)
def test_multiples_of_a_relation_are_equivalent(coefficients: tuple[int, int, int], factor: int, sign: str) -> None:
    a, b, c = coefficients
    assume(a or b)
    gold = f"({a})x+({b})y {sign} {c}"
    answer = f"({factor * a})x+({factor * b})y {sign} ({factor * c})"
    assert equal(gold, answer) is (factor > 0 or (factor < 0 and sign == "="))
    assert not equal(gold, f"({a})x+({b})y {sign} {c + 1}")


EQUAL = [
    ("x^2+y^2=1", "1-x^2=y^2"), (r"\frac{x}{2}+\frac{y}{3}=1", "3x+2y=6"), ("x < y", "y > x"), ("y' = -ry", "y'+ry=0"),
    (r"\frac{1}{x}+\frac{1}{y}=1", "x+y=xy"), (r"a \leq b < c", "c > b \\geq a"), (r"x \neq y", r"2x-2y \neq 0"),
    (r"(0,2)\cup[2,3)", r"(0,3)\cup(1,2)"), (r"[0,2]\cap(1,3)", r"(1,2]\cup\emptyset"), (r"\log x", r"\ln x"),
    (r"\log 1000", "3"), (matrix(2, 1, 4, 3), matrix(1, 2, 3, 4) + r" \cdot " + matrix(0, 1, 1, 0)),
]  # fmt: skip
OTHER = [
    ("x < y", r"x \leq y"), ("x < y", "y < x"), ("x = y", "x < y"), ("x = y", "x - y"), ("x = y = z", "x = z"),
    ("x^2 = y^2", "x = y"), (r"a < b < c", r"a < c < b"), (r"[0,2]\cap(1,3)", r"(1,2)\cup\emptyset"),
    (r"\mathbb{Z}", r"\mathbb{N}"), (r"\log_{10} x", r"\ln x"),
    (matrix(2, 1, 4, 4), matrix(1, 2, 3, 4) + r" \cdot " + matrix(0, 1, 1, 0)),
]  # fmt: skip


def test_equivalence_of_relations_sets_and_logarithms() -> None:
    for gold, answer in EQUAL + OTHER:
        assert equal(gold, answer) is ((gold, answer) in EQUAL) is equal(answer, gold), (gold, answer)


@pytest.mark.parametrize("operator", [r"\int_0^1 F \, dB", r"\int_a^b F dB", r"\sum_{B=1}^n F", r"\lim_{B\to 0} F"])
def test_operators_on_unknown_functions(operator: str) -> None:
    formula = operator.replace("F", "h(t)").replace("B", "t")
    assert equal(f"1+{formula}", f"{formula}+1")
    for other in ("h(t)", "nh(t)", "(b-a)h(t)", operator.replace("F", "k(t)").replace("B", "t")):
        assert not equal(formula, other) and not equal(other, formula), other


@pytest.mark.parametrize("function", [r"\gcd", r"\lcm", r"\operatorname{gcd}", r"\operatorname{lcm}"])
@pytest.mark.parametrize(("first", "second"), [("2x", "3x"), ("a", "12")])
def test_divisors_of_names_are_not_those_of_polynomials(function: str, first: str, second: str) -> None:
    """gcd(m, n) is not 1, lcm(m, n) not mn, as they are for two polynomials."""
    formula = f"{function}({first},{second})"
    assert equal(f"2^{{{formula}}}-1", f"-1+2^{{{function}({second},{first})}}")
    for other in ("1", "x", "x^2", f"({first})({second})", f"6{first}", f"{function}({first},k)"):
        assert not equal(formula, other) and not equal(other, formula), other


def test_exponent_T_is_a_power_but_of_a_matrix() -> None:
    for base in ("A", "2", "(1+r)", "e"):
        assert equal(f"y{base}^T", f"{base}^{{T}}y") and equal(f"{base}^T {base}^T", f"{base}^{{2T}}")
        assert not equal(f"{base}^T", base) and not equal(base, f"{base}^{{T}}")
    row, column = r"\begin{pmatrix}1&x\end{pmatrix}", r"\begin{pmatrix}1\\x\end{pmatrix}"
    assert equal(f"{row}^T", column) and equal(column, f"{row}^{{T}}") and not equal(f"{row}^T", row)


SETS = {
    "(0,1)": lambda p: 0 < p < 1, "[0,1)": lambda p: 0 <= p < 1, r"\mathbb{R}\setminus\{2\}": lambda p: p != 2,
    r"(-\infty,2)\cup(2,\infty)": lambda p: p != 2, r"[0,2]\cap(1,3)": lambda p: 1 < p <= 2, "x > 1": lambda p: p > 1,
    r"[0,3]\setminus(1,2)": lambda p: 0 <= p <= 1 or 2 <= p <= 3, r"\{1,2\}\cup(2,3)": lambda p: p == 1 or 2 <= p < 3,
    r"x \neq 1": lambda p: p != 1, r"x \in [1,2]": lambda p: 1 <= p <= 2, "|x-1| < 1": lambda p: 0 < p < 2,
    r"x < 1 \text{ or } x > 2": lambda p: p < 1 or p > 2, r"\mathbb{Z}": lambda p: p.denominator == 1,
    r"\mathbb{R}^+": lambda p: p > 0, r"\emptyset": lambda p: False, r"x = \{3\}": lambda p: p == 3,
    r"\frac{1}{2}, \sqrt{4}": lambda p: p in (Fraction(1, 2), 2),
}  # fmt: skip


def test_sets_hold_the_numbers_they_should() -> None:
    points = [Fraction(n, 4) for n in range(-4, 17)]
    for text, holds in SETS.items():
        numbers = to_set(normalize(text))
        assert [p for p in points if numbers.contains(sympy.Rational(p))] == [p for p in points if holds(p)], text


def test_other_texts_are_no_set() -> None:
    for text in ("x+1", "(1,2,3)", "(0,i)", "(a,b)", "x = y = z", r"\begin{pmatrix}1\end{pmatrix}"):
        with pytest.raises(UnreadableError):
            to_set(text)


@given(st.integers(2, 400), st.integers(3, 9))
@settings(max_examples=20)
def test_gold_decimals_take_the_root_that_rounds_to_them(radicand: int, places: int) -> None:
    assume(math.isqrt(radicand) ** 2 != radicand)
    nearest = (math.isqrt(4 * radicand * 10 ** (2 * places)) + 1) // 2  # the root in units of the last place, rounded
    decimal, beyond = (f"{n // 10**places}.{n % 10**places:0{places}d}" for n in (nearest, nearest + 2))
    root = rf"\sqrt{{{radicand}}}"
    assert equal(decimal, root) and not equal(beyond, root) and not equal(root, decimal)
    assert equal(r"\sqrt{2}", "1.41421356237310") and not equal(r"\sqrt{2}", "1.4142135623")


POWER_LAWS = (  # base, exponents p and q -> power, the same written otherwise, another one
    lambda a, p, q: (f"{a}^{{{p}+{q}}}", f"{a}^{{{p}}} \\cdot {a}^{{{q}}}", f"{a}^{{{p}}}+{a}^{{{q}}}"),
    lambda a, p, q: (f"{a}^{{{p}-{q}}}", rf"\frac{{{a}^{{{p}}}}}{{{a}^{{{q}}}}}", f"{a}^{{{p}}}-{a}^{{{q}}}"),
    lambda a, p, q: (f"({a}b)^{{{p}}}", f"{a}^{{{p}}}b^{{{p}}}", f"{a}b^{{{p}}}"),
    lambda a, p, q: (f"{a}^{{2{p}}}", f"({a}^{{{p}}})^2", f"{a}^{{{p}^2}}"),
)


@pytest.mark.parametrize("base", ["R", "2"])
@pytest.mark.parametrize("law", POWER_LAWS)
def test_powers_with_letters_in_exponents(law, base: str) -> None:
    for p, q in (("m", "n"), ("k", "2")):
        power, same, other = law(base, p, q)
        start = time.process_time()
        assert equal(power, same) and equal(same, power)
        assert not equal(power, other) and not equal(power, same + "+1")
        assert time.process_time() - start < 4.0


def test_relations_differ_on_one_branch() -> None:
    """Both sides of |x - c|: as an equation in two names, and under a root."""
    for kinked in ("|x-2000|", r"\sqrt{(x-2000)^2}"):
        assert equal(f"y^3 = {kinked}", f"2y^3 - 2{kinked} = 0")
        assert not equal(f"y^3 = {kinked}", "y^3 = x-2000") and not equal(f"y^3 = {kinked}", "y^3 = -(x-2000)")
