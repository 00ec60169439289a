"""Statistics of the results, against closed forms, simulation and brute force."""

from itertools import product

import numpy as np
import pytest

from d3s.evaluation.intervals import t_quantile
from research import statistics
from research.tests.experiments import make_record

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
    assert statistics.score_at(RUN, axis, budget) == pytest.approx(expected)


def test_score_at_larger_k_uses_pass_at_k():
    """4 right of 8: Pass@2 = 1 - (4 x 3) / (8 x 7)."""
    assert statistics.score_at(RUN, "steps", 12, k=2)[0] == pytest.approx(1 - 12 / 56)


@pytest.mark.parametrize("axis, budget", [("seconds", 310), ("steps", -1), ("wall", 1)])
def test_budget_outside_of_curve_is_refused(axis, budget):
    with pytest.raises(ValueError, match="expected"):
        statistics.score_at(RUN, axis, budget)


def test_curve_keeps_the_shape_of_its_values():
    assert statistics.curve_at(RUN, np.array([1.0, 2.0, 4.0]), "steps", 18) == pytest.approx(3)


def test_error_agrees_with_analysis_of_variance():
    """Three base models with the same problems: Var(mean) = (MS_runs + MS_problems - MS_rest) / values. Satterthwaite's
    freedom by hand, from each base model's own mean squares."""
    scores = draw(np.random.default_rng(0), ("tiny:a", "tiny:a@1", "tiny:a+32k"), 4, 64, (2, 15, 30))
    values = np.stack(list(scores.values()))
    run_means = values.mean(2, keepdims=True)
    rest = values - values.mean(1, keepdims=True) - run_means + run_means.mean(1, keepdims=True)
    by_run = run_means.var(axis=1, ddof=1).mean() / 12
    by_problem = values.mean((0, 1)).var(ddof=1) / 64
    by_rest = (rest**2).sum() / (9 * 63) / values.size
    variance, got = by_run + by_problem - by_rest, statistics.spread(scores)
    assert got.error == pytest.approx(variance**0.5, rel=1e-12)
    of_runs = values.mean(2).var(axis=1, ddof=1) / 4 / 9
    of_rest = (rest**2).sum((1, 2)) / (3 * 63) / (4 * 64) / 9
    squares = (of_runs**2).sum() / 3 + by_problem**2 / 63 + (of_rest**2).sum() / (3 * 63)
    assert got.freedom == pytest.approx(variance**2 / squares, rel=1e-12) and got.freedom % 1 > 0


def test_error_is_that_of_repeated_experiments():
    """Unequal runs on four base models of two tasks: the mean estimated variance is the variance of the means."""
    rng, means, variances = np.random.default_rng(2), [], []
    for _ in range(3000):
        scores = draw(rng, FOUR, 6, 24, (4, 20, 10))
        scores = {base: values[: 2 + i] for i, (base, values) in enumerate(scores.items())}
        got = statistics.spread(scores)
        means.append(got.mean)
        variances.append(got.error**2)
    assert np.mean(variances) == pytest.approx(np.var(means), rel=0.08)


def test_verdict_depends_on_no_name_and_no_order():
    """Nothing is resampled: other names, another order of runs and of problems give the same p-value."""
    rng = np.random.default_rng(5)
    scores = draw(rng, FOUR, 3, 48, (3, 10, 15), mean=3.0)
    order = rng.permutation(48)
    renamed = {base.replace("tiny", "x"): values[::-1][:, order] for base, values in reversed(scores.items())}
    assert statistics.p_value(renamed) == pytest.approx(statistics.p_value(scores), rel=1e-9)


def test_base_model_means_do_not_widen_the_interval():
    """A base model that is better by 50 points carries no information about the runs."""
    scores = draw(np.random.default_rng(1), FOUR, 3, 20, (1, 1, 1))
    near, far = statistics.interval(scores), statistics.interval(scores | {FOUR[0]: scores[FOUR[0]] + 50})
    assert far.value == pytest.approx(near.value + 12.5)
    assert far.high - far.low == pytest.approx(near.high - near.low)


@pytest.mark.parametrize(
    "bases, runs, deviations",
    [(FOUR, 3, (3, 10, 15)), (FOUR, 3, (0, 15, 30)), (FOUR[:1], 3, (3, 0, 3)), (FOUR[:2], 4, (0, 0, 30))],
)
def test_interval_covers_the_true_mean(bases, runs, deviations):
    """p < 0.05 exactly where the interval excludes 0, and p < 0.01 at most twice as often as that."""
    rng, p_values = np.random.default_rng(0), []
    for trial in range(2000):
        scores = draw(rng, bases, runs, 48, deviations)
        p_values.append(statistics.p_value(scores))
        if trial < 50:
            estimate = statistics.interval(scores)
            assert (estimate.low <= 0 <= estimate.high) == (p_values[-1] > 0.05)
    below = [np.mean(np.array(p_values) < level) for level in (0.05, 0.01)]
    assert below[0] <= 0.06 and below[1] <= 0.02


