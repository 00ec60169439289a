"""Rollout tables drawn by hypothesis, the subset of maximum variance by brute force, and frequencies over seeds."""

import itertools
import math
from collections.abc import Callable, Sequence

import torch
from hypothesis import strategies as st

KINDS_OF_VALUES = [
    st.sampled_from([0.0, 1.0]),  # many ties, as with binary rewards
    st.sampled_from([-2.0, -1.0, 0.0, 0.5, 1.0, 2.0]),
    st.floats(-1e4, 1e4),
    st.floats(-1e-6, 1e-6),
]


def value_tables(max_rows: int, max_columns: int) -> st.SearchStrategy[list[list[float]]]:
    """Tables of at least 1 row and 2 columns whose values are all of one kind."""
    shape = st.tuples(st.integers(1, max_rows), st.integers(2, max_columns))

    def of_shape(drawn):
        (rows, columns), values = drawn
        return st.lists(st.lists(values, min_size=columns, max_size=columns), min_size=rows, max_size=rows)

    return st.tuples(shape, st.sampled_from(KINDS_OF_VALUES)).flatmap(of_shape)


def variance(numbers: Sequence[float]) -> float:
    """Population variance."""
    mean = math.fsum(numbers) / len(numbers)
    return math.fsum((x - mean) ** 2 for x in numbers) / len(numbers)


def best_variance(pool: Sequence[float], size: int) -> float:
    """The largest variance of any subset of this size."""
    return max(variance(subset) for subset in itertools.combinations(pool, size))


def seeded(seed: int) -> torch.Generator:
    """A new generator with this seed."""
    return torch.Generator().manual_seed(seed)


def frequencies(select: Callable[[torch.Generator], torch.Tensor], seeds: int = 500) -> tuple[torch.Tensor, float]:
    """How often each element is selected over the seeds, and the tolerance of 5 standard deviations."""
    counts = sum(select(seeded(seed)).double() for seed in range(seeds))
    return counts / seeds, 5 * math.sqrt(0.25 / seeds)
