"""Pass@k, avg@n and maj@n per problem, from scores and answers of n samples. NumPy only."""

import argparse
import re
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from math import comb

import numpy as np


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


def per_problem(
    scores: np.ndarray, answers: Sequence[Sequence[str | None]], ks: Sequence[int]
) -> dict[str, np.ndarray]:
    """The value of every metric for every problem: `pass@k` for each k, `avg@n` and `maj@n`, each [problems].

    Args:
        scores: [problems, n]; a sample is correct if its score is at least 1.
        answers: extracted answers of the samples that vote, [problems][at most n], None without an answer.
        ks: each from 1 to n, else ValueError.
    """
    n = scores.shape[1]
    correct = (scores >= 1).sum(1)
    values = {f"pass@{k}": np.array([pass_at_k(n, c, k) for c in range(n + 1)])[correct] for k in ks}
    values["avg@n"] = scores.mean(1)
    winners = [majority(row) for row in answers]
    values["maj@n"] = np.array([w is not None and scores[p, w] >= 1 for p, w in enumerate(winners)], dtype=float)
    return values


def parse_ks(text: str) -> tuple[int, ...]:
    """Parse `1,8` to (1, 8). Raises ArgumentTypeError for anything but positive integers."""
    parts = text.split(",")
    if not all(re.fullmatch(r" *[1-9][0-9]{0,5} *", part) for part in parts):
        raise argparse.ArgumentTypeError(f"got {text!r}, expected positive integers joined by commas, as in 1,8")
    return tuple(map(int, parts))
