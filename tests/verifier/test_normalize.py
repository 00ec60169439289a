r"""Normalized spellings against hand-written ones, categories of Unicode, and counted brackets."""

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from d3s.verifier.normalize import LONGEST_ANSWER, compact, find_closing, has_hidden_characters, normalize

SPELLINGS = {
    r"\frac{1}{2}": (r"\dfrac12", r"\tfrac{1}{2}", r"\frac 1 2", r"\frac{1}2", "½", r"$\displaystyle\frac12$."),
    r"\frac{\frac{1}{2}}{3}": (r"\frac{\frac12}3", r"\cfrac{\dfrac{1}{2}}{3}"),
    r"\sqrt{2}": (r"\sqrt2", "√2", "sqrt(2)", r"\sqrt (2)", r"\sqrt 2"),
    r"\sqrt[3]{5}": (r"\sqrt[3]5", r"\sqrt [3]{5}"),
    "(0,1)": (r"\left(0,1\right)", r"\bigl(0,1\bigr)", r"\langle0,1\rangle"),
    "x^2": ("x^{2}", "x²", "x**2", r"\mathbf{x}^2"), "x^{10}": ("x^10", "x¹⁰", "x^(10)", "x^{10}"),
    "a_1": ("a_{1}", "a₁", r"a_{ 1 }"), "45°": (r"45^\circ", r"45^{\circ}", r"45\degree", "45º", r"45^{°}"),
    "1 000": (r"1\,000", "1{,}000", r"1,\!000", "1 000"),
    r"x \leq 3": (r"x \le 3", "x <= 3", "x ≤ 3", r"x \leqslant 3"), r"x \neq 3": ("x != 3", r"x\ne 3", "x ≠ 3"),
    r"\text{yes}": (r"\mathrm{yes}", r"\textbf{yes}", r"\mbox{ yes }", r"\operatorname{yes}"),
    "C": ("**C**", "_C_", "`C`", r"\text{C}", "C.", "{C}", "= C"),
    r"\lfloor x \rfloor": ("floor(x)", r"\operatorname{floor}(x)", "⌊x⌋"), "|x|": ("abs(x)", r"\lvert x\rvert"),
    r"2 \pmod{5}": (r"2 \pmod 5", r"2 (\bmod 5)", "2 (mod 5)", r"2 (\text{mod } 5)"),
    r"\infty": ("∞", "infinity", r"\infin", r"\text{infinity}"), r"\sin x": (r"\text{sin} x", "sin x", "math.sin x"),
    "5 \\text{m}": (r"5 \text{m}", r"5\text{ m }"), "5e": (r"5\text{e}",), "50": (r"\$50", "€50", "£50"),
    "12": ("12", "$12$.", r"\color{red}{12}", r"{\color{red}12}", r"\textcolor{red}{12}", '"12"',
           r"12\tag{1}", r"12 \blacksquare", "12 ∎", r"12\ \square", r"12\label{a}", r"\hspace{1em}12", r"12\hfill",
           r"\ensuremath{12}"),
    r"\text{(D)} 17": (r"\textbf{(D) }17", r"\text{(D)}\ 17"),
    r"5 \text{min}": (r"5\text{ min}", r"5\,\mathrm{min}", r"5\ \textrm{min}"),
    r"5 \text{kg m s^{-2}}": (r"5\,\mathrm{kg\,m\,s^{-2}}", r"5~\text{kg m s^{-2}}"),
    r"5 \text{m}/(s^2)": (r"5\,\frac{\mathrm{m}}{\mathrm{s}^2}",), r"\frac{3m}{2}": (r"\frac{3\mathrm{m}}{2}",),
    r"n \equiv 1 \pmod{3}": (r"n \equiv 1 \mod 3",), r"14 \pmod{17}": (r"14 \text{ (mod } 17)",),
}  # fmt: skip
TEXTS = st.text(alphabet="0123456789abcxe+-*/^_=<>(){}[]|!,.;:% $\\'°√π½²₃≤\u200b", max_size=40)
PIECES = (r"\frac", r"\sqrt", r"\text{", "{", "}", "(", ")", "1", "23", "x", "^", "_", " ", r"\left(", r"\,")
LATEX = st.lists(st.sampled_from(PIECES), max_size=15).map("".join)


@pytest.mark.parametrize("normalized", SPELLINGS)
def test_spellings_have_one_normal_form(normalized: str) -> None:
    normal_forms = {spelling: compact(normalize(spelling)) for spelling in SPELLINGS[normalized]}
    assert normal_forms == dict.fromkeys(SPELLINGS[normalized], compact(normalized))
    assert compact(normalize(normalized)) == compact(normalized)


def test_compact_keeps_meaningful_spaces() -> None:
    compacted = {"1 + x": "1+x", "2 x": "2x", "( a , b )": "(a,b)"} | {text: text for text in ("1 2", r"\sin x", "a b")}
    assert {text: compact(text) for text in compacted} == compacted


WRAPPINGS = st.sampled_from(["{%s}", r"\displaystyle %s", r"\textstyle{%s}", "{{%s}}."])
TEXT_GROUPS = st.sampled_from([r"\text{min}", r"\mathrm{h}", r"\text{M}", r"\text{ m}", r"\text{max}", r"\text{no}"])


@given(WRAPPINGS, st.sampled_from(["", "9", "x=2"]), TEXT_GROUPS)
def test_braces_and_style_around_an_answer_change_nothing(form: str, value: str, text: str) -> None:
    assert normalize(form % (value + text)) == normalize(value + text)


@given(st.one_of(TEXTS, LATEX, st.text(max_size=30)))
@settings(max_examples=120)
def test_normalize_is_total_and_has_single_spaces(text: str) -> None:
    normalized = normalize(text)
    assert "  " not in normalized and normalized == normalized.strip()
    if any(unicodedata.category(c)[0] == "C" and c not in "\n\t\r" for c in text):
        assert normalized == ""


def test_hidden_characters_make_an_empty_answer() -> None:
    for hidden in ("5\u200b", "5\u202e", "\x005", "5\x7f", "\ue0005", "5\u2066"):
        assert has_hidden_characters(hidden) and normalize(hidden) == ""
    for visible in ("5\n", "5\t", "é", "5 °", "５"):
        assert not has_hidden_characters(visible) and normalize(visible) != ""


def test_long_texts_keep_their_spelling() -> None:
    text = r"\dfrac12 " * LONGEST_ANSWER
    assert normalize(text) == text.strip()


@given(st.text(alphabet="()[]{}a", max_size=20))
def test_closing_bracket_matches_counting(rest: str) -> None:
    parts = ["(" + rest[:end] for end in range(len(rest) + 1)]
    depths = [sum(map(part.count, "([{")) - sum(map(part.count, ")]}")) for part in parts]
    assert find_closing("(" + rest, 0) == (depths.index(0) if 0 in depths else -1)
