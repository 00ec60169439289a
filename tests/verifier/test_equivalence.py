"""Equality over all layers, against hand-written verdicts (constructed answers: the next file)."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from d3s.verifier.equivalence import equivalent
from d3s.verifier.extraction import extract
from d3s.verifier.normalize import LONGEST_ANSWER, compact, normalize
from d3s.verifier.verifier import verify

EQUAL = {  # gold answer: equal answers
    r"\frac{1}{6}": (r"0.1\overline{6}", "0.1(6)", r"0.1666\ldots", "0.166666666666667"),
    "4.5e33": ("45e32", "4.5×10³³"),
    r"(1,\frac{9}{2})": ("(1, 4.5)", r"\left(1,\,4\tfrac12\right)", "(x,y)=(1,4.5)", "x=1, y=4.5"),
    "(2,\\infty)": ("x>2", "2<x", r"\{x \mid x>2\}", r"(2,4)\cup[4,\infty)"), r"\text{(C)}\ 12": ("C", "12", "(C) 12"),
    "5": ("x=5", "x = 5", "5 = x", "f(2)=5", "2+3=5", r"|AB| = 5", r"x \approx 5"),
    "809": ("m+n = 809", "m+n = 800+9 = 809"), r"\sqrt{4\pi G\rho_0 r_0^2}": (r"2 r_0\sqrt{\pi G \rho_0}",),
    r"y^{\prime}+r y=0": ("y' = -ry",), r"5\text{ cubic units}": (r"5\text{ cm}^3", "5", "5 units^3"),
    r"(\sqrt2-1,\sqrt2+1)": (r"|x-\sqrt2|<1",), r"\text{A, C, D}": ("D, A, C", "(A), (C), (D)", r"\text{C, A and D}"),
    r"\text{Alice, Bob}": ("Bob, Alice",),
    r"\vec{a}+2\vec{b}": (r"2\vec b + \vec a", r"\mathbf{a}+2\mathbf{b}", "a+2b"), "(n!)^2": ("n!^2", r"n! \cdot n!"),
    "(a b c, d)": ("(c b a, d)",), "1.414": (r"\sqrt2", r"\frac{1414}{1000}"), "100,200": ("100200", "200, 100"),
    r"2^{25} \cdot 26!": (r"26! \cdot 2^{25}", r"26!\,2^{25}", r"13 \cdot 2^{26} \cdot 25!"),
    r"\begin{pmatrix}1&2\\3&4\end{pmatrix}": ("[[1,2],[3,4]]",),
}  # fmt: skip
DIFFERENT = {  # gold answer: unequal answers
    r"\frac{1}{m}t": ("t", r"\frac1t m", r"\frac{1}{m}"), "11a+c": ("7=11a+c", "7"),
    "7=11a+c": ("11a+c", "7", "7=11a-c"),
    r"5\text{ cubic units}": (r"5\text{ seconds}", "5 units^2", r"5\text{ square units}"),
    "x_1": ("x_2", "x", "x'", "X_1"),
    "5": ("5 or 6", "5, 6", "5 and 6", "{5,6}", r"5\pm1", "5=6", "6=5", "[5,6]", "5 6", r"\neq 5", "5?6",
          "", " ", "{}", r"\text{}", "."),
    "2RC+R": ("2rc+r", "2Rc+R"), "f(2) < f(1) < f(4)": ("f(2) < f(2) < f(4)", "f(2) < f(4)", "f(4) < f(1) < f(2)"),
    r"\begin{pmatrix}1\\2\end{pmatrix}": ("(2,1)", r"\begin{pmatrix}1&2\end{pmatrix}", "[2,1]"),
    r"\text{(A) and (C)}": ("A", "C", "(A) and (D)", "A, A", "A, C, D"),
    "|x| < 2": (r"(-\infty,2)", "|y| < 2", "x < 2"), "RT": ("rt", "Rt"),
    "x=1, x=2": ("w=1, w=2", "w=1, x=2", "w=1, 2", "x=1, y=2"), "bc": ("a bc", "a b c"),
    "7": ("m+n=8", "2x+y=7", "x^2=7", "m+n=7=8"), "x+y=7": ("7",),
    "0": (r"0\text{ false}", "0 wrong", r"0\text{ or more}"),
    r"n \equiv 2 \pmod 5": (r"n \equiv 3 \pmod 5", r"n \equiv 2 \pmod 6"), "E": ("e", r"\mathrm{E}*2", "I"),
    r"2\sqrt{2}\text{ m}": (r"2\sqrt{2}\text{ cm}", r"2\sqrt{2}\text{ m}^2"),
}  # fmt: skip


@pytest.mark.parametrize(("table", "equal"), [(EQUAL, True), (DIFFERENT, False)])
def test_answers_get_their_verdict(table: dict[str, tuple[str, ...]], equal: bool) -> None:
    for gold, answers in table.items():
        assert [answer for answer in answers if verify(rf"So it is $\boxed{{{answer}}}$.", gold) != equal] == [], gold


def test_empty_gold_never_matches() -> None:
    assert not any(verify(rf"\boxed{{{answer}}}", gold) for gold in ("", " ") for answer in ("", " ", "5"))


def test_long_answers_must_be_identical() -> None:
    number = "7" * (LONGEST_ANSWER + 1)
    assert equivalent(number, number) is True and equivalent(number, number + ".0") is False
    assert equivalent("7" * 300, "7" * 300 + ".0") is True


VERDICTS = {
    ("5", "5.0"): True, ("5", "6"): False, ("5", r"\text{no}"): False, ("x+1", "1 + x"): None,
    ("(1, x)", "(2, 1)"): False, ("(1, x)", "(1, x, 2)"): False, ("(1, 2x)", "(1, x+x)"): None,
    (r"\{1, x\}", r"\{x, 1\}"): True,
}  # fmt: skip


def test_verdict_without_formula_layer() -> None:
    assert {pair: equivalent(*pair) for pair in VERDICTS} == VERDICTS


def test_formula_layer_sees_open_parts_only() -> None:
    compared = []
    assert equivalent("(3, 2x, 5)", "(3.0, x+x, 5)", lambda *pair: compared.append(pair) or True) is True
    assert compared == [("2x", "x+x")]


def test_nesting_is_bounded() -> None:
    def nested(depth: int) -> str:
        return "1" if depth == 0 else rf"(2, {nested(depth - 1)})"

    assert equivalent(nested(4), nested(4).replace("1", "1.0")) is True
    assert equivalent(nested(30), nested(30).replace("1", "1.0")) is False


ALPHABET = st.text(alphabet="0123456789abcxyei+-*/^_=<>(){}[]|!,.;:% $\\'\"\n°√π½²∞≤", max_size=40)
PIECES = (
    r"\frac", r"\sqrt", r"\text{", "}", "{", "(", ")", "[", "]", r"\{", r"\}", r"\pm", r"\cup", r"\cap", "=", "<",
    r"\leq", r"\infty", ",", ";", "1", "2", "0.5", "x", "y", "i", "e", "^", "_", "+", "-", r"\cdot", r"\times", "10",
    "%", "C", "(A)", r"^\circ", r"\left(", r"\right)", r"\begin{pmatrix}", r"\end{pmatrix}", "&", r"\\", r"\sin",
    r"\log", r"\in", "|", "and", r"\mathbb{R}", r"\boxed{", "!", "or", "cm", r"\approx", ".", "3:", r"\bar",
)  # fmt: skip
ANSWERS = st.one_of(ALPHABET, st.lists(st.sampled_from(PIECES), max_size=14).map("".join), st.text(max_size=30))


@given(ANSWERS, ANSWERS)
@settings(max_examples=150)
def test_cheap_layers_are_total_and_reflexive(gold: str, answer: str) -> None:
    assert equivalent(gold, answer) in (True, False, None)
    assert extract(answer, "lenient") != ()
    if compact(normalize(answer)):
        assert equivalent(answer, answer) is True


NUMBERS = st.one_of(
    st.integers(-999, 999).map(str),
    st.builds(r"\frac{{{}}}{{{}}}".format, st.integers(-99, 99), st.integers(1, 30)),
    st.builds("{}.{}".format, st.integers(0, 99), st.integers(1, 9)),
    st.integers(2, 40).map(r"\sqrt{{{}}}".format),
)
FORMS = ("{}", "{}, {}", "{}, {}, {}", "({}, {})", "({}, {}, {})", r"\{{{}, {}\}}", "x = {}", "x > {}")
STRUCTURES = st.builds(str.format, st.sampled_from(FORMS), NUMBERS, NUMBERS, NUMBERS)


@given(STRUCTURES, STRUCTURES)
@settings(max_examples=40)
def test_equality_is_symmetric_without_rounding(gold: str, answer: str) -> None:
    assert verify(rf"\boxed{{{answer}}}", gold) == verify(rf"\boxed{{{gold}}}", answer)
