"""Equality over all layers, against hand-written verdicts, exact fractions, polynomial products."""

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
    "small e-notation": ("1e-5", "10^{-5}", "0.00001", r"1 \times 10^{-5}"),
    "thousands": ("10{,}000", "10,000", r"10\,000", "10 000", "10000", r"10,\!000", "10000.0", r"\$10,000"),
    "negative mixed number": (r"-3\frac{1}{2}", "-7/2", "-3.5", r"-\frac72", "−3½", "-3 1/2"),
    "fraction": (r"\frac{1}{2}", "0.5", ".5", "1/2", r"\dfrac12", r"\tfrac{2}{4}", r"50\%", "2^{-1}", r"\frac{-1}{-2}"),
    "recurring decimal": (r"\frac{1}{6}", r"0.1\overline{6}", "0.1(6)", r"0.1666\ldots", "0.166666666666667"),
    "long integers": ("123456789012345678901234567890", "123,456,789,012,345,678,901,234,567,890"),
    "percent": (r"28\%", "28", "28 %", "0.28", "28 percent", r"28\text{ pct}"),
    "degrees": (r"45^\circ", "45°", "45", "45 degrees", r"45^{\circ}", r"\frac{\pi}{4}"),
    "units": (r"12\text{ cm}^2", "12", "12 cm^2", r"12\text{ square cm}", r"12\ \mathrm{cm}^2", "12.0"),
    "words after a number": ("100", "100 dollars", r"\$100", r"100\text{ apples}", "about 100"),
    "compound unit": ("3e8", r"3\times10^8\text{ m/s}", r"300{,}000{,}000"),
    "bases": ("101_2", "101_{2}", r"101_{\text{two}}"),
    "list": ("1,2,3", "3, 2, 1", r"\{1,2,3\}", "1, 2, and 3", r"1 \text{ or } 2 \text{ or } 3", "x=1,2,3", "1;2;3"),
    "tuple": (r"(1,\frac{9}{2})", "(1, 4.5)", r"\left(1,\,4\tfrac12\right)", "(x,y)=(1,4.5)", "x=1, y=4.5"),
    "plus-minus": (r"1\pm\sqrt{2}", r"1+\sqrt2, 1-\sqrt2", r"\{1-\sqrt{2},1+\sqrt{2}\}"),
    "interval": ("[0,1)", r"\left[0,1\right)", r"0\le x<1", r"x\in[0,1)", r"1 > x \geq 0"),
    "half line": ("(2,\\infty)", "x>2", "2<x", r"\{x \mid x>2\}", r"(2,4)\cup[4,\infty)"),
    "union": (r"(-\infty,2)\cup(2,\infty)", r"(2,\infty)\cup(-\infty,2)", r"\mathbb{R}\setminus\{2\}", r"x\neq2",
              "x<2 or x>2"),
    "matrix": (r"\begin{pmatrix}1&\frac12\\3&4\end{pmatrix}", r"\begin{bmatrix}1&0.5\\3&4\end{bmatrix}"),
    "vector": (r"\begin{pmatrix}1\\2\end{pmatrix}", "(1,2)", r"\left(\begin{array}{c}1\\2\end{array}\right)"),
    "assignment": ("5", "x=5", "x = 5", "5 = x", "f(2)=5", "2+3=5", r"|AB| = 5", r"x \approx 5"),
    "function": ("2x+1", "f(x)=1+2x", "y = 2x+1"),
    "equation": ("x^2+y^2=1", "x^2=1-y^2", "2x^2+2y^2=2", "1=x^2+y^2", "-x^2-y^2+1=0"),
    "inequality": ("x<1", "-x>-1", "1>x", "2x<2", r"(-\infty,1)"),
    "complex": (r"\frac{1-i}{2}", r"\frac{1}{1+i}", r"\frac12-\frac12 i", "0.5-0.5i"),
    "exact constants": ("-1", r"e^{i\pi}", r"i^2", r"\cos\pi", r"\log_{2}\frac12", r"3-4"),
    "binomials and sums": ("120", r"\binom{16}{2}", "5!", r"\sum_{k=1}^{15} k", r"{16 \choose 2}"),
    "algebra": ("(x-1)(x+1)", "x^2-1", "-1+x^2", r"x^{3-1}-1", r"\frac{x^4-1}{x^2+1}"),
    "trigonometry": (r"\tan^2 y+1", r"\sec^2(y)", r"\frac{1}{\cos^2 y}"),
    "names": (r"\lambda_{\text{red}}/\sqrt2", r"\frac{\lambda_{red}}{\sqrt{2}}",
              r"\frac{\sqrt 2}{2}\lambda_{\mathrm{red}}"),
    "positive quantities": (r"\sqrt{4\pi G\rho_0 r_0^2}", r"2 r_0\sqrt{\pi G \rho_0}"),
    "primes": (r"y^{\prime}+r y=0", "y' = -ry"),
    "choice": ("C", "(C)", r"\text{(C)}", "C.", "C) 12", r"\textbf{(C)}\ 12", r"\mathrm{C}"),
    "choice with text": (r"\text{(C)}\ 12", "C", "12", "(C) 12"),
    "words": (r"\text{Friday}", "friday", r"\text{Friday.}", r"\mathrm{Friday}"),
    "clock": ("12:00", "12:00 pm", "12:00", "noon"),
    "any unit": (r"5\text{ cubic units}", r"5\text{ cm}^3", "5", "5 units^3"),
    "whole hours": (r"\text{7 p.m.}", "7:00 PM", "7 pm", r"7\text{ p.m.}"),
    "dates": (r"\text{June 5}", "June 5", "june 5th"),
    "choices": (r"\text{A, C, D}", "D, A, C", "(A), (C), (D)", r"\text{C, A and D}"),
    "choices in brackets": (r"\text{(A), (C)}", "A, C", "C and A"),
    "two names": (r"\text{Alice, Bob}", "Bob, Alice", r"\text{Bob and Alice}"),
    "names with and": (r"\text{Ann, Bo and Cy}", "Cy, Bo and Ann", "Bo, Cy, Ann"),
    "distance from a point": ("(1,5)", "|x-3|<2", "2 > |x-3|"),
    "distance from zero": (r"(-\infty,-1]\cup[1,\infty)", r"|x| \ge 1", r"1 \leq \lvert x \rvert"),
    "distance from a name": (r"(\sqrt2-1,\sqrt2+1)", r"|x-\sqrt2|<1"),
    "half lines by name": (r"(0,\infty)", r"\mathbb{R}^+", r"\mathbb{R}^{+}"),
    "number words": ("12", r"\text{twelve}", "Twelve"),
    "infinity": (r"-\infty", r"-\text{infinity}", "-infinity"),
    "modulus": (r"n \equiv 2 \pmod 5", r"n\equiv 2\pmod{5}", r"n \equiv 2 (\text{mod } 5)", r"n \equiv 2\ (\bmod\ 5)"),
    "sum of names": ("809", "m+n = 809", "m + n = 800 + 9 = 809"),
    "segment": (r"\overline{AB}", "AB"),
    "angle": ("ABC", r"\angle ABC"),
    "vectors": (r"\vec{a}+2\vec{b}", r"2\vec b + \vec a", r"\mathbf{a}+2\mathbf{b}", "a+2b"),
    "unit vectors": (r"2\hat{i}-3\hat{j}", r"2\vec{i}-3\vec{j}", r"2\mathbf{i}-3\mathbf{j}"),
    "square of a factorial": ("(n!)^2", "n!^2", r"n! \cdot n!"),
    "base of a logarithm": (r"\ln 2", r"\log_e 2", r"\log_{e} 2"),
    "spaced factors": ("(a b c, d)", "(c b a, d)"),
    "ratio": ("7:32", "14:64", r"\frac{7}{32}", "S:T = 7:32"),
    "exact value and approximation": (r"\frac{\sqrt3}{3}", r"\frac{\sqrt{3}}{3} \approx 0.577", r"\frac{1}{\sqrt3}"),
    "rounded to the gold's digits": ("1.414", r"\sqrt2", r"\frac{1414}{1000}"),
    "two readings of a comma": ("100,200", "100200", "200, 100"),
    "power and factorial": (r"2^{25} \cdot 26!", r"26! \cdot 2^{25}", r"26!\,2^{25}", r"13 \cdot 2^{26} \cdot 25!"),
    "spaced radicals": (r"\sqrt{23}-2 \sqrt{3}", r"\sqrt{23}-2\sqrt3", r"-\sqrt{12}+\sqrt{23}"),
    "root of a fraction": (r"\sqrt{\frac{95}{24}}", r"\frac{\sqrt{570}}{12}", r"\sqrt{95/24}"),
    "two roots": (r"\frac{-1+\sqrt{17}}{2}, \frac{-1-\sqrt{17}}{2}", r"\frac{-1\pm\sqrt{17}}{2}"),
    "units as models write them": (r"9.8\text{ m/s}^2", r"9.8\,\mathrm{m\,s^{-2}}",
                                  r"9.8\ \frac{\text{m}}{\text{s}^2}", "9.8"),
    "a letter as unit": ("5 m", r"5\text{ m}", r"5\text{ meters}", r"5\,\mathrm{m}"),
    "matrix of rows": (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", "[[1,2],[3,4]]"),
    "label of a choice": ("17", r"\textbf{(D) }17", "(D) 17"),
    "piecewise": (r"\begin{cases} x & x>0 \\ 0 & \text{otherwise} \end{cases}",
                  r"\begin{cases} 0 & \text{otherwise} \\ x, & \text{if } x>0 \end{cases}"),
    "two bounds": ("[2,5)", r"x \geq 2 \text{ and } x<5", "x<5, x \geq 2"),
}  # fmt: skip

