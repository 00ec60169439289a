"""Statistics of the results, against closed forms, simulation and brute force."""

from itertools import product

import numpy as np
import pytest

from benchmarks.learning.intervals import crossed_interval, quantile
from benchmarks.learning.statistics import (
    curve_at,
    detectable,
    holm,
    interval,
    p_value,
    probability_of_improvement,
    score_at,
    spread,
)
from tests.helpers.experiments import make_record

FOUR = ("tiny:a", "tiny:a@1", "tiny:b+32k", "tiny:b@1+32k")  # two tasks


def draw(rng, bases, runs, problems, deviations, mean=0.0):
    """Scores with a run effect, a problem effect (shared by the base models of a task) and a rest."""
    of_run, of_problem, of_rest = deviations
    effects = {base.split("+")[0].split("@")[0]: rng.normal(0, of_problem, problems) for base in bases}
    return {
        base: mean
        + rng.normal(0, of_rest, (runs, problems))
        + rng.normal(0, of_run, (runs, 1))
        + effects[base.split("+")[0].split("@")[0]]
        for base in bases
    }


CURVE = np.array([0.0, 100.0, 300.0])
RUN = make_record([0, 12, 24], [[0, 8, 2], [4, 8, 2], [8, 0, 2]], generated=CURVE, seconds=CURVE)


@pytest.mark.parametrize(
    "axis, budget, expected",
    [
        ("steps", 0, [0, 1, 0.25]),
        ("steps", 12, [0.5, 1, 0.25]),
        ("steps", 15, [0.625, 0.75, 0.25]),
        ("generated", 50, [0.25, 1, 0.25]),
        ("seconds", 200, [0.75, 0.5, 0.25]),
        ("seconds", 308, [1, 0, 0.25]),
    ],
)
def test_score_is_interpolated_on_its_axis(axis, budget, expected):
    assert score_at(RUN, axis, budget) == pytest.approx(expected)


def test_score_at_larger_k_uses_pass_at_k():
    """4 right of 8: Pass@2 = 1 - (4 x 3) / (8 x 7)."""
    assert score_at(RUN, "steps", 12, k=2)[0] == pytest.approx(1 - 12 / 56)


@pytest.mark.parametrize("axis, budget", [("seconds", 310), ("steps", -1), ("wall", 1)])
def test_budget_outside_of_curve_is_refused(axis, budget):
    with pytest.raises(ValueError, match="expected"):
        score_at(RUN, axis, budget)


def test_curve_keeps_the_shape_of_its_values():
    assert curve_at(RUN, np.array([1.0, 2.0, 4.0]), "steps", 18) == pytest.approx(3)


@pytest.mark.parametrize("deviations", [(2, 15, 30), (0, 0, 30), (5, 0, 10), (0, 15, 3)])
@pytest.mark.parametrize("runs", [3, 5])
def test_interval_agrees_with_closed_form(runs, deviations):
    """Analysis of variance of one base model. Degrees of freedom are rounded down, so single widths may differ more."""
    rng, ratios = np.random.default_rng(3), []
    for _ in range(25):
        scores = draw(rng, FOUR[:1], runs, 64, deviations)
        resampled, closed = interval(scores), crossed_interval(np.stack(list(scores.values())))
        assert resampled.value == pytest.approx(closed.value)
        ratios.append((resampled.high - resampled.low) / (closed.high - closed.low))
    assert np.median(ratios) == pytest.approx(1, abs=0.02)
    assert np.quantile(ratios, [0.1, 0.9]) == pytest.approx(1, abs=0.06)


def test_error_agrees_with_analysis_of_variance():
    """Three base models with the same problems: Var(mean) = (MS_runs + MS_problems - MS_rest) / values."""
    scores = draw(np.random.default_rng(0), ("tiny:a", "tiny:a@1", "tiny:a+32k"), 4, 64, (2, 15, 30))
    values = np.stack(list(scores.values()))
    run_means = values.mean(2, keepdims=True)
    rest = values - values.mean(1, keepdims=True) - run_means + run_means.mean(1, keepdims=True)
    by_run = run_means.var(axis=1, ddof=1).mean() / 12
    by_problem = values.mean((0, 1)).var(ddof=1) / 64
    by_rest = (rest**2).sum() / (9 * 63) / values.size
    assert spread(scores).error == pytest.approx((by_run + by_problem - by_rest) ** 0.5, rel=0.04)


@pytest.mark.parametrize(
    "bases, runs, deviations",
    [(FOUR, 3, (3, 10, 15)), (FOUR, 3, (0, 15, 30)), (FOUR[:1], 3, (3, 0, 3)), (FOUR[:2], 4, (0, 0, 30))],
)
def test_interval_covers_the_true_mean(bases, runs, deviations):
    """p < 0.05 exactly where the interval excludes 0."""
    rng = np.random.default_rng(0)
    draws, covered = 300, 0
    for _ in range(draws):
        scores = draw(rng, bases, runs, 48, deviations)
        estimate = interval(scores)
        inside = estimate.low <= 0 <= estimate.high
        assert inside == (p_value(scores) > 0.05)
        covered += inside
    assert 0.935 <= covered / draws < 1


