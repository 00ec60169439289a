"""Compare answers in words: text, choice letters, clock times and ratios."""

import re
from fractions import Fraction
from string import ascii_lowercase

from d3s.verifier.normalize import compact, normalize
from d3s.verifier.quantities import equal_quantities, parse_quantity
from d3s.verifier.times import clock_time, date, equal_dates, equal_times
from d3s.verifier.verdict import Verdict

# words, numbers with their sign, and the brackets of closed intervals: `slope -2`, `rises on [-1.5, 2)`
_WORDS = re.compile(
    r"[A-Za-zÀ-ɏ]+(?:['’-][A-Za-z]+)*|(?:(?<![0-9A-Za-z)])-\s?(?=\.?[0-9]))?(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)"
    r"|\[(?=\s*[-.0-9])|(?<=[0-9])\s*\]"
)
_CHOICE = re.compile(r"\(?\s*([A-Ja-j])\s*\)?\s*[.:]?")
_CHOICE_WITH_TEXT = re.compile(r"(?:\(\s*([A-J])\s*\)|([A-J])\s*[).:](?=\s|\\))\s*(.+)", re.DOTALL)
_SMALL_CHOICE_WITH_TEXT = re.compile(r"(?:\(\s*([a-j])\s*\)|([a-j])\s*[).:])\s+(.+)", re.DOTALL)
_LABEL = re.compile(  # before the text of a choice: `\textbf{(D)} 17`, `(D) 17`, `D. 17`
    r"(?:\\text\{\(?([A-J])[).:]+\}\s*|\(([A-J])\)\s*(?=[0-9A-Za-z\\])|([A-J])[).:]\s+)(\S.*)", re.DOTALL
)
_MORE_CHOICES = re.compile(  # after a choice: `(B) or (C)`, `B. Also C is right`, `(A) True, (B) False`, `B) C) D)`
    r"\s*(?:(?:or|and)\b|[,;/]|[A-J]\s*\))|.*?(?:(?<![A-Za-z0-9])\(\s*[A-J]\s*\)|[,;.]\s*[A-J]\)"
    r"|(?:[,;/]|\b(?:[Oo]r|[Aa]lso|[Mm]aybe|[Bb]ut|[Nn]ot))\s*[A-J](?![A-Za-z]))",
    re.DOTALL,
)
_BARE_WORDS = re.compile(
    r"[A-Za-zÀ-ɏ][A-Za-zÀ-ɏ' .,-]+"
    r"|[A-Za-z]{3,20}\.?(?:,? (?:[A-Za-z]{1,20}|[0-9]{1,4}(?:st|nd|rd|th)?))+"  # June 5, 2015
    r"|(?:\([A-J]\)|[A-J])(?:(?:, ?| and |, and )(?:\([A-J]\)|[A-J]))+"  # (A), (C)
)
_ITEM_SEPARATOR = re.compile(r"[,;]|\band\b")
_NAME_OF_CAPITALS = re.compile(r"[A-Z]{2,8}")
_ROMAN_NUMERALS = ("i", "ii", "iii", "iv", "v", "vi", "vii", "viii")
# `T, F, F`, `(A) True, (B) False`: the truth of several statements
_STATEMENT = re.compile(
    r"\s*(?:(?:and\b|,|;)\s*)?(?:\(?([A-Ja-j]|[0-9]{1,2})\s*(?:[).:]|is\b)[:\s]*)?(T|F|[Tt]rue|[Ff]alse|TRUE|FALSE|[Yy]es|[Nn]o)\b"
)
_SHORT_WORDS = frozenset(["yes", "no", "odd", "may", "one", "two", "six", "ten", "red", "dne"])
_RATIO = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?(?:\s*:\s*[0-9]{1,9}(?:\.[0-9]{1,9})?){1,4}")
_EXISTENCE = re.compile(
    r"(?:(?:there|it|equation|inequality|system|limit|value|answer) )*(?:is|are|has|have|exists?) (.+)"
    r"|(.+?) (?:exists?|possible)"
)
_SYNONYMS = {
    text: name
    for name, texts in {
        r"\emptyset": (
            r"\emptyset", r"\{\}", "no solution", "no solutions", "no real solution", "no real solutions", "empty set",
            "no such", "none exists", "none",
        ),
        "infinitely many": ("infinitely many", "infinitely many solutions"),
        r"\mathbb{Z}": (r"\mathbb{Z}", "all integers", "integers", "all integer"),
        r"\mathbb{R}": (
            r"\mathbb{R}", r"(-\infty,\infty)", "all real numbers", "all reals", "all real number", "real numbers",
        ),
        r"\infty": (r"\infty", r"+\infty"),
        "does not exist": ("does not exist", "dne", "doesn't exist"),
    }.items()
    for text in texts
}  # fmt: skip


