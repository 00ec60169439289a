r"""Units and nouns after values, against hand-written splits and the dimensions of units multiplied by hand."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from d3s.verifier.normalize import normalize
from d3s.verifier.units import UNITS, incompatible_units, is_measure, is_unit, split_unit, without_letter_unit

SPLITS = {
    r"12 \text{cm}": ("12", "10^-2 m"),
    "12 centimeters": ("12", "10^-2 m"),
    r"15 \text{square feet}": ("15", "ft^2"),
    r"15 \text{sq. ft.}": ("15", "ft^2"),
    "15 ft^2": ("15", "ft^2"),
    r"15 \text{ft}^2": ("15", "ft^2"),
    r"5 \text{cubic units}": ("5", "unit^3"),
    "50 km/h": ("50", "10^3 h^-1 m"),
    "50 kmh": ("50", "10^3 h^-1 m"),
    "50 mph": ("50", "h^-1 mi"),
    r"\sqrt{2} \text{m}": (r"\sqrt{2}", "m"),
    "3 million": ("3", "million"),
    "3 million people": ("3", "million"),
    "7 percent": ("7", "%"),
    "30°C": ("30", "°C"),
    r"30 \text{degrees Celsius}": ("30", "°C"),
    r"7 \text{p.m.}": ("7", "p.m."),
    r"2 \text{M}_{\odot}": ("2", r"M_\odot"),
    "100 apples": ("100", ""),
    r"3 \text{hours in total}": ("3", "h"),
    "5 dollars per apple": ("5", "dollar"),
    r"4 \text{square tiles}": ("4", ""),
    "7 in total": ("7", ""),
    r"5 \text{per hour}": ("5", "h^-1"),
    r"5/ \text{hour}": ("5", "h^-1"),
    "5 students per class": ("5", ""),
}
UNSPLIT = [
    "5", "0.64N", "5m", "5 x", "5 xy", "5 or six", r"2+ \text{cm}", r"\text{cm}", "5 L", r"5 \text{squared}", "5 wrong",
    r"5 \text{tenths}", r"5 \text{N/A}", "5/h", r"5 \text{m", r"5 \text{m^2^3}", "2 mN",
]  # fmt: skip
SYMBOLS = ["m", "s", "kg", "A", "N", "J", "C", "Pa", "km", "mol", "K", "h", "cm", "eV", "GHz"]


@pytest.mark.parametrize("text", SPLITS)
def test_value_and_unit_of(text: str) -> None:
    assert split_unit(text) == SPLITS[text]


@pytest.mark.parametrize("text", UNSPLIT)
def test_other_endings_are_no_unit(text: str) -> None:
    assert split_unit(text) == (text, "")


@pytest.mark.parametrize("spelling", [r"7\text{ %s}", r"7\,\mathrm{%s}", r"7{\rm %s}"])
def test_every_unit_in_text_is_recognized(spelling: str) -> None:
    names = [name for name in UNITS if name.isalpha() and (name != "in" or "rm" not in spelling)]
    wrong = [name for name in names if split_unit(normalize(spelling % name))[0] != "7"]
    assert wrong == []


def spellings(powers: list[tuple[str, int]]) -> list[str]:
    """Write a product of powers of units as models do: factors, quotients, one group or many."""

    def factor(name: str, power: int, text: str = r"\mathrm{%s}") -> str:
        return text % name + ("" if power == 1 else f"^{power}" if power > 0 else f"^{{{power}}}")

    over = [(name, power) for name, power in powers if power > 0]
    under = [(name, -power) for name, power in powers if power < 0]
    written = [
        r"\,".join(factor(*item) for item in powers),
        r" \cdot ".join(factor(*item, r"\text{%s}") for item in powers),
        rf"\mathrm{{{(chr(92) + ',').join(factor(*item, '%s') for item in powers)}}}",
        rf"\text{{{' '.join(factor(*item, '%s') for item in powers)}}}",
    ]
    if over and under:
        top, bottom = (r"\,".join(factor(*item) for item in items) for items in (over, under))
        plain_top, plain_bottom = (" ".join(factor(*item, "%s") for item in items) for items in (over, under))
        written += [rf"\frac{{{top}}}{{{bottom}}}", f"{top}/({bottom})", rf"\text{{{plain_top}/({plain_bottom})}}"]
    return written


@given(st.lists(st.tuples(st.sampled_from(SYMBOLS), st.sampled_from([1, 2, 3, -1, -2])), min_size=1, max_size=3,
                unique_by=lambda item: item[0]))  # fmt: skip
def test_spellings_of_a_product_are_one_unit(powers: list[tuple[str, int]]) -> None:
    splits = [split_unit(normalize(rf"4.5\,{unit}")) for unit in spellings(powers)]
    assert {value for value, _ in splits} == {"4.5"} and len({unit for _, unit in splits}) == 1
    other = [(name, power + 1 if power != -1 else 2) for name, power in powers]
    assert incompatible_units(splits[0][1], split_unit(normalize(rf"4.5\,{spellings(other)[0]}"))[1])


@pytest.mark.parametrize(
    ("unit", "definition"),
    [
        ("N", "kg m s^{-2}"), ("J", "N m"), ("W", "J/s"), ("Pa", "N/m^2"), ("C", "A s"), ("V", "J/C"),
        (r"\Omega", "V/A"), ("F", "C/V"), ("T", "N/(A m)"), ("Wb", "T m^2"), ("H", "Wb/A"), ("Hz", "1/s"),
        ("mL", "cm^3"), ("kJ", "kN m"), ("mph", "mi/h"), ("kWh", "kW h"), ("km/h", "kilometers per hour"),
    ],
)  # fmt: skip
def test_derived_units_equal_their_definitions(unit: str, definition: str) -> None:
    definition = "s^{-1}" if definition == "1/s" else definition
    assert split_unit(normalize(rf"3\text{{ {unit}}}")) == split_unit(normalize(rf"3\text{{ {definition}}}"))


def test_different_base_units_and_prefixes_are_incompatible() -> None:
    names = {split_unit(rf"7 \text{{{name}}}")[1] for name in UNITS if name.isalpha() and "unit" not in name}
    assert all(incompatible_units(*pair) for pair in combinations(sorted(names)[::7], 2))


@pytest.mark.parametrize(
    ("unit", "other", "differ"),
    [
        ("unit^3", "10^-6 m^3", False), ("unit^2", "10^-6 m^3", True), ("unit", "10^-2 m", False),
        ("m^2", "m^3", True), ("10^-2 dollar", "dollar", True), ("m s^-1", "h^-1 mi", True), ("", "m", False),
    ],
)  # fmt: skip
def test_units_stand_for_their_power(unit: str, other: str, differ: bool) -> None:
    assert incompatible_units(unit, other) is differ is incompatible_units(other, unit)


@pytest.mark.parametrize(
    ("answer", "unit", "bare"),
    [("59 m", "m", "59"), ("59m", "m", "59"), ("59 m", "s", "59 m"), ("59 m", "", "59 m"), ("5 x", "m", "5 x")],
)
def test_letters_are_units_where_the_other_has_them(answer: str, unit: str, bare: str) -> None:
    assert without_letter_unit(answer, unit) == bare


def test_measures_and_contents_of_text_that_are_units() -> None:
    assert all(map(is_measure, ["cm", "Million", "square", "per", "units", *UNITS]))
    assert not any(map(is_measure, ["apples", "x", ""]))
    assert all(map(is_unit, ["m", "min", "m/s^2", r"\mu m", "kg m s^{-2}", "square feet", "C"]))
    assert not any(map(is_unit, ["apples", "x", "million", "m or s", "", "squared", "min x"]))
