r"""Numbers as written, against the fractions, digits and Decimals that built their text."""

from decimal import ROUND_HALF_EVEN, Decimal
from fractions import Fraction

from hypothesis import assume, given
from hypothesis import strategies as st

from d3s.verifier import quantities
from d3s.verifier.normalize import normalize
from d3s.verifier.quantities import Quantity, equal_quantities, parse_quantity, strip_lead

integers = st.integers(-(10**15), 10**15)
positive = st.integers(1, 10**6)


def value(text: str) -> Fraction | None:
    quantity = parse_quantity(normalize(text))
    return quantity.value if quantity else None


@given(integers, st.integers(0, 12))
def test_decimals_have_exact_value_step_and_digits(digits: int, places: int) -> None:
    number = Decimal(digits).scaleb(-places)
    quantity = parse_quantity(f"{number:f}")
    assert quantity.value == Fraction(number)
    assert quantity.step == (Fraction(1, 10**places) if places else None)
    assert quantity.digits == len(str(abs(digits)).lstrip("0"))


@given(st.integers(0, 10**12), st.sampled_from([",", " ", "{,}", r"\,", r",\!", r", \!", r"{,} \! "]))
def test_thousands_separators_do_not_change_the_value(number: int, separator: str) -> None:
    assert value(f"{number:,}".replace(",", separator)) == number


@given(st.integers(1, 9999), st.integers(-40, 40), st.sampled_from(["e{}", r"\times 10^{{{}}}", r" \cdot 10^{{{}}}"]))
def test_scientific_notation(digits: int, exponent: int, form: str) -> None:
    mantissa = f"{digits / 1000:.3f}"
    assert value(mantissa + form.format(exponent)) == Fraction(mantissa) * Fraction(10) ** exponent


@given(integers, positive, st.sampled_from(["{}/{}", r"\frac{{{}}}{{{}}}", "({})/({})", r"\dfrac{{{}}}{{{}}}"]))
def test_fractions(numerator: int, denominator: int, form: str) -> None:
    assert value(form.format(numerator, denominator)) == Fraction(numerator, denominator)


@given(st.integers(1, 99), *[st.integers(2, 99)] * 2, st.sampled_from([r"{}\frac{{{}}}{{{}}}", "{} {}/{}"]))
def test_mixed_numbers(integer: int, numerator: int, denominator: int, form: str) -> None:
    text = form.format(integer, numerator, denominator)
    expected = integer + Fraction(numerator, denominator) if numerator < denominator else None
    assert value(text) == expected and value("-" + text) == (expected and -expected)


@given(st.integers(0, 99), st.text("0123456789", max_size=4), st.text("0123456789", min_size=1, max_size=4))
def test_recurring_decimals_by_repetition(integer: int, fixed: str, period: str) -> None:
    """Moved by one period, the number differs by an integer in units of the last fixed digit."""
    for form in (r"{}.{}\overline{{{}}}", "{}.{}({})"):
        number = value(form.format(integer, fixed, period))
        shifted = number * 10 ** len(fixed)
        assert shifted * 10 ** len(period) - shifted == int(f"{integer}{fixed}{period}") - int(f"{integer}{fixed}")


def test_dots_continue_a_repeated_tail() -> None:
    values = [value(text) for text in (r"0.1666\ldots", "0.121212...", "0.12...")]
    assert values == [Fraction(1, 6), Fraction(4, 33), None]


@given(st.lists(st.integers(0, 1), min_size=1, max_size=12), st.integers(2, 16))
def test_bases_by_horners_scheme(digits: list[int], base: int) -> None:
    number = 0
    for digit in digits:
        number = number * base + digit
    quantity = parse_quantity("".join(map(str, digits)) + f"_{{{base}}}")
    assert (quantity.value, quantity.base) == (number, None if base == 10 else base)


EXACT = {
    "twelve": 12, "forty": 40, r"\text{Zero}": 0, r"\text{ninety-six}": 96, "10^6": 10**6, "two thirds": Fraction(2, 3),
    "one-half": Fraction(1, 2), "2^{-3}": Fraction(1, 8), "10^{4000}": 10**4_000,
}  # fmt: skip
OTHER = ["", "x", "1+1", r"\sqrt{4}", "1/0", "0^0", "12_2", "7_99", "1e4001", "10^{4001}", "9" * 4_001, "1,00", "5 x",
         r"\text{yes}", r"2\pi", "1 2", "9^{99999}", "1.2.3"]  # fmt: skip
