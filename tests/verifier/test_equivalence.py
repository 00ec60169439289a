"""The verifier on answers whose verdict is certain: extraction, kinds of equality, reward parts, command line."""

import json
import subprocess
import sys
from concurrent.futures import Future
from fractions import Fraction
from pathlib import Path
from threading import Thread

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from d3s.common import UserError
from d3s.reward import format_reward, overlong_penalty
from d3s.verifier.__main__ import main, read_rows
from d3s.verifier.extraction import extract, extract_answer, find_boxes
from d3s.verifier.pool import FormulaPool
from d3s.verifier.verifier import Verifier, verify

ROOT = Path(__file__).resolve().parents[2]

# Gold answer, then answers that say the same.
EQUAL = {
    "e-notation": ("4.5e33", r"4.5 \times 10^{33}", r"4.5\cdot10^{33}", "4.5*10^33", "4.5×10³³", "45e32"),
    "small e-notation": ("1e-5", "10^{-5}", "0.00001", r"1 \times 10^{-5}"),
    "thousands": ("10{,}000", "10,000", r"10\,000", "10 000", "10000", r"10,\!000", "10000.0", r"\$10,000"),
    "negative mixed number": (r"-3\frac{1}{2}", "-7/2", "-3.5", r"-\frac72", "−3½", "-3 1/2"),
    "fraction": (r"\frac{1}{2}", "0.5", ".5", "1/2", r"\dfrac12", r"\tfrac{2}{4}", r"50\%", "2^{-1}", r"\frac{-1}{-2}"),
    "recurring decimal": (r"\frac{1}{6}", r"0.1\overline{6}", "0.1(6)", r"0.1666\ldots", "0.166666666666667"),
    "long integers": ("123456789012345678901234567890", "123,456,789,012,345,678,901,234,567,890"),
    "per cent": (r"28\%", "28", "28 %", "0.28", "28 percent", r"28\text{ pct}"),
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
}  # fmt: skip

# Gold answer, then answers that say something else.
DIFFERENT = {
    "a digit": ("10000", "10001", "100000", "1000"),
    "the last of thirty digits": ("123456789012345678901234567890", "123456789012345678901234567891"),
    "a written decimal": ("2.23", "2.232", "2.2", "2.24"),
    "per cent is not times a hundred": ("25", "2500", "0.25"),
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
}  # fmt: skip


@pytest.fixture(scope="module")
def verifier():
    with Verifier(workers=1) as shared:
        yield shared


@pytest.mark.parametrize("kind", EQUAL)
def test_equal(kind: str, verifier: Verifier) -> None:
    gold, *answers = EQUAL[kind]
    verdicts = verifier.score([rf"So it is $\boxed{{{answer}}}$." for answer in answers], [gold] * len(answers))
    assert [answer for answer, verdict in zip(answers, verdicts) if not verdict] == []


@pytest.mark.parametrize("kind", DIFFERENT)
def test_different(kind: str, verifier: Verifier) -> None:
    gold, *answers = DIFFERENT[kind]
    verdicts = verifier.score([rf"So it is $\boxed{{{answer}}}$." for answer in answers], [gold] * len(answers))
    assert [answer for answer, verdict in zip(answers, verdicts) if verdict] == []


def test_an_empty_gold_answer_is_never_matched(verifier: Verifier) -> None:
    assert verifier.score([r"\boxed{}", r"\boxed{ }", "", r"\boxed{5}"], ["", " ", "", ""]) == [0.0] * 4


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
@settings(max_examples=300, deadline=None)
def test_fractions_agree_with_exact_arithmetic(a: int, b: int, c: int, d: int, one, other) -> None:
    assert verify(rf"\boxed{{{one(a, b)}}}", other(c, d).removeprefix("x = ")) == (Fraction(a, b) == Fraction(c, d))


