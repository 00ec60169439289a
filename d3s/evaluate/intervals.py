"""95 % confidence intervals: bootstrap over problems, Student and Welch over runs. NumPy only."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np


@dataclass(frozen=True)
class Estimate:
    """A mean and its 95 % confidence interval, whose ends are None where the spread is unknown."""

    value: float
    low: float | None = None
    high: float | None = None


RESAMPLES = 2000  # of the bootstrap: the ends of an interval are accurate to about 3 % of its width


def bootstrap_interval(values: Mapping[str, np.ndarray], seed: int = 0) -> dict[str, Estimate]:
    """Mean of each metric over problems and its 95 % percentile bootstrap interval.

    The bootstrap resamples problems, because they are the sample from the population of interest. All metrics share the
    same resamples, so differences of metrics may be passed too. If all problems have the same value the interval has
    zero width; this does not mean that the value is certain, only that the bootstrap cannot tell.

    Args:
        values: each metric's values, [problems].
    """
    columns = np.stack(list(values.values()), axis=1)  # [problems, metrics]
    problems, rng = len(columns), np.random.default_rng(seed)
    means = np.empty((RESAMPLES, columns.shape[1]))
    for row in means:
        counts = np.bincount(rng.integers(0, problems, problems), minlength=problems)
        row[:] = counts @ columns / problems
    low, high = np.quantile(means, [0.025, 0.975], axis=0)
    ends = zip(values, columns.mean(0), low, high, strict=True)
    return {name: Estimate(*map(float, column)) for name, *column in ends}


# mean +- t(n - 1) s / sqrt(n), with the unbiased standard deviation s
def student_interval(values: Sequence[float]) -> Estimate:
    """Mean and Student's 95 % interval of independent values (one per seed); no interval for fewer than 2 values."""
    values = np.asarray(values, dtype=float)
    mean = float(values.mean())
    if len(values) < 2:
        return Estimate(mean)
    half = t_quantile(len(values) - 1) * float(values.std(ddof=1)) / math.sqrt(len(values))
    return Estimate(mean, mean - half, mean + half)


# a - b +- t(f) sqrt(v_a + v_b), v = s^2 / n, f = (v_a + v_b)^2 / (v_a^2 / (n_a - 1) + v_b^2 / (n_b - 1))
# Welch, Biometrika 34, 1947.
def welch_interval(values: Sequence[float], baseline: Sequence[float]) -> Estimate:
    """mean(values) - mean(baseline) and Welch's 95 % interval; no interval if either has fewer than 2 values."""
    a, b = np.asarray(values, dtype=float), np.asarray(baseline, dtype=float)
    difference = float(a.mean() - b.mean())
    if min(len(a), len(b)) < 2:
        return Estimate(difference)
    va, vb = float(a.var(ddof=1)) / len(a), float(b.var(ddof=1)) / len(b)
    if va + vb == 0:
        return Estimate(difference, difference, difference)
    freedom = (va + vb) ** 2 / (va**2 / (len(a) - 1) + vb**2 / (len(b) - 1))
    half = t_quantile(freedom) * math.sqrt(va + vb)
    return Estimate(difference, difference - half, difference + half)


# With t = sqrt(freedom) tan(a), the density of the angle a is proportional to cos(a) ** (freedom - 1).
@lru_cache(maxsize=4096)
def t_quantile(freedom: float, probability: float = 0.975) -> float:
    """Quantile of Student's t distribution, by numerical integration."""
    angle = np.linspace(-math.pi / 2, math.pi / 2, 200_001)
    density = np.cos(angle).clip(0) ** (freedom - 1)
    cumulative = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
    return math.sqrt(freedom) * math.tan(np.interp(probability * cumulative[-1], cumulative, angle))
