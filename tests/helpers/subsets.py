"""Rollout tables drawn by hypothesis, the subset of maximum variance by brute force, and frequencies over seeds."""

import itertools
import math
from collections.abc import Callable, Sequence

import torch
from hypothesis import strategies as st

TIES = st.sampled_from([0.0, 1.0])  # as with binary rewards
FEW = st.sampled_from([-2.0, -1.0, 0.0, 0.5, 1.0, 2.0])
KINDS = st.sampled_from([TIES, FEW, st.floats(-1e4, 1e4), st.floats(-1e-6, 1e-6)])


@st.composite
def value_tables(draw: st.DrawFn, max_rows: int, max_columns: int) -> list[list[float]]:
    """Tables of at least 1 row and 2 columns whose values are all of one kind."""
    rows, columns, values = (draw(s) for s in (st.integers(1, max_rows), st.integers(2, max_columns), KINDS))
    return draw(st.lists(st.lists(values, min_size=columns, max_size=columns), min_size=rows, max_size=rows))


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
