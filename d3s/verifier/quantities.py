r"""Numbers written out in an answer: exact value, stated precision, percent sign, unit and base.

Understood, without a LaTeX parser: integers and decimals with a sign, thousands separators (`1,000` `1 000`
`10{,}000`), `4.5e33` and `4.5 \times 10^{33}`, powers of integers, fractions `\frac{a}{b}` `a/b`, mixed numbers,
recurring decimals (`0.\overline{3}`), number words that multiply (`3 million`), percent, degrees, currency, units, base
subscripts (`101_2`).

Sizes are bounded before any integer is built: at most 4,000 digits.
"""

# ruff: noqa: SIM905 (word lists read best as one string)

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import takewhile

from d3s.verifier.nouns import is_ordinal_fraction
from d3s.verifier.units import LATIN_WORD, MULTIPLIERS, incompatible_units, is_measure, ratio_of_units, split_unit

MAX_DIGITS = 4_000
ROUNDING_DIGITS = 3  # significant digits from which a decimal gold answer accepts an exact value that rounds to it
FULL_PRECISION = 12  # significant digits from which a decimal stands for the exact gold answer that it rounds

_INT = r"[0-9]+"
_GROUPED = r"[0-9]{1,3}(?:[, ][0-9]{3})+"
_DECIMAL = rf"(?:{_GROUPED}|{_INT})(?:\.[0-9]*)?|\.[0-9]+"
_TIMES_TEN = r"(?:\\times|\\cdot|\*|x)\s*10(?:\^(?:\{\s*([-+]?[0-9]{1,6})\s*\}|([0-9]))|(?![0-9.^]))"
_LITERAL = re.compile(rf"({_DECIMAL})\s*(?:[eE]([-+]?[0-9]{{1,6}})(?![0-9A-Za-z])|{_TIMES_TEN})?")
_POWER = re.compile(r"([0-9]{1,9})\^(?:\{\s*([-+]?[0-9]{1,5})\s*\}|([0-9]))")
_FRACTION = re.compile(
    r"(?:\\frac\s*+\{([^{}]{1,80})\}\s*+\{([^{}]{1,80})\}|(\([^()/]{1,80}\)|[0-9][0-9.,]{0,40}|\.[0-9]+)\s*/\s*(\([^()/]{1,80}\)|[0-9][0-9.]{0,40}))"
)
_MIXED = re.compile(
    r"([0-9]{1,20})\s*(?:\\frac\s*\{\s*([0-9]{1,20})\s*\}\s*\{\s*([0-9]{1,20})\s*\}"
    r"|[ +]([0-9]{1,20})\s*/\s*([0-9]{1,20}))"
)
_RECURRING = re.compile(
    r"([0-9]*)\.([0-9]*)(?:\\(?:overline|bar|dot)\s*\{?([0-9]{1,50})\}?|\(([0-9]{1,50})\)|\s*(?:\\dots|\.{3}))"
)
_BASE = re.compile(r"([0-9A-Z][0-9A-Z ,]{0,200})\s*_\s*\{?\s*(?:\\text\{\s*)?\(?([0-9]{1,2}|[a-z]{3,8})\)?\s*\}?\s*\}?")
_BASE_NAMES = {"bin": 2, "oct": 8, "dec": 10, "hex": 16}
_ORDINAL = re.compile(r"(?<=[0-9])(?:\^\{?)?\s*(?:\\text\{\s*)?(?:st|nd|rd|th)\s*\}?\s*\}?$")
_SIGN = re.compile(r"\s*([-+]?)\s*")
_NUMBER_WORDS = {
    word: number
    for number, word in enumerate(
        "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
        "seventeen eighteen nineteen twenty".split()
    )
}
_TENS = {f"{word}ty": 10 * tens for tens, word in enumerate("twen thir for fif six seven eigh nine".split(), start=2)}
_FRACTION_WORDS = {"half": 2, "halve": 2, "third": 3, "quarter": 4, "fourth": 4, "fifth": 5, "sixth": 6, "eighth": 8}
_NUMBER_WORD = re.compile(r"(?:\\text\{\s*)?([A-Za-z]{3,9})(?:[- ]([A-Za-z]{3,8}))?(?:\s*\})?")
_LEAD = re.compile(
    r"(\\text\{\s*)?(?:about|approximately|exactly|only|just|around|roughly|(?:the )?(?:final )?answer(?: is|:)?"
    r"|the value of [A-Za-z] is|(?:so|thus|hence|therefore)\b,?|option|choice|approx\.?)"
    r"(?![A-Za-z])\s*(\})?\s*"
    r"|\\(?:approx|sim|Rightarrow|implies|therefore)(?![A-Za-z])\s*|\\text\{[A-Za-z ]{2,40}:\s*\}\s*",
    re.IGNORECASE,
)
_DESCRIBED = re.compile(
    r"(.*[0-9}%)°])\s*((?:\\text\{[^{}]*\}|\s+\(?[A-Za-z][A-Za-z'-]*\)?[,.]?)(?:\\text\{[^{}]*\}|[A-Za-z'(),.\s-])*)"
)
_NOT_A_DESCRIPTION = frozenset(
    (
        "or and not no either than less more fewer half quarter third plus minus over mod base if unless except none "
        "undefined infinitely squared cubed divided multiplied halves thirds quarters wrong incorrect otherwise "
        "january february march april may june july august september october november december"
    ).split()
)
_HALF_DAY = re.compile(r"(?<![A-Za-z])[ap]\.?\s?m(?![A-Za-z])", re.IGNORECASE)


