"""Equality over all layers, against hand-written verdicts and answers whose construction gives the verdict."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.verifier.competition_answers import competition_answers
from benchmarks.verifier.generated_answers import KINDS, generated_answers
from benchmarks.verifier.hostile_answers import close_numbers, math_verify_false_positives
from d3s.verifier.conventions import with_common_letters
from d3s.verifier.equivalence import equivalent
from d3s.verifier.normalize import LONGEST_ANSWER, compact, normalize
from d3s.verifier.verdict import MAX_UNORDERED, Comparison, Verdict, all_of, any_of, undecided
from tests.helpers.verdicts import are_equal

EQUAL = {  # gold answer: equal answers
    r"\frac{1}{6}": (r"0.1\overline{6}", "0.1(6)", r"0.1666\ldots", "0.166666666666667"),
    "4.5e33": ("45e32", "4.5×10³³"),
    r"(1,\frac{9}{2})": ("(1, 4.5)", r"\left(1,\,4\tfrac12\right)", "(x,y)=(1,4.5)", "x=1, y=4.5"),
    "(2,\\infty)": ("x>2", "2<x", r"\{x \mid x>2\}", r"(2,4)\cup[4,\infty)"), r"\text{(C)}\ 12": ("C", "12", "(C) 12"),
    "5": ("x=5", "5 = x", "f(2)=5", "2+3=5", r"|AB| = 5", r"x \approx 5"),
    "809": ("m+n = 809", "m+n = 800+9 = 809"), r"\sqrt{4\pi G\rho_0 r_0^2}": (r"2 r_0\sqrt{\pi G \rho_0}",),
    r"y^{\prime}+r y=0": ("y' = -ry",), r"5\text{ cubic units}": (r"5\text{ cm}^3", "5", "5 units^3"),
    r"(\sqrt2-1,\sqrt2+1)": (r"|x-\sqrt2|<1",), r"\text{A, C, D}": ("D, A, C", "(A), (C), (D)", r"\text{C, A and D}"),
    r"\vec{a}+2\vec{b}": (r"2\vec b + \vec a", r"\mathbf{a}+2\mathbf{b}", "a+2b"), "(n!)^2": ("n!^2", r"n! \cdot n!"),
    "(a b c, d)": ("(c b a, d)",), "1.414": (r"\sqrt2", r"\frac{1414}{1000}"), "100,200": ("100200", "200, 100"),
    r"2^{25} \cdot 26!": (r"26! \cdot 2^{25}", r"26!\,2^{25}", r"13 \cdot 2^{26} \cdot 25!"),
    r"\begin{pmatrix}1&2\\3&4\end{pmatrix}": ("[[1,2],[3,4]]",), r"\$5": ("5 dollars", "5"), "$5$": ("5 cents",),
    r"\$5 million": (r"5\text{ million dollars}",), "3": (r"\sqrt{9} \approx 3.0", r"3 \approx 2(1.5)", "‑(−3)"),
    r"(\sqrt2,1)": (r"(\sqrt2,1) \approx (1.41,1)",), r"\sqrt2": (r"\sqrt2 \approx 1.41\ldots",),
    r"2\pi": [rf"2\pi \approx 6.28 {remark}" for remark in (r"\text{ (3 s.f.)}", "(nearest hundredth)")],
    r"\frac{13}{15}": (r"\frac{13}{15} \approx 0.867 = 86.7\%", r"\frac{13}{15} \approx 0.87 \text{ or } 87\%"),
    r"x \approx 1.5, y \approx 2.3": ("x=1.5, y=2.3", "1.5, 2.3"), "x_1=2 and x_2=3": ("x_1=2 or x_2=3",),
    r"1+\sqrt2, 1-\sqrt2": (r"1\pm\sqrt2 \approx -0.414, 2.414", r"1+\sqrt2 \approx 2.414, 1-\sqrt2 \approx -0.414"),
    "x+y-1=0 or x-y-3=0": ("x+y-1=0 and x-y-3=0",), r"|\vec a-\vec b|": (r"|\vec b-\vec a|",),
    "x_{12}'+1": ("1+x_{12}'",), r"12\text{ in}^2": ("12", r"12\text{ square inches}"), r"(\pm3,0)": ("(3,0), (-3,0)",),
    "(1,2)": ("y=2, x=1",), "(2,3)": ("m=2, b=3",), r"1+\log_2 5": (r"\log_25+1",),
    r"\begin{pmatrix}k\\2k\end{pmatrix}": (r"k\begin{pmatrix}1\\2\end{pmatrix}",),
    r"(-\infty,-2)\cup\{0\}\cup(2,\infty)": ("x<-2 or x=0 or x>2",),
    "x=2 and x=3": ("x=2 or x=3",), r"\sqrt2 \text{ and } -\sqrt2": (r"\sqrt2 \text{ or } -\sqrt2",),
    r"|2\vec{a}|": (r"2|\vec a|",), r"p \land q": (r"q \land p",),
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
    r"2\sqrt{2}\text{ m}": (r"2\sqrt{2}\text{ cm}", r"2\sqrt{2}\text{ m}^2"), r"\$5": (r"5\text{ cents}", "€5", r"5\%"),
    r"\sqrt2": [rf"\sqrt2 \approx {claim}" for claim in (r"1.41 \text{ or } 6", "3+1", r"\text{no}", "(1.41,1)")],
    r"p \land\neg q": (r"p \lor\neg q",), r"x \neq 1 and x \neq 2": (r"x \neq 1 or x \neq 2",),
    r"2\vec a": (r"|2\vec a|",), "x=2 and y=3": ("x=2 or y=3",), "(3,0)": (r"(\pm3,0)",),
    r"x \approx 1.5, y \approx 2.3": ("2.3", r"x \approx 7, y \approx 2.3"), "12 in": ("12 in^2",),
    "(2,1)": ("y=2, x=1",),
    "x^2+y^2=1 and x+y=1": ("x^2+y^2=1 or x+y=1",), r"2\hat i + 3\hat j": (r"|2\hat i + 3\hat j|",),
    r"[5,\infty)": (r"[5,\infty]", r"[5,6] \cup [6,\infty]"),
    r"\begin{pmatrix}2\\3\end{pmatrix}": (r"|\begin{pmatrix}2\\3\end{pmatrix}|",),
    r"5\text{ cents}": (r"\$5",), "5 km": ("$5",), "": ("", " ", "5"), " ": ("",),
}  # fmt: skip


@pytest.mark.parametrize(("table", "equal"), [(EQUAL, True), (DIFFERENT, False)])
def test_answers_get_their_verdict(table: dict[str, tuple[str, ...]], equal: bool) -> None:
    for gold, answers in table.items():
        assert [answer for answer in answers if are_equal(gold, answer) != equal] == [], gold


SAME_BUT_LETTERS = [
    (r"2\pi k", r"2\pi n"), (r"k\pi, k \in \mathbb{Z}", r"n\pi \ (n \in \mathbb{Z})"), (r"(2k+1)\pi", r"(2m+1)\pi"),
    (r"3k+1, k \in \mathbb{Z}", r"3n+1, n \in \mathbb{Z}"), (r"30^\circ + 360^\circ k", r"30^\circ + 360^\circ n"),
    (r"\frac{k\pi}{3}", r"\frac{n\pi}{3} \text{ for any integer } n"), (r"x^2+C", "x^2+c"),
    (r"k\pi", r"k\pi \text{ where } k \text{ is an integer}"), (r"(-1)^n", r"\cos n\pi"), (r"\cos(\pi n)", "(-1)^{n}"),
    (r"(-\,1)^n", r"\cos n\pi"), (r"( - 1 ) ^{n}", r"\cos{n\pi}"),
    ("f(x)=x", r"f(x)=x \text{ for all } x"), (r"f(n)=n \quad \forall n", "f(n)=n"),
    ("f(x)=cx", r"f(x)=cx \text{ for some constant } c"), ("f(x)=cx", r"f(x)=cx, \text{ where } c \in \mathbb{R}"),
]  # fmt: skip
OTHER_LETTERS = [
    (r"k\pi, k \in \mathbb{Z}", r"k\pi, k \in \mathbb{N}"), (r"k\pi", r"x\pi"), (r"3k+1", "3n+1"),
    (r"\frac{\pi}{k}", r"\frac{\pi}{n}"), (r"k\pi r", r"n\pi r"), (r"k\pi + n", r"n\pi + k"),
    (r"2\pi k", r"2\pi k \text{ if } k > 0"), (r"ax^2+bx+c", "ax^2+bx+C x"), (r"x^2+Cx+C", "x^2+cx+c"),
    (r"x^2+C", "x^2"), (r"(-1)^n", r"\cos 2n\pi"), (r"(-1)^n", r"\cos n\pi x"),
    (r"f(x)=x \text{ for all } x > 1", r"f(x)=x \text{ for all } x > 2"),
]  # fmt: skip


def test_letters_of_choice_and_conditions() -> None:
    for gold, answer in SAME_BUT_LETTERS + OTHER_LETTERS:
        for pair in ((gold, answer), (answer, gold)):
            first, second = map(compact, with_common_letters(*map(normalize, pair)))
            assert (first == second) is ((gold, answer) in SAME_BUT_LETTERS), pair


@pytest.mark.parametrize("kind", KINDS)
def test_generated_answers_get_their_verdict(kind: str) -> None:
    cases = [case for case in generated_answers(seed=11, draws=2) if case.kind == kind]
    assert [case for case in cases if are_equal(case.gold, case.answer) != case.equal] == []


@pytest.mark.parametrize("make", [close_numbers, math_verify_false_positives])
def test_answers_that_only_look_equal_are_wrong(make) -> None:
    assert [case for case in make() if are_equal(*case)] == []


def test_hand_written_answers_get_their_verdict() -> None:
    """No unequal pair of 419 is accepted; three equal ones, such as two forms of `(2n-1)!!`, are missed."""
    cases = competition_answers()
    wrong = [(gold, answer, equal) for gold, answer, equal in cases if are_equal(gold, answer) != equal]
    assert len(cases) > 400 and [case for case in wrong if not case[2]] == [] and len(wrong) <= 3, wrong


def test_equal_constants_of_any_size_are_equal() -> None:
    assert are_equal("10^{400}+1", "(10^{200})^2+1") and are_equal(r"e^{-1000}", r"\frac{1}{e^{1000}}")
    assert are_equal(r"\sqrt[10^{400}]{2}", r"\sqrt[10^{400}]{\frac{4}{2}}")


def test_long_and_deep_answers_must_be_identical() -> None:
    def nested(depth: int) -> str:
        return "1" if depth == 0 else rf"(2, {nested(depth - 1)})"

    number = "7" * (LONGEST_ANSWER + 1)
    assert equivalent(number, number) is True and equivalent(number, number + ".0") is False
    for gold, equal in (("7" * 300 + "1", True), (nested(4), True), (nested(30), False)):
        assert equivalent(gold, gold.replace("1", "1.0")) is equal


# The layers below formulas, and the logic by which the verdicts of items are combined.

VERDICTS = {
    ("5", "5.0"): True, ("5", "6"): False, ("5", r"\text{no}"): False, ("x+1", "1 + x"): None,
    ("(1, x)", "(2, 1)"): False, ("(1, x)", "(1, x, 2)"): False, ("(1, 2x)", "(1, x+x)"): None,
    (r"\{1, x\}", r"\{x, 1\}"): True,
}  # fmt: skip


def test_formula_layer_sees_open_parts_only() -> None:
    assert {pair: equivalent(*pair) for pair in VERDICTS} == VERDICTS
    compared = []
    assert equivalent("(3, 2x, 5)", "(3.0, x+x, 5)", lambda *pair: compared.append(pair) or True) is True
    assert compared == [("2x", "x+x")]


@given(st.lists(st.sampled_from([True, False, None]), max_size=6))
def test_all_of_is_kleenes_minimum_any_of_the_maximum(verdicts: list[Verdict]) -> None:
    order = {False: 0, None: 1, True: 2}
    assert order[all_of(verdicts)] == min((order[verdict] for verdict in verdicts), default=2)
    assert order[any_of(verdicts)] == max((order[verdict] for verdict in verdicts), default=0)


def equal_mod_4(gold: str, answer: str) -> Verdict:
    return int(gold) % 4 == int(answer) % 4


def equal_texts_only(gold: str, answer: str) -> Verdict:
    return True if gold == answer else None


integers = st.lists(st.integers(0, 3), max_size=5)


@given(integers, integers, st.lists(st.integers(0, 2), min_size=5, max_size=5))
def test_any_order_agrees_with_all_permutations(golds: list[int], answers: list[int], shifts: list[int]) -> None:
    """Shifts by multiples of 4 make equal items differ as texts, so that the quick comparison misses them."""
    comparison = Comparison(full=equal_mod_4, quick=equal_texts_only, formulas=undecided)
    gold_texts, shifted = [*map(str, golds)], [str(answer + 4 * shift) for answer, shift in zip(answers, shifts)]
    expected = any(list(order) == golds for order in permutations(answers))
    assert comparison.in_any_order(gold_texts, shifted) is expected
    assert comparison.in_order(gold_texts, shifted) is (golds == answers)


def test_quick_comparison_leaves_items_open() -> None:
    quick = Comparison(full=equal_texts_only, quick=equal_texts_only, formulas=undecided)
    assert quick.in_any_order(["1", "2"], ["2", "1"]) is True
    assert quick.in_any_order(["1", "x"], ["2x", "1"]) is None
    assert quick.in_any_order(["1", "x"], ["2x", "1", "1"]) is False
    full = Comparison(full=equal_mod_4, quick=equal_texts_only, formulas=undecided)
    assert (full.in_order(["1"], ["5"]), full.in_order(["1"], ["5"], quick=True)) == (True, None)
    numbers = [str(4 * number) for number in range(MAX_UNORDERED + 1)]  # too many to be compared in any order
    texts = Comparison(full=str.__eq__, quick=equal_texts_only, formulas=undecided)
    assert texts.in_any_order(numbers[:-1], numbers[-2::-1]) is True
    assert texts.in_any_order(numbers, numbers) is True and texts.in_any_order(numbers, numbers[::-1]) is False
