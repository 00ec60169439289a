"""Equality over all layers, against hand-written verdicts and exact fractions (constructed answers: the next file)."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from d3s.verifier.equivalence import equivalent
from d3s.verifier.extraction import extract
from d3s.verifier.normalize import LONGEST_ANSWER, compact, normalize
from d3s.verifier.verifier import Verifier, verify

# Gold answer, then equal answers.
EQUAL = {
    "e-notation": ("4.5e33", r"4.5 \times 10^{33}", r"4.5\cdot10^{33}", "4.5*10^33", "4.5×10³³", "45e32"),
    "recurring decimal": (r"\frac{1}{6}", r"0.1\overline{6}", "0.1(6)", r"0.1666\ldots", "0.166666666666667"),
    "tuple": (r"(1,\frac{9}{2})", "(1, 4.5)", r"\left(1,\,4\tfrac12\right)", "(x,y)=(1,4.5)", "x=1, y=4.5"),
    "half line": ("(2,\\infty)", "x>2", "2<x", r"\{x \mid x>2\}", r"(2,4)\cup[4,\infty)"),
    "assignment": ("5", "x=5", "x = 5", "5 = x", "f(2)=5", "2+3=5", r"|AB| = 5", r"x \approx 5"),
    "names": (r"\lambda_{\text{red}}/\sqrt2", r"\frac{\lambda_{red}}{\sqrt{2}}",
              r"\frac{\sqrt 2}{2}\lambda_{\mathrm{red}}"),
    "positive quantities": (r"\sqrt{4\pi G\rho_0 r_0^2}", r"2 r_0\sqrt{\pi G \rho_0}"),
    "primes": (r"y^{\prime}+r y=0", "y' = -ry"),
    "choice with text": (r"\text{(C)}\ 12", "C", "12", "(C) 12"),
    "any unit": (r"5\text{ cubic units}", r"5\text{ cm}^3", "5", "5 units^3"),
    "choices": (r"\text{A, C, D}", "D, A, C", "(A), (C), (D)", r"\text{C, A and D}"),
    "two names": (r"\text{Alice, Bob}", "Bob, Alice", r"\text{Bob and Alice}"),
    "distance from a name": (r"(\sqrt2-1,\sqrt2+1)", r"|x-\sqrt2|<1"),
    "sum of names": ("809", "m+n = 809", "m + n = 800 + 9 = 809"),
    "vectors": (r"\vec{a}+2\vec{b}", r"2\vec b + \vec a", r"\mathbf{a}+2\mathbf{b}", "a+2b"),
    "square of a factorial": ("(n!)^2", "n!^2", r"n! \cdot n!"),
    "spaced factors": ("(a b c, d)", "(c b a, d)"),
    "rounded to the gold's digits": ("1.414", r"\sqrt2", r"\frac{1414}{1000}"),
    "two readings of a comma": ("100,200", "100200", "200, 100"),
    "power and factorial": (r"2^{25} \cdot 26!", r"26! \cdot 2^{25}", r"26!\,2^{25}", r"13 \cdot 2^{26} \cdot 25!"),
    "matrix of rows": (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", "[[1,2],[3,4]]"),
}  # fmt: skip

# Gold answer, then unequal answers.
DIFFERENT = {
    "the last of thirty digits": ("123456789012345678901234567890", "123456789012345678901234567891"),
    "no unit is a variable": (r"\frac{1}{m}t", "t", r"\frac1t m", r"\frac{1}{m}"),
    "cubic units": (r"5\text{ cubic units}", r"5\text{ seconds}", "5 units^2", r"5\text{ square units}"),
    "hedges": ("5", "5 or 6", "5, 6", "5 and 6", "{5,6}", r"5\pm1", "5=6", "6=5", "[5,6]", "5 6", r"\neq 5", "5?6"),
    "one side of an equation": ("11a+c", "7=11a+c", "7"),
    "an equation for its side": ("7=11a+c", "11a+c", "7", "7=11a-c"),
    "indices": ("x_1", "x_2", "x", "x'", "X_1"),
    "capital letters": ("2RC+R", "2rc+r", "2Rc+R"),
    "chains of names": ("f(2) < f(1) < f(4)", "f(2) < f(2) < f(4)", "f(2) < f(4)", "f(4) < f(1) < f(2)"),
    "matrices": (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix}1&2\end{pmatrix}", "(2,1)",
                 r"\begin{pmatrix}2\\1\end{pmatrix}"),
    "choices": (r"\text{(A) and (C)}", "A", "C", "(A) and (D)", "A, A", "A, C, D"),
    "a distance is not its name": ("|x| < 2", r"(-\infty,2)", "|y| < 2", "x < 2"),
    "cases of products": ("RT", "rt", "Rt"),
    "names in lists": ("x=1, x=2", "w=1, w=2", "w=1, x=2", "w=1, 2", "x=1, y=2"),
    "articles are factors too": ("bc", "a bc", "a b c"),
    "sum of names": ("7", "m+n=8", "2x+y=7", "x^2=7", "m+n=7=8"),
    "an equation is more than its value": ("x+y=7", "7"),
    "modulus": (r"n \equiv 2 \pmod 5", r"n \equiv 3 \pmod 5", r"n \equiv 2 \pmod 6"),
    "names that sympy takes": ("E", "e", r"\mathrm{E}*2", "I"),
    "nothing": ("5", "", " ", "{}", r"\text{}", "."),
    "words after zero": ("0", r"0\text{ false}", "0 wrong", r"0\text{ or more}"),
    "units of formulas": (r"2\sqrt{2}\text{ m}", r"2\sqrt{2}\text{ cm}", r"2\sqrt{2}\text{ m}^2"),
}  # fmt: skip


@pytest.fixture(scope="module")
def verifier():
    with Verifier(workers=1, timeout_s=30.0) as shared:
        yield shared


def unexpected(verifier: Verifier, gold: str, answers: list[str], expected: float) -> list[str]:
    """The answers that do not get the expected score."""
    scores = verifier.score([rf"So it is $\boxed{{{answer}}}$." for answer in answers], [gold] * len(answers))
    return [answer for answer, score in zip(answers, scores) if score != expected]


@pytest.mark.parametrize("kind", EQUAL)
def test_equal(kind: str, verifier: Verifier) -> None:
    gold, *answers = EQUAL[kind]
    assert unexpected(verifier, gold, answers, 1.0) == []


@pytest.mark.parametrize("kind", DIFFERENT)
def test_different(kind: str, verifier: Verifier) -> None:
    gold, *answers = DIFFERENT[kind]
    assert unexpected(verifier, gold, answers, 0.0) == []


def test_empty_gold_never_matches(verifier: Verifier) -> None:
    assert verifier.score([r"\boxed{}", r"\boxed{ }", "", r"\boxed{5}"], ["", " ", "", ""]) == [0.0] * 4


def test_long_answers_must_be_identical() -> None:
    number = "7" * (LONGEST_ANSWER + 1)
    assert equivalent(number, number) is True
    assert equivalent(number, number + ".0") is False
    assert equivalent("7" * 300, "7" * 300 + ".0") is True


@pytest.mark.parametrize(
    ("gold", "answer", "verdict"),
    [
        ("5", "5.0", True), ("5", "6", False), ("5", r"\text{no}", False), ("x+1", "1 + x", None),
        ("(1, x)", "(1, x, 2)", False), ("(1, x)", "(2, 1)", False), ("(1, 2x)", "(1, x+x)", None),
        (r"\{1, x\}", r"\{x, 1\}", True),
    ],
)  # fmt: skip
def test_verdict_without_formula_layer(gold: str, answer: str, verdict: bool | None) -> None:
    assert equivalent(gold, answer) is verdict


def test_formula_layer_sees_open_parts_only() -> None:
    compared = []

    def record(gold: str, answer: str) -> bool:
        compared.append((gold, answer))
        return True

    assert equivalent("(3, 2x, 5)", "(3.0, x+x, 5)", record) is True
    assert compared == [("2x", "x+x")]


def test_nesting_is_bounded() -> None:
    def nested(depth: int) -> str:
        return "1" if depth == 0 else rf"(2, {nested(depth - 1)})"

    assert equivalent(nested(4), nested(4).replace("1", "1.0")) is True
    assert equivalent(nested(30), nested(30).replace("1", "1.0")) is False


spellings = st.sampled_from(
    [
        lambda n, d: rf"\frac{{{n}}}{{{d}}}",
        lambda n, d: rf"\dfrac{{{n}}}{{{d}}}",
        lambda n, d: f"{n}/{d}",
        lambda n, d: rf"\frac{{{3 * n}}}{{{3 * d}}}",
        lambda n, d: rf"-\frac{{{-n}}}{{{d}}}",
        lambda n, d: f"x = {n}/{d}",
    ]
)


@given(st.integers(-60, 60), st.integers(1, 40), st.integers(-60, 60), st.integers(1, 40), spellings, spellings)
@settings(max_examples=50)
def test_fractions_agree_with_exact_arithmetic(a: int, b: int, c: int, d: int, spell, respell) -> None:
    assert verify(rf"\boxed{{{spell(a, b)}}}", respell(c, d).removeprefix("x = ")) == (Fraction(a, b) == Fraction(c, d))


ALPHABET = st.text(alphabet="0123456789abcxyei+-*/^_=<>(){}[]|!,.;:% $\\'\"\n°√π½²∞≤", max_size=40)
PIECES = st.lists(
    st.sampled_from(
        [
            r"\frac", r"\sqrt", r"\text{", r"}", r"{", r"(", r")", r"[", r"]", r"\{", r"\}", r"\pm", r"\cup",
            r"\cap", r"=", r"<", r"\leq", r"\infty", r",", r";", r"1", r"2", r"0.5", r"x", r"y", r"i", r"e", r"^",
            r"_", r"+", r"-", r"\cdot", r"\times", r"10", r"%", r"^\circ", r"\left(", r"\right)", r"\begin{pmatrix}",
            r"\end{pmatrix}", r"&", r"\\", r"\sin", r"\log", r"\in", r"\mathbb{R}", r"\boxed{", r"!", r"|", r"and",
            r"or", r"cm", r"\approx", r".", r"C", r"(A)", r"3:", r"\bar",
        ]
    ),
    max_size=14,
).map("".join)  # fmt: skip
ANSWERS = st.one_of(ALPHABET, PIECES, st.text(max_size=30))


@given(ANSWERS, ANSWERS)
@settings(max_examples=150)
def test_cheap_layers_are_total_and_reflexive(gold: str, answer: str) -> None:
    assert equivalent(gold, answer) in (True, False, None)
    assert extract(answer, "lenient") is None or extract(answer, "lenient").texts
    if compact(normalize(answer)):
        assert equivalent(answer, answer) is True


@given(ANSWERS, ANSWERS)
@settings(max_examples=25)
def test_verify_is_always_a_bool(gold: str, answer: str) -> None:
    assert isinstance(verify(rf"\boxed{{{answer}}}", gold), bool)
    assert isinstance(verify(answer, gold, "lenient"), bool)


NUMBERS = st.one_of(
    st.integers(-999, 999).map(str),
    st.tuples(st.integers(-99, 99), st.integers(1, 30)).map(lambda f: rf"\frac{{{f[0]}}}{{{f[1]}}}"),
    st.tuples(st.integers(0, 99), st.integers(1, 9)).map(lambda f: f"{f[0]}.{f[1]}"),
    st.integers(2, 40).map(lambda n: rf"\sqrt{{{n}}}"),
)
STRUCTURES = st.one_of(
    NUMBERS,
    st.lists(NUMBERS, min_size=2, max_size=3).map(", ".join),
    st.lists(NUMBERS, min_size=2, max_size=3).map(lambda n: f"({', '.join(n)})"),
    st.lists(NUMBERS, min_size=2, max_size=3).map(lambda n: rf"\{{{', '.join(n)}\}}"),
    NUMBERS.map(lambda n: f"x = {n}"),
    NUMBERS.map(lambda n: f"x > {n}"),
)


@given(STRUCTURES, STRUCTURES)
@settings(max_examples=40)
def test_equality_is_symmetric_without_rounding(gold: str, answer: str) -> None:
    assert verify(rf"\boxed{{{answer}}}", gold) == verify(rf"\boxed{{{gold}}}", answer)
