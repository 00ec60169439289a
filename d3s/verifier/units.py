r"""Units after a value: recognition, one name for all aliases, comparison.

A longer word after a value always counts as a unit. A short one could be a product of variables and counts only when
it is listed here.
"""

# ruff: noqa: SIM905 (word lists read best as one string)

import re
from functools import lru_cache

MULTIPLIERS = {"hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9, "trillion": 10**12, "dozen": 12}
_NOT_A_UNIT = frozenset(
    (
        "or and not either maybe perhaps possibly is are to from between than but wrong right i e if when then "
        "plus minus times by over half quarter third mod for all any no none true false base"
    ).split()
)
UNITS = {
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
_KNOWN = frozenset(" ".join(UNITS.values()).split()) | {"2", "3"}
_MEASURES = frozenset(["square", "cubic", "sq", "per", "unit", "units"])
_TEXT_TAIL = re.compile(r"\s*(\\text\{[^{}]*\}(?:\\text\{[^{}]*\}|\^\{?\s*-?[0-9]\s*\}?|[/\s.]|\\cdot|(?<=\})[23])*)$")
_WORD_TAIL = re.compile(
    r"(?<=[0-9}%)°\s])\s*((?:[A-Za-z]+\.?(?:\^\{?-?[0-9]\}?|[23](?![0-9]))?(?:\s+|\s*/\s*)?){1,5})$"
)
LATIN_WORD = re.compile(r"[A-Za-z]+")
_LETTER_UNIT = re.compile(r"(.*[0-9}])\s*([A-Za-z])")


@lru_cache(maxsize=8192)
def split_unit(text: str) -> tuple[str, str]:
    r"""Split a normalized answer into value and unit: `15 \text{ square feet}` -> ("15", "ft 2"); "" without a unit.

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


def without_letter_unit(answer: str, gold_unit: str) -> str:
    r"""`59 m` -> `59` where the gold answer has this unit: a lone letter after a number is a unit only there."""
    match = _LETTER_UNIT.fullmatch(answer) if gold_unit else None
    return match.group(1) if match and UNITS.get(match.group(2)) == gold_unit else answer


def incompatible_units(unit: str, other: str) -> bool:
    """Are both units known and different? `units` matches any unit of the same power."""
    words, other_words = unit.split(), other.split()
    both = words + other_words
    if not words or not other_words or not all(word in _KNOWN or word in ("unit", "units") for word in both):
        return False
    if all(word in _KNOWN for word in both):
        return True
    return [word for word in words if word in "23"] != [word for word in other_words if word in "23"]


def is_measure(word: str) -> bool:
    return word in UNITS or word.lower() in MULTIPLIERS or word.lower() in _MEASURES


def _unit_may_follow(core: str) -> bool:
    """Can a unit follow this text? It follows a value, not an operator, a relation or an opening bracket."""
    core = core.rstrip()
    return (
        bool(core)
        and core[-1] not in "+-*/=<>^_,;:(|"
        and not core.endswith(("\\cdot", "\\times", "\\leq", "\\geq"))
        and any(c.isdigit() or c == "\\" for c in core)
    )


def _is_unit(words: str, bare: bool = False) -> bool:
    parts = LATIN_WORD.findall(words)
    if not parts or len(parts) > 6 or any(word.lower() in _NOT_A_UNIT for word in parts):
        return False
    if not bare:
        return True
    if "/" in words:
        return all(word in UNITS for word in parts)  # `50 km/h`
    return all(
        word in MULTIPLIERS or word == "per" or (word in UNITS and len(word) > 1) or len(word) > 3 for word in parts
    )


def _unit_name(words: str) -> str:
    """Return one name for all aliases (`square feet`, `sq ft`, `ft^2`), powers last; unknown words in lower case."""
    names = [
        UNITS.get(word) or UNITS.get(word.lower()) or word.lower()
        for word in re.findall(r"[A-Za-z]+|[23](?![0-9])", words)
    ]
    names = ["2" if n in ("square", "sq", "squared") else "3" if n in ("cubic", "cu", "cubed") else n for n in names]
    return " ".join([n for n in names if n not in ("2", "3", "per")] + sorted(n for n in names if n in "23"))
