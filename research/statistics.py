"""Statistics of the results: scores at a budget, intervals and tests in closed form, and what few runs can detect.

`Scores` hold one value per base model, run and problem: a score, or the paired difference of two rows (same base model,
same seed, same problem). Every mean weighs each base model the same, its runs equally and its problems equally.

Intervals cover new seeds and new test problems of the same kind: runs and problems both vary. They do not
cover other base models, tasks or model sizes, since base models are fixed, nor the choice of a row's learning rate by
the sweep, nor the selection of one row among many (see `holm`). Runs of different base models count as independent,
although equal seeds draw the same training problems for base models of a task.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from d3s.evaluation.intervals import Estimate, t_quantile
from research.records import CURVES, Record

Scores = dict[str, np.ndarray]  # base model -> [runs, problems]
Component = tuple[float, float]  # a part of the variance of a mean, and its degrees of freedom
NO_COSTS: Component = (0.0, math.inf)
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
    freedom: float = 0.0


# x_bsp = base_b + run_bs + problem_tp + rest_bsp.   Components of the variance of the mean over B base models:
#   run_b = s^2(means of runs) / (S_b B^2)
#   problem_t = s^2(means of problems, summed over the base models of task t) / (P_t B^2)
#   rest_b = MS(rest) / (S_b P_t B^2), which both of the others contain
#   Var(mean) = sum run_b + sum problem_t - sum rest_b = sum of c_i      Owen, Annals of Applied Statistics 1, 2007
#   freedom = Var(mean)^2 / sum c_i^2 / f_i; f = S_b - 1, P_t - 1, their product   Satterthwaite, Biometrics 2, 1946
# One f of all runs would assume that runs vary equally on every base model: where they vary on one of four alone, its
# intervals cover 88 %, these 93 %. Freedom is not rounded, so that p-values do not jump.
def spread(scores: Scores, costs: Component = NO_COSTS) -> Spread:
    """Mean and its standard error: runs are nested in base models, which share the problems of their task.

    Args:
        costs: what the error of the measured seconds adds.
    """
    mean, bases = float(np.mean([values.mean() for values in scores.values()])), len(scores)
    if min(min(values.shape) for values in scores.values()) < 2:
        return Spread(mean)
    runs, rest, sums = [], [], {}  # (c, f) of each component; [problems] of each task
    for base, values in scores.items():
        (count, problems), of_run, of_problem = values.shape, values.mean(1), values.mean(0)
        residuals, f = values - of_run[:, None] - of_problem + values.mean(), (count - 1) * (problems - 1)
        runs.append((of_run.var(ddof=1) / count / bases**2, count - 1))
        rest.append(((residuals**2).sum() / f / values.size / bases**2, f))
        sums[task_of(base)] = sums.get(task_of(base), 0) + of_problem / bases
    shared = [(of_problem.var(ddof=1) / len(of_problem), len(of_problem) - 1) for of_problem in sums.values()]
    by_run, by_problem, by_rest = (sum(c for c, _ in part) for part in (runs, shared, rest))
    variance = max(by_run + by_problem - by_rest, by_run, by_problem)  # a rest that is larger by chance lowers neither
    variance += costs[0]
    least = float(min(f for _, f in runs + shared))  # of any sum of components
    if variance == 0:
        return Spread(mean, 0.0, least)
    freedom = variance**2 / sum(c**2 / f for c, f in [*runs, *shared, *rest, costs])
    return Spread(mean, math.sqrt(variance), max(least, freedom))


def subtract(ours: Scores, theirs: Scores) -> Scores:
    """Differences of scores that are paired by base model, run and problem."""
    return {base: ours[base] - theirs[base] for base in ours}


def interval(scores: Scores, costs: Component = NO_COSTS) -> Estimate:
    """Mean and 95 % interval, mean +- t(freedom) x standard error; no interval if a base model has a single run."""
    got = spread(scores, costs)
    if got.error is None:
        return Estimate(got.mean)
    half = t_quantile(got.freedom) * got.error
    return Estimate(got.mean, got.mean - half, got.mean + half)


# With t = sqrt(freedom) tan(a), the density of the angle a is proportional to cos(a) ** (freedom - 1).
def p_value(scores: Scores, costs: Component = NO_COSTS) -> float:
    """Two-sided p-value of a mean of 0, below 0.05 where `interval` excludes 0; NaN if a base model has one run."""
    got = spread(scores, costs)
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
def detectable(scores: Scores, power: float = 0.8, costs: Component = NO_COSTS) -> float:
    """True difference that as many runs would call different from 0 at the 5 % level with probability `power`.

    NaN if a base model has one run. The standard error is itself estimated from few runs, and so is this difference.
    """
    got = spread(scores, costs)
    if got.error is None:
        return float("nan")
    rng = np.random.default_rng(0)
    deviation = np.sqrt(rng.chisquare(got.freedom, DRAWS) / got.freedom)
    return got.error * float(np.quantile(t_quantile(got.freedom) * deviation - rng.standard_normal(DRAWS), power))


# P(X > Y) = 1 / (N M) sum_ij S(x_i, y_j), S = 1 if x > y, 1/2 if x = y, 0 otherwise; mean over base models.
# Agarwal et al. 2021, arXiv 2108.13264.
def probability_of_improvement(method: Scores, reference: Scores) -> float:
    """Share of the pairs of runs in which the method is above the reference, by the mean over problems.

    Raises:
        KeyError: the two sides have different base models.
    """
    if method.keys() != reference.keys():
        raise KeyError(f"base models differ: {sorted(method)} and {sorted(reference)}")
    return float(np.mean([_wins(method[base].mean(1), reference[base].mean(1)).mean() for base in method]))


def _wins(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """1 where a is above b, 0.5 where they are equal up to rounding: [..., runs of a, runs of b]."""
    difference = a[..., :, None] - b[..., None, :]
    return np.where(np.abs(difference) < 1e-12, 0.5, difference > 0)


def show(estimate: Estimate, signed: bool = False, scale: float = 100, digits: int = 1) -> str:
    """Format a value with its 95 % interval, by default in percent."""
    ends = [end for end in (estimate.low, estimate.high) if end is not None]
    value, *limits = [f"{scale * x:{'+' if signed else ''}.{digits}f}" for x in (estimate.value, *ends)]
    return f"{value} ({' to '.join(limits)})" if limits else value
