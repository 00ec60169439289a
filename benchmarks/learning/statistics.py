"""Statistics of the results: scores at a budget, intervals by resampling, tests, and what few runs can detect.

`Scores` hold one value per base model, run and problem: a score, or the paired difference of two rows (same base model,
same seed, same problem). Every mean weighs each base model the same, its runs equally and its problems equally.

Intervals cover new seeds and new test problems of the same kind: runs and problems are both resampled. They do not
cover other base models, tasks or model sizes, since base models are fixed, nor the choice of a row's learning rate by
the sweep, nor the selection of one row among many (see `holm`). Runs of different base models count as independent,
although equal seeds draw the same training problems for base models of a task.
"""

import math
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from benchmarks.learning.intervals import quantile
from benchmarks.learning.records import CURVES, Record
from d3s.evaluate.intervals import RESAMPLES, Estimate

Scores = dict[str, np.ndarray]  # base model -> [runs, problems]
SLACK = 0.03  # a budget that lies this fraction beyond the last evaluation still counts as the last evaluation
DRAWS = 100_000  # of the distribution in `detectable`: accurate to about 0.5 %


def task_of(base: str) -> str:
    """The task of a base model: its name up to "@" or "+". Base models of a task share their test problems."""
    return re.split("[@+]", base)[0]


def curve_at(record: Record, values: np.ndarray, axis: str, budget: float) -> np.ndarray:
    """Values [E, ...] of a record's evaluations at a budget of `axis`, between the two neighboring evaluations: [...].

    Args:
        axis: one of CURVES, such as "steps", "generated" (tokens) or "seconds" (CPU seconds).

    Raises:
        ValueError: unknown axis, or the budget lies before the first evaluation or over 3 % beyond the last.
    """
    if axis not in CURVES:
        raise ValueError(f"axis: got {axis!r}, expected one of {', '.join(CURVES)}")
    spent = np.asarray(getattr(record, axis), float)
    if not spent[0] <= budget <= spent[-1] * (1 + SLACK):
        run = f"{record.row} on {record.base}, seed {record.seed}"
        raise ValueError(f"{run}: got a budget of {budget:g} {axis}, expected {spent[0]:g} to {spent[-1]:g}")
    place = np.interp(budget, spent, np.arange(len(spent)))
    before = min(int(place), len(spent) - 2) if len(spent) > 1 else 0
    after, share = min(before + 1, len(spent) - 1), place - before
    return (1 - share) * values[before] + share * values[after]


def score_at(record: Record, axis: str, budget: float, k: int = 1) -> np.ndarray:
    """Pass@k of every problem at a budget, [problems]; see `curve_at` for the arguments and errors."""
    return curve_at(record, record.scores(k), axis, budget)


@dataclass(frozen=True)
class Spread:
    """Mean of scores, its standard error, and the degrees of freedom of the latter."""

    mean: float
    error: float | None = None  # None if a base model has a single run
    freedom: int = 0


# n - 1 of n draws: the variance of a resampled mean is s^2 / n with the unbiased s^2 (n draws: too small by 1 - 1 / n).
# Rao & Wu, JASA 83, 1988.
@lru_cache(maxsize=64)
def resample(n: int, stream: str) -> np.ndarray:
    """Weights of n units in every resample, [RESAMPLES, n], rows sum to 1. Equal arguments give equal weights."""
    rng = np.random.default_rng(zlib.crc32(stream.encode()))
    chosen = rng.integers(0, n, (RESAMPLES, n - 1)) + n * np.arange(RESAMPLES)[:, None]
    weights = np.bincount(chosen.ravel(), minlength=n * RESAMPLES).reshape(RESAMPLES, n) / (n - 1)
    weights.setflags(write=False)
    return weights


# x_bsp = base_b + run_bs + problem_p + rest_bsp.   V(runs), V(problems): variance of the mean when only runs or only
# problems are resampled; each contains the variance of the rest once. The interaction (the mean of a resample of both
# - of runs - of problems + the mean) has the variance of the rest alone, hence
#   Var(mean) = V(runs) + V(problems) - V(interaction)                        Owen, Annals of Applied Statistics 1, 2007
#   freedom = Var(mean)^2 / (sum_b V(runs of b)^2 / (runs_b - 1) + V(problems)^2 / (problems - 1))   Satterthwaite, 1946
# The sum of all runs_b - 1 would assume that runs vary equally on every base model: where they vary on one of four
# alone, its intervals cover 88 % instead of 95 %.
def spread(scores: Scores) -> Spread:
    """Mean and resampled standard error: runs within each base model, problems once per task."""
    mean, bases = float(np.mean([values.mean() for values in scores.values()])), len(scores)
    runs, problems = np.array([values.shape for values in scores.values()]).T
    if min(*runs, *problems) < 2:
        return Spread(mean)
    deviations = np.stack([_deviations(base, values) for base, values in scores.items()]) / bases
    by_run, rest = deviations[:, 0].var(axis=1), deviations[:, 2].var(axis=1).sum()  # independent between base models
    by_problem = deviations[:, 1].sum(0).var()  # problems are shared
    variance = max(by_run.sum() + by_problem - rest, by_run.sum(), by_problem)
    least = min(*runs, *problems) - 1  # of any sum of the components; rounding down must not leave the bound
    if variance == 0:
        return Spread(mean, 0.0, int(least))
    freedom = variance**2 / ((by_run**2 / (runs - 1)).sum() + by_problem**2 / (problems.min() - 1))
    return Spread(mean, math.sqrt(variance), max(int(least), math.floor(freedom)))


