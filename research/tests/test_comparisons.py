"""Scores of rows at equal budgets, on artificial runs with hand-computed curves."""

from dataclasses import replace

import numpy as np
import pytest

from research.claims import HEAVY
from research.comparisons import NotComparable, Results
from research.padded_base import SUFFIX
from research.rows import BY_NAME, GRPO_BEST, HALF_WARMUP
from research.step_costs import Costs
from research.tests.experiments import costs_of, make_record, planned_runs

BASE, OTHER = "tiny:precedence", "tiny:precedence@1"
NONE = Costs([])


def curve(row: str, steps, right, base=BASE, **fields):
    """A run with one problem."""
    return make_record(steps, [[count] for count in right], row=row, base=base, **fields)


def budgets(base=BASE, **fields):
    """D3S: 60 steps of 2 seconds and 1000 tokens."""
    return curve("D3S", [0, 60], [0, 4], base, **fields)


def test_budget_is_what_the_reference_took():
    heavy = HEAVY + GRPO_BEST
    records = [
        budgets(seconds=np.array([0, 100.0])),
        budgets(seed=1, seconds=np.array([0, 140.0])),
        budgets(OTHER, seed=10),
        curve(heavy, [0, 30], [0, 1], BASE + SUFFIX, seed=60),
        curve("poor base: D3S", [0, 60], [0, 1], HALF_WARMUP, seed=80, generated=np.array([0, 7.0])),
    ]
    results = Results(records, NONE)
    assert results.budget("GRPO, G = 2", BASE, "seconds") == 120
    assert results.budget("GRPO, G = 2", OTHER, "seconds") == 120
    assert results.budget("GRPO, G = 2", BASE, "generated") == 60_000
    assert results.budget("GRPO, G = 2", BASE, "steps") == 60
    assert results.budget(f"{HEAVY}NAT, K = 20 %", BASE + SUFFIX, "seconds") == 57  # 95 % of 30 steps of 2 seconds
    assert results.budget(heavy, BASE + SUFFIX, "steps") == 30
    assert results.budget("poor base: D3S-I", HALF_WARMUP, "generated") == 7


def test_budget_needs_runs_of_the_reference():
    results = Results([budgets(OTHER, seed=10), curve("PODS", [0, 84], [0, 8])], NONE)
    with pytest.raises(NotComparable, match="no runs of D3S"):
        results.scores("PODS", "seconds")
    with pytest.raises(NotComparable, match="no runs of D3S"):
        Results([curve("PODS", [0, 84], [0, 8])], NONE).scores("PODS", "seconds")
    assert results.scores("PODS", "steps")  # 60 in any case


def test_score_is_interpolated_at_the_budget():
    """Right answers 0, 2, 8 of 8 at steps 0, 48, 84; a step takes 3 seconds, so that 120 seconds are 40 steps."""
    run = curve("PODS", [0, 48, 84], [0, 2, 8], seconds=np.array([0, 144.0, 252]), generated=np.array([0, 4e4, 7e4]))
    results = Results([budgets(), run], NONE)
    assert results.scores("PODS", "steps")[BASE] == pytest.approx(2 / 8 + 6 / 8 / 3)
    assert results.scores("PODS", "generated")[BASE] == pytest.approx(2 / 8 + 6 / 8 * 2 / 3)
    assert results.scores("PODS", "seconds")[BASE] == pytest.approx(2 / 8 * 120 / 144)
    assert results.steps_at("PODS") == pytest.approx(40)
    one_in_two = 1 - 6 / 8 * 5 / 7  # Pass@2 with 2 right of 8
    assert results.scores("PODS", "seconds", k=2)[BASE] == pytest.approx(one_in_two * 120 / 144)


@pytest.mark.parametrize(
    "seconds, reason",
    [(115, None), (125, None), (113, "-6% seconds"), (127, r"\+6% seconds"), (600, r"\+400%")],
)
def test_scheduled_row_counts_at_its_end(seconds, reason):
    run = curve("D3S-I", [0, 36, 60], [0, 1, 6], seconds=np.array([0, seconds / 2, seconds]))
    results = Results([budgets(), run], NONE)
    if reason:
        with pytest.raises(NotComparable, match=reason):
            results.scores("D3S-I", "seconds")
    else:
        assert results.scores("D3S-I", "seconds")[BASE].tolist() == [[0.75]]
    assert results.scores("D3S-I", "steps")[BASE].tolist() == [[0.75]]