def equal_words(gold: str, answer: str) -> Verdict:
    """Compare choice letters, clock times, ratios and plain words. None when the answers are none of these."""
    if (choice := _choice_of(gold)) is not None:
        return _equal_choice(choice, gold, answer)
    meanings = [_meaning(text) for text in (gold, answer)]
    if meanings[0] and meanings[0] == meanings[1]:
        return True
    plain = _without_text(gold), _without_text(answer)
    for read, equal in ((clock_time, equal_times), (date, equal_dates)):
        gold_moment, answer_moment = map(read, plain)
        if gold_moment and answer_moment:
            return equal(gold_moment, answer_moment)
        if read is clock_time and gold_moment and re.search(r":0[0-9]|:.*m", plain[0], re.IGNORECASE):
            return False  # `3:30 pm` and `2:05` are no ratios
    ratios = [_RATIO.fullmatch(text.replace(" to ", ":")) for text in plain] if ":" in gold + answer else []
    if all(ratios) and ratios:
        return _proportional(*([Fraction(term) for term in ratio[0].split(":")] for ratio in ratios))
    gold_truth, answer_truth = _truth_of_statements(gold), _truth_of_statements(answer)
    if gold_truth and answer_truth:
        if all(label for label, _ in gold_truth + answer_truth):
            return sorted(gold_truth) == sorted(answer_truth)
        return [truth for _, truth in gold_truth] == [truth for _, truth in answer_truth]
    gold_words, answer_words = words_of(gold), words_of(answer)
    if gold_words is None or answer_words is None:
        pairs = ((gold, gold_words, answer), (answer, answer_words, gold))
        text_against_number = any(words and "\\text" in text and parse_quantity(other) for text, words, other in pairs)
        return False if text_against_number else None
    both_plain = "\\text" not in gold and "\\text" not in answer
    products = both_plain and _may_be_product(gold, gold_words) and _may_be_product(answer, answer_words)
    if products and _NAME_OF_CAPITALS.fullmatch(gold) and _NAME_OF_CAPITALS.fullmatch(answer):
        return False  # points, not factors: `ABC` is not `ACB`
    if products and gold_words != answer_words and sorted(gold) == sorted(answer) and _is_arrangement(gold):
        return False
    if products:
        return None
    return gold_words == answer_words or _same_items(gold, answer)


def _meaning(text: str) -> str | None:
    """Return the name of `no solution`, also in `There are no real solutions` and `No solution exists`."""
    words = " ".join(words_of(text) or [text.replace(" ", "")])
    words = words.removeprefix("limit ").removeprefix("it ")
    return _SYNONYMS.get(words) or _SYNONYMS.get(_EXISTENCE.sub(lambda m: m[1] or m[2], words))


def _truth_of_statements(text: str) -> list[tuple[str, bool]]:
    """Return label ("" without one) and truth of each of at least two statements; [] for any other text."""
    plain, position, statements = _without_text(text), 0, []
    while match := _STATEMENT.match(plain, position):
        statements.append(((match[1] or "").lower(), match[2][0] in "TtYy"))
        position = match.end()
    return statements if position == len(plain) and len(statements) > 1 else []


def without_choice_letter(gold: str, answer: str) -> str:
    r"""Remove the letter of a choice from `\textbf{(D) }17` where the gold answer has no such letter."""
    match = _LABEL.fullmatch(answer)
    if match is None or _MORE_CHOICES.match(match[4]) or _choice_of(gold) is not None:
        return answer
    return answer if (match[1] or match[2] or match[3]) in gold else match[4]


def _same_items(gold: str, answer: str) -> bool:
    """Compare lists of words in any order where the gold answer shows that it has none.

    It joins its items by `and`, labels each (`(A) True, (B) False`), or lists choice letters in their alphabetical
    order. Other lists with commas are rankings, or answers to several questions.
    """
    gold_items, answer_items = (
        [words for item in _ITEM_SEPARATOR.split(_without_text(text)) if (words := _WORDS.findall(item.lower()))]
        for text in (gold, answer)
    )
    if len(gold_items) < 2 or sorted(gold_items) != sorted(answer_items):
        return False
    if gold_items == answer_items:
        return True  # `red, blue, and green`
    labels = [words[0] for words in gold_items]
    alphabet = next((a for a in ("abcdefghij", _ROMAN_NUMERALS, ascii_lowercase) if all(x in a for x in labels)), None)
    if len(set(labels)) == len(labels):
        are_labels = alphabet or all(words[0].isalpha() and words[-1][-1].isdigit() for words in gold_items)
        if are_labels and all(len(words) > 1 for words in gold_items):
            return True
        if alphabet not in (None, ascii_lowercase) and labels == sorted(labels, key=alphabet.index):
            return True
    return re.search(r"\band\b", gold) is not None


