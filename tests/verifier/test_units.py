r"""Units of answers, against hand-written splits and the aliases that a dictionary lists."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from d3s.verifier.units import UNITS, incompatible_units, is_measure, split_unit, without_letter_unit

SPLITS = {
    r"12 \text{cm}": ("12", "cm"),
    "12 cm": ("12", "cm"),
    "12 centimeters": ("12", "cm"),
    r"15 \text{square feet}": ("15", "ft 2"),
    r"15 \text{sq ft}": ("15", "ft 2"),
    "15 ft^2": ("15", "ft 2"),
    r"15 \text{ft}^2": ("15", "ft 2"),
    r"5 \text{cubic units}": ("5", "units 3"),
    "50 km/h": ("50", "km h"),
    "50 kmh": ("50", "km h"),
    "50 mph": ("50", "mi h"),
    r"\sqrt{2} \text{m}": (r"\sqrt{2}", "m"),
    "3 million": ("3", "million"),
    "100 apples": ("100", "apples"),
    "7 percent": ("7", "%"),
    "5": ("5", ""),
    "0.64N": ("0.64N", ""),
    "5m": ("5m", ""),
    "5 x": ("5 x", ""),
    "5 xy": ("5 xy", ""),
    "5 or six": ("5 or six", ""),
    r"2+ \text{cm}": (r"2+ \text{cm}", ""),
    r"\text{cm}": (r"\text{cm}", ""),
}


@pytest.mark.parametrize("text", SPLITS)
def test_value_and_unit_of(text: str) -> None:
    assert split_unit(text) == SPLITS[text]


@pytest.mark.parametrize("alias", [alias for alias in UNITS if alias not in ("a", "i", "in", "percentage")])
def test_aliases_in_text_have_one_name(alias: str) -> None:
    value, unit = split_unit(rf"7 \text{{{alias}}}")
    assert (value, sorted(unit.split())) == ("7", sorted(UNITS[alias].split()))


@given(st.lists(st.sampled_from(sorted(set(UNITS.values()))), min_size=2, max_size=2, unique=True))
def test_two_known_units_are_incompatible(units: list[str]) -> None:
    assert incompatible_units(*units)


@pytest.mark.parametrize(("unit", "other"), list(combinations(["", "apples", "units"], 2)))
def test_unknown_units_never_differ(unit: str, other: str) -> None:
    assert not incompatible_units(unit, other) and not incompatible_units(other, unit)


@pytest.mark.parametrize(
    ("unit", "other", "differ"),
    [("units 3", "cm 3", False), ("units 2", "cm 3", True), ("units", "cm", False), ("cm 2", "cm 3", True)],
)
def test_units_stand_for_their_power(unit: str, other: str, differ: bool) -> None:
    assert incompatible_units(unit, other) is differ is incompatible_units(other, unit)


@pytest.mark.parametrize(
    ("answer", "gold_unit", "bare"),
    [("59 m", "m", "59"), ("59m", "m", "59"), ("59 m", "s", "59 m"), ("59 m", "", "59 m"), ("5 x", "m", "5 x")],
)
def test_letters_are_units_where_gold_has_them(answer: str, gold_unit: str, bare: str) -> None:
    assert without_letter_unit(answer, gold_unit) == bare


def test_measures_are_units_and_multipliers() -> None:
    assert all(map(is_measure, ["cm", "Million", "square", "per", "units", *UNITS]))
    assert not any(map(is_measure, ["apples", "x", ""]))