# Gold answer, then unequal answers.
DIFFERENT = {
    "a digit": ("10000", "10001", "100000", "1000"),
    "the last of thirty digits": ("123456789012345678901234567890", "123456789012345678901234567891"),
    "a written decimal": ("2.23", "2.232", "2.2", "2.24"),
    "percent is not times a hundred": ("25", "2500", "0.25"),
    "bases": ("101_2", "101_3", "101", "5", "1010_2"),
    "base ten": ("5", "101_2", "5_6"),
    "order in a tuple": ("(1,2)", "(2,1)", "[1,2]", "(1,2,3)", "1"),
    "brackets": ("[0,1)", "(0,1)", "[0,1]", "(0,1]", "0<x<1"),
    "list": ("1,2,3", "1,2", "1,2,3,4", "1,2,4", "1,1,2", "6"),
    "words": (r"\text{east}", r"\text{west}", "e", r"\text{eats}", "5"),
    "choice": ("C", "D", "(D)", "d", "C and D", "CD", r"\text{(C) or (D)}"),
    "no unit is a variable": (r"\frac{1}{m}t", "t", r"\frac1t m", r"\frac{1}{m}"),
    "a ratio upside down": ("a/b", "b/a", "ab"),
    "units that differ": (r"5\text{ cm}", r"5\text{ m}", r"5\text{ kg}"),
    "cubic units": (r"5\text{ cubic units}", r"5\text{ seconds}", "5 units^2", r"5\text{ square units}"),
    "number words": ("5", "5 million", "5 hundred", "six", "5 dozen", "fifteen"),
    "mixed numbers": (r"1\frac45", r"\frac45", r"-1\frac45", "1.45"),
    "signs": ("-5", "5", "--5", "+5"),
    "hedges": ("5", "5 or 6", "5, 6", "5 and 6", "{5,6}", r"5\pm1", "5=6", "6=5", "[5,6]", "5 6", r"\neq 5", "5?6"),
    "one side of an equation": ("11a+c", "7=11a+c", "7"),
    "an equation for its side": ("7=11a+c", "11a+c", "7", "7=11a-c"),
    "names": ("x=5", "y=5", "x=6", "x_5"),
    "indices": ("x_1", "x_2", "x", "x'", "X_1"),
    "capital letters": ("2RC+R", "2rc+r", "2Rc+R"),
    "chains of names": ("f(2) < f(1) < f(4)", "f(2) < f(2) < f(4)", "f(2) < f(4)", "f(4) < f(1) < f(2)"),
    "inequalities": ("x>2", r"x\geq2", "x<2", "y>2", "x>3", r"[2,\infty)"),
    "absolute value": ("x", r"\sqrt{x^2}", "|x|"),
    "powers": ("x^4", "x^31", "x^{3}+1", "4x"),
    "exact is not rounded": (r"\frac13", "0.33", "0.3333", r"33\%"),
    "pi": (r"2\pi", "2", "6.28", r"\pi", r"2\pi^2"),
    "matrices": (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix}1&2\end{pmatrix}", "(2,1)",
                 r"\begin{pmatrix}2\\1\end{pmatrix}"),
    "clock": ("4:30 pm", "4:30 am", "4:31 pm", "16:30", "4 pm", "4:30"),
    "half days": (r"7\text{ p.m.}", r"7\text{ a.m.}", "7:00 am", "8 p.m."),
    "dates": (r"\text{June 5}", "June 6", "5", "July 5", "June", "June 5 or 6"),
    "rankings": (r"\text{Softball, Kickball, Picnic}", "Kickball, Softball, Picnic", "Softball, Picnic"),
    "choices": (r"\text{(A) and (C)}", "A", "C", "(A) and (D)", "A, A", "A, C, D"),
    "distance": ("(-2,2)", r"|x| \leq 2", "|x| > 2", "|x-1| < 2", "|x| < 3"),
    "a distance is not its name": ("|x| < 2", r"(-\infty,2)", "|y| < 2", "x < 2"),
    "half lines": (r"[0,\infty)", r"\mathbb{R}^+"),
    "points": ("ABC", "ACB", "abc", "CBA"),
    "cases of products": ("RT", "rt", "Rt"),
    "articles are factors too": ("bc", "a bc", "a b c"),
    "marks": (r"\vec{v}", r"\hat{v}", r"\vec{w}"),
    "a conjugate": ("z", r"\bar{z}", r"\overline{z}"),
    "sum of names": ("7", "m+n=8", "2x+y=7", "x^2=7", "m+n=7=8"),
    "an equation is more than its value": ("x+y=7", "7"),
    "modulus": (r"n \equiv 2 \pmod 5", r"n \equiv 3 \pmod 5", r"n \equiv 2 \pmod 6"),
    "close to one": ("1", r"\tanh(100 a^2+10)", r"(1+e^{-1000 a^2-1000})^2", r"(1+2^{-a^2-900})^2"),
    "close to zero": ("0", r"\ln(1+10^{-150})", r"\sin(10^{-300})", r"(\sqrt2-1)^{1000}"),
    "imaginary": ("3", "3i", "-3"),
    "misplaced digits": (r"\sqrt7", r"\sqrt71", r"\sqrt{7}1", r"\sqrt{7}2"),
    "names that sympy takes": ("E", "e", r"\mathrm{E}*2", "I"),
    "set operations": ("[1,2]", r"[0,2] \cap (1,3)", r"(0,2)\cap[1,3]"),
    "nothing": ("5", "", " ", "{}", r"\text{}", "."),
    "power and factorial": (r"2^{25} \cdot 26!", r"2^{26} \cdot 26!", r"2^{25} \cdot 25!", r"(2^{25} \cdot 26)!"),
    "two roots": (r"\frac{-1+\sqrt{17}}{2}, \frac{-1-\sqrt{17}}{2}", r"\frac{-1+\sqrt{17}}{2}",
                  r"\frac{1\pm\sqrt{17}}{2}"),
    "words that retract": ("5", r"5\text{ squared}", r"5\text{ tenths}", "5 otherwise 6", r"5\text{ incorrect}",
                           "5 wrong"),
    "words after zero": ("0", r"0\text{ false}", "0 wrong", r"0\text{ or more}"),
    "money": (r"\$5", r"5\text{ cents}", "€5", r"5\%"),
    "units of formulas": (r"2\sqrt{2}\text{ m}", r"2\sqrt{2}\text{ cm}", r"2\sqrt{2}\text{ m}^2"),
    "piecewise": (r"\begin{cases} x & x>0 \\ 0 & x \leq 0 \end{cases}",
                  r"\begin{cases} 0 & x>0 \\ x & x \leq 0 \end{cases}",
                  r"\begin{cases} x & x>0 \\ 0 & x<0 \end{cases}", "x"),
}  # fmt: skip


