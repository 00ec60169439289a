"""Tables of notation, against the names, values and decompositions that Unicode gives the characters."""

import re
import unicodedata
from fractions import Fraction

import pytest

from d3s.verifier.notation import ESCAPES, FUNCTIONS, IGNORED_COMMANDS, SUBSCRIPTS, SUPERSCRIPTS, SYNONYMS, UNICODE

UNICODE_SPELLING = {"LAMDA": "lambda", "FINAL SIGMA": "varsigma"}
NAMES = {character: unicodedata.name(character) for character in UNICODE}


def test_fractions_and_scripts_have_their_unicode_values() -> None:
    fractions = [character for character, name in NAMES.items() if "VULGAR FRACTION" in name]
    values = [float(Fraction(re.sub(r"\\frac\{(\d)\}\{(\d+)\}", r"\1/\2", UNICODE[c]))) for c in fractions]
    assert values == pytest.approx([unicodedata.numeric(c) for c in fractions], abs=1e-6) and len(values) == 18
    for table in (SUPERSCRIPTS, SUBSCRIPTS):
        assert {c: unicodedata.normalize("NFKC", c).replace("−", "-") for c in table} == table and len(table) == 13


def test_greek_letters_have_their_names() -> None:
    letters = {c: name.split(" LETTER ") for c, name in NAMES.items() if name.startswith("GREEK")}
    assert len(letters) == 25 + 10
    for character, (case, name) in letters.items():
        name = UNICODE_SPELLING.get(name, name.lower())
        assert UNICODE[character] == f"\\{name if case == 'GREEK SMALL' else name.capitalize()} "


def test_tables_of_commands_do_not_overlap() -> None:
    """A command has one meaning, and no synonym leads to another synonym."""
    targets = {name for text in SYNONYMS.values() for name in re.findall(r"\\([A-Za-z]+)", text)}
    assert not targets & SYNONYMS.keys()
    assert not FUNCTIONS & SYNONYMS.keys() and not IGNORED_COMMANDS & (FUNCTIONS | SYNONYMS.keys())
    assert all(len(name) == 1 and not name.isalpha() for name in ESCAPES)
    assert all(name.isalpha() for name in (*SYNONYMS, *IGNORED_COMMANDS, *FUNCTIONS))
