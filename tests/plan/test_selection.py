"""The schedule that --dry-run prints: bounds of what the run decides, and counts for the upper ones."""

from functools import partial

import pytest

from d3s.config.load import load_config
from d3s.plan.dry_run import notes, print_plan
from d3s.plan.memory import Placement
from tests.helpers.configs import SMALL, printed

FALLING = ["schedule.n_init=8", "schedule.n_final=2", "schedule.k_init=0.2", "schedule.k_final=0.1"]


plan = partial(printed, print_plan, *SMALL, width=250)
COVERAGE, PLATEAU = "d3s.methods.coverage:Coverage", "d3s.methods.plateau:Plateau"


@pytest.mark.parametrize("rule", [COVERAGE, PLATEAU])
def test_bounds_of_a_followed_schedule_are_printed(rule):
    text = plan(f"schedule.follow={rule}", *FALLING)
    assert f"{rule}: " in text and "N between 2 and 8, K between 10.0% and 20.0%" in text
    assert "each of between 16 and 64 rollouts" in text  # 16 N in two mini-batches
    assert text.count("≤ 8 of 16") == 5 and text.count("≤ 20.0%") == 5
    assert f"total: ≤ {8 * 0.2 / 16:.2%} of the sampled tokens" in text
    fixed = plan(f"schedule.follow={rule}", *FALLING, "schedule.k_shape=constant")
    assert "N between 2 and 8, K 20.0%" in fixed


@pytest.mark.parametrize(("missing", "value"), [("eval.data=[]", "eval.data is []"), ("eval.every=0", "eval.every 0")])
def test_schedule_without_evaluations_is_noted(missing, value):
    noted = list(notes(load_config(SMALL, [f"schedule.follow={PLATEAU}", missing]), Placement()))
    assert any(note.startswith(f"schedule.follow: {PLATEAU} needs evaluations") and value in note for note in noted)
    assert not any("schedule.follow" in note for note in notes(load_config(SMALL, [missing]), Placement()))
