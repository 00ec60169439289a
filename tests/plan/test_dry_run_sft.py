"""The output of train_sft.py --dry-run, against hand-computed values and a run's errors."""

import io

import pytest
from rich.console import Console

from d3s.common import UserError
from d3s.config.load import load_config
from d3s.plan.dry_run_sft import print_plan
from tests.helpers.configs import ROOT


def plan(*overrides: str, overlays: tuple[str, ...] = ()) -> str:
    """The text that --dry-run prints."""
    files = [ROOT / "configs" / name for name in ("sft.yaml", *overlays)]
    out = io.StringIO()
    print_plan(load_config(files, [*overrides]), Console(file=out, width=400))
    return out.getvalue()


def test_plan_counts_demonstrations_and_passes():
    text = plan("data.limit=100", "train.prompts_per_step=5", "train.steps=50", "optim.lr_schedule=linear")
    assert "synthetic:countdown: 100 demonstrations; 250 are taken, 2.5 passes" in text
    assert "1 per step, of 5 demonstrations over all ranks; 50 steps" in text
    assert "0.0001 in step 1, 0.00063 in step 26, 2.5e-05 in step 50" in text
    assert "none; one forward and backward pass over every demonstration" in text
    assert "runs/sft: config.yaml, metrics.jsonl, a checkpoint every 50 steps, model/ at the end" in text


def test_plan_reads_no_data_from_the_hub():
    assert "org/name from the hub, not read; 6,400 demonstrations are taken in 200 steps" in plan("data.path=org/name")


@pytest.mark.parametrize(
    ("override", "message"),
    [("data.path=missing.jsonl", "missing.jsonl: no such file"), ("model.name=runs/none", "no such directory")],
)
def test_plan_raises_the_errors_of_a_run(override, message):
    with pytest.raises(UserError, match=message):
        plan(override)
