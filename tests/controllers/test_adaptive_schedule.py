"""Schedules that follow evaluations, on scripted accuracies, against hand-computed decisions."""

import math

import pytest

from d3s.common import UserError
from d3s.config.load import load_config
from d3s.controllers.adaptive_schedule import AdaptiveSchedule, standard_error
from d3s.downsampling import curve_at, schedule_at, schedule_bounds

EVALUATED = ["eval.data=[synthetic:precedence]", "eval.every=1"]


def schedule(follow, *overrides):
    return AdaptiveSchedule(load_config([], [f"schedule.follow={follow}", *EVALUATED, *overrides]))


def progress(evaluations, *overrides):
    """The progress of a plateau after each evaluation."""
    adaptive, values = schedule("plateau", *overrides), []
    for accuracies in evaluations:
        adaptive.observe_eval(accuracies)
        values.append(adaptive.progress)
    return values


def test_without_following_the_step_decides():
    adaptive = schedule("none", "train.steps=5")
    assert [adaptive.at(step) for step in range(5)] == [schedule_at(adaptive.config, step) for step in range(5)]
    adaptive.observe_eval([0.0, 0.0])
    assert adaptive.progress == 0 and not adaptive.follows_evaluations


def test_coverage_is_planned_with_its_upper_bounds():
    adaptive = schedule("coverage", "schedule.n_init=8", "schedule.n_final=2", "train.steps=5")
    assert {adaptive.at(step) for step in range(5)} == {(8, 0.2)} and not adaptive.follows_evaluations


def test_plateau_moves_a_quarter_after_patience_evaluations():
    level = [0.5, 0.25, 1.0]
    assert progress([level] * 10) == [0, 0, 0.25, 0.25, 0.5, 0.5, 0.75, 0.75, 1, 1]
    assert progress([level] * 7, "schedule.patience=3") == [0, 0, 0, 0.25, 0.25, 0.25, 0.5]
    assert progress([[x] for x in (0.1, 0.2, 0.3, 0.3, 0.2)]) == [0, 0, 0, 0, 0.25]


def test_plateau_compares_by_the_paired_standard_error():
    """The paired difference is 0.1 in half of 8 problems: mean 0.05, standard error 0.0189."""
    base = [0.0, 1.0, 0.2, 0.8, 0.4, 0.6, 0.5, 0.5]
    up = [x + 0.1 * (i % 2) for i, x in enumerate(base)]
    assert standard_error([0, 0.1] * 4) < 0.05 < standard_error(base)
    assert progress([base, base, up, up]) == [0, 0, 0, 0]  # `up` is the new best, and waits once
    noise = [x + (0.2 if i == 0 else -0.02) for i, x in enumerate(base)]  # mean 0.0075, standard error 0.0275
    assert progress([base, noise, noise]) == [0, 0, 0.25]


def test_plateau_keeps_the_best_until_it_is_exceeded():
    """Solving one, then two of 8 problems: 1/8 is within its standard error, 2/8 exceeds that of 0.164."""
    solved = [[float(i < count) for i in range(8)] for count in range(3)]
    assert progress(solved) == [0, 0, 0]
    assert progress([*solved, solved[2], solved[1]]) == [0, 0, 0, 0, 0.25]
    assert progress([solved[0], solved[1], solved[1]]) == [0, 0, 0.25]


def test_plateau_starts_anew_on_other_problems():
    adaptive = schedule("plateau")
    for accuracies in ([0.5] * 3, [0.5] * 3, [0.1] * 4, [0.1] * 4):
        assert adaptive.observe_eval(accuracies) is None
    assert "0 to 0.25" in adaptive.observe_eval([0.1] * 4)


@pytest.mark.parametrize(("n_init", "n_final"), [(4, 16), (16, 4)])
def test_progress_moves_n_and_k_on_their_curves(n_init, n_final):
    adaptive = schedule("plateau", f"schedule.n_init={n_init}", f"schedule.n_final={n_final}", "schedule.k_init=0.5")
    values = [adaptive.at(0)]
    for _ in range(9):
        adaptive.observe_eval([0.5, 0.5])
        values.append(adaptive.at(10**6))
    assert values == [curve_at(adaptive.config, p) for p in (0, 0, 0, 0.25, 0.25, 0.5, 0.5, 0.75, 0.75, 1)]
    assert values[-1] == (n_final, 0.2) and values[0] == (n_init, 0.5)
    assert schedule_bounds(adaptive.config) == ((4, 16), (0.2, 0.5))


def test_restored_state_decides_as_the_whole_run():
    evaluations = [[0.3 + 0.1 * math.sin(i), 0.2, 0.4, 0.5 - 0.01 * i] for i in range(12)]

    def play(adaptive, start, stop):
        return [adaptive.observe_eval(accuracies) for accuracies in evaluations[start:stop]]

    whole = schedule("plateau")
    reasons = play(whole, 0, 12)
    assert sum(reason is not None for reason in reasons) > 1
    for cut in (1, 4, 7):
        first, second = schedule("plateau"), schedule("plateau")
        assert play(first, 0, cut) == reasons[:cut]
        second.load_state_dict(first.state_dict())
        assert play(second, cut, 12) == reasons[cut:]
        assert second.state_dict() == whole.state_dict()


def test_state_of_another_part_is_refused():
    with pytest.raises(UserError, match="schedule: got the state"):
        schedule("plateau").load_state_dict({"share": 1.0})