def test_interval_covers_with_unequal_deviations():
    """Runs vary on one of four base models only, where pooled degrees of freedom would cover 88 %."""
    rng, draws = np.random.default_rng(1), 2000
    pairs = ((draw(rng, FOUR[:3], 3, 48, (0.5, 3, 5)), draw(rng, FOUR[3:], 3, 48, (10, 3, 5))) for _ in range(draws))
    assert 0.92 <= np.mean([statistics.p_value(three | one) > 0.05 for three, one in pairs]) <= 0.97


def test_bases_weigh_the_same_with_unequal_runs():
    scores = {"a": np.full((2, 4), 1.0), "b": np.full((6, 4), 3.0)}
    assert (statistics.interval(scores).value, statistics.interval(scores).low) == (2.0, 2.0)


def test_single_run_gives_no_interval():
    scores = {"a": np.arange(8.0).reshape(2, 4), "b": np.arange(4.0).reshape(1, 4)}
    assert statistics.interval(scores).low is None
    assert np.isnan([statistics.p_value(scores), statistics.detectable(scores)]).all()


def test_p_value_is_students_for_equal_problems():
    """Ten runs: t(9) = 2.262 at 5 %, 3.250 at 1 %, 4.781 at 0.1 %; on many equal problems the runs alone vary."""
    runs = np.random.default_rng(0).normal(0, 1, 10)
    got = statistics.spread({"a": np.repeat(runs[:, None], 30, axis=1)})
    assert got.freedom == pytest.approx(9)
    assert got.error == pytest.approx(runs.std(ddof=1) / 10**0.5, rel=1e-9)
    for t, p in ((2.262, 0.05), (3.250, 0.01), (4.781, 0.001)):
        shifted = runs - runs.mean() + t * got.error
        assert statistics.p_value({"a": np.repeat(shifted[:, None], 30, axis=1)}) == pytest.approx(p, rel=2e-3)


def test_error_of_costs_adds_to_that_of_runs():
    """As large as that of ten runs, with the same freedom: the variance is twice as large, and so is the freedom."""
    runs = np.random.default_rng(0).normal(0, 1, 10)
    scores = {"a": np.repeat(runs[:, None], 30, axis=1)}
    alone = statistics.spread(scores)
    both = statistics.spread(scores, (alone.error**2, 9))
    assert (both.error**2, both.freedom) == pytest.approx((2 * alone.error**2, 18), rel=1e-9)
    for measure in (statistics.p_value, statistics.detectable):
        assert measure(scores, costs=(alone.error**2, 9)) > measure(scores)


def test_holm_agrees_with_step_down_rule():
    """A hypothesis is rejected at a level exactly if the step-down procedure rejects it."""
    p_values = [0.04, 0.011, 0.5, 0.012, 0.0001]
    adjusted = statistics.holm(p_values)
    for level in np.linspace(0.0003, 0.9, 200):
        rejected, left = set(), len(p_values)
        for place in np.argsort(p_values):
            if p_values[place] > level / left:
                break
            rejected.add(int(place))
            left -= 1
        assert {i for i, p in enumerate(adjusted) if p <= level} == rejected


def test_holm_skips_unknown_p_values():
    assert statistics.holm([float("nan"), 0.01, 0.2]) == pytest.approx([float("nan"), 0.02, 0.2], nan_ok=True)


def test_detectable_difference_is_found_as_often():
    """Runs of equal problems: the share of p < 0.05 at the detectable difference of the true deviation is the power."""
    rng = np.random.default_rng(0)
    runs = rng.normal(0, 1, (4000, 6))
    unit = (np.arange(6.0) - 2.5) / np.arange(6.0).std(ddof=1)  # mean 0, standard deviation 1
    for power in (0.5, 0.8):
        difference = statistics.detectable({"a": np.repeat(unit[:, None], 20, axis=1)}, power)
        t = (runs.mean(1) + difference) / runs.std(axis=1, ddof=1) * 6**0.5
        assert (t > t_quantile(5)).mean() == pytest.approx(power, abs=0.04)


def test_probability_of_improvement_counts_pairs():
    method = {"a": np.array([[1.0, 3], [2, 2], [5, 5]]), "b": np.array([[1.0, 1], [9, 9]])}
    reference = {"a": np.array([[0.0, 4], [1, 1]]), "b": np.array([[2.0, 2], [3, 3]])}
    expected = []
    for base in method:
        pairs = list(product(method[base].mean(1), reference[base].mean(1)))
        expected.append(np.mean([(x > y) + 0.5 * (x == y) for x, y in pairs]))
    assert statistics.probability_of_improvement(method, reference) == pytest.approx(np.mean(expected))


def test_probability_of_improvement_is_antisymmetric():
    rng = np.random.default_rng(0)
    method, reference = (draw(rng, FOUR, 3, 40, (1, 5, 5)) for _ in range(2))
    one, other = (
        statistics.probability_of_improvement(method, reference),
        statistics.probability_of_improvement(reference, method),
    )
    assert one == pytest.approx(1 - other)
    assert statistics.probability_of_improvement(method, method) == 0.5
    with pytest.raises(KeyError):
        statistics.probability_of_improvement(method, {"tiny:a": method["tiny:a"]})
