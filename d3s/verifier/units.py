r"""Units and nouns after a value: a grammar on tokens, one name for all spellings of a unit, comparison.

    tail    = multiplier* (product | phrase)        `3 \text{million people}`, `9.8 \text{m}/\text{s}^2`, `5 km away`
    product = factor (("\cdot" | "/" | "per")? factor)* phrase?            factor = ("square" | "cubic")? name power?
    phrase  = words that only name what the value counts (d3s/verifier/nouns.py)

The name of a unit is its powers of base units and of ten, so `kJ`, `kN m` and `10^3 J` are one unit. A bare name of one
letter is a variable, unless it stands beside a longer unit or in a quotient.
"""

# ruff: noqa: SIM905 (word lists read best as one string)

import itertools
import re
from collections import Counter
from fractions import Fraction
from functools import lru_cache
from itertools import takewhile

from d3s.verifier.nouns import describes_count

MULTIPLIERS = {"hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9, "trillion": 10**12, "dozen": 12}
_PREFIXES = {
    "f": ("femto", -15), "p": ("pico", -12), "n": ("nano", -9), r"\mu": ("micro", -6), "m": ("milli", -3),
    "c": ("centi", -2), "d": ("deci", -1), "k": ("kilo", 3), "M": ("mega", 6), "G": ("giga", 9), "T": ("tera", 12),
}  # fmt: skip
_METRIC = (  # symbol, then words; all take prefixes
    "m meter metre", "g gram", "s second", "A ampere", "K kelvin", "mol mole", "N newton", "J joule", "W watt",
    "Pa pascal", "V volt", "C coulomb", "F farad", "T tesla", "Wb weber", "H henry", "Hz hertz", r"\Omega ohm",
    "eV electronvolt", "M molar", "yr year", "erg", "dyn dyne", "L l liter litre", "cal calorie", "bar", "B byte",
    "bit", "pc parsec", "Bq becquerel",
)  # fmt: skip
_OTHER = (
    "s sec", "A amp", "g gm", "in inch inches", "ft foot feet", "yd yard", "mi mile", "lb pound", "oz ounce",
    "min minute", "h hr hour", "day", "week", "month", "dollar USD", "euro EUR", "pence", "yen", "rupee", "yuan",
    "° deg degree", "rad radian", "% percent percentage pct", "unit", "gal gallon", "qt quart", "pt pint", "acre",
    "ton tonne", "ly lightyear", "au AU", "arcsec arcsecond", "arcmin arcminute", "atm", "rpm",
    "a.m. am AM", "p.m. pm PM", r"\AA \angstrom angstrom", r"M_\odot", r"L_\odot", r"R_\odot", "°C celsius Celsius",
    "°F fahrenheit Fahrenheit",
)  # fmt: skip
_DEFINED = {
    "erg": "10^-4 g m^2 s^-2", "dyn": "10^-2 g m s^-2", "M": "10^3 mol m^-3", "N": "10^3 g m s^-2",
    "J": "10^3 g m^2 s^-2", "W": "10^3 g m^2 s^-3", "Pa": "10^3 g m^-1 s^-2", "Hz": "s^-1", "V": "10^3 g m^2 s^-3 A^-1",
    "C": "A s", r"\Omega": "10^3 g m^2 s^-3 A^-2", "F": "10^-3 A^2 s^4 g^-1 m^-2", "T": "10^3 g s^-2 A^-1",
    "Wb": "10^3 g m^2 s^-2 A^-1", "H": "10^3 g m^2 s^-2 A^-2", "L": "10^-3 m^3", "cent": "10^-2 dollar",
    "mph": "mi h^-1", "kph": "10^3 m h^-1", "kmh": "10^3 m h^-1", "Nm": "10^3 g m^2 s^-2", "Wh": "10^3 g m^2 s^-3 h",
    "kWh": "10^6 g m^2 s^-3 h",
}  # fmt: skip
_BARE_PAIRS = frozenset(  # of two letters: units without \text, although they could be products
    "cm mm km in ft yd mi gm kg mg lb oz hr yr ml mL Hz hz kN kJ kW MW mV mA Pa eV nm am pm AM PM USD".split()
)
Powers = dict[str, int]
Item = tuple[str, str, bool]  # kind, name, is it in \text{..}?


def _powers(definition: str) -> Powers:
    factors = (factor.partition("^") for factor in definition.split())
    return {name: int(power or 1) for name, _, power in factors}


def _name_units() -> dict[str, Powers]:
    names: dict[str, Powers] = {}

    def add(symbol: str, alias: str, ten: int = 0) -> None:
        powers = Counter(_powers(_DEFINED.get(symbol, symbol)))
        powers["10"] += ten
        spellings = (alias, alias + "s") if len(alias) > 1 and alias.isalpha() else (alias,)
        names.update({name: {unit: power for unit, power in powers.items() if power} for name in spellings})

    for row in _METRIC:
        symbol = row.split()[0]
        for short, (long, ten) in _PREFIXES.items():
            for alias in row.split():
                is_symbol = alias == symbol or len(alias) == 1
                space = " " if is_symbol and short == r"\mu" else ""
                add(symbol, (short if is_symbol else long) + space + alias, ten)
    for row in (*_METRIC, *_DEFINED, *_OTHER):
        for alias in row.split():
            add(row.split()[0], alias)
    return names


UNITS = _name_units()
LATIN_WORD = re.compile(r"[A-Za-z]+")
_WINDOW = 100  # characters at the end of an answer in which a unit is looked for
_TOKEN = re.compile(
    r"(?P<name>light[- ]years?(?![A-Za-z])|°\s?(?:[CF](?![A-Za-z])|\\text\{[CF]\})"
    r"|(?:\\text\{[MLR]\}|[MLR])\s?_(?:\{\s?\\odot\s?\}|\\odot)"
    r"|(?:\\text\{[kMGm]\}|[kMGm])\s?\\Omega|[ap]\.\s?m\.?(?![A-Za-z])|\\mu\s?(?:[A-Za-z]{1,3}|\\text\{[A-Za-z]{1,3}\}))"
    r"|(?P<open>\\text\{|\()|(?P<close>[})])|(?P<over>/|per(?![A-Za-z]))"
    r"|(?P<power>\^(?:\{-?[0-9]\}|[0-9])|(?<=[A-Za-z}])[23](?![0-9]))"
    r"|(?P<space>\s|\\(?:cdot|times)(?![A-Za-z])|[*.,])|(?P<word>\\?[A-Za-z]+(?:['-][a-z]+)?)|(?P<other>.)",
    re.DOTALL,
)
_SECONDS = {"s": 1, "min": 60, "h": 3_600, "day": 86_400, "week": 604_800}
_POWER_WORDS = {"square": 2, "sq": 2, "squared": 2, "cubic": 3, "cu": 3, "cubed": 3}


@lru_cache(maxsize=8192)
def split_unit(text: str) -> tuple[str, str]:
    r"""Split a normalized answer into value and unit: `15 \text{ square feet}` -> ("15", "ft^2"); "" without a unit.

    Words that name what is counted leave no trace: `12 \text{apples}` -> ("12", ""). Multipliers stay in front of the
    unit: `3 million km` -> ("3", "million 10^3 m").
    """
    return _split(text, letters=False)


@lru_cache(maxsize=8192)
def without_letter_unit(text: str, unit: str) -> str:
    r"""`59 m` -> `59` where the other answer has this unit: bare letters after a value are a unit only there.

    Beside a multiple of it they stay, as text: `5000 m` -> `5000 \text{m}` where the other answer has `km`.
    """
    value, letters = _split(text, letters=True) if unit and not split_unit(text)[1] else (text, "")
    if not letters or ratio_of_units(letters, unit) is None:
        return text
    return value if letters == unit else rf"{value} \text{{{text[len(value) :].strip()}}}"


@lru_cache(maxsize=8192)
def is_unit(text: str) -> bool:
    r"""Is the content of a \text{..} a unit and nothing else, as `m/s^2` or `\mu m`?"""
    return bool(_split(rf"1 \text{{{text}}}", letters=False)[1]) and LATIN_WORD.findall(text)[0] not in MULTIPLIERS


def is_measure(word: str) -> bool:
    """Is the word a unit, a part of one, or a number word that multiplies?"""
    return word in UNITS or word.lower() in MULTIPLIERS or word.lower() in _POWER_WORDS or word == "per"


def incompatible_units(unit: str, other: str) -> bool:
    """Are two units different? `units` stands for any unit of its power."""
    if not unit or not other:
        return False
    powers, other_powers = _powers(unit), _powers(other)
    if "unit" in powers or "unit" in other_powers:
        return _degree(powers) != _degree(other_powers)
    return powers != other_powers


def ratio_of_units(unit: str, other: str) -> Fraction | None:
    """Return unit / other where they differ by a power of ten alone, or are both times of a fixed length."""
    powers, other_powers = _powers(unit), _powers(other)
    seconds = [_SECONDS.get(next(iter(p))) if list(p.values()) == [1] else None for p in (powers, other_powers)]
    if all(seconds):
        return Fraction(*seconds)
    ten = powers.pop("10", 0) - other_powers.pop("10", 0)
    return Fraction(10) ** ten if powers == other_powers and "unit" not in powers else None


def _degree(powers: Powers) -> int:
    return sum(power for name, power in powers.items() if name != "10")


def _split(text: str, letters: bool) -> tuple[str, str]:
    if text[-1:].isdigit() and not (text[-2:-1].isalpha() or text[-2:-1] in ("^", "}")):
        return text, ""
    tokens = list(_TOKEN.finditer(text, max(0, len(text) - _WINDOW)))
    tail = list(takewhile(lambda token: token.lastgroup != "other", reversed(tokens)))[::-1]
    for index, token in enumerate(tail):
        if token.lastgroup not in ("close", "power", "space") and _may_follow(text[: token.start()]):
            items = _read(tail[index:])
            unit = _parse(items, letters) if items else None
            if unit is not None:
                return text[: token.start()].rstrip(), unit
    return text, ""


def _may_follow(value: str) -> bool:
    """Can a unit follow this text? It follows a value, not an operator, a relation or an opening bracket."""
    value = value.rstrip()
    return (
        value[-1:] not in tuple("+-*/=<>^_,;:(|[{&")
        and not value.endswith(("\\cdot", "\\times", "\\leq", "\\geq", "\\text"))
        and any(c.isdigit() or c == "\\" for c in value)
        and value.count("{") == value.count("}")
    )


def _read(tokens: list[re.Match[str]]) -> list[Item]:
    r"""Return the names, powers and quotient signs of a tail, each with its place in or outside \text{..}.

    Empty where the brackets do not match, and for `N/A`.
    """
    items: list[Item] = []
    opened: list[str] = []
    for token in tokens:
        kind, text = str(token.lastgroup), token.group()
        if kind == "open":
            opened.append(text)
        elif kind == "close":
            if not opened or (opened.pop() == "(") != (text == ")"):
                return []
        elif kind in ("name", "word"):
            name = re.sub(r"\\text|[{}\s]|(?<=ht)[- ](?=year)", "", text).replace("\\mu", "\\mu ")
            name = f"{name[0]}m" if kind == "name" and name[1:3] == ".m" else name
            items.append(("word", name, "\\text{" in opened or "\\text{" in text))
        elif kind != "space":
            items.append((kind, text, False))
    return [] if opened or [name for _, name, _ in items] == ["N", "/", "A"] else items


def _parse(items: list[Item], letters: bool) -> str | None:
    """Return the multipliers and the unit that the items write; None where they are neither a unit nor nouns."""
    multipliers = [name.lower() for _, name, _ in takewhile(lambda item: item[1].lower() in MULTIPLIERS, items)]
    powers: Counter[str] = Counter()
    factor: Powers = {}  # the one that a following power belongs to
    sign, prefix, is_certain = 1, 1, letters or bool(multipliers)
    position = len(multipliers)
    while position < len(items):
        kind, name, in_text = items[position]
        word, following = name.lower(), items[position + 1 : position + 2]
        if kind == "over" and following and (powers or name == "per" or following[0][2]):
            sign, is_certain, factor = -1, is_certain or name == "/", {}
        elif kind == "power" and factor:
            exponent = int(name.strip("^{}"))
            _multiply(powers, factor, exponent - sign if exponent < 0 else sign * (exponent - 1))
            factor = {}
        elif word in ("squared", "cubed") and factor:
            _multiply(powers, factor, sign * (_POWER_WORDS[word] - 1))
            factor = {}
        elif word in ("square", "sq", "cubic", "cu") and following and following[0][1] in UNITS:
            prefix = _POWER_WORDS[word]
        elif (
            kind == "word"
            and name in UNITS
            and not (name == "in" and following and following[0][0] == "word" and following[0][1] not in UNITS)
        ):
            factor = UNITS[name]
            if powers == {"°": 1} and f"°{name[0].upper()}" in UNITS:  # `degrees Celsius`
                powers, factor = Counter(), {f"°{name[0].upper()}": 1}
            _multiply(powers, factor, sign * prefix)
            prefix, is_certain = 1, is_certain or in_text or len(name) > 2 or name in _BARE_PAIRS or name[0] == "°"
        else:
            break
        position += 1
    phrase = items[position:]
    if phrase:
        for (_, per, _), (_, name, _) in itertools.pairwise(phrase):
            if per == "per" and name in UNITS:
                _multiply(powers, UNITS[name], -1)  # `5 words per minute`
        words = [name.lower() for _, name, _ in phrase if name not in UNITS or len(name) < 3]
        is_certain = describes_count(words) and all(kind != "power" and name != "/" for kind, name, _ in phrase)
    return " ".join([*multipliers, *_written(powers)]) if is_certain and prefix == 1 else None


def _multiply(powers: Counter[str], factor: Powers, power: int) -> None:
    for unit, exponent in factor.items():
        powers[unit] += exponent * power


def _written(powers: Counter[str]) -> list[str]:
    return [unit if power == 1 else f"{unit}^{power}" for unit, power in sorted(powers.items()) if power]