QUANTITIES = {text: Quantity(Fraction(number)) for text, number in EXACT.items()} | dict.fromkeys(OTHER) | {
    r"50\%": Quantity(Fraction(50), None, 2, percent=True), "50 percent": Quantity(Fraction(50), None, 2, percent=True),
    r"45^\circ": Quantity(Fraction(45), None, 2, unit="°"), "12 cm": Quantity(Fraction(12), None, 2, unit="10^-2 m"),
    r"2.5 \text{ million dollars}": Quantity(Fraction(2_500_000), Fraction(100_000), 2, unit="dollar"),
    "3 million": Quantity(Fraction(3_000_000), None, 1), "7th": Quantity(Fraction(7), None, 1),
    "--5": Quantity(Fraction(5), None, 1), "-(5)": Quantity(Fraction(-5), None, 1),
    "1_2": Quantity(Fraction(1), base=2),
}  # fmt: skip


def test_quantity_of_a_text() -> None:
    assert {text: parse_quantity(normalize(text)) for text in QUANTITIES} == QUANTITIES


@given(st.integers(1, 10**6), st.integers(2, 10**4), st.integers(3, 8))
def test_decimals_equal_exact_values_that_round_to_them(numerator: int, denominator: int, digits: int) -> None:
    exact = Fraction(numerator, denominator)
    assume(exact.denominator != 1)
    quotient = Decimal(numerator) / Decimal(denominator)
    places = digits - 1 - quotient.adjusted()
    rounded = quotient.quantize(Decimal(1).scaleb(-places), rounding=ROUND_HALF_EVEN)
    assume(places > 0 and rounded != 0)
    gold, answer = parse_quantity(f"{rounded:f}"), parse_quantity(f"{numerator}/{denominator}")
    assert equal_quantities(gold, answer)
    next_decimal = parse_quantity(f"{rounded + 2 * Decimal(1).scaleb(-places):f}")
    assert not equal_quantities(next_decimal, answer)


EQUAL = [
    ("1/3", "0.333333333333"), ("1/3", repr(1 / 3)), ("100/3", repr(100 / 3)), ("0.333", "1/3"), ("10%", "10"),
    ("10%", "0.1"), ("0.1", "10%"), ("5 cm", "5"), ("5°", r"5 \text{degrees}"), ("101_2", "101_2"), ("3.00", "3"),
]  # fmt: skip
DIFFERENT = [
    ("1/3", "0.33"), ("1/3", "0.33333333333"), ("0.33", "1/3"), ("0.666", "2/3"), ("667.2", "667"), ("2.23", "2.232"),
    ("25", "2500"), ("101_2", "5"), ("5 cm", r"5 \text{m}"), ("5°", r"5 \text{radians}"),
]  # fmt: skip


def test_equality_of_written_numbers() -> None:
    for pair in EQUAL + DIFFERENT:
        assert equal_quantities(*map(parse_quantity, pair)) is (pair in EQUAL), pair


def test_leading_words_are_stripped() -> None:
    leads = (r"\text{approximately } ", r"\approx ", r"\Rightarrow ", r"\text{Total:} ", "the answer is ", "about ", "")
    assert {strip_lead(f"{lead}5") for lead in leads} == {"5"} and strip_lead(r"\text{about 5}") == r"\text{5}"


def test_description_after_a_gold_value_is_dropped() -> None:
    described = {
        "12 apples are left": "12", r"5 \text{ cm long}": r"5 \text{cm}", "3 million people": r"3 \text{million}",
        r"5 \text{months in total}": r"5 \text{months}",
    }  # fmt: skip
    kept = ("12 cm", "5 or more", "5 less than x", "7 p.m. today", r"5 \text{tenths}", "5 and 6 apples", "x apples")
    described |= {gold: gold for gold in kept}
    assert {gold: quantities.without_description(gold) for gold in described} == described