@pytest.fixture(scope="module")
def verifier():
    with Verifier(workers=1) as shared:
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
        ("5", "5.0", True),
        ("5", "6", False),
        ("5", r"\text{no}", False),
        ("x+1", "1 + x", None),
        ("(1, x)", "(1, x, 2)", False),
        ("(1, x)", "(2, 1)", False),
        ("(1, 2x)", "(1, x+x)", None),
        (r"\{1, x\}", r"\{x, 1\}", True),
    ],
)
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
@settings(max_examples=150, deadline=None)
def test_fractions_agree_with_exact_arithmetic(a: int, b: int, c: int, d: int, spell, respell) -> None:
    assert verify(rf"\boxed{{{spell(a, b)}}}", respell(c, d).removeprefix("x = ")) == (Fraction(a, b) == Fraction(c, d))


@given(st.integers(-(10**9), 10**9), st.integers(0, 6))
@settings(max_examples=100, deadline=None)
def test_decimals_agree_with_exact_arithmetic(digits: int, places: int) -> None:
    sign, integer, decimals = "-" if digits < 0 else "", *divmod(abs(digits), 10**places)
    written = f"{sign}{integer}.{decimals:0{places}d}" if places else str(digits)
    grouped = written.replace(str(integer), f"{integer:,}", 1)
    assert verify(rf"\boxed{{{grouped}}}", written)
    assert verify(rf"\boxed{{{digits}e-{places}}}", written)
    assert verify(rf"\boxed{{\frac{{{digits}}}{{{10**places}}}}}", written)
    assert not verify(rf"\boxed{{\frac{{{digits + 1}}}{{{10**places}}}}}", written)


