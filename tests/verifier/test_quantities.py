r"""Numbers as written, against the fractions, digits and Decimals that built their text."""

from decimal import ROUND_HALF_EVEN, Decimal
from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from d3s.verifier.normalize import normalize
from d3s.verifier.quantities import (
    FULL_PRECISION,
    MAX_DIGITS,
    ROUNDING_DIGITS,
    Quantity,
    equal_quantities,
    parse_quantity,
    rounds_to,
    strip_lead,
    without_description,
)

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


mixed_forms = st.sampled_from([r"{}\frac{{{}}}{{{}}}", "{} {}/{}"])


@given(st.integers(1, 99), st.integers(1, 98), st.integers(2, 99), mixed_forms)
def test_mixed_numbers(integer: int, numerator: int, denominator: int, form: str) -> None:
    written = value(form.format(integer, numerator, denominator))
    if numerator < denominator:
        assert written == integer + Fraction(numerator, denominator)
        assert value("-" + form.format(integer, numerator, denominator)) == -written
    else:
        assert written is None


@given(st.integers(0, 99), st.text("0123456789", max_size=4), st.text("0123456789", min_size=1, max_size=4))
def test_recurring_decimals_by_long_division(integer: int, fixed: str, period: str) -> None:
    """The first digits of the quotient are the written digits and the repeated period."""
    for form in (r"{}.{}\overline{{{}}}", "{}.{}({})"):
        fraction = value(form.format(integer, fixed, period))
        digits, remainder = "", fraction - integer
        expected = (fixed + period * 12)[:12]
        if set(period) == {"9"}:  # 0.0999... is 0.1
            assert fraction == integer + Fraction(int(fixed or "0") + 1, 10 ** len(fixed))
            continue
        for _ in expected:
            digits += str(int(remainder * 10))
            remainder = remainder * 10 - int(remainder * 10)
        assert digits == expected


def test_dots_continue_a_repeated_tail() -> None:
    assert value(r"0.1666\ldots") == Fraction(1, 6)
    assert value("0.121212...") == Fraction(4, 33)
    assert value("0.12...") is None


@given(st.lists(st.integers(0, 1), min_size=1, max_size=12), st.integers(2, 16))
def test_bases_by_horners_scheme(digits: list[int], base: int) -> None:
    number = 0
    for digit in digits:
        number = number * base + digit
    quantity = parse_quantity("".join(map(str, digits)) + f"_{{{base}}}")
    assert (quantity.value, quantity.base) == (number, None if base == 10 else base)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"50\%", Quantity(Fraction(50), percent=True, digits=2)),
        ("50 percent", Quantity(Fraction(50), percent=True, digits=2)),
        (r"45^\circ", Quantity(Fraction(45), degrees=True, unit="°", digits=2)),
        ("12 cm", Quantity(Fraction(12), unit="10^-2 m", digits=2)),
        ("3 million", Quantity(Fraction(3_000_000), digits=1)),
        (r"2.5 \text{ million dollars}", Quantity(Fraction(2_500_000), Fraction(100_000), 2, unit="dollar")),
        ("twelve", Quantity(Fraction(12))),
        (r"\text{Zero}", Quantity(Fraction(0))),
        ("forty", Quantity(Fraction(40))),
        (r"\text{ninety-six}", Quantity(Fraction(96))),
        ("two thirds", Quantity(Fraction(2, 3))),
        ("one-half", Quantity(Fraction(1, 2))),
        ("7th", Quantity(Fraction(7), digits=1)),
        ("2^{-3}", Quantity(Fraction(1, 8))),
        ("10^6", Quantity(Fraction(10**6))),
        ("--5", Quantity(Fraction(5), digits=1)),
        ("-(5)", Quantity(Fraction(-5), digits=1)),
        ("1_2", Quantity(Fraction(1), base=2)),
    ],
)
def test_quantity_of(text: str, expected: Quantity) -> None:
    assert parse_quantity(normalize(text)) == expected