@given(st.integers(-(10**9), 10**9), st.integers(0, 6))
@settings(max_examples=200, deadline=None)
def test_decimals_agree_with_exact_arithmetic(digits: int, places: int) -> None:
    sign, whole, part = "-" if digits < 0 else "", *divmod(abs(digits), 10**places)
    written = f"{sign}{whole}.{part:0{places}d}" if places else str(digits)
    grouped = written.replace(str(whole), f"{whole:,}", 1)
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
@settings(max_examples=25, deadline=None)
def test_products_of_polynomials_agree_with_their_convolution(left: list[int], right: list[int], changed: int) -> None:
    product = [0] * (len(left) + len(right) - 1)
    for i, a in enumerate(left):
        for j, b in enumerate(right):
            product[i + j] += a * b
    factored = f"({polynomial(left)})({polynomial(right)})"
    assert verify(rf"\boxed{{{factored}}}", polynomial(product))
    product[changed] += 1
    assert not verify(rf"\boxed{{{factored}}}", polynomial(product))


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        (r"first \boxed{4}, then \boxed{5}", "5"),
        (r"$$\boxed{\frac{1}{\sqrt{2}}}$$", r"\frac{1}{\sqrt{2}}"),
        (r"\fbox{7}", "7"),
        (r"\boxed {9}", "9"),
        (r"$\boxed 9$.", "9"),
        (r"$\boxed9$", "9"),
        (r"\boxed{\text{so } \boxed{3}}", r"\text{so } \boxed{3}"),
        (r"\boxed{\{1,2\}}", r"\{1,2\}"),
        (r"<think>\boxed{1}</think>\boxed{2}", "2"),
        (r"<think>\boxed{1}</think> two", None),
        (r"\boxed{5", None),
        (r"\boxed{4} and so \boxed{5", None),
        (r"\boxed{}", None),
        (r"\boxedx{5}", None),
        ("The answer is 5", None),
        ("", None),
    ],
)
def test_strict_extraction(response: str, answer: str | None) -> None:
    assert extract_answer(response) == answer


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        ("so 4.\n#### 1,234", "1,234"),
        ("<answer> 5 </answer>", "5"),
        ("The answer is $\\frac{5}{6}$. I hope it is correct.", r"\frac{5}{6}"),
        ("Final Answer: The largest $n$ is 34.", "34"),
        ("we try 3 and 4. Answer: 42", "42"),
        ("I think the correct answer is C", "C"),
        ("Therefore $x < 5$ is the solution.", "x < 5"),
        ("it ends with 2 and 10", "10"),
        (r"The answer is 4, no: \boxed{5}", "5"),
        ("I do not know", None),
    ],
)
def test_lenient_extraction(response: str, answer: str | None) -> None:
    assert extract_answer(response, "lenient") == answer


@pytest.mark.parametrize(
    "response",
    [
        r"\boxed{5} \boxed{6}",
        r"\boxed{5} or \boxed{6}",
        r"\boxed{6} or \boxed{5}",
        r"The answer is \boxed{6}. The answer is \boxed{5}.",
        r"\boxed{5} or maybe 6",
        r"Either 6 or \boxed{5}.",
        " ".join(rf"\boxed{{{i}}}" for i in range(6)),
    ],
)
def test_several_answers_stated_together_are_wrong(response: str) -> None:
    assert not verify(response, "5")
    assert not verify(response, "6")


def test_boxes_stated_together_that_agree_are_right() -> None:
    assert verify(r"\boxed{\frac12} or \boxed{0.5}", "1/2")
    assert verify(r"\boxed{\frac12}, so \boxed{0.5}", "1/2")
    assert len(extract(r"\boxed{2} and \boxed{2}").texts) == 1


@given(st.text(alphabet="{}\\boxed5 $", max_size=60))
def test_boxes_are_balanced_groups_of_the_text(text: str) -> None:
    previous = 0
    for start, end, content in find_boxes(text):
        assert previous <= start < end <= len(text)
        assert text[start:].startswith(("\\boxed", "\\fbox"))
        assert content is None or content in text[start:end]
        previous = end


