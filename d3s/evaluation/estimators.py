"""Pass@k of a number of correct samples, and the majority vote of their answers."""

import argparse
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from fractions import Fraction
from functools import lru_cache
from math import comb

from d3s.verifier.normalize import normalize
from d3s.verifier.quantities import Quantity, parse_quantity
from d3s.verifier.verifier import compare_quickly


# 1 - C(n-c, k) / C(n, k): the unbiased estimator of Pass@k, Chen et al., arXiv 2107.03374, equation 1.
def pass_at_k(n: int, c: int, k: int) -> float:
    """Probability that k of n samples, drawn without replacement, contain at least one of the c correct ones.

    Computed in exact arithmetic and rounded once. Raises ValueError unless 0 <= c <= n and 1 <= k <= n.
    """
    if not 0 <= c <= n:
        raise ValueError(f"got {c} correct of {n} samples, expected 0 to {n}")
    if not 1 <= k <= n:
        raise ValueError(f"got pass@{k} of {n} samples, expected k from 1 to {n}")
    return float(1 - Fraction(comb(n - c, k), comb(n, k)))


def majority(answers: Sequence[str | None]) -> int | None:
    """Index of the first sample with the most frequent answer; a tie goes to the answer that occurs first.

    Answers vote together if the verifier takes each for the other without a formula comparison. To keep the time linear
    in the number of different answers, each is compared with the most frequent COMPARED others alone. None, no answer,
    is no vote; returns None without votes.
    """
    keys = [None if answer is None else vote_key(answer) for answer in answers]
    texts = {key: answer for key, answer in reversed(list(zip(keys, answers))) if key is not None}
    leaders: dict[str | Fraction, str | Fraction] = {}  # of each answer, the one that it votes for
    classes: list[str | Fraction] = []
    for key, _ in Counter(key for key in keys if key is not None).most_common():
        is_same = (other for other in classes[:COMPARED] if _vote_together(key, other, texts[key], texts[other]))
        leaders[key] = next(is_same, key)
        classes += [key] * (leaders[key] == key)
    votes = Counter(leaders[key] for key in keys if key is not None)
    winner = votes.most_common(1)[0][0] if votes else None
    return next((i for i, key in enumerate(keys) if key is not None and leaders[key] == winner), None)


def _vote_together(key: str | Fraction, other: str | Fraction, answer: str, text: str) -> bool:
    """Whether two answers of different keys are the same answer; two numbers are not."""
    return not (isinstance(key, Fraction) and isinstance(other, Fraction)) and _equivalent(answer, text)


@lru_cache(maxsize=2**14)
def _equivalent(answer: str, other: str) -> bool:
    try:
        return bool(compare_quickly(answer, other) and compare_quickly(other, answer))
    except Exception:  # as Verifier.submit: must not end an evaluation
        return False


_LAYOUT = re.compile(r"\\(?:left|right|displaystyle)(?![A-Za-z])|\\[,!;: ]|[\s$]")
COMPARED = 8  # most frequent answers
LONGEST_NUMBER = 100  # characters


@lru_cache(maxsize=2**16)
def vote_key(answer: str) -> str | Fraction:
    r"""A number without a unit by its value; else the answer without spaces, \left, \dfrac, a final full stop."""
    if answer.isdigit() and answer.isascii() and len(answer) <= LONGEST_NUMBER:  # fast path for most answers
        return Fraction(int(answer))
    with suppress(Exception):  # as _equivalent
        number = parse_quantity(normalize(answer)) if len(answer) <= LONGEST_NUMBER else None
        if number and number == Quantity(number.value, number.step, number.digits):
            return number.value
    return _LAYOUT.sub("", answer).replace("\\dfrac", "\\frac").replace("\\tfrac", "\\frac").rstrip(".")


def parse_ks(text: str) -> tuple[int, ...]:
    """Parse `1,8` to (1, 8). Raises ArgumentTypeError for anything but positive integers."""
    parts = text.split(",")
    if not all(re.fullmatch(r" *[1-9][0-9]{0,5} *", part) for part in parts):
        raise argparse.ArgumentTypeError(f"got {text!r}, expected positive integers joined by commas, as in 1,8")
    return tuple(map(int, parts))
