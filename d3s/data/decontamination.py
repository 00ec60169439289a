"""Decontamination: remove training problems that overlap with benchmark problems."""

import re
import unicodedata
from collections.abc import Iterator, Sequence

from d3s.data.problems import Problem

_SIGNS = str.maketrans({"−": "-", "–": "-", "×": "*", "·": "*", "÷": "/", "≤": "<=", "≥": ">=", "≠": "/="})


def decontaminate(
    train: Sequence[Problem], test: Sequence[Problem], ngram: int = 13
) -> tuple[list[Problem], list[tuple[Problem, str, Problem]]]:
    """Split the training problems into those that are kept, and (problem, "equal" or "ngram", test problem) of others.

    Two problems overlap if their texts are equal or if they share `ngram` consecutive words. Case, accents, punctuation
    and spacing are ignored; arithmetic signs count for equality but not for n-grams. Paraphrases are not detected.
    """
    texts, ngrams = {}, {}
    for problem in test:
        texts.setdefault(_normalize(problem.problem), problem)
        for gram in _ngrams(problem.problem, ngram):
            ngrams.setdefault(gram, problem)
    kept, removed = [], []
    for problem in train:
        equal = texts.get(_normalize(problem.problem))
        shared = (ngrams[gram] for gram in _ngrams(problem.problem, ngram) if gram in ngrams)
        if match := equal or next(shared, None):
            removed.append((problem, "equal" if equal else "ngram", match))
        else:
            kept.append(problem)
    return kept, removed


def _normalize(text: str, pattern: str = r"[^\W_]+|[-+*/^=<>]") -> str:
    letters = (c for c in unicodedata.normalize("NFKD", text.translate(_SIGNS)).lower() if not unicodedata.combining(c))
    return " ".join(re.findall(pattern, "".join(letters)))


def _ngrams(text: str, size: int) -> Iterator[tuple[str, ...]]:
    words = _normalize(text, r"[^\W_]+").split()
    return (tuple(words[i : i + size]) for i in range(len(words) - size + 1))
