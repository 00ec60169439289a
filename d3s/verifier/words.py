"""Answers in words: text, choice letters, clock times and ratios."""

import re
from fractions import Fraction
from string import ascii_lowercase

from d3s.verifier.normalize import canonical
from d3s.verifier.quantities import equal_quantities, quantity, same_spelling

Verdict = bool | None

_WORDS = re.compile(r"[A-Za-zÀ-ɏ]+(?:['’-][A-Za-z]+)*|[0-9]+")
_CHOICE = re.compile(r"\(?\s*([A-Ja-j])\s*\)?\s*[.:]?")
_CHOICE_WITH_TEXT = re.compile(r"(?:\(\s*([A-J])\s*\)|([A-J])\s*[).:](?=\s|\\))\s*(.+)", re.DOTALL)
_SMALL_CHOICE_WITH_TEXT = re.compile(r"(?:\(\s*([a-j])\s*\)|([a-j])\s*[).:])\s+(.+)", re.DOTALL)
_MORE_CHOICES = re.compile(r"(?:or|and)\b|[,;/]|\(\s*[A-J]\s*\)")
_CLOCK = re.compile(
    r"([0-9]{1,2})(?::([0-5][0-9])|(?=\s*(?:\\text\{\s*)?[ap]\.?\s*m))\s*(?:\\text\{\s*)?(?:([ap])\.?\s*(?:m?\.?)?)?\s*\}?",
    re.IGNORECASE,
)
_TIMES = {"noon": "12:00 pm", "midnight": "12:00 am"}
_BARE_WORDS = re.compile(
    r"[A-Za-zÀ-ɏ][A-Za-zÀ-ɏ' .,-]+"
    r"|[A-Za-z]{3,20}\.?(?:,? (?:[A-Za-z]{1,20}|[0-9]{1,4}(?:st|nd|rd|th)?))+"  # June 5, 2015
    r"|(?:\([A-J]\)|[A-J])(?:(?:, ?| and |, and )(?:\([A-J]\)|[A-J]))+"  # (A), (C)
)
_NAME_OF_CAPITALS = re.compile(r"[A-Z]{2,8}")
_SHORT_WORDS = frozenset(["yes", "no", "odd", "may", "one", "two", "six", "ten", "red", "dne"])
_RATIO = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?(?:\s*:\s*[0-9]{1,9}(?:\.[0-9]{1,9})?){1,4}")
_SAME = {
    text: name
    for name, texts in {
        r"\emptyset": (r"\emptyset", r"\{\}", "no solution", "no solutions", "empty set"),
        r"\mathbb{R}": (r"\mathbb{R}", "all real numbers", "all reals", "all real number", "real numbers"),
        "does not exist": ("does not exist", "dne", "doesn't exist"),
    }.items()
    for text in texts
}


def equal_words(gold: str, answer: str) -> Verdict:
    """Choice letters, clock times, ratios and plain words; None when neither side is any of these."""
    if (choice := _choice_of(gold)) is not None:
        return _equal_choice(choice, gold, answer)
    named = [_SAME.get(" ".join(words_of(text) or [text.replace(" ", "")])) for text in (gold, answer)]
    if named[0] and named[0] == named[1]:
        return True
    clock, other = (_CLOCK.fullmatch(_TIMES.get(_without_text(text), text)) for text in (gold, answer))
    if clock and other:
        same_half = (clock[3] or other[3] or "").lower() == (other[3] or "").lower()
        return int(clock[1]) == int(other[1]) and (clock[2] or "00") == (other[2] or "00") and same_half
    ratio, other = _RATIO.fullmatch(gold), _RATIO.fullmatch(answer)
    if ratio and other:
        return _proportional(*([Fraction(term) for term in text.split(":")] for text in (gold, answer)))
    gold_words, answer_words = words_of(gold), words_of(answer)
    if gold_words is None or answer_words is None:
        texts = ((gold, gold_words, answer), (answer, answer_words, gold))
        certain = any(words and "\\text" in text and quantity(other) for text, words, other in texts)
        return False if certain else None
    both_plain = "\\text" not in gold and "\\text" not in answer
    products = both_plain and _may_be_product(gold, gold_words) and _may_be_product(answer, answer_words)
    if products and _NAME_OF_CAPITALS.fullmatch(gold) and _NAME_OF_CAPITALS.fullmatch(answer):
        return False  # points, not factors: `ABC` is not `ACB`
    if products:
        return None
    return gold_words == answer_words or _same_items(gold, answer)


