r"""Numbers that are written out: exact value, stated precision, percent sign, unit and base, read without any parser.

Understood: integers and decimals with a sign, thousands separators (`1,000` `1 000` `10{,}000`), `4.5e33` and
`4.5 \times 10^{33}`, powers of integers, fractions `\frac{a}{b}` `a/b`, mixed numbers, recurring decimals
(`0.\overline{3}`), number words that multiply (`3 million`), per cent, degrees, currency, units, base subscripts
(`101_2`).

Sizes are bounded before any integer is built: at most 4,000 digits.
"""

# ruff: noqa: SIM905 (word lists read best as one string)

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import takewhile

from d3s.verifier.normalize import canonical, compact

MAX_DIGITS = 4_000
ROUNDING_DIGITS = (
    3  # a decimal gold answer accepts an exact value that rounds to it only from so many significant digits
)
FULL_PRECISION = 12  # a decimal of so many significant digits stands for the exact gold answer that it rounds from


@dataclass(frozen=True)
class Quantity:
    """An exact number as written. `step` is the unit of the last written decimal (0.01 for `2.23`), None when
    exact."""

    value: Fraction
    step: Fraction | None = None
    digits: int = 0  # significant digits as written, for decimals
    percent: bool = False
    degrees: bool = False
    base: int | None = None
    unit: str = ""


