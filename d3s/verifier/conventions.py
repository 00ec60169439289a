r"""Freedoms of notation between two answers: conditions, free integers, constants of integration, currency signs.

An answer may name a free integer or a constant of integration as it likes (`2\pi n` for `2\pi k`, `+c` for `+C`), and
may omit the condition of such a letter (`k \in \mathbb{Z}`, `for all x`).
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from d3s.verifier.normalize import compact, normalize
from d3s.verifier.nouns import describes_count
from d3s.verifier.quantities import equal_quantities, parse_quantity
from d3s.verifier.structure import split_top, split_words
from d3s.verifier.units import incompatible_units

_CONDITION = re.compile(
    r"(.*[^,\s(])[,\s]*+\(?\s*+(?:\\text\{\s*+(?:where|for|with)\s*+\}\s*+)?([a-zA-Z])\s*+\\in\s*+(\\mathbb\s*+\{[ZN]\})\s*+\)?"
)
_QUANTIFIER = re.compile(r"(?:\\text\{\s*+[,(]?+\s*+(?:where|for|with)\b|\\forall(?![A-Za-z])).{0,120}", re.DOTALL)
_INTEGER = re.compile(r"([a-z]) (?:is )?(?:an |any )?integer|(?:any |all |an )?integers? ([a-z])")
_UNIVERSAL = re.compile(
    r"\\forall|\b(?:all|any|every|each|constant)\b|\\in \\mathbb R$"
    r"|\b(?:is|are|some) (?:a |an |some )?(?:fixed )?(?:arbitrary|real)"
    r"(?: (?:real|number|numbers|constants|parameter))*(?: [a-zA-Z])?$"
)
# normalized text has single spaces, so that no pattern needs an unbounded run of them
_DOMAIN = re.compile(  # `, x \neq 1`, `(n \geq 1)`, `\text{ for } x > 0`
    r"(.*[^\s,;(])[ ,;(]{0,6}(?<![A-Za-z\\])([A-Za-z]) ?"
    r"(?:(\\neq) ?[^=<>]{1,30}|(\\in) ?\\mathbb ?\{? ?[RNZQ] ?\}?(?:[\^_] ?\{? ?[*+] ?\}?)?|(?:> ?0|\\geq ?[01])) ?\)?"
)
_COMMAND = re.compile(r"\\[A-Za-z]+")
_BEFORE_DOMAIN = re.compile(r"[ ,;(]{0,6}\\text\{[ ,(]{0,6}(?:for|where|with|if|provided)(?: that)? ?\}\Z")
_OF_FUNCTION = re.compile(r"([A-Za-z])\(([a-z])\) ?=")
_SET_DIFFERENCE = re.compile(r"(\\mathbb ?\{?[NZQRC]\}?) ?- ?(?=\\\{)")
_NUMBER_SET = re.compile(
    r"(\A|\\(?:in|cup|cap|setminus) ?)\{?([NZQRC])\}?(?= ?(?:\Z|[,;)]|\\(?:cup|cap|setminus)|- ?\\\{))"
)
_ITEM = r"(?:\{([^{}]{1,20})\}|([0-9A-Za-z]))"
_COMBINATIONS = re.compile(  # `C(n,k)`, `C_n^k`, `{}_nC_k`
    rf"(?<![A-Za-z\\])(?:C ?\(([^(),]{{1,20}}),([^(),]{{1,20}})\)|C_{_ITEM} ?\^{_ITEM}"
    rf"|(?:\{{\}} ?)?[_^]{_ITEM} ?C ?_{_ITEM})"
)
_BOUND = re.compile(r"[<>]|\\(?:neq|leq|geq|in|text)(?![A-Za-z])")
_PERIOD = re.compile(
    r"(?:π|[0-9]°)[\s(]*(?:[0-9]\s*)?([klmn])(?![A-Za-z])"
    r"|(?<![A-Za-z])([klmn])(?:\s*[-+]\s*[0-9]+\))?\s*(?:π|[0-9]{2,3}°)"
)
_CONSTANT = re.compile(r"(.*)\+\s*([Cc])", re.DOTALL)
_MINUS_ONE_TO = re.compile(r"\( ?- ?1 ?\) ?\^")
_ALTERNATING = re.compile(
    r"\\cos\s*+(?P<open>[({])?\s*+(?:([klmn])\s*+\\pi|\\pi\s*+([klmn]))\s*+(?(open)[)}])(?!\s*+[A-Za-z0-9^/])"
)
_ORDERED = re.compile(
    r"[, ]{0,6}\(? ?(?:\\text\{ ?\(?)? ?(?:in (?:this |that |the |correct |exact |given )*order|respectively)"
    r" ?\)?[ }]{0,6}\)?\Z"
)
_APPROXIMATION = re.compile(  # after the exact value: `(\approx 0.87)`, `\text{ (about }0.87)`, `, or about 0.87`
    r"[ ,;]{0,6}(?:\\text\{[ ,;]{0,6})?(?:or )?\(? ?(?:\\text\{ ?\(? ?)?(?:or )?"
    r"(?:\\approx|approximately|approx\.?|about|roughly|nearly)(?![A-Za-z])[ }]{0,6}([-+]?[0-9.][^()]{0,40}?)"
    r"[ })]{0,6}\Z"
)
_HEDGE = re.compile(
    r" ?(?:\\text\{ ?)?\( ?(?:\\text\{ ?)?"
    r"(?:approximately|approx\.?|exactly|exact|rounded|in total|only solution)[ })]{0,6}\Z"
)
_COUNTED = re.compile(r" ?(-?[0-9][0-9.,/ ]*) ?(?:\\text\{)? ?([A-Za-z][A-Za-z ]{2,40}?)[ }.]{0,6}")
_LABELED = re.compile(r" ?(?:\\text\{)? ?([A-Za-z][A-Za-z ]{2,40}?) ?: ?\}? ?(-?[0-9].*)")
_RESTATED = re.compile(
    r"(.{0,80}?[^\s,])[ ,]{0,6}(?:\\text\{ ?)?\( ?(?:\\text\{ ?)?(?P<or>or\b)? ?\}? ?([^()]{1,60}?) ?\}? ?\) ?\}?"
)
_MODULUS = re.compile(r" ?\\pmod\{([^{}]*)\}")
_BEFORE_RESIDUE = r"(^|[,;=]|\\text\{(?:or|and)\}|\b(?:or|and)\b) ?"
_PLUS_MINUS_RESIDUE = re.compile(_BEFORE_RESIDUE + r"\\pm ?([0-9]{1,400})")
_RESIDUE = re.compile(_BEFORE_RESIDUE + r"(-?[0-9]{1,400})(?= ?(?:$|[,;]|\\text|or\b|and\b))")
_CURRENCIES = {  # a pound has one name as money and as weight
    r"\$": "dollar", "€": "euro", "¥": "yen", "￥": "yen", "£": "lb", "￡": "lb", "₹": "rupee",
}  # fmt: skip


def with_common_letters(gold: str, answer: str) -> tuple[str, str]:
    """Remove conditions that do not differ, and give free letters of the answer the names of the gold answer."""
    gold, answer = _with_notation_of(gold, answer), _with_notation_of(answer, gold)
    gold, answer = _without_conditions(gold, answer)
    domains = [_BOUND.search(text) and _DOMAIN.fullmatch(text) for text in (gold, answer)]
    if domains[0] and domains[1]:
        gold, answer = (
            f"{_BEFORE_DOMAIN.sub('', match[1])}, {text[match.end(1) :].strip(' ,;()')}"
            for match, text in zip(domains, (gold, answer))
        )
    answer = _without_domain(gold, answer)
    functions = [_OF_FUNCTION.match(text) for text in (gold, answer)]
    if functions[0] and functions[1] and functions[0][1] == functions[1][1]:
        answer = _renamed(answer, functions[1][2], functions[0][2])  # `f(t) = 2t` for `f(x) = 2x`
    letters = [_free_integer(text) for text in (gold, answer)]
    if letters[0] and letters[1]:
        answer = _renamed(answer, letters[1], letters[0])
    constants = [_CONSTANT.fullmatch(text) for text in (gold, answer)]
    if constants[0] and constants[1] and not any({"C", "c"} & set(_letters(match[1])) for match in constants):
        answer = f"{constants[1][1]}+{constants[0][2]}"
    if _MINUS_ONE_TO.search(gold + answer):
        gold, answer = (_ALTERNATING.sub(lambda m: f"(-1)^{m[2] or m[3]}", text) for text in (gold, answer))
    return gold, answer


def _with_notation_of(text: str, other: str) -> str:
    r"""Write `\mathbb{R}` for R, and `\binom{n}{k}` for `C_n^k`, where the other answer does."""
    if r"\mathbb" in other:
        if r"\mathbb" not in text:
            text = _NUMBER_SET.sub(r"\1\\mathbb{\2}", text)
        text = _SET_DIFFERENCE.sub(r"\1 \\setminus ", text)
    if r"\binom" in other and r"\binom" not in text:
        text = _COMBINATIONS.sub(lambda m: r"\binom{{{}}}{{{}}}".format(*filter(None, m.groups())), text)
    return text


def ratio_terms(text: str) -> list[str]:
    """Return the terms of `1 : 2 : 3`; a list of the text itself for anything else."""
    return [term.strip() for term in split_top(text, ":")]


def in_stated_order(gold: str, answer: str) -> tuple[str, str]:
    """Make a gold list that says `in this order` a tuple, which an answer gives in this order too."""
    if "order" not in gold and "respectively" not in gold + answer:
        return gold, answer
    core, count = _ORDERED.subn("", gold)
    has_order = count and core and not core.startswith(("(", "[", "\\"))
    return f"({core})" if has_order else core or gold, _ORDERED.sub("", answer) or answer


def alternatives(answer: str) -> list[str]:
    r"""Return the readings of `\frac52 \text{ or } 2.5`, `2.5 (or 5/2)`, `5 \text{ (five)}`: all must be right."""
    if match := _RESTATED.fullmatch(answer):
        readings = [match[1].strip(), match[3].strip() + "}" * (match[3].count("{") - match[3].count("}"))]
        in_words = any(reading.replace("\\text{", "").strip("{} -").isalpha() for reading in readings)
        return readings if match["or"] or (in_words and all(map(parse_quantity, readings))) else []
    parts, separators = split_words(answer)
    return parts if separators == {"or"} else []


def split_modulus(text: str) -> tuple[str, str]:
    r"""Split `x \equiv 10 \pmod{7}` into `x = 10` and the modulus; "" where there is none, or several."""
    moduli = {compact(modulus) for modulus in _MODULUS.findall(text)} if r"\pmod" in text else set()
    if len(moduli) != 1 or not (core := _MODULUS.sub(" ", text).strip()) or not _MODULUS.search(text, len(text) - 50):
        return text, ""
    return re.sub(r"\\equiv(?![A-Za-z])", "=", core), moduli.pop()


def residues(text: str, modulus: str) -> str:
    """Reduce the integers that a text lists, alone or after a name, by an integer modulus."""
    if not modulus.isdigit() or not 0 < len(modulus) < 400 or not int(modulus):
        return text
    text = _PLUS_MINUS_RESIDUE.sub(r"\1 \2, -\2", text)
    return _RESIDUE.sub(lambda match: f"{match[1]} {int(match[2]) % int(modulus)}", text)


def with_approximation(answer: str) -> str:
    r"""Write `\sqrt{2} (\approx 1.41)` as `\sqrt{2} \approx 1.41`, and drop a hedge such as `(approximately)`."""
    if answer[-1:] not in (")", "}") and not answer[-1:].isalnum():
        return answer
    if "app" not in answer and "about" not in answer and "(" not in answer:
        return answer
    tail = max(0, len(answer) - 80)
    if (hedge := _HEDGE.search(answer, tail)) and hedge.start():
        return answer[: hedge.start()]
    match = _APPROXIMATION.search(answer, tail)
    if match and match.start():
        claim = match[1].strip() + "}" * (match[1].count("{") - match[1].count("}"))
        if parse_quantity(claim):
            return rf"{answer[: match.start()]} \approx {claim}"
    return answer


def labeled(items: Sequence[str]) -> dict[str, str] | None:
    r"""Return the values of `3 boys`, `\text{girls: }4` by noun; None unless each item has a noun of its own."""
    values = {}
    for item in items:
        if (match := _COUNTED.fullmatch(item)) and describes_count(match[2].lower().split()):
            value, noun = match.groups()
        elif match := _LABELED.fullmatch(item):
            noun, value = match.groups()
        else:
            return None
        values[noun.lower().removesuffix("s")] = value.strip()
    return values if len(values) == len(items) > 1 else None


def equal_money(gold: str, answer: str) -> bool | None:
    r"""Compare raw answers of which one carries a currency sign, and the other one another sign or unit: `\$5`, `5 km`.

    Unequal unless a power of ten makes up for it, as in `\$0.50` and `50 cents`. None for all other answers.
    """
    signs = [_currency(text) for text in (gold, answer)]
    if not any(signs):
        return None
    numbers = [parse_quantity(normalize(text)) for text in (gold, answer)]
    units = [
        sign or (("%" if number.percent else number.unit) if number else "") for sign, number in zip(signs, numbers)
    ]
    if not incompatible_units(*units):
        return None
    return all(numbers) and equal_quantities(*(replace(number, unit=unit) for number, unit in zip(numbers, units)))


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


def _without_domain(gold: str, answer: str) -> str:
    r"""`x+1, x \neq 1` -> `x+1`: a gold formula without conditions may be given with those of its names.

    Not where the condition would drop solutions: of the unknown itself, or of the parameter of a family.
    """
    if "," not in answer and "(" not in answer and r"\text" not in answer:
        return answer
    if not _letters(gold) or _BOUND.search(gold) or len(split_top(gold, ",")) > 1:
        return answer
    unknown = re.match(r"([A-Za-z])\s*=", gold)
    is_family = bool(unknown and unknown[1] != "y") or bool(_free_integer(gold))
    for _ in range(3):
        match = _DOMAIN.fullmatch(answer)
        if match is None or match[2] not in _letters(gold) or (unknown and match[2] == unknown[1]):
            break
        restricts = not match[3] and not match[4]
        if restricts and (is_family or match[2] in "klmt"):
            break
        answer = _BEFORE_DOMAIN.sub("", match[1])
    return answer


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
