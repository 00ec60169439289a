"""The 95 % interval of a mean over runs and problems, where every run has answered the same problems."""

import math
from functools import lru_cache

import numpy as np

from d3s.evaluate.intervals import Estimate, t_quantile

quantile = lru_cache(t_quantile)


# x_bsp = base_b + run_bs + problem_p + rest_bsp:   Var(mean) = (MS_run + MS_problem - MS_rest) / (B S P)
def crossed_interval(values: np.ndarray) -> Estimate:
    """Mean of values [bases, seeds, problems] with its interval, for scores or for paired differences of scores.

    Runs (within their base model) and problems both count as drawn at random, the base models as given: the interval
    speaks of other seeds and other problems of the same kind, on these base models. A two-way analysis of variance with
    Satterthwaite's degrees of freedom, rounded down, and Student's quantile. One seed alone has no interval.
    """
    bases, seeds, problems = values.shape
    mean = float(values.mean())
    if seeds < 2 or problems < 2:
        return Estimate(mean)
    runs, free = values.mean(2), bases * (seeds - 1)
    run = runs - runs.mean(1, keepdims=True)
    rest = values - values.mean(1, keepdims=True) - run[..., None]
    of_runs = float((run**2).sum()) / free / (bases * seeds)
    of_problems = float(values.mean((0, 1)).var(ddof=1)) / problems
    of_rest = float((rest**2).sum()) / (free * (problems - 1)) / values.size
    variance = max(of_runs + of_problems - of_rest, of_runs, of_problems)
    if variance == 0:
        return Estimate(mean, mean, mean)
    freedom = variance**2 / (of_runs**2 / free + of_problems**2 / (problems - 1))
    half = quantile(max(1, math.floor(freedom))) * math.sqrt(variance)
    return Estimate(mean, mean - half, mean + half)
