r"""Freedoms of notation between two answers: conditions, free integers, constants of integration, currency signs.

An answer may name a free integer or a constant of integration as it likes (`2\pi n` for `2\pi k`, `+c` for `+C`), and
may omit the condition of such a letter (`k \in \mathbb{Z}`, `for all x`).
"""

import re

from d3s.verifier.normalize import compact, normalize
from d3s.verifier.quantities import parse_quantity
from d3s.verifier.units import incompatible_units

_CONDITION = re.compile(
    r"(.*[^,\s(])[,\s]*+\(?\s*+(?:\\text\{\s*+(?:where|for|with)\s*+\}\s*+)?([a-zA-Z])\s*+\\in\s*+(\\mathbb\s*+\{[ZN]\})\s*+\)?"
)
_QUANTIFIER = re.compile(r"(?:\\text\{\s*+[,(]?+\s*+(?:where|for|with)\b|\\forall(?![A-Za-z])).{0,120}", re.DOTALL)
_INTEGER = re.compile(r"([a-z]) (?:is )?(?:an |any )?integer|(?:any |all |an )?integers? ([a-z])")
_UNIVERSAL = re.compile(r"\\forall|\b(?:all|any|every|each|constant)\b|\\in \\mathbb R$")
_COMMAND = re.compile(r"\\[A-Za-z]+")
_PERIOD = re.compile(
    r"(?:π|[0-9]°)[\s(]*(?:[0-9]\s*)?([klmn])(?![A-Za-z])"
    r"|(?<![A-Za-z])([klmn])(?:\s*[-+]\s*[0-9]+\))?\s*(?:π|[0-9]{2,3}°)"
)
_CONSTANT = re.compile(r"(.*)\+\s*([Cc])", re.DOTALL)
_ALTERNATING = re.compile(
    r"\\cos\s*+(?P<open>[({])?\s*+(?:([klmn])\s*+\\pi|\\pi\s*+([klmn]))\s*+(?(open)[)}])(?!\s*+[A-Za-z0-9^/])"
)
_CURRENCIES = {r"\$": "dollar", "€": "euro", "¥": "yen"}


def with_common_letters(gold: str, answer: str) -> tuple[str, str]:
    """Remove conditions that do not differ, and give free letters of the answer the names of the gold answer."""
    gold, answer = _without_conditions(gold, answer)
    letters = [_free_integer(text) for text in (gold, answer)]
    if letters[0] and letters[1]:
        answer = _renamed(answer, letters[1], letters[0])
    constants = [_CONSTANT.fullmatch(text) for text in (gold, answer)]
    if constants[0] and constants[1] and not any({"C", "c"} & set(_letters(match[1])) for match in constants):
        answer = f"{constants[1][1]}+{constants[0][2]}"
    if "(-1)^" in gold + answer:
        gold, answer = (_ALTERNATING.sub(lambda m: f"(-1)^{m[2] or m[3]}", text) for text in (gold, answer))
    return gold, answer


def different_money(gold: str, answer: str) -> bool:
    r"""Does a raw answer carry a currency sign, and the other one another sign or unit (`\$5`, `5 \text{ cents}`)?"""
    signs = [_currency(text) for text in (gold, answer)]
    if not any(signs):
        return False
    numbers = (parse_quantity(normalize(text)) for text in (gold, answer))
    units = [
        sign or (("%" if number.percent else number.unit) if number else "") for sign, number in zip(signs, numbers)
    ]
    return incompatible_units(*units)


def _currency(text: str) -> str:
    if text.count("$") % 2 and r"\$" not in text:
        return "dollar"  # `$5` without a second delimiter
    return next((unit for sign, unit in _CURRENCIES.items() if sign in text), "")


def _without_conditions(gold: str, answer: str) -> tuple[str, str]:
    r"""`k\pi, k \in \mathbb{Z}` -> `k\pi`, unless the two answers state different conditions."""
    (gold_core, gold_condition), (answer_core, answer_condition) = map(_split_condition, (gold, answer))
    if gold_condition and answer_condition:
        (letter, kind), (answer_letter, answer_kind) = gold_condition, answer_condition
        if kind != answer_kind:
            return gold, answer
        if letter and answer_letter:
            answer_core = _renamed(answer_core, answer_letter, letter)
    return gold_core, answer_core


def _split_condition(text: str) -> tuple[str, tuple[str, str] | None]:
    """Split a trailing condition off: the letter that it is about ("" for any), and what it says."""
    if r"\mathbb" in text and (match := _CONDITION.fullmatch(text)) and match[2] in match[1]:
        return match[1].rstrip(), (match[2], compact(match[3]))
    match = _QUANTIFIER.search(text) if r"\text{" in text or r"\forall" in text else None
    core = text[: match.start()].rstrip(" ,;(") if match else ""
    if match is None or match.end() < len(text) or not core:
        return text, None
    condition = " ".join(re.split(r"\\text|[{}\s,()]+", match.group())).strip()
    condition = re.sub(r"\s+", " ", condition)
    if integer := _INTEGER.search(condition):
        letter = integer[1] or integer[2]
        return (core, (letter, r"\mathbb{Z}")) if letter in core else (text, None)
    return (core, ("", compact(condition))) if _UNIVERSAL.search(condition) else (text, None)


def _letters(text: str) -> str:
    return "".join(character for character in _COMMAND.sub(" ", text) if character.isascii() and character.isalpha())


def _free_integer(text: str) -> str:
    r"""Return the letter of a family such as `\frac{\pi}{6} + 2k\pi` or `30° + 360° n`, its only letter; else ""."""
    if r"\pi" not in text and "°" not in text:
        return ""
    match = _PERIOD.search(_COMMAND.sub(" ", re.sub(r"\\pi(?![A-Za-z])", "π", text)))
    letter = (match[1] or match[2]) if match else ""
    return letter if _letters(text) == letter else ""


def _renamed(text: str, letter: str, new: str) -> str:
    if letter == new or new in _letters(text):
        return text
    return re.sub(rf"(?<![A-Za-z\\]){letter}(?![A-Za-z])", new, text)
