"""Decontamination: remove training problems that overlap with benchmark problems."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from d3s.data.synthetic import Problem


@dataclass(frozen=True)
class Overlap:
    """Why a training problem was removed: it has `text` in common with a test problem, "equal" or one "ngram" of it."""

    train_id: str
    test_id: str
    test_source: str
    reason: str
    text: str


def decontaminate(
    train: Sequence[Problem], test: Sequence[Problem], ngram: int = 13
) -> tuple[list[Problem], list[Overlap]]:
    """Training problems that share neither their text nor `ngram` words in a row with a test problem; and the others.

    Texts are compared without case, accents, punctuation and spacing: whole texts by their words and the signs of
    arithmetic, parts by their words alone. Paraphrases are not found.
    """
    whole, parts = {}, {}
    for problem in test:
        whole.setdefault(_normalized(problem.problem), problem)
        for gram in _ngrams(problem.problem, ngram):
            parts.setdefault(gram, problem)
    kept, report = [], []
    for problem in train:
        text = _normalized(problem.problem)
        shared = next((gram for gram in _ngrams(problem.problem, ngram) if gram in parts), None)
        if (found := whole.get(text)) is not None:
            report.append(Overlap(problem.id, found.id, found.source, "equal", text))
        elif shared is not None:
            report.append(Overlap(problem.id, parts[shared].id, parts[shared].source, "ngram", " ".join(shared)))
        else:
            kept.append(problem)
    return kept, report


def _normalized(text: str, pattern: str = r"[^\W_]+|[-+*/^=<>]") -> str:
    letters = (c for c in unicodedata.normalize("NFKD", text).lower() if not unicodedata.combining(c))
    return " ".join(re.findall(pattern, "".join(letters)))


def _ngrams(text: str, size: int) -> Iterator[tuple[str, ...]]:
    words = _normalized(text, r"[^\W_]+").split()
    return (tuple(words[i : i + size]) for i in range(len(words) - size + 1))