def _deviations(base: str, values: np.ndarray) -> np.ndarray:
    """Resampled deviations of a base model's mean by run, by problem, and by their interaction, [3, RESAMPLES]."""
    runs, problems = values.shape
    of_runs, of_problems = resample(runs, f"runs of {base}"), resample(problems, f"problems of {task_of(base)}")
    centered = values - values.mean()
    run_means = of_problems @ centered.T  # [RESAMPLES, runs]
    by_run, by_problem = of_runs @ centered.mean(1), run_means.mean(1)
    both = np.einsum("rs,rs->r", of_runs, run_means)
    return np.stack([by_run, by_problem, both - by_run - by_problem])


def interval(scores: Scores) -> Estimate:
    """Mean and 95 % interval, mean +- t(freedom) x standard error; no interval if a base model has a single run."""
    got = spread(scores)
    if got.error is None:
        return Estimate(got.mean)
    half = quantile(got.freedom) * got.error
    return Estimate(got.mean, got.mean - half, got.mean + half)


# With t = sqrt(freedom) tan(a), the density of the angle a is proportional to cos(a) ** (freedom - 1).
def p_value(scores: Scores) -> float:
    """Two-sided p-value of a mean of 0, below 0.05 where `interval` excludes 0; NaN if a base model has one run."""
    got = spread(scores)
    if got.error is None:
        return float("nan")
    if got.error == 0:
        return float(got.mean == 0)
    start = math.atan(abs(got.mean) / got.error / math.sqrt(got.freedom))
    tail, half = (
        np.trapezoid(np.cos(np.linspace(angle, math.pi / 2, 1001)) ** (got.freedom - 1)) * (math.pi / 2 - angle)
        for angle in (start, 0.0)
    )
    return float(tail / half)


# Sorted p_1 <= ... <= p_m: adjusted p_i = max over j <= i of min(1, (m - j + 1) p_j). Holm, Scand. J. Stat. 6, 1979.
def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values in the given order. NaN stays NaN and does not count as a test."""
    values = np.asarray(p_values, float)
    adjusted = values.copy()
    order = np.argsort(values)[: int(np.isfinite(values).sum())]  # NaN is sorted last
    factors = np.arange(len(order), 0, -1)
    adjusted[order] = np.maximum.accumulate(np.minimum(1, factors * values[order]))
    return adjusted.tolist()


# The test calls a difference d > 0 if (d / e + z) / s > t, with standard error e, z normal and s^2 = chi^2(f) / f.
# Hence d = e x the power-quantile of t s - z. Calls of the wrong sign are not counted.
def detectable(scores: Scores, power: float = 0.8) -> float:
    """True difference that as many runs would call different from 0 at the 5 % level with probability `power`.

    NaN if a base model has one run. The standard error is itself estimated from few runs, and so is this difference.
    """
    got = spread(scores)
    if got.error is None:
        return float("nan")
    rng = np.random.default_rng(0)
    deviation = np.sqrt(rng.chisquare(got.freedom, DRAWS) / got.freedom)
    return got.error * float(np.quantile(quantile(got.freedom) * deviation - rng.standard_normal(DRAWS), power))


# P(X > Y) = 1 / (N M) sum_ij S(x_i, y_j), S = 1 if x > y, 1/2 if x = y, 0 otherwise; mean over base models.
# Agarwal et al. 2021, arXiv 2108.13264; here with resampled problems too.
def probability_of_improvement(method: Scores, reference: Scores) -> Estimate:
    """Probability that a random run of the method is above a random run of the reference, by the mean over problems.

    The interval has the 2.5 % and 97.5 % percentiles of resamples of the runs of each side and of the problems, which
    both sides share. With 3 to 5 runs it is wide (it covers 99 % in simulations), except where the runs do not overlap:
    an interval of zero width does not mean certainty. No interval if a base model has one run on either side.

    Raises:
        KeyError: the two sides have different base models.
    """
    if method.keys() != reference.keys():
        raise KeyError(f"base models differ: {sorted(method)} and {sorted(reference)}")
    value = float(np.mean([_wins(method[base].mean(1), reference[base].mean(1)).mean() for base in method]))
    if min(len(values) for side in (method, reference) for values in side.values()) < 2:
        return Estimate(value)
    resamples = []
    for base in method:
        of_problems = resample(method[base].shape[1], f"problems of {task_of(base)}")
        wins = _wins(of_problems @ method[base].T, of_problems @ reference[base].T)
        of_method = resample(len(method[base]), f"runs of {base}")
        of_reference = resample(len(reference[base]), f"reference runs of {base}")
        resamples.append(np.einsum("rij,ri,rj->r", wins, of_method, of_reference))
    low, high = np.quantile(np.mean(resamples, axis=0), [0.025, 0.975])
    return Estimate(value, float(low), float(high))


def _wins(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """1 where a is above b, 0.5 where they are equal up to rounding: [..., runs of a, runs of b]."""
    difference = a[..., :, None] - b[..., None, :]
    return np.where(np.abs(difference) < 1e-12, 0.5, difference > 0)