def test_curve_that_ends_early_is_refused():
    """Up to 3 % before the budget its end counts; one of several runs may end earlier than their mean."""
    ends = curve("PODS", [0, 84], [0, 4], seconds=np.array([0, 117.0]))
    assert Results([budgets(), ends], NONE).scores("PODS", "seconds")[BASE].tolist() == [[0.5]]
    early = curve("PODS", [0, 84], [0, 4], seconds=np.array([0, 108.0]))
    with pytest.raises(NotComparable, match="ends at 90% of the seconds"):
        Results([budgets(), early], NONE).scores("PODS", "seconds")
    late = curve("PODS", [0, 84], [0, 8], seed=1, seconds=np.array([0, 150.0]))
    scores = Results([budgets(), early, late], NONE).scores("PODS", "seconds")[BASE]
    assert scores[:, 0] == pytest.approx([0.5, 0.8])


def test_difference_is_paired_by_seed():
    """Seeds 0 and 2 of one row, 1 and 2 of the other: seed 2 alone is a pair."""
    steps = [0, 60]
    ours = [curve("D3S", steps, [0, right], seed=seed) for seed, right in ((2, 7), (0, 1))]
    theirs = [curve(GRPO_BEST, steps, [0, right], seed=seed) for seed, right in ((1, 8), (2, 4))]
    results = Results([*ours, *theirs], NONE)
    gap = results.difference("D3S", GRPO_BEST, "steps")
    assert gap.keys() == {BASE} and gap[BASE] == pytest.approx(np.array([[3 / 8]]))
    assert results.difference(GRPO_BEST, "D3S", "steps")[BASE] == pytest.approx(np.array([[-3 / 8]]))
    with pytest.raises(NotComparable, match="no common seeds"):
        Results([ours[1], *theirs], NONE).difference("D3S", GRPO_BEST, "steps")


def test_pairs_begin_with_equal_weights():
    """Base models of other machines answer otherwise before training; of seeds 0 and 1 the second alone is a pair."""
    ours = [curve("D3S", [0, 60], [first, 7], seed=seed) for seed, first in enumerate((1, 2))]
    theirs = [curve(GRPO_BEST, [0, 60], [2, 3], seed=seed) for seed in (0, 1)]
    assert Results([*ours, *theirs], NONE).difference("D3S", GRPO_BEST, "steps")[BASE].tolist() == [[0.5]]
    with pytest.raises(NotComparable, match="of equal weights"):
        Results([ours[0], *theirs], NONE).difference("D3S", GRPO_BEST, "steps")


@pytest.mark.parametrize("task", ["", "tiny:p"])
def test_gap_has_the_error_of_the_costs(task):
    """GRPO gains 6 of 8 in 72 steps and is read at 60: a cost that is 5 % larger lowers it by 0.05 x 60 / 72 x 6 / 8.

    D3S sets the budget and has no such error; two tasks have independent ones, the base models of a task the same.
    """
    runs = planned_runs(BY_NAME["D3S"], [4]), planned_runs(BY_NAME[GRPO_BEST], [0])
    rising = [replace(run, right=np.array([[0, 0], [6, 6]]), steps=np.array([0, 72])) for run in runs[1]]
    rising = [replace(run, generated=run.steps * 1000.0) for run in rising]
    costs = costs_of({("D3S", 0): 1.0, (GRPO_BEST, 0): 1.0})
    costs.deviation, costs.freedom = 0.05, 9
    results = Results([*runs[0], *rising], costs)
    compared = ("D3S", GRPO_BEST, "seconds")
    variance = (0.05 * 60 / 72 * 6 / 8) ** 2 * (1 if task else 1 / 2)
    assert results.cost_error(*compared, task=task) == (pytest.approx(variance), 9)
    assert results.cost_error("D3S", GRPO_BEST, "steps") == (0, 9)
    gap = results.gap(*compared, task=task)  # equal runs: the costs alone have an error
    assert (gap.value, gap.high - gap.value) == pytest.approx((4 / 8 - 5 / 8, 2.262 * variance**0.5), rel=1e-3)