def _same_items(gold: str, answer: str) -> bool:
    """Lists of words in any order: choice letters, two items, and whatever the gold answer joins by `and`.

    A longer list with commas alone keeps its order: such gold answers are rankings.
    """
    ours, theirs = (
        [_WORDS.findall(item) for item in re.split(r"[,;]|\band\b", _without_text(text).lower())]
        for text in (gold, answer)
    )
    ours, theirs = sorted(filter(None, ours)), sorted(filter(None, theirs))
    letters = all(len(words) == 1 and len(words[0]) == 1 for words in ours)
    return len(ours) > 1 and ours == theirs and (letters or len(ours) == 2 or re.search(r"\band\b", gold) is not None)


def _proportional(ours: list[Fraction], theirs: list[Fraction]) -> bool:
    """Ratios of as many terms, each term of one the same nonzero multiple of that of the other."""
    if len(ours) != len(theirs) or not any(ours) or not any(theirs):
        return False
    return all(a * d == b * c for a, c in zip(ours, theirs) for b, d in zip(ours, theirs))


def _may_be_product(text: str, words: tuple[str, ...]) -> bool:
    """`ab`, `xyz`, `a bc`, `mgRT`: at most three letters, or neighbors in the alphabet in any order (`wxyz`, `cdab`),
    or small and capital letters mixed."""
    if len(words) > 1:
        return "," not in text and all(len(word) <= 2 for word in words)
    if words[0] in _SHORT_WORDS or not text.isalpha():
        return False
    mixed = not (text.islower() or text.isupper() or text.istitle())
    return len(text) <= 3 or mixed or "".join(sorted(words[0])) in ascii_lowercase


def words_of(text: str) -> tuple[str, ...] | None:
    r"""The lower-case words of an answer in words (`\text{no solution}`, `Evelyn`), or None for a formula."""
    plain = text.replace("\\text", " ").replace("{", " ").replace("}", " ")
    if any(sign in plain for sign in "\\^_=<>+*/|") or (not plain.isascii() and not plain.replace(" ", "").isalpha()):
        return None
    if "\\text" not in text and not _BARE_WORDS.fullmatch(plain.strip()):
        return None
    if "\\text" in text and re.search(r"[0-9]", re.sub(r"\\text\{[^{}]*\}", "", text)):
        return None
    found = _WORDS.findall(re.sub(r"(?<=[0-9])(?:st|nd|rd|th)(?![A-Za-z])", "", plain.lower()))
    noun = 2 if "\\text" in text else 4  # letters; shorter bare words may be factors
    kept = (
        word
        for word, following in zip(found, [*found[1:], ""])
        if word not in ("the", "a", "an") or len(following) < noun
    )
    return tuple(kept) or None


def _choice_of(text: str) -> str | None:
    r"""The letter of a gold answer that is a choice: `C`, `c`, `(C)`, `\text{C}`, `\text{(C)}\ 12`.

    A bare `e` or `i` is the constant.
    """
    plain = _without_text(text)
    if match := _CHOICE.fullmatch(plain):
        return None if plain in ("e", "i") else match.group(1).upper()
    match = _CHOICE_WITH_TEXT.fullmatch(plain)
    if not match or _MORE_CHOICES.match(match.group(3)):
        return None
    return match.group(1) or match.group(2)


def _equal_choice(choice: str, gold: str, answer: str) -> Verdict:
    """The same letter in either case, alone or before its text. Without a letter, the text that the gold answer has
    beside its letter."""
    plain = _without_text(answer)
    match = _CHOICE.fullmatch(plain)
    if match:
        constant = plain in ("e", "i") and _without_text(gold) == choice  # a lone `E` is a name, `e` the constant
        return match.group(1).upper() == choice and not constant
    match = _CHOICE_WITH_TEXT.fullmatch(plain) or _SMALL_CHOICE_WITH_TEXT.fullmatch(plain)
    if match and _MORE_CHOICES.match(match.group(3)):
        return False  # `(C) or (D)`
    if match:
        return (match.group(1) or match.group(2)).upper() == choice
    beside = _CHOICE_WITH_TEXT.fullmatch(_without_text(gold))
    if beside:
        numbers = quantity(canonical(beside.group(3))), quantity(answer)
        return same_spelling(beside.group(3), answer) or bool(all(numbers) and equal_quantities(*numbers))
    return None if not words_of(answer) else False


def _without_text(text: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"\\text\{([^{}]*)\}", r" \1 ", text)).strip().rstrip(".")