@pytest.mark.parametrize(
    "text",
    ["", "x", "1+1", r"\sqrt{4}", "1/0", "0^0", "12_2", "7_99", "1e4001", "10^{9999}", "9" * (MAX_DIGITS + 1), "1,00",
     r"\text{yes}", "5 x", r"2\pi", "1 2", "9^{99999}", "1.2.3"],
)  # fmt: skip
def test_other_texts_are_no_quantity(text: str) -> None:
    assert parse_quantity(normalize(text)) is None


@given(st.integers(1, 10**6), st.integers(2, 10**4), st.integers(3, 8))
def test_decimals_equal_exact_values_that_round_to_them(numerator: int, denominator: int, digits: int) -> None:
    exact = Fraction(numerator, denominator)
    assume(exact.denominator != 1)
    quotient = Decimal(numerator) / Decimal(denominator)
    places = digits - 1 - quotient.adjusted()
    rounded = quotient.quantize(Decimal(1).scaleb(-places), rounding=ROUND_HALF_EVEN)
    assume(places > 0 and rounded != 0)
    gold, answer = parse_quantity(f"{rounded:f}"), parse_quantity(f"{numerator}/{denominator}")
    assert gold.digits >= ROUNDING_DIGITS and equal_quantities(gold, answer)
    next_decimal = parse_quantity(f"{rounded + 2 * Decimal(1).scaleb(-places):f}")
    assert not equal_quantities(next_decimal, answer)


@pytest.mark.parametrize(
    ("gold", "answer", "equal"),
    [
        ("1/3", "0.33", False), ("1/3", "0.333333333333", True), ("1/3", "0.33333333333", False),
        ("1/3", repr(1 / 3), True), ("100/3", repr(100 / 3), True), ("0.33", "1/3", False), ("0.333", "1/3", True),
        ("2.23", "2.232", False), ("10%", "10", True), ("10%", "0.1", True), ("0.1", "10%", True),
        ("25", "2500", False), ("5 cm", r"5 \text{m}", False), ("5 cm", "5", True), ("101_2", "5", False),
        (r"5°", r"5 \text{radians}", False), (r"5°", r"5 \text{degrees}", True), ("101_2", "101_2", True),
        ("3.00", "3", True),
    ],
)  # fmt: skip
def test_equality_of_written_numbers(gold: str, answer: str, equal: bool) -> None:
    assert equal_quantities(parse_quantity(gold), parse_quantity(answer)) is equal


def test_rounding_needs_digits_and_a_fraction() -> None:
    assert rounds_to(Fraction(2, 3), Quantity(Fraction("0.667"), Fraction(1, 1000), 3))
    assert not rounds_to(Fraction(2, 3), Quantity(Fraction("0.666"), Fraction(1, 1000), 3))
    assert not rounds_to(Fraction(2, 3), Quantity(Fraction("0.67"), Fraction(1, 100), 2))
    assert not rounds_to(Fraction(2, 3), Quantity(Fraction("0.667")))
    assert not rounds_to(Fraction(667), Quantity(Fraction("667.2"), Fraction(1), 4))
    assert FULL_PRECISION > ROUNDING_DIGITS


@pytest.mark.parametrize(
    ("text", "stripped"),
    [
        ("about 5", "5"), (r"\text{approximately } 5", "5"), (r"\approx 5", "5"), (r"\Rightarrow 5", "5"),
        (r"\text{Total:} 5", "5"), (r"\text{about 5}", r"\text{5}"), ("the answer is 5", "5"), ("5", "5"),
    ],
)  # fmt: skip
def test_leading_words_are_stripped(text: str, stripped: str) -> None:
    assert strip_lead(text) == stripped


@pytest.mark.parametrize(
    ("gold", "value"),
    [
        ("12 apples are left", "12"), (r"5 \text{ cm long}", r"5 \text{cm}"), ("7 in total", "7"),
        ("3 million people", r"3 \text{million}"), (r"5 \text{months in total}", r"5 \text{months}"),
    ]
    + [(text, text) for text in ("12 cm", "5 or more", "5 less than x", "7 p.m. today", "x apples", "2 x",
                                 r"5 \text{tenths}", "5 and 6 apples")],
)  # fmt: skip
def test_description_after_a_gold_value_is_dropped(gold: str, value: str) -> None:
    assert without_description(gold) == value
