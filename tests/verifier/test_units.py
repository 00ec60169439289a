r"""Units and nouns after values, against hand-written splits and the dimensions of units multiplied by hand."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from d3s.verifier.normalize import normalize
from d3s.verifier.nouns import describes_count, is_ordinal_fraction
from d3s.verifier.units import UNITS, incompatible_units, is_measure, is_unit, split_unit, without_letter_unit

SPLITS = {
    r"12 \text{cm}": ("12", "10^-2 m"), "12 centimeters": ("12", "10^-2 m"), r"15 \text{square feet}": ("15", "ft^2"),
    r"15 \text{sq. ft.}": ("15", "ft^2"), "15 ft^2": ("15", "ft^2"), r"15 \text{ft}^2": ("15", "ft^2"),
    r"5 \text{cubic units}": ("5", "unit^3"), "50 km/h": ("50", "10^3 h^-1 m"), "50 kmh": ("50", "10^3 h^-1 m"),
    "50 mph": ("50", "h^-1 mi"), r"\sqrt{2} \text{m}": (r"\sqrt{2}", "m"), "3 million": ("3", "million"),
    "3 million people": ("3", "million"), "7 percent": ("7", "%"), "30°C": ("30", "°C"),
    r"30 \text{degrees Celsius}": ("30", "°C"), r"7 \text{p.m.}": ("7", "p.m."), "100 apples": ("100", ""),
    r"2 \text{M}_{\odot}": ("2", r"M_\odot"), r"3 \text{hours in total}": ("3", "h"), "7 in total": ("7", ""),
    "5 dollars per apple": ("5", "dollar"), r"4 \text{square tiles}": ("4", ""), r"5 \text{per hour}": ("5", "h^-1"),
    r"5/ \text{hour}": ("5", "h^-1"), "5 students per class": ("5", ""),
}  # fmt: skip
UNSPLIT = [
    "5", "0.64N", "5m", "5 x", "5 xy", "5 or six", r"2+ \text{cm}", r"\text{cm}", "5 L", r"5 \text{squared}", "5 wrong",
    r"5 \text{tenths}", r"5 \text{N/A}", "5/h", r"5 \text{m", r"5 \text{m^2^3}", "2 mN",
]  # fmt: skip
SYMBOLS = ["m", "s", "kg", "A", "N", "J", "C", "Pa", "km", "mol", "K", "h", "cm", "eV", "GHz"]


def test_value_and_unit_of_a_text() -> None:
    assert {text: split_unit(text) for text in SPLITS} == SPLITS
    assert [text for text in UNSPLIT if split_unit(text) != (text, "")] == []


def test_every_unit_in_text_is_recognized() -> None:
    for spelling in (r"7\text{ %s}", r"7\,\mathrm{%s}", r"7{\rm %s}"):
        names = [name for name in UNITS if name.isalpha() and (name != "in" or "rm" not in spelling)]
        assert [name for name in names if split_unit(normalize(spelling % name))[0] != "7"] == []


def spellings(powers: list[tuple[str, int]]) -> list[str]:
    """Write a product of powers of units as models do: factors, quotients, one group or many."""

    def product(items: list[tuple[str, int]], form: str, separator: str, sign: int = 1) -> str:
        exponents = {1: ""} | {power: f"^{power}" for power in (2, 3)}
        return separator.join(form % name + exponents.get(sign * n, f"^{{{sign * n}}}") for name, n in items)

    over, under = ([item for item in powers if sign * item[1] > 0] for sign in (1, -1))
    top, plain_top = product(over, r"\mathrm{%s}", r"\,"), product(over, "%s", " ")
    bottom, plain_bottom = product(under, r"\mathrm{%s}", r"\,", -1), product(under, "%s", " ", -1)
    quotients = [rf"\frac{{{top}}}{{{bottom}}}", f"{top}/({bottom})", rf"\text{{{plain_top}/({plain_bottom})}}"]
    return [
        product(powers, r"\mathrm{%s}", r"\,"),
        product(powers, r"\text{%s}", r" \cdot "),
        rf"\mathrm{{{product(powers, '%s', chr(92) + ',')}}}",
        rf"\text{{{product(powers, '%s', ' ')}}}",
        *(quotients if over and under else ()),
    ]


@given(st.lists(st.tuples(st.sampled_from(SYMBOLS), st.sampled_from([1, 2, 3, -1, -2])), min_size=1, max_size=3,
                unique_by=lambda item: item[0]))  # fmt: skip
def test_spellings_of_a_product_are_one_unit(powers: list[tuple[str, int]]) -> None:
    splits = [split_unit(normalize(rf"4.5\,{unit}")) for unit in spellings(powers)]
    assert {value for value, _ in splits} == {"4.5"} and len({unit for _, unit in splits}) == 1
    other = [(name, power + 1 if power != -1 else 2) for name, power in powers]
    assert incompatible_units(splits[0][1], split_unit(normalize(rf"4.5\,{spellings(other)[0]}"))[1])


DEFINITIONS = {
    "N": "kg m s^{-2}", "J": "N m", "W": "J/s", "Pa": "N/m^2", "C": "A s", "V": "J/C", r"\Omega": "V/A", "F": "C/V",
    "T": "N/(A m)", "Wb": "T m^2", "H": "Wb/A", "Hz": "s^{-1}", "mL": "cm^3", "kJ": "kN m", "mph": "mi/h",
    "kWh": "kW h", "km/h": "kilometers per hour",
}  # fmt: skip


def test_derived_units_equal_their_definitions() -> None:
    for pair in DEFINITIONS.items():
        splits = [split_unit(normalize(rf"3\text{{ {unit}}}")) for unit in pair]
        assert splits[0] == splits[1], pair


def test_different_units_are_incompatible() -> None:
    """Any two base units and prefixes are; `unit` stands for any unit of its power."""
    names = {split_unit(rf"7 \text{{{name}}}")[1] for name in UNITS if name.isalpha() and "unit" not in name}
    different = [*combinations(sorted(names)[::7], 2), ("unit^2", "10^-6 m^3"), ("m^2", "m^3"), ("m s^-1", "h^-1 mi"),
                 ("10^-2 dollar", "dollar")]  # fmt: skip
    assert [pair for pair in different if not incompatible_units(*pair) or not incompatible_units(*pair[::-1])] == []
    for pair in (("unit^3", "10^-6 m^3"), ("unit", "10^-2 m"), ("", "m")):
        assert not incompatible_units(*pair) and not incompatible_units(*pair[::-1])


def test_letters_are_units_where_the_other_has_them() -> None:
    assert without_letter_unit("59 m", "m") == without_letter_unit("59m", "m") == "59"
    for text, unit in (("59 m", "s"), ("59 m", ""), ("5 x", "m")):
        assert without_letter_unit(text, unit) == text


def test_measures_and_contents_of_text_that_are_units() -> None:
    words = ["cm", "Million", "square", "per", "units", *UNITS, "apples", "x", ""]
    assert [word for word in words if not is_measure(word)] == ["apples", "x", ""]
    texts = ["m", "min", "m/s^2", r"\mu m", "kg m s^{-2}", "square feet", "C"]
    others = ["apples", "x", "million", "m or s", "", "squared", "min x"]
    assert [text for text in texts + others if is_unit(text)] == texts


# A noun leaves a value, but an unknown word may change or retract it.
COUNTED = """
apples|red apples|distinct real roots|ordered pairs|people|children|ways|way|times|fish|sheep|boxes|months|paths
left|in total|students in total|years older|dollars each|games per person|positive integers|perfect squares|solutions
different ways|inches tall|pairs of shoes|high|lattice points|values|cookies left|only|of them|of these
"""
CHANGING = """
squared|cubed|tenths|hundredths|thousandths|fifths|halves|thirds|quarters|tens|hundreds|dozens|incorrect|wrong|false
otherwise|not|maybe|never|minus|plus|less|unless|perhaps|rejected|excluded|doubled|halved|factorial|modulo|more|fewer
half|prime|diverges|reciprocals|negative|positive|of the|invalid|or|or apples|not apples|is|this|thus|guess
apples or pears|less apples|squared apples|\\dots|\\cos
"""


def phrases(text: str) -> list[str]:
    return text.strip().replace("\n", "|").split("|")


def test_only_known_nouns_leave_the_value() -> None:
    assert [phrase for phrase in phrases(COUNTED) if not describes_count(phrase.split())] == []
    assert [phrase for phrase in phrases(CHANGING) if describes_count(phrase.split())] == []


def test_fractions_are_told_from_plurals_in_ths() -> None:
    words = ["tenths", "hundredths", "fifths", "months", "paths", "apples", "tenth"]
    assert [word for word in words if is_ordinal_fraction(word)] == words[:3]