_INT = r"[0-9]+"
_GROUPED = r"[0-9]{1,3}(?:[, ][0-9]{3})+"
_DECIMAL = rf"(?:{_GROUPED}|{_INT})(?:\.[0-9]*)?|\.[0-9]+"
_TIMES_TEN = r"(?:\\times|\\cdot|\*|x)\s*10(?:\^(?:\{\s*([-+]?[0-9]{1,6})\s*\}|([0-9]))|(?![0-9.^]))"
_LITERAL = re.compile(rf"({_DECIMAL})\s*(?:[eE]([-+]?[0-9]{{1,6}})(?![0-9A-Za-z])|{_TIMES_TEN})?")
_POWER = re.compile(r"([0-9]{1,9})\^(?:\{\s*([-+]?[0-9]{1,5})\s*\}|([0-9]))")
_FRACTION = re.compile(
    r"(?:\\frac\s*\{\s*([^{}]{1,80})\s*\}\s*\{\s*([^{}]{1,80})\s*\}|(\([^()/]{1,80}\)|[0-9][0-9.,]{0,40}|\.[0-9]+)\s*/\s*(\([^()/]{1,80}\)|[0-9][0-9.]{0,40}))"
)
_MIXED = re.compile(
    r"([0-9]{1,20})\s*(?:\\frac\s*\{\s*([0-9]{1,20})\s*\}\s*\{\s*([0-9]{1,20})\s*\}"
    r"|[ +]([0-9]{1,20})\s*/\s*([0-9]{1,20}))"
)
_RECURRING = re.compile(
    r"([0-9]*)\.([0-9]*)(?:\\(?:overline|bar|dot)\s*\{?([0-9]{1,50})\}?|\(([0-9]{1,50})\)|\s*(?:\\dots|\.{3}))"
)
_BASE = re.compile(r"([0-9A-Z][0-9A-Z ,]{0,200})\s*_\s*\{?\s*(?:\\text\{\s*)?([0-9]{1,2}|[a-z]{3,8})\s*\}?\s*\}?")
_ORDINAL = re.compile(r"(?<=[0-9])(?:\^\{?)?\s*(?:\\text\{\s*)?(?:st|nd|rd|th)\s*\}?\s*\}?$")
_SIGN = re.compile(r"\s*([-+]?)\s*")
_NUMBER_WORDS = {
    word: number
    for number, word in enumerate(
        "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
        "seventeen eighteen nineteen twenty".split()
    )
}
_NUMBER_WORD = re.compile(r"(?:\\text\{\s*)?([A-Za-z]{3,9})(?:\s*\})?")
_MULTIPLIERS = {"hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9, "trillion": 10**12, "dozen": 12}
_NOT_A_UNIT = frozenset(
    (
        "or and not either maybe perhaps possibly is are to from between than but wrong right i e if when then "
        "plus minus times by over half quarter third mod for all any no none true false base"
    ).split()
)
# Unit spellings whose letters could also be a product of variables count only when listed here; longer words always
# do.
_UNITS = {
    alias: unit
    for unit, aliases in {
        "m": "m meter meters metre metres", "cm": "cm centimeter centimeters", "mm": "mm millimeter millimeters",
        "km": "km kilometer kilometers", "in": "in inch inches", "ft": "ft foot feet", "yd": "yd yard yards",
        "mi": "mi mile miles", "g": "g gm gms gram grams", "kg": "kg kilogram kilograms", "mg": "mg",
        "lb": "lb lbs pound pounds",
        "oz": "oz ounce ounces", "s": "s sec secs second seconds", "min": "min mins minute minutes",
        "h": "h hr hrs hour hours",
        "day": "day days", "week": "week weeks", "year": "yr yrs year years", "L": "l L liter liters litre litres",
        "mL": "ml mL", "Hz": "Hz hz hertz", "kHz": "kHz", "MHz": "MHz", "GHz": "GHz", "N": "N newton newtons",
        "kN": "kN",
        "J": "J joule joules", "kJ": "kJ", "W": "W watt watts", "kW": "kW", "MW": "MW", "V": "V volt volts", "mV": "mV",
        "A": "A amp amps", "mA": "mA", "Pa": "Pa", "kPa": "kPa", "K": "K kelvin", "C": "C", "eV": "eV", "keV": "keV",
        "MeV": "MeV", "GeV": "GeV", "mi h": "mph", "km h": "kmh kph", "rad": "rad radian radians", "nm": "nm",
        "mol": "mol", "cents": "cent cents", "dollars": "dollar dollars", "°": "deg degree degrees",
        "%": "percent percentage pct", "a m": "am", "p m": "pm",
    }.items()
    for alias in aliases.split()
}  # fmt: skip


@lru_cache(maxsize=8192)
def quantity(text: str) -> Quantity | None:
    """The number that a canonical answer writes out, or None when it is anything else (a formula, a word, too
    large)."""
    if len(text) > MAX_DIGITS:
        return None
    if (word := _NUMBER_WORD.fullmatch(text)) and word.group(1).lower() in _NUMBER_WORDS:
        return Quantity(Fraction(_NUMBER_WORDS[word.group(1).lower()]))
    core, unit = split_unit(text)
    if not core:
        return None
    scale = Fraction(1)
    words = unit.split()
    while words and words[0] in _MULTIPLIERS:
        scale *= _MULTIPLIERS[words.pop(0)]
    unit = " ".join(words)
    percent, degrees = core.endswith("%"), core.endswith("°")
    if percent or degrees:
        core = core[:-1].rstrip()
    percent, degrees = percent or unit == "%", degrees or unit == "°"
    unit = "" if unit in ("%", "°") else unit
    core = _ORDINAL.sub("", core)
    found = _based(core) or _number(core)
    if found is None:
        return None
    step = found.step * scale if found.step is not None else None
    return Quantity(found.value * scale, step, found.digits, percent, degrees, found.base, unit)


def _number(text: str) -> Quantity | None:
    """A signed number without unit; redundant brackets around it are dropped."""
    sign = 1
    for _ in range(4):
        match = _SIGN.match(text)
        sign = -sign if match.group(1) == "-" else sign
        text = text[match.end() :].strip()
        if text[:1] in "({" and text[-1:] in ")}" and text[1:-1].count("(") == 0 and len(text) > 2:
            text = text[1:-1].strip()
        elif not match.group(1):
            break
    for read in (_literal, _fraction, _mixed, _recurring, _power):
        if (found := read(text)) is not None:
            return Quantity(sign * found.value, found.step, found.digits)
    return None


def _literal(text: str) -> Quantity | None:
    match = _LITERAL.fullmatch(text)
    if not match:
        return _power_of_ten(text)
    digits, *exponents = match.groups()
    exponent = int(next((e for e in exponents if e), "0"))
    if exponents == [None, None, None] and len(text) > len(digits):
        exponent = 1  # `5 \times 10`
    if abs(exponent) > MAX_DIGITS:
        return None
    plain = digits.replace(",", "").replace(" ", "")
    whole, _, part = plain.partition(".")
    value = Fraction(int(whole + part or "0"), 10 ** len(part)) * Fraction(10) ** exponent
    significant = len((whole + part).lstrip("0"))
    written_as_decimal = "." in plain or exponent != 0
    return Quantity(value, Fraction(10) ** (exponent - len(part)) if written_as_decimal else None, significant)


def _power_of_ten(text: str) -> Quantity | None:
    match = re.fullmatch(r"10\^(?:\{\s*([-+]?[0-9]{1,5})\s*\}|([0-9]))", text)
    exponent = int(match.group(1) or match.group(2)) if match else MAX_DIGITS + 1
    return Quantity(Fraction(10) ** exponent) if abs(exponent) <= MAX_DIGITS else None


def _power(text: str) -> Quantity | None:
    match = _POWER.fullmatch(text)
    if not match:
        return None
    base, exponent = int(match.group(1)), int(match.group(2) or match.group(3))
    if base == 0 or abs(exponent) * len(match.group(1)) > MAX_DIGITS:
        return None
    return Quantity(Fraction(base) ** exponent)


def _fraction(text: str) -> Quantity | None:
    match = _FRACTION.fullmatch(text)
    if not match:
        return None
    above, below = (
        _number(part) for part in ((match.group(1), match.group(2)) if match.group(1) else match.group(3, 4))
    )
    if above is None or below is None or below.value == 0:
        return None
    return Quantity(above.value / below.value)


def _mixed(text: str) -> Quantity | None:
    match = _MIXED.fullmatch(text)
    if not match:
        return None
    whole, above, below = (
        int(match.group(1)),
        int(match.group(2) or match.group(4)),
        int(match.group(3) or match.group(5)),
    )
    return Quantity(whole + Fraction(above, below)) if 0 < above < below else None


def _recurring(text: str) -> Quantity | None:
    r"""`0.1\overline{6}`, `0.1(6)`, and `0.1666...` where at least the last three digits agree."""
    match = _RECURRING.fullmatch(text)
    if not match:
        return None
    whole, fixed, period = match.group(1), match.group(2), match.group(3) or match.group(4)
    if period is None:
        tail = re.search(r"([0-9]{1,6}?)\1{2,}$", fixed)
        if not tail:
            return None
        fixed, period = fixed[: tail.start()], tail.group(1)
    if len(fixed) > 100:
        return None
    value = int(whole or "0") + Fraction(int(fixed or "0"), 10 ** len(fixed))
    return Quantity(value + Fraction(int(period), (10 ** len(period) - 1) * 10 ** len(fixed)))


def _based(text: str) -> Quantity | None:
    """Digits with a base subscript. Base ten is the plain number; any other base is part of what was asked for."""
    sign, body = (-1, text[1:]) if text.startswith("-") else (1, text)
    match = _BASE.fullmatch(re.sub(r"^\(([^()]*)\)(?=\s*_)", r"\1", body))
    if not match:
        return None
    name = match.group(2)
    base = int(name) if name.isdigit() else _NUMBER_WORDS.get(name, 0)
    digits = match.group(1).replace(" ", "").replace(",", "")
    if not 2 <= base <= 36 or not any(c.isdigit() for c in digits):
        return None
    try:
        return Quantity(Fraction(sign * int(digits, base)), base=None if base == 10 else base)
    except ValueError:  # a digit that the base does not have
        return None


# ---------------------------------------------------------------------------------------------------------------- units

_TEXT_TAIL = re.compile(r"\s*(\\text\{[^{}]*\}(?:\\text\{[^{}]*\}|\^\{?\s*-?[0-9]\s*\}?|[/\s.]|\\cdot|(?<=\})[23])*)$")
_WORD_TAIL = re.compile(
    r"(?<=[0-9}%)°\s])\s*((?:[A-Za-z]+\.?(?:\^\{?-?[0-9]\}?|[23](?![0-9]))?(?:\s+|\s*/\s*)?){1,5})$"
)
_TEXT_WORD = re.compile(r"[A-Za-z]+")
_LEAD = re.compile(
    r"^(?:\\text\{\s*)?(?:about|approximately|exactly|around|roughly|the answer is|answer:?|option|choice|approx\.?"
    r"|\\approx|\\sim|\\text\{about\}|\\text\{approximately\})\s*\}?\s*",
    re.IGNORECASE,
)


@lru_cache(maxsize=8192)
def split_unit(text: str) -> tuple[str, str]:
    r"""(formula, unit words) of a canonical answer: `15 \text{ square feet}` -> ("15", "ft^2"); unit "" where there
    is none.

    A lone bare letter is never a unit (`0.64N`, `5m` may be products); inside \text{..} it is.
    """
    tail = _TEXT_TAIL.search(text) if text.endswith(("}", "2", "3")) and "\\text{" in text else None
    if tail and tail.start() > 0 and "\\text" in tail.group():
        words = tail.group(1).replace("\\text", " ")
        if _is_unit(words) and _unit_may_follow(text[: tail.start()]):
            return text[: tail.start()].rstrip(), _unit_name(words)
    elif text[-1:].isalpha() or text[-2:] in ("^2", "^3") or text.endswith("."):
        tail = _WORD_TAIL.search(text)
        if tail and tail.start() > 0 and _is_unit(tail.group(1), bare=True) and _unit_may_follow(text[: tail.start()]):
            return text[: tail.start()].rstrip(), _unit_name(tail.group(1))
    return text, ""


def _unit_may_follow(core: str) -> bool:
    """A unit follows a value, not an operator, a relation or half of a bracket."""
    core = core.rstrip()
    return (
        bool(core)
        and core[-1] not in "+-*/=<>^_,;:(|"
        and not core.endswith(("\\cdot", "\\times", "\\leq", "\\geq"))
        and any(c.isdigit() or c == "\\" for c in core)
    )


def _is_unit(words: str, bare: bool = False) -> bool:
    found = _TEXT_WORD.findall(words)
    if not found or len(found) > 6 or any(word.lower() in _NOT_A_UNIT for word in found):
        return False
    if not bare:
        return True
    if "/" in words:
        return all(word in _UNITS for word in found)  # `50 km/h`
    return all(
        word in _MULTIPLIERS or word == "per" or (word in _UNITS and len(word) > 1) or len(word) > 3 for word in found
    )


def _unit_name(words: str) -> str:
    """A canonical name: aliases merged, `square feet`, `sq ft` and `ft^2` alike; unknown words lower-case."""
    names = [
        _UNITS.get(word) or _UNITS.get(word.lower()) or word.lower()
        for word in re.findall(r"[A-Za-z]+|[23](?![0-9])", words)
    ]
    names = ["2" if n in ("square", "sq", "squared") else "3" if n in ("cubic", "cu", "cubed") else n for n in names]
    return " ".join([n for n in names if n not in ("2", "3", "per")] + sorted(n for n in names if n in "23"))


# ----------------------------------------------------------------------------------------------------------- comparison


def equal_quantities(gold: Quantity, answer: Quantity) -> bool:
    """Are two written-out numbers the same number? Differing written digits differ: 2.232 is not 2.23.

    A base other than ten, and two different known units, make numbers different; a unit or per-cent sign on one side
    only does not matter. A decimal gold answer of at least three digits accepts an exact fraction that rounds to it.
    """
    if gold.base != answer.base:
        return False
    if gold.unit != answer.unit and _differ(gold.unit, answer.unit):
        return False
    if gold.value == answer.value:
        return True
    if gold.percent != answer.percent:  # 10% is 10/100, and `10` answers "how many per cent"
        return gold.value == answer.value * 100 if gold.percent else gold.value * 100 == answer.value
    if answer.step is None and rounds_to(answer.value, gold):
        return True
    return gold.step is None and answer.digits >= FULL_PRECISION and rounds_to(gold.value, answer)


_DESCRIBED = re.compile(
    r"(.*[0-9}%)°])\s*((?:\\text\{[^{}]*\}|\s+\(?[A-Za-z][A-Za-z'-]*\)?[,.]?)(?:\\text\{[^{}]*\}|[A-Za-z'(),.\s-])*)"
)
_NOT_A_DESCRIPTION = frozenset(
    (
        "or and not no either than less more fewer half quarter third plus minus over mod base if unless except none "
        "undefined infinitely squared cubed divided multiplied"
    ).split()
)
_HALF_DAY = re.compile(r"(?<![A-Za-z])[ap]\.?\s?m(?![A-Za-z])", re.IGNORECASE)


@lru_cache(maxsize=8192)
def without_description(gold: str) -> str:
    r"""A gold answer without the words after its value: `12 apples are left` -> `12`, `5 \text{ cm long}` -> `5 cm`.

    Multipliers and known units right after the value stay. Gold answers only: in an answer, such words may take back
    what the value says.
    """
    match = _DESCRIBED.fullmatch(gold) if gold[-1:].isalpha() or gold[-1:] in ("}", ")", ".") else None
    if not match:
        return gold
    value, tail = match.group(1).rstrip(), match.group(2)
    words = _TEXT_WORD.findall(tail.replace("\\text", " "))
    if re.search(r"\b(?:and|or)\b", value):
        return gold
    plain = any(len(word) > 3 for word in words) and all(len(word) > 1 or word == "a" for word in words)
    if any(word.lower() in _NOT_A_DESCRIPTION for word in words) or _HALF_DAY.search(tail) or re.search("[0-9]", tail):
        return gold
    if "\\text" not in tail and not (plain and quantity(value)):
        return gold
    kept = list(takewhile(_is_measure, words))
    if kept == words:
        return gold
    while kept and kept[-1].lower() in ("in", "square", "cubic", "sq", "per"):  # `7 in total`, `12 square units`
        kept.pop()
    return f"{value} \\text{{{' '.join(kept)}}}" if kept else value


def without_letter_unit(answer: str, gold: Quantity) -> str:
    r"""`59 m` -> `59` where the gold answer has this unit: a lone letter after a number is a unit only there."""
    match = _LETTER_UNIT.fullmatch(answer) if gold.unit else None
    return match.group(1) if match and _UNITS.get(match.group(2)) == gold.unit else answer


_LETTER_UNIT = re.compile(r"(.*[0-9}])\s*([A-Za-z])")


def _is_measure(word: str) -> bool:
    return word in _UNITS or word.lower() in _MULTIPLIERS or word.lower() in _MEASURES


_MEASURES = frozenset(["square", "cubic", "sq", "per", "unit", "units"])


def _differ(unit: str, other: str) -> bool:
    """Are two different units both known? `units` stands for any unit of the same power."""
    words, others = unit.split(), other.split()
    if not words or not others or not all(word in _KNOWN or word in ("unit", "units") for word in words + others):
        return False
    if all(word in _KNOWN for word in words + others):
        return True
    return [word for word in words if word in "23"] != [word for word in others if word in "23"]


_KNOWN = frozenset(" ".join(_UNITS.values()).split()) | {"2", "3"}


def rounds_to(value: Fraction, written: Quantity) -> bool:
    """Does the exact `value` round to the decimal `written`, at the digits that are written?"""
    if written.step is None or written.digits < ROUNDING_DIGITS or value.denominator == 1:
        return False
    slack = abs(value) / 2**50 if written.digits >= 15 else 0  # a printed double is off in its last digits
    return abs(value - written.value) <= max(written.step / 2, slack)


def strip_lead(text: str) -> str:
    """A canonical answer without a leading `about`, `approximately`, `the answer is`."""
    return _LEAD.sub("", text, count=1)


def same_spelling(gold: str, answer: str) -> bool:
    """Equal as canonical strings without meaningless spaces: the first and cheapest layer."""
    return compact(canonical(gold)) == compact(canonical(answer))