@dataclass(frozen=True)
class Quantity:
    """An exact number and how it was written."""

    value: Fraction
    step: Fraction | None = None  # unit of the last written decimal (0.01 for `2.23`); None for an exact form
    digits: int = 0  # significant digits as written, for decimals
    percent: bool = False
    base: int | None = None
    unit: str = ""


@lru_cache(maxsize=8192)
def parse_quantity(text: str) -> Quantity | None:
    """Return the number that a normalized answer writes out; None for a formula, a word or too many digits."""
    if len(text) > MAX_DIGITS:
        return None
    if (words := _NUMBER_WORD.fullmatch(text)) and (value := _number_of_words(words)) is not None:
        return Quantity(value)
    core, unit = split_unit(text)
    if not core:
        return None
    scale = Fraction(1)
    words = unit.split()
    while words and words[0] in MULTIPLIERS:
        scale *= MULTIPLIERS[words.pop(0)]
    unit = " ".join(words)
    if core.endswith(("%", "°")):
        core, unit = core[:-1].rstrip(), core[-1]
    core = _ORDINAL.sub("", core)
    number = _parse_based(core) or _parse_number(core)
    if number is None:
        return None
    step = number.step * scale if number.step is not None else None
    percent = unit == "%"
    return Quantity(number.value * scale, step, number.digits, percent, number.base, "" if percent else unit)


def equal_quantities(gold: Quantity, answer: Quantity) -> bool:
    """Are two written-out numbers the same number? Written digits count: 2.232 is not 2.23.

    A base other than ten, and two different known units, make numbers different, unless the units differ by a power
    of ten that the values make up for (`5 km`, `5000 m`); a unit or percent sign on one side
    only does not matter. A decimal gold answer of at least three digits accepts an exact fraction that rounds to it,
    and an exact gold answer accepts a decimal of at least twelve digits that it rounds to.
    """
    if gold.base != answer.base:
        return False
    if gold.unit != answer.unit and incompatible_units(gold.unit, answer.unit):
        ratio = ratio_of_units(gold.unit, answer.unit)
        return ratio is not None and gold.value * ratio == answer.value
    if gold.value == answer.value:
        return True
    if gold.percent != answer.percent:  # 10% is 10/100, and `10` answers "how many percent"
        return gold.value == answer.value * 100 if gold.percent else gold.value * 100 == answer.value
    if answer.step is None and rounds_to(answer.value, gold):
        return True
    return gold.step is None and answer.digits >= FULL_PRECISION and rounds_to(gold.value, answer)