def polynomial(coefficients: list[int]) -> str:
    return "+".join(f"({c})x^{{{power}}}" for power, c in enumerate(coefficients))


@given(
    st.lists(st.integers(-9, 9), min_size=2, max_size=3),
    st.lists(st.integers(-9, 9), min_size=2, max_size=3),
    st.integers(0, 2),
)
@settings(max_examples=12, deadline=None)
def test_polynomial_products_equal_convolution(left: list[int], right: list[int], changed: int) -> None:
    product = [0] * (len(left) + len(right) - 1)
    for i, a in enumerate(left):
        for j, b in enumerate(right):
            product[i + j] += a * b
    factored = f"({polynomial(left)})({polynomial(right)})"
    assert verify(rf"\boxed{{{factored}}}", polynomial(product))
    product[changed] += 1
    assert not verify(rf"\boxed{{{factored}}}", polynomial(product))


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
@settings(max_examples=400, deadline=None)
def test_cheap_layers_are_total_and_reflexive(gold: str, answer: str) -> None:
    assert equivalent(gold, answer) in (True, False, None)
    assert extract(answer, "lenient") is None or extract(answer, "lenient").texts
    if compact(normalize(answer)):
        assert equivalent(answer, answer) is True


@given(ANSWERS, ANSWERS)
@settings(max_examples=60, deadline=None)
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
@settings(max_examples=100, deadline=None)
def test_equality_is_symmetric_without_rounding(gold: str, answer: str) -> None:
    assert verify(rf"\boxed{{{answer}}}", gold) == verify(rf"\boxed{{{gold}}}", answer)
