"""Pass@k of a number of correct samples, and the majority vote of their answers. Standard library only."""

import argparse
import re
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from math import comb


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

    Answers count as the same if their `vote_key` is equal. None, no answer, is no vote; returns None without votes.
    """
    keys = [None if answer is None else vote_key(answer) for answer in answers]
    votes = Counter(key for key in keys if key is not None)
    return keys.index(votes.most_common(1)[0][0]) if votes else None


_LAYOUT = re.compile(r"\\(?:left|right|displaystyle)(?![A-Za-z])|\\[,!;: ]|[\s$]")
_DECIMAL = re.compile(r"([+-]?)(\d++)(?:\.(\d*+))?", re.ASCII)


@lru_cache(maxsize=2**16)
def vote_key(answer: str) -> str:
    """The answer without layout: spaces, dollar signs, \\left, \\dfrac, a final full stop, redundant zeros."""
    if answer.isdigit() and answer.isascii():  # fast path for most answers
        return answer.lstrip("0") or "0"
    text = _LAYOUT.sub("", answer).replace("\\dfrac", "\\frac").replace("\\tfrac", "\\frac").rstrip(".")
    number = _DECIMAL.fullmatch(text)
    if number is None:
        return text
    sign, integer, decimals = number.groups("")
    integer, decimals = integer.lstrip("0") or "0", decimals.rstrip("0")
    return f"{'-' if sign == '-' else ''}{integer}{'.' + decimals if decimals else ''}"


def parse_ks(text: str) -> tuple[int, ...]:
    """Parse `1,8` to (1, 8). Raises ArgumentTypeError for anything but positive integers."""
    parts = text.split(",")
    if not all(re.fullmatch(r" *[1-9][0-9]{0,5} *", part) for part in parts):
        raise argparse.ArgumentTypeError(f"got {text!r}, expected positive integers joined by commas, as in 1,8")
    return tuple(map(int, parts))