def rounds_to(value: Fraction, written: Quantity) -> bool:
    """Does the exact `value` round to the decimal `written` at its written digits? An integer never does."""
    if written.step is None or written.digits < ROUNDING_DIGITS or value.denominator == 1:
        return False
    slack = abs(value) / 2**50 if written.digits >= 15 else 0  # a printed double is off in its last digits
    return abs(value - written.value) <= max(written.step / 2, slack)


def claims(approximation: Quantity, value: Fraction) -> bool:
    """Can a written number stand as an approximation of `value`: rounded or cut, at its written digits?

    A fraction may be off by 1 %, an integer by less than its last digit that is not zero.
    """
    written, step = approximation.value, approximation.step
    if step is None:
        zeros = len(str(written.numerator)) - len(str(written.numerator).rstrip("0"))
        step = Fraction(10**zeros) if written.denominator == 1 else abs(written) / 100
    scale = 100 if approximation.percent else 1
    return abs(value * scale - written) < step


def strip_lead(text: str) -> str:
    """Remove a leading `about`, `approximately` or `the answer is` from a normalized answer."""
    match = _LEAD.match(text)
    if match is None or (match.group().rstrip("} ").endswith(":") and ":" in text[match.end() :]):
        return text  # `\text{boys: }3, \text{girls: }4` are labels
    return (match[1] if match[1] and not match[2] else "") + text[match.end() :]  # `\text{about 5}` keeps its braces


@lru_cache(maxsize=8192)
def without_description(gold: str) -> str:
    r"""Remove the words after a gold value: `12 apples are left` -> `12`, `5 \text{ cm long}` -> `5 \text{cm}`.

    Multipliers and known units right after the value stay. Not for the answers of a model: there, such words may
    retract the value.
    """
    match = _DESCRIBED.fullmatch(gold) if gold[-1:].isalpha() or gold[-1:] in ("}", ")", ".") else None
    if not match:
        return gold
    value, tail = match.group(1).rstrip(), match.group(2)
    words = LATIN_WORD.findall(tail.replace("\\text", " "))
    if re.search(r"\b(?:and|or)\b|[A-Za-z]\s*\}?\s*,", value):
        return gold
    plain = any(len(word) > 3 for word in words) and all(len(word) > 1 or word == "a" for word in words)
    if (
        any(word.lower() in _NOT_A_DESCRIPTION or is_ordinal_fraction(word.lower()) for word in words)
        or _HALF_DAY.search(tail)
        or re.search("[0-9]", tail)
    ):
        return gold
    if "\\text" not in tail and not (plain and parse_quantity(value)):
        return gold
    kept = list(takewhile(is_measure, words))
    if kept == words:
        return gold
    while kept and kept[-1].lower() in ("in", "square", "cubic", "sq", "per"):  # `7 in total`, `12 square units`
        kept.pop()
    short = f"{value} \\text{{{' '.join(kept)}}}" if kept else value
    unit = split_unit(gold)[1].removeprefix("unit")
    return short if not unit or split_unit(short)[1] == unit else gold  # `5 \text{N \cdot m}`, `5 words per minute`


def _number_of_words(words: re.Match[str]) -> Fraction | None:
    """Return the number of `seven`, `forty`, `forty-two`, `one half` or `two thirds`."""
    first, second = words.group(1).lower(), (words.group(2) or "").lower()
    if not second:
        number = _NUMBER_WORDS.get(first, _TENS.get(first))
        return None if number is None else Fraction(number)
    if first in _TENS and 0 < _NUMBER_WORDS.get(second, 0) < 10:
        return Fraction(_TENS[first] + _NUMBER_WORDS[second])
    denominator = _FRACTION_WORDS.get(second.removesuffix("s"))
    return Fraction(_NUMBER_WORDS[first], denominator) if denominator and first in _NUMBER_WORDS else None


def _parse_number(text: str) -> Quantity | None:
    """Parse a signed number without unit; redundant brackets around it are dropped."""
    sign = 1
    for _ in range(4):
        match = _SIGN.match(text)
        sign = -sign if match.group(1) == "-" else sign
        text = text[match.end() :].strip()
        if text[:1] in "({" and text[-1:] in ")}" and text[1:-1].count("(") == 0 and len(text) > 2:
            text = text[1:-1].strip()
        elif not match.group(1):
            break
    for parse in (_parse_literal, _parse_fraction, _parse_mixed_number, _parse_recurring_decimal, _parse_power):
        if (number := parse(text)) is not None:
            return Quantity(sign * number.value, number.step, number.digits)
    return None