def _proportional(gold: list[Fraction], answer: list[Fraction]) -> bool:
    """Are two ratios of the same length equal up to a nonzero factor?"""
    if len(gold) != len(answer) or not any(gold) or not any(answer):
        return False
    return all(a * d == b * c for a, c in zip(gold, answer) for b, d in zip(gold, answer))


def _may_be_product(text: str, words: tuple[str, ...]) -> bool:
    """Could the text be a product of names: `ab`, `xyz`, `a bc`, `mgRT`?

    At most three letters, or neighbors in the alphabet in any order (`wxyz`, `cdab`), or small and capital letters
    mixed.
    """
    if len(words) > 1:
        return "," not in text and all(len(word) <= 2 for word in words)
    if words[0] in _SHORT_WORDS or not text.isalpha():
        return False
    mixed = not (text.islower() or text.isupper() or text.istitle())
    return len(text) <= 3 or mixed or "".join(sorted(words[0])) in ascii_lowercase


def _is_arrangement(text: str) -> bool:
    """Are these at least three neighbors in the alphabet in another order, as no product is written: `bac`, `cba`?"""
    letters = "".join(sorted(text))
    return len(text) > 2 and text != letters and letters in ascii_lowercase


def words_of(text: str) -> tuple[str, ...] | None:
    r"""Return the lower-case words of an answer in words (`\text{no solution}`, `Evelyn`), or None for a formula."""
    plain = text.replace("\\text", " ").replace("{", " ").replace("}", " ")
    if any(sign in plain for sign in "\\^_=<>+*/|") or (not plain.isascii() and not plain.replace(" ", "").isalpha()):
        return None
    if "\\text" not in text and not _BARE_WORDS.fullmatch(plain.strip()):
        return None
    has_word_first = plain.lstrip()[:1].isalpha()
    if "\\text" in text and not has_word_first and re.search(r"[0-9]", re.sub(r"\\text\{[^{}]*\}", "", text)):
        return None
    words = _WORDS.findall(re.sub(r"(?<=[0-9])(?:st|nd|rd|th)(?![A-Za-z])", "", plain.lower()))
    noun_length = 2 if "\\text" in text else 4  # letters; shorter bare words may be factors, and `a` is one then
    kept = (
        word
        for word, following in zip(words, [*words[1:], ""])
        if word not in ("the", "a", "an") or len(following) < noun_length
    )
    return tuple(kept) or None


def _choice_of(text: str) -> str | None:
    r"""Return the letter of a gold answer that is a choice: `C`, `c`, `(C)`, `\text{C}`, `\text{(C)}\ 12`.

    None for a bare `e` or `i`, which is the constant.
    """
    plain = _without_text(text)
    if match := _CHOICE.fullmatch(plain):
        return None if plain in ("e", "i") else match.group(1).upper()
    match = _CHOICE_WITH_TEXT.fullmatch(plain)
    if not match or _MORE_CHOICES.match(match.group(3)):
        return None
    return match.group(1) or match.group(2)


def _equal_choice(choice: str, gold: str, answer: str) -> Verdict:
    """Compare with a gold choice: the same letter in either case, alone or before its text.

    An answer without a letter must equal the text next to the gold letter.
    """
    plain = _without_text(answer)
    match = _CHOICE.fullmatch(plain)
    if match:
        constant = plain in ("e", "i") and _without_text(gold) == choice  # a lone `E` is a name, `e` the constant
        return match.group(1).upper() == choice and not constant
    match = _CHOICE_WITH_TEXT.fullmatch(plain) or _SMALL_CHOICE_WITH_TEXT.fullmatch(plain)
    if match and _MORE_CHOICES.match(match.group(3)):
        return False  # `(C) or (D)`
    gold_match = _CHOICE_WITH_TEXT.fullmatch(_without_text(gold))
    text = normalize(gold_match.group(3)) if gold_match else ""
    numbers = parse_quantity(text), parse_quantity(normalize(match.group(3)) if match else answer)
    equal = equal_quantities(*numbers) if all(numbers) else None
    if numbers[0] and match and re.fullmatch(r"[0-9.,;:/ ]+", match.group(3)):
        equal = bool(equal)  # `1,5` is no number, and not 1.5
    if match:  # `C. 11` contradicts `C. 10`
        return (match.group(1) or match.group(2)).upper() == choice and equal is not False
    if gold_match:
        return compact(text) == compact(normalize(answer)) or bool(equal)
    return None if not words_of(answer) else False


def _without_text(text: str) -> str:
    if "\\text" in text:
        text = re.sub(r"\\text\{([^{}]*)\}", r" \1 ", text)
    return " ".join(text.split()).rstrip(".")
