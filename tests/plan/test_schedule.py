"""The schedule that --dry-run prints: bounds of what the run decides, and counts for the upper ones."""

import io

import pytest
from rich.console import Console

from d3s.config.load import load_config
from d3s.plan.dry_run import notes, print_plan
from d3s.plan.memory import Placement, token_share
from tests.helpers.configs import ROOT

SMALL = [ROOT / "configs/tiny.yaml", ROOT / "tests/helpers/small.yaml"]
FALLING = ["schedule.n_init=8", "schedule.n_final=2", "schedule.k_init=0.2", "schedule.k_final=0.1"]


def plan(*overrides: str) -> str:
    """The text that --dry-run prints for these overrides."""
    out = io.StringIO()
    print_plan(load_config(SMALL, list(overrides)), Console(file=out, width=250))
    return out.getvalue()


@pytest.mark.parametrize(
    ("follow", "reason"),
    [
        ("coverage", "each step holds 80% of the sum of A² by its N, and 95% of the sum of |A| x entropy by its K"),
        ("plateau", "a quarter further after 2 evaluations without progress"),
    ],
)
def test_bounds_of_a_followed_schedule_are_printed(follow, reason):
    text = plan(f"schedule.follow={follow}", *FALLING)
    assert f"N between 2 and 8, K between 10.0% and 20.0%: {reason}" in text
    assert "each of between 16 and 64 rollouts" in text  # 16 N in two mini-batches
    assert text.count("≤ 8 of 16") == 5 and text.count("≤ 20.0%") == 5
    assert f"total: ≤ {8 * 0.2 / 16:.2%} of the sampled tokens" in text
    fixed = plan(f"schedule.follow={follow}", *FALLING, "schedule.k_shape=constant")
    assert f"N between 2 and 8, K 20.0%: {reason}" in fixed


def test_falling_schedule_is_printed_by_step():
    text = plan(*FALLING, "train.steps=4")
    assert "about 64 rollouts in the first step, 16 in the last" in text and "between" not in text
    rows = [line for line in text.splitlines() if "of 16 │" in line]
    assert [row.split("│")[3].strip() for row in rows] == ["8 of 16", "6 of 16", "4 of 16", "2 of 16"]
    assert token_share(load_config(SMALL, [*FALLING, "train.steps=4"])) == pytest.approx(
        sum(n * k for n, k in ((8, 0.2), (6, 1 / 6), (4, 2 / 15), (2, 0.1))) / 64
    )


def test_end_at_a_target_is_explained():
    options = ["eval.data=[synthetic:precedence]", "eval.every=1", "eval.stop_at=0.75", "eval.keep_best=true"]
    text = plan(*options, "train.steps=1234")
    assert "after 1,234 steps, or an evaluation in which pass@1 is at least 0.75" in text
    assert "best/ (the model of the best pass@1)" in text and "best/" not in plan()


def test_automatic_share_is_explained():
    assert "between 0 (within groups), where it starts, and 1 (across the batch)" in plan("selector.cross_share=auto")
    assert "across problems as far as the gradient norm is calm" in plan("selector.cross_share=auto")


@pytest.mark.parametrize(("missing", "value"), [("eval.data=[]", "eval.data is []"), ("eval.every=0", "eval.every 0")])
def test_schedule_without_evaluations_is_noted(missing, value):
    noted = [note for note in notes(load_config(SMALL, ["schedule.follow=plateau", missing]), Placement())]
    assert any(note.startswith("schedule.follow: 'plateau' needs evaluations") and value in note for note in noted)
    assert not any("schedule.follow" in note for note in notes(load_config(SMALL, [missing]), Placement()))
