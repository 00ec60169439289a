"""95 % interval of a mean over runs and problems, with all runs evaluated on the same problems."""

import math
from functools import lru_cache

import numpy as np

from d3s.evaluate.intervals import Estimate, t_quantile

quantile = lru_cache(t_quantile)


# x_bsp = base_b + run_bs + problem_p + rest_bsp:   Var(mean) = (MS_run + MS_problem - MS_rest) / (B S P)
# Two-way analysis of variance, Satterthwaite's degrees of freedom (rounded down), Student's quantile.
def crossed_interval(values: np.ndarray) -> Estimate:
    """Mean of scores or of paired differences of scores [bases, seeds, problems], with its interval.

    Runs (nested in their base model) and problems are random effects, base models are fixed: the interval covers new
    seeds and new problems of the same kind, on these base models. A single seed or problem gives no interval.
    """
    bases, seeds, problems = values.shape
    mean = float(values.mean())
    if seeds < 2 or problems < 2:
        return Estimate(mean)
    run_means, run_freedom = values.mean(2), bases * (seeds - 1)
    run_effects = run_means - run_means.mean(1, keepdims=True)
    rest = values - values.mean(1, keepdims=True) - run_effects[..., None]
    run_variance = float((run_effects**2).sum()) / run_freedom / (bases * seeds)
    problem_variance = float(values.mean((0, 1)).var(ddof=1)) / problems
    rest_variance = float((rest**2).sum()) / (run_freedom * (problems - 1)) / values.size
    variance = max(run_variance + problem_variance - rest_variance, run_variance, problem_variance)
    if variance == 0:
        return Estimate(mean, mean, mean)
    freedom = variance**2 / (run_variance**2 / run_freedom + problem_variance**2 / (problems - 1))
    least = min(run_freedom, problems - 1)  # of any sum of the two; rounding down must not leave the bounds
    half = quantile(max(least, math.floor(freedom))) * math.sqrt(variance)
    return Estimate(mean, mean - half, mean + half)
