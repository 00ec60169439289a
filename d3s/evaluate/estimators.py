"""Pass@k, avg@n, maj@n and their confidence intervals, from the scores of n samples per problem. Pure; NumPy alone."""

import argparse
import re
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from math import comb

import numpy as np


def pass_at_k(n: int, c: int, k: int) -> float:
    """Probability that k of n samples, drawn without replacement, hold at least one of the c right ones.

    1 - C(n-c, k) / C(n, k): the unbiased estimator of Pass@k (Chen et al., arXiv 2107.03374), in exact arithmetic and
    rounded once. Raises ValueError unless 0 <= c <= n and 1 <= k <= n.
    """
    if not 0 <= c <= n:
        raise ValueError(f"{c} right of {n} samples: must be between 0 and {n}")
    if not 1 <= k <= n:
        raise ValueError(f"pass@{k} of {n} samples: k must be between 1 and {n}")
    return float(1 - Fraction(comb(n - c, k), comb(n, k)))


def majority(answers: Sequence[str | None]) -> int | None:
    """Index of the first sample with the most frequent answer; of answers equally frequent, the one seen first wins.

    Answers vote together when their canonical texts are equal; None, no answer, is no vote. None if nobody votes.
    """
    texts = [None if answer is None else canonical(answer) for answer in answers]
    votes = Counter(text for text in texts if text is not None)
    return texts.index(votes.most_common(1)[0][0]) if votes else None


_LAYOUT = re.compile(r"\\(?:left|right|displaystyle)(?![A-Za-z])|\\[,!;: ]|[\s$]")
_DECIMAL = re.compile(r"([+-]?)0*(\d+)(?:\.(\d*?)0*)?", re.ASCII)


@lru_cache(maxsize=2**16)
def canonical(answer: str) -> str:
    """An answer without its layout: spaces, dollar signs, \\left, \\dfrac, a final full stop, empty zeros."""
    if answer.isdigit() and answer.isascii():  # most answers, by far
        return answer.lstrip("0") or "0"
    text = _LAYOUT.sub("", answer).replace("\\dfrac", "\\frac").replace("\\tfrac", "\\frac").rstrip(".")
    number = _DECIMAL.fullmatch(text)
    if number is None:
        return text
    sign, whole, decimals = number.groups()
    return f"{'-' if sign == '-' else ''}{whole}{'.' + decimals if decimals else ''}"


def per_problem(
    scores: np.ndarray, answers: Sequence[Sequence[str | None]], ks: Sequence[int]
) -> dict[str, np.ndarray]:
    """The value of every metric for every problem: `pass@k` for each k, `avg@n` and `maj@n`, each [problems].

    Args:
        scores: [problems, n]; a sample is right when its score is at least 1.
        answers: the extracted answers of the samples that vote, [problems][at most n], None where there is none.
        ks: each between 1 and n, else ValueError.
    """
    n = scores.shape[1]
    right = (scores >= 1).sum(1)
    values = {f"pass@{k}": np.array([pass_at_k(n, c, k) for c in range(n + 1)])[right] for k in ks}
    values["avg@n"] = scores.mean(1)
    winners = [majority(row) for row in answers]
    values["maj@n"] = np.array([w is not None and scores[p, w] >= 1 for p, w in enumerate(winners)], dtype=float)
    return values


def parse_ks(text: str) -> tuple[int, ...]:
    """`1,8` as (1, 8). Raises argparse's error for anything but whole numbers from 1 up."""
    parts = text.split(",")
    if not all(re.fullmatch(r" *[1-9][0-9]{0,5} *", part) for part in parts):
        raise argparse.ArgumentTypeError(f"got {text!r}, expected whole numbers from 1 up joined by commas, as 1,8")
    return tuple(map(int, parts))