def test_difference_is_paired_by_problem_and_base():
    ours = make_record([0, 60], [[0, 0, 0], [8, 4, 1]], row="D3S")
    theirs = make_record([0, 60], [[0, 0, 0], [2, 4, 7]], row=GRPO_BEST)
    elsewhere = replace(theirs, base=OTHER, seed=10)
    gap = Results([ours, theirs, elsewhere], NONE).difference("D3S", GRPO_BEST, "steps")
    assert gap.keys() == {BASE} and gap[BASE] == pytest.approx(np.array([[0.75, 0, -0.75]]))


def test_task_restricts_the_bases():
    results = Results([*planned_runs(BY_NAME["D3S"], [4]), *planned_runs(BY_NAME[GRPO_BEST], [2])], NONE)
    assert results.scores("D3S", "steps", task="tiny:c").keys() == {"tiny:countdown", "tiny:countdown@1"}
    assert results.difference("D3S", GRPO_BEST, "steps", task="tiny:p").keys() == {BASE, OTHER}
    with pytest.raises(NotComparable, match="no runs"):
        results.scores("D3S", "steps", task="tiny:x")


def test_other_runs_do_not_enter():
    """Searches, seeds beyond the planned ones, base models of other rows, and rows that no longer exist."""
    (planned, *_) = planned_runs(BY_NAME["D3S"], [4])
    others = [
        replace(planned, part="sweep"),
        replace(planned, seed=3),
        replace(planned, seed=90),
        replace(planned, seed=10),  # of the second base model
        replace(planned, base=BASE + SUFFIX),
        replace(planned, row="a former row"),
    ]
    results = Results([*others, planned], NONE)
    assert results.runs.keys() == {"D3S"} and results.all_runs("D3S") == [planned]
    assert results.measured([BY_NAME["PODS"], BY_NAME["D3S"]]) == ["D3S"]


def test_measured_costs_replace_the_seconds():
    """D3S takes 1 second a step, GRPO 2, and 4 with all rollouts computed; the runs themselves took 2 seconds."""
    costs = costs_of({("D3S", 0): 1, (GRPO_BEST, 0): 2, (GRPO_BEST, 1): 4})
    run = curve(GRPO_BEST, [0, 12, 24, 36, 72], [0, 2, 4, 6, 8])
    results = Results([budgets(), run, curve("PODS", [0, 84], [0, 8])], costs)
    assert results.budget(GRPO_BEST, BASE, "seconds") == 60
    assert results.scores(GRPO_BEST, "seconds")[BASE].tolist() == [[pytest.approx(5 / 8)]]  # 30 steps
    assert results.scores(GRPO_BEST, "seconds", zeros_computed=True)[BASE].tolist() == [[pytest.approx(2.5 / 8)]]
    assert (results.steps_at(GRPO_BEST), results.steps_at(GRPO_BEST, True)) == (30, 15)
    for axis in ("steps", "generated"):
        scores = [results.scores(GRPO_BEST, axis, zeros_computed=zeros)[BASE].tolist() for zeros in (False, True)]
        assert scores[0] == scores[1]
    gaps = [results.difference("D3S", GRPO_BEST, "seconds", zeros_computed=zeros)[BASE] for zeros in (False, True)]
    assert [gap.item() for gap in gaps] == pytest.approx([-1 / 8, 1.5 / 8])
    assert results.steps_at("PODS") == pytest.approx(30)  # not measured: the seconds of its own runs
    with pytest.raises(NotComparable, match="not timed"):
        results.scores("PODS", "seconds", zeros_computed=True)


def test_level_at_the_end_is_that_of_the_last_step():
    runs = [curve("PODS", [0, 84], [8, right], seed=seed) for seed, right in enumerate((2, 4))]
    assert Results(runs, NONE).at_end("PODS").value == pytest.approx(3 / 8)