def test_interval_covers_with_unequal_deviations():
    """Runs vary on one of four base models only, where pooled degrees of freedom would cover 88 %."""
    rng, draws, covered = np.random.default_rng(1), 500, 0
    for _ in range(draws):
        scores = draw(rng, FOUR[:3], 3, 48, (0.5, 3, 5)) | draw(rng, FOUR[3:], 3, 48, (10, 3, 5))
        estimate = interval(scores)
        covered += estimate.low <= 0 <= estimate.high
    assert 0.93 <= covered / draws <= 0.97


def test_bases_weigh_the_same_with_unequal_runs():
    scores = {"a": np.full((2, 4), 1.0), "b": np.full((6, 4), 3.0)}
    assert (interval(scores).value, interval(scores).low) == (2.0, 2.0)


def test_single_run_gives_no_interval():
    scores = {"a": np.arange(8.0).reshape(2, 4), "b": np.arange(4.0).reshape(1, 4)}
    assert interval(scores).low is None
    assert np.isnan([p_value(scores), detectable(scores)]).all()


def test_p_value_is_students_for_equal_problems():
    """Ten runs: t(9) = 2.262 at 5 %, 3.250 at 1 %, 4.781 at 0.1 %; on many equal problems the runs alone vary."""
    runs = np.random.default_rng(0).normal(0, 1, 10)
    got = spread({"a": np.repeat(runs[:, None], 30, axis=1)})
    assert got.freedom == 9
    assert got.error == pytest.approx(runs.std(ddof=1) / 10**0.5, rel=0.04)
    for t, p in ((2.262, 0.05), (3.250, 0.01), (4.781, 0.001)):
        shifted = runs - runs.mean() + t * got.error
        assert p_value({"a": np.repeat(shifted[:, None], 30, axis=1)}) == pytest.approx(p, rel=2e-3)


def test_holm_agrees_with_step_down_rule():
    """A hypothesis is rejected at a level exactly if the step-down procedure rejects it."""
    p_values = [0.04, 0.011, 0.5, 0.012, 0.0001]
    adjusted = holm(p_values)
    for level in np.linspace(0.0003, 0.9, 200):
        rejected, left = set(), len(p_values)
        for place in np.argsort(p_values):
            if p_values[place] > level / left:
                break
            rejected.add(int(place))
            left -= 1
        assert {i for i, p in enumerate(adjusted) if p <= level} == rejected


def test_holm_skips_unknown_p_values():
    assert holm([float("nan"), 0.01, 0.2]) == pytest.approx([float("nan"), 0.02, 0.2], nan_ok=True)


def test_detectable_difference_is_found_as_often():
    """Runs of equal problems: the share of p < 0.05 at the detectable difference of the true deviation is the power."""
    rng = np.random.default_rng(0)
    runs = rng.normal(0, 1, (4000, 6))
    unit = (np.arange(6.0) - 2.5) / np.arange(6.0).std(ddof=1)  # mean 0, standard deviation 1
    for power in (0.5, 0.8):
        difference = detectable({"a": np.repeat(unit[:, None], 20, axis=1)}, power)
        t = (runs.mean(1) + difference) / runs.std(axis=1, ddof=1) * 6**0.5
        assert (t > quantile(5)).mean() == pytest.approx(power, abs=0.04)


def test_probability_of_improvement_counts_pairs():
    method = {"a": np.array([[1.0, 3], [2, 2], [5, 5]]), "b": np.array([[1.0, 1], [9, 9]])}
    reference = {"a": np.array([[0.0, 4], [1, 1]]), "b": np.array([[2.0, 2], [3, 3]])}
    expected = []
    for base in method:
        pairs = list(product(method[base].mean(1), reference[base].mean(1)))
        expected.append(np.mean([(x > y) + 0.5 * (x == y) for x, y in pairs]))
    estimate = probability_of_improvement(method, reference)
    assert estimate.value == pytest.approx(np.mean(expected))
    assert estimate.low < estimate.value < estimate.high


def test_probability_of_improvement_is_antisymmetric():
    rng = np.random.default_rng(0)
    method, reference = (draw(rng, FOUR, 3, 40, (1, 5, 5)) for _ in range(2))
    one, other = probability_of_improvement(method, reference), probability_of_improvement(reference, method)
    assert one.value == pytest.approx(1 - other.value)
    assert probability_of_improvement(method, method).value == 0.5
    with pytest.raises(KeyError):
        probability_of_improvement(method, {"tiny:a": method["tiny:a"]})