def _parse_literal(text: str) -> Quantity | None:
    match = _LITERAL.fullmatch(text)
    if not match:
        return None
    digits, *exponents = match.groups()
    exponent = int(next(filter(None, exponents), "0"))
    if exponents == [None, None, None] and len(text) > len(digits):
        exponent = 1  # `5 \times 10`
    if abs(exponent) > MAX_DIGITS:
        return None
    ungrouped = digits.replace(",", "").replace(" ", "")
    integer, _, decimals = ungrouped.partition(".")
    value = Fraction(int(integer + decimals or "0"), 10 ** len(decimals)) * Fraction(10) ** exponent
    significant = len((integer + decimals).lstrip("0"))
    is_decimal = "." in ungrouped or exponent != 0
    return Quantity(value, Fraction(10) ** (exponent - len(decimals)) if is_decimal else None, significant)


def _parse_power(text: str) -> Quantity | None:
    match = _POWER.fullmatch(text)
    if not match:
        return None
    base, exponent = int(match.group(1)), int(match.group(2) or match.group(3))
    if base == 0 or abs(exponent) * len(str(base - 1)) > MAX_DIGITS:  # a power of ten has one digit less
        return None
    return Quantity(Fraction(base) ** exponent)


def _parse_fraction(text: str) -> Quantity | None:
    match = _FRACTION.fullmatch(text)
    if not match:
        return None
    parts = match.group(1, 2) if match.group(1) else match.group(3, 4)
    numerator, denominator = (_parse_number(part) for part in parts)
    if numerator is None or denominator is None or denominator.value == 0:
        return None
    return Quantity(numerator.value / denominator.value)


def _parse_mixed_number(text: str) -> Quantity | None:
    match = _MIXED.fullmatch(text)
    if not match:
        return None
    integer = int(match.group(1))
    numerator, denominator = int(match.group(2) or match.group(4)), int(match.group(3) or match.group(5))
    return Quantity(integer + Fraction(numerator, denominator)) if 0 < numerator < denominator else None


def _parse_recurring_decimal(text: str) -> Quantity | None:
    r"""Parse `0.1\overline{6}`, `0.1(6)`, and `0.1666...` whose last digits repeat at least three times."""
    match = _RECURRING.fullmatch(text)
    if not match:
        return None
    integer, fixed, period = match.group(1), match.group(2), match.group(3) or match.group(4)
    if period is None:
        tail = re.search(r"([0-9]{1,6}?)\1{2,}$", fixed)
        if not tail:
            return None
        fixed, period = fixed[: tail.start()], tail.group(1)
    if len(fixed) > 100:
        return None
    value = int(integer or "0") + Fraction(int(fixed or "0"), 10 ** len(fixed))
    return Quantity(value + Fraction(int(period), (10 ** len(period) - 1) * 10 ** len(fixed)))


def _parse_based(text: str) -> Quantity | None:
    """Parse digits with a base subscript. Base ten is the plain number; any other base is part of the answer."""
    sign, body = (-1, text[1:]) if text.startswith("-") else (1, text)
    digits = re.sub(r"\\text\{\s*([0-9A-Z]{1,20})\s*\}(?=.*_)", r"\1", body) if "_" in body else ""
    match = _BASE.fullmatch(re.sub(r"^(?:\(([^()]*)\)|\{([^{}]*)\})(?=\s*_)", r"\1\2", digits))
    if not match:
        return None
    name = match.group(2)
    base = int(name) if name.isdigit() else _NUMBER_WORDS.get(name) or _BASE_NAMES.get(name, 0)
    digits = match.group(1).replace(" ", "").replace(",", "")
    if not 2 <= base <= 36 or not any(c.isdigit() for c in digits):
        return None
    try:
        return Quantity(Fraction(sign * int(digits, base)), base=None if base == 10 else base)
    except ValueError:  # a digit that the base does not have
        return None
