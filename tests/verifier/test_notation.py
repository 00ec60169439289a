"""Tables of notation, against the names, values and decompositions that Unicode gives the characters."""

import re
import unicodedata

import pytest

from d3s.verifier.notation import ESCAPES, FUNCTIONS, IGNORED_COMMANDS, SUBSCRIPTS, SUPERSCRIPTS, SYNONYMS, UNICODE

UNICODE_SPELLING = {"LAMDA": "lambda", "FINAL SIGMA": "varsigma"}


def test_fractions_have_their_numeric_values():
    fractions = {c: text for c, text in UNICODE.items() if "VULGAR FRACTION" in unicodedata.name(c)}
    assert len(fractions) == 18
    for character, text in fractions.items():
        over, under = map(int, re.fullmatch(r"\\frac\{(\d)\}\{(\d+)\}", text).groups())
        assert over / under == pytest.approx(unicodedata.numeric(character), abs=1e-6)


@pytest.mark.parametrize("table", [SUPERSCRIPTS, SUBSCRIPTS])
def test_raised_and_lowered_signs_match_their_decompositions(table):
    assert len(table) == 13
    for character, sign in table.items():
        assert unicodedata.normalize("NFKC", character).replace("−", "-") == sign


def test_greek_letters_have_their_names():
    letters = {c: text for c, text in UNICODE.items() if unicodedata.name(c).startswith("GREEK")}
    assert len(letters) == 25 + 10
    for character, text in letters.items():
        case, name = re.fullmatch(r"GREEK (SMALL|CAPITAL) LETTER (.*)", unicodedata.name(character)).groups()
        name = UNICODE_SPELLING.get(name, name.lower())
        assert text == f"\\{name if case == 'SMALL' else name.capitalize()} "


def test_tables_of_commands_do_not_overlap():
    """A command has one meaning, and no synonym leads to another synonym."""
    targets = {name for text in SYNONYMS.values() for name in re.findall(r"\\([A-Za-z]+)", text)}
    assert not targets & SYNONYMS.keys()
    assert not FUNCTIONS & SYNONYMS.keys() and not IGNORED_COMMANDS & (FUNCTIONS | SYNONYMS.keys())
    assert all(len(name) == 1 and not name.isalpha() for name in ESCAPES)
    assert all(name.isalpha() for name in (*SYNONYMS, *IGNORED_COMMANDS, *FUNCTIONS))