def test_counts_and_one_decision_for_equal_pairs() -> None:
    with Verifier(workers=2) as verifier:
        asked = []
        submit = verifier._pool.submit
        verifier._pool.submit = lambda gold, answer: asked.append((gold, answer)) or submit(gold, answer)
        rewards = verifier.score(
            [r"\boxed{\sqrt{8}}"] * 20 + ["no box", r"\boxed{3", r"\boxed{1+@}"], [r"2\sqrt2"] * 23
        )
        assert rewards == [1.0] * 20 + [0.0] * 3
        assert asked.count((r"2\sqrt2", r"\sqrt{8}")) == 1
        counts = verifier.take_stats()
        assert (counts["decided"], counts["no_answer"], counts["parse_failures"]) == (23, 2, 1)
        assert counts["timeouts"] == counts["crashes"] == 0
        assert set(verifier.take_stats().values()) == {0}


def test_wrong_arguments_are_explained() -> None:
    with pytest.raises(UserError, match="strict"):
        Verifier(extraction="loose")
    with pytest.raises(UserError, match="workers"):
        Verifier(workers=0)
    with Verifier(workers=1) as verifier, pytest.raises(UserError, match="2 responses but 1"):
        verifier.score(["a", "b"], ["a"])


def test_format_reward() -> None:
    assert format_reward(r"so \boxed{5}") == 1.0
    assert [format_reward(t) for t in ("5", r"\boxed{}", r"\boxed{5} or \boxed{6}", r"\boxed{5}</think>")] == [0.0] * 4


def test_overlong_penalty_is_dapos_formula() -> None:
    assert [overlong_penalty(n, 100, 20) for n in (0, 80, 85, 90, 100, 300)] == [0.0, 0.0, -0.25, -0.5, -1.0, -1.0]
    with pytest.raises(UserError):
        overlong_penalty(5, 100, 0)


def test_import_is_light() -> None:
    heavy = ("torch", "vllm", "sympy", "antlr4")
    code = f"import sys, d3s.verifier.verifier; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {"response": r"\boxed{1/2}", "answer": "0.5"},
        {"prediction": r"\boxed{3}", "gold": "4"},
        {"prediction": "2", "gold": "2"},
        {"response": "2", "gold": "2"},
    ]
    file = tmp_path / "answers.jsonl"
    file.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    main([str(file), "--workers", "1"])
    printed = capsys.readouterr().out
    assert "answers/s" in printed and "(none)" in printed
    assert read_rows(file)[2] == (r"\boxed{2}", "2") and read_rows(file, bare=False)[2] == ("2", "2")
    with pytest.raises(SystemExit) as stop:
        main([str(tmp_path / "missing.jsonl")])
    assert stop.value.code == 2
    hostile = {"response": "\\boxed{\x1b[31m5}", "answer": "\x1b]0;title\x07\ud800"}
    file.write_text(json.dumps(hostile), encoding="utf-8")
    main([str(file), "--workers", "1"])
    printed = capsys.readouterr().out
    assert "␛[31m5" in printed and not {"\x1b", "\x07"} & set(printed)
    file.write_bytes(b"\xff")
    with pytest.raises(SystemExit):
        main([str(file)])
    assert "cannot be read as UTF-8 text" in capsys.readouterr().err
    file.write_text('{"response": "x"}\n', encoding="utf-8")
    with pytest.raises(SystemExit):
        main([str(file)])
    assert "line 1" in capsys.readouterr().err


def test_an_answer_that_is_compared_at_once_blocks_nobody(monkeypatch):
    """A worker may be done before the verifier has asked to be called back, which then happens in the same thread."""

    def compared(pool, gold, answer):
        outcome = Future()
        outcome.set_result("equal")
        return outcome

    monkeypatch.setattr(FormulaPool, "submit", compared)
    scores = []
    with Verifier(workers=1) as verifier:
        pair = ([r"\boxed{\sin^2 x}"] * 2, [r"1-\cos^2 x"] * 2)
        thread = Thread(target=lambda: scores.extend(verifier.score(*pair)), daemon=True)
        thread.start()
        thread.join(10)
    assert scores == [1.0, 1.0]
