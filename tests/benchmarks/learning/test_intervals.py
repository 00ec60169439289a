"""Intervals over runs and problems, against simulation, hand-computed values and invariances."""

import numpy as np
import pytest

from benchmarks.learning.intervals import crossed_interval, quantile


@pytest.mark.parametrize("bases, seeds", [(1, 3), (1, 5), (2, 3)])
@pytest.mark.parametrize("run_sd, problem_sd, rest_sd", [(2, 0, 10), (0, 15, 30), (2, 15, 30), (0, 0, 30)])
def test_interval_covers_new_runs_and_problems(bases, seeds, run_sd, problem_sd, rest_sd):
    """Differences with a true mean of 0, drawn with a run effect, a problem effect and a rest. Student's interval over
    run means ignores that the problems are a sample."""
    rng = np.random.default_rng(0)
    draws, problems, covered, covered_by_student = 600, 64, 0, 0
    for _ in range(draws):
        values = rng.normal(0, rest_sd, (bases, seeds, problems)) + rng.normal(0, run_sd, (bases, seeds, 1))
        values += rng.normal(0, problem_sd, problems)
        interval = crossed_interval(values)
        assert interval.value == pytest.approx(values.mean())
        covered += interval.low <= 0 <= interval.high
        if problem_sd and not run_sd:
            runs = values.mean(2).ravel()
            covered_by_student += abs(runs.mean()) <= quantile(runs.size - 1) * runs.std(ddof=1) / runs.size**0.5
    assert 0.93 <= covered / draws <= 0.99
    assert bases * seeds < 5 or covered_by_student / draws < 0.9


def test_interval_is_students_for_equal_problems():
    """Two runs whose problems are all equal: mean 0, t(1) = 12.706, deviation sqrt(2), of two runs: 1."""
    values = np.array([[[-1.0] * 7, [1.0] * 7]])
    interval = crossed_interval(values)
    assert (interval.low, interval.high) == pytest.approx((-12.706, 12.706), rel=1e-3)
    assert crossed_interval(values[:, :1]).low is None


def test_interval_width_ignores_base_model_means():
    """A base model that is better by 50 points carries no information about the seeds."""
    values = np.random.default_rng(1).normal(0, 1, (2, 3, 20))
    shifted = values + np.array([0.0, 50.0])[:, None, None]
    near, far = crossed_interval(values), crossed_interval(shifted)
    assert far.value == pytest.approx(near.value + 25)
    assert far.high - far.low == pytest.approx(near.high - near.low)
