"""95 % confidence intervals: bootstrap over problems, Student and Welch over runs. NumPy alone."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Estimate:
    """A mean with the ends of its 95 % confidence interval, which are None where nothing is known about the spread."""

    value: float
    low: float | None = None
    high: float | None = None


RESAMPLES = 2000  # of the bootstrap: the ends of an interval are then good to about 3 % of its width


def bootstrap_interval(values: Mapping[str, np.ndarray], seed: int = 0) -> dict[str, Estimate]:
    """Mean of each metric over problems, with its 95 % percentile bootstrap interval.

    Problems are what is drawn anew: they are the sample from the population that one wants to speak of. Every metric
    sees the same draws, so that differences of metrics may be passed too. Where all problems have the same value,
    the interval has no width, which says that the bootstrap is blind there, not that the value is certain.
    """
    columns = np.stack(list(values.values()), axis=1)  # [problems, metrics]
    problems, rng = len(columns), np.random.default_rng(seed)
    draws = np.empty((RESAMPLES, columns.shape[1]))
    for row in draws:
        counts = np.bincount(rng.integers(0, problems, problems), minlength=problems)
        row[:] = counts @ columns / problems
    low, high = np.quantile(draws, [0.025, 0.975], axis=0)
    means = columns.mean(0)
    return {name: Estimate(*map(float, column)) for name, *column in zip(values, means, low, high, strict=True)}


def student_interval(values: Sequence[float]) -> Estimate:
    """Mean and Student's 95 % interval of independent values (one per seed)."""
    values = np.asarray(values, dtype=float)
    mean = float(values.mean())
    if len(values) < 2:
        return Estimate(mean)
    half = t_quantile(len(values) - 1) * float(values.std(ddof=1)) / math.sqrt(len(values))
    return Estimate(mean, mean - half, mean + half)


def welch_interval(values: Sequence[float], baseline: Sequence[float]) -> Estimate:
    """mean(values) - mean(baseline) with Welch's 95 % interval; no interval where either has fewer than 2 values."""
    a, b = np.asarray(values, dtype=float), np.asarray(baseline, dtype=float)
    mean = float(a.mean() - b.mean())
    if min(len(a), len(b)) < 2:
        return Estimate(mean)
    va, vb = float(a.var(ddof=1)) / len(a), float(b.var(ddof=1)) / len(b)
    if va + vb == 0:
        return Estimate(mean, mean, mean)
    freedom = (va + vb) ** 2 / (va**2 / (len(a) - 1) + vb**2 / (len(b) - 1))
    half = t_quantile(freedom) * math.sqrt(va + vb)
    return Estimate(mean, mean - half, mean + half)


def t_quantile(freedom: float, probability: float = 0.975) -> float:
    """Quantile of Student's t: with t = sqrt(freedom) * tan(a), the density of a is cos(a) ** (freedom - 1)."""
    angle = np.linspace(-math.pi / 2, math.pi / 2, 200_001)
    density = np.cos(angle).clip(0) ** (freedom - 1)
    total = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
    return math.sqrt(freedom) * math.tan(np.interp(probability * total[-1], total, angle))
