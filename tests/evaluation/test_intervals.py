"""Confidence intervals, against published quantiles, closed forms and simulated coverage."""

import math
import statistics

import numpy as np
import pytest

from d3s.evaluation.intervals import (
    Estimate,
    paired_interval,
    problem_interval,
    student_interval,
    t_quantile,
    welch_interval,
)

# Table of Student's t distribution, two-sided 95 % and 99 %: NIST/SEMATECH e-Handbook, section 1.3.6.7.2.
T_975 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 7: 2.365, 10: 2.228, 20: 2.086, 30: 2.042, 100: 1.984}
T_995 = {1: 63.657, 2: 9.925, 5: 4.032, 10: 3.169, 30: 2.750}


def test_t_quantiles_match_the_published_table():
    for table, probability in ((T_975, 0.975), (T_995, 0.995)):
        for freedom, expected in table.items():
            assert t_quantile(freedom, probability) == pytest.approx(expected, abs=6e-4)
            assert t_quantile(freedom, 1 - probability) == pytest.approx(-expected, abs=6e-4)


def ends(e):
    return e.value, e.low, e.high


def test_student_and_welch_intervals_match_formulas():
    """Welch's by hand: variances 4/3 and 16/3, 4 values each, so 75/17 degrees of freedom and a variance of 5/3."""
    values = [0.70, 0.74, 0.75, 0.77, 0.79]
    half = 2.7764451 * statistics.stdev(values) / math.sqrt(5)
    assert ends(student_interval(values)) == pytest.approx((0.75, 0.75 - half, 0.75 + half))
    assert student_interval([0.5]) == Estimate(0.5) and student_interval([0.5, 0.5]) == Estimate(0.5, 0.5, 0.5)
    half = t_quantile(75 / 17) * math.sqrt(5 / 3)
    assert ends(welch_interval([5, 5, 9, 9], [1, 1, 3, 3])) == pytest.approx((5, 5 - half, 5 + half))
    assert welch_interval([1.0], [0.0, 2.0]) == Estimate(0.0) and welch_interval([1.0, 3.0], [2.0]) == Estimate(0.0)
    assert welch_interval([1.0, 1.0], [0.5, 0.5]) == Estimate(0.5, 0.5, 0.5)


def test_problem_interval_adds_a_failure_and_a_success():
    """Two problems, 1/4 and 3/4: Student's interval of four values by hand, mean 1/2, s^2 = 5/24, t(3) = 3.182."""
    assert ends(problem_interval(np.array([0.25, 0.75]))) == (0.5, 0, 1)  # T_975[3] * s / 2 = 0.73: the range ends it
    half = t_quantile(101) * statistics.stdev([0.25, 0.75] * 50 + [0, 1]) / math.sqrt(102)
    assert ends(problem_interval(np.repeat([0.25, 0.75], 50))) == pytest.approx((0.5, 0.5 - half, 0.5 + half))
    assert ends(problem_interval(np.array([-2.0, 3.0, 0.5]))) == (0.5, -2.0, 3.0)  # rewards beyond 1
    # None of 30 solved: the exact binomial interval ends at 1 - 0.025 ** (1 / 30) = 0.116.
    none = problem_interval(np.zeros(30))
    assert (none.value, none.low) == (0, 0) and 0.08 < none.high < 0.12
    assert ends(problem_interval(np.ones(30))) == (1, pytest.approx(1 - none.high), 1)
    assert ends(problem_interval(np.array([1.0]))) == (1, 0, 1)


def test_problem_interval_covers_the_population_mean():
    """New problems at every draw, from sets of equal, mixed and almost only hopeless or trivial ones; 1 to 32 samples.
    A percentile bootstrap covers 86 to 90 % of the means near 0 and 1 with 15 and 30 problems."""
    rng, least, draws, problems = np.random.default_rng(0), 1.0, 400, 15
    for mean in (0.03, 0.07, 0.2, 0.5, 0.8, 0.97):
        for spread in (0.2, 1, 20):
            for n in (1, 8, 32):
                rates = rng.beta(mean * spread, (1 - mean) * spread, (draws, problems))
                estimates = [problem_interval(values) for values in rng.binomial(n, rates) / n]
                assert all(e.low <= e.value <= e.high for e in estimates)
                least = min(least, np.mean([e.low <= mean <= e.high for e in estimates]))
    assert least >= 0.90  # 93 % or more with many draws; 400 have a standard error of 1.2 points, here the least of 54


def test_paired_interval_adds_half_a_pair_to_each_cell():
    """Of n + 2 pairs b + 1/2 are won and c + 1/2 lost: s^2 = (b + c + 1 - (b - c)^2 / (n + 2)) / (n + 1)."""
    for n, b, c in ((30, 4, 1), (15, 0, 0), (3, 3, 0)):
        center = (b - c) / (n + 2)
        variance = (b + c + 1 - (b - c) ** 2 / (n + 2)) / (n + 1) / (n + 2)
        half = t_quantile(n + 1) * math.sqrt(variance)
        got = paired_interval(np.array([1.0] * b + [-1.0] * c + [0.0] * (n - b - c)))
        assert ends(got) == pytest.approx(((b - c) / n, max(-1, center - half), min(1, center + half)))
    assert ends(paired_interval(np.array([-3.0, -3.0])))[:2] == (-3.0, -3.0)  # rewards beyond 1


def test_paired_interval_covers_the_mean_difference():
    """Few problems that differ, all one way or both ways, by one answer of eight or by all."""
    rng, least = np.random.default_rng(0), 1.0
    for problems in (5, 15, 30, 60, 128):
        for up, down, size in ((0.03, 0, 1), (0.05, 0, 1), (0.2, 0, 1), (0.1, 0.05, 1), (0.05, 0, 1 / 8), (0.5, 0, 1)):
            draws = rng.random((400, problems))
            values = size * ((draws < up) * 1.0 - (draws > 1 - down))
            estimates = [paired_interval(of_draw) for of_draw in values]
            assert all(e.low <= e.value <= e.high for e in estimates)
            mean = size * (up - down)
            least = min(least, np.mean([e.low <= mean <= e.high for e in estimates]))
    assert least >= 0.85  # 89 % or more with many draws
