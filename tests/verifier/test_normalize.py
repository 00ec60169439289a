r"""Normalized spellings against hand-written ones, counted brackets, and the names and values of Unicode."""

import re
import unicodedata
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from d3s.verifier.normalize import compact, find_closing, has_hidden_characters, normalize
from d3s.verifier.notation import FUNCTIONS, IGNORED_COMMANDS, SUBSCRIPTS, SUPERSCRIPTS, SYNONYMS, UNICODE

SPELLINGS = {
    r"\frac{1}{2}": (r"\dfrac12", r"\tfrac{1}{2}", r"\frac 1 2", r"\frac{1}2", "½", r"$\displaystyle\frac12$."),
    r"\frac{\frac{1}{2}}{3}": (r"\frac{\frac12}3", r"\cfrac{\dfrac{1}{2}}{3}"),
    r"\frac{1}{2}+\frac{3}{4}": (r"\frac12+\frac34",),
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
    "12": ("12", "$12$.", r"{\color{red}12}", '"12"', r"12\tag{1}", "12 ∎", r"12\ \square", r"12\hfill", "{{12}}."),
    r"\text{(D)} 17": (r"\textbf{(D) }17", r"\text{(D)}\ 17"),
    r"5 \text{min}": (r"5\text{ min}", r"5\ \textrm{min}", r"\textstyle{5\text{min}}"),
    r"\min ": (r"{\text{min}}", r"\displaystyle \text{min}"),
    r"5 \text{kg m s^{-2}}": (r"5\,\mathrm{kg\,m\,s^{-2}}", r"5~\text{kg m s^{-2}}"),
    r"5 \text{m}/(s^2)": (r"5\,\frac{\mathrm{m}}{\mathrm{s}^2}",), r"\frac{3m}{2}": (r"\frac{3\mathrm{m}}{2}",),
    r"n \equiv 1 \pmod{3}": (r"n \equiv 1 \mod 3",), r"14 \pmod{17}": (r"14 \text{ (mod } 17)",),
}  # fmt: skip


@pytest.mark.parametrize("normalized", SPELLINGS)
def test_spellings_have_one_normal_form(normalized: str) -> None:
    normal_forms = {spelling: compact(normalize(spelling)) for spelling in SPELLINGS[normalized]}
    assert normal_forms == dict.fromkeys(SPELLINGS[normalized], compact(normalized))
    assert compact(normalize(normalized)) == compact(normalized)


def test_compact_keeps_meaningful_spaces() -> None:
    compacted = {"1 + x": "1+x", "2 x": "2x", "( a , b )": "(a,b)"} | {text: text for text in ("1 2", r"\sin x", "a b")}
    assert {text: compact(text) for text in compacted} == compacted


def test_hidden_characters_make_an_empty_answer() -> None:
    for hidden in ("5\u200b", "5\u202e", "\x005", "5\x7f", "\ue0005", "5\u2066"):
        assert has_hidden_characters(hidden) and normalize(hidden) == ""
    for visible in ("5\n", "5\t", "é", "5 °", "５"):
        assert not has_hidden_characters(visible) and normalize(visible) != ""


@given(st.text(alphabet="()[]{}a", max_size=20))
def test_closing_bracket_matches_counting(rest: str) -> None:
    parts = ["(" + rest[:end] for end in range(len(rest) + 1)]
    depths = [sum(map(part.count, "([{")) - sum(map(part.count, ")]}")) for part in parts]
    assert find_closing("(" + rest, 0) == (depths.index(0) if 0 in depths else -1)


def test_tables_of_unicode_have_its_values_and_names() -> None:
    names = {character: unicodedata.name(character) for character in UNICODE}
    fractions = [character for character, name in names.items() if "VULGAR FRACTION" in name]
    values = [float(Fraction(re.sub(r"\\frac\{(\d)\}\{(\d+)\}", r"\1/\2", UNICODE[c]))) for c in fractions]
    assert values == pytest.approx([unicodedata.numeric(c) for c in fractions], abs=1e-6) and len(values) == 18
    for table in (SUPERSCRIPTS, SUBSCRIPTS):
        assert {c: unicodedata.normalize("NFKC", c).replace("−", "-") for c in table} == table and len(table) == 13
    letters = {c: name.split(" LETTER ") for c, name in names.items() if name.startswith("GREEK")}
    assert len(letters) == 25 + 10
    for character, (case, name) in letters.items():
        name = {"LAMDA": "lambda", "FINAL SIGMA": "varsigma"}.get(name, name.lower())
        assert UNICODE[character] == f"\\{name if case == 'GREEK SMALL' else name.capitalize()} "


def test_no_synonym_leads_to_another() -> None:
    targets = {name for text in SYNONYMS.values() for name in re.findall(r"\\([A-Za-z]+)", text)}
    assert not (targets | FUNCTIONS | IGNORED_COMMANDS) & SYNONYMS.keys()
