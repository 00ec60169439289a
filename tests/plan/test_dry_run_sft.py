"""The output of train_sft.py --dry-run, against hand-computed values."""

from functools import partial

from d3s.plan.dry_run_sft import print_plan
from tests.helpers.configs import ROOT, printed

plan = partial(printed, print_plan, ROOT / "configs/sft.yaml", width=400)


def test_plan_counts_demonstrations_and_passes():
    text = plan("data.limit=100", "train.prompts_per_step=5", "train.steps=50", "optim.lr_schedule=linear")
    assert "synthetic:countdown: 100 demonstrations; 250 are taken, 2.5 passes" in text
    assert "1 per step, of 5 demonstrations over all ranks; 50 steps" in text
    assert "0.0001 in step 1, 0.00063 in step 26, 2.5e-05 in step 50" in text
    assert "none; one forward and backward pass over every demonstration" in text
    assert "runs/sft: config.yaml, metrics.jsonl, a checkpoint every 50 steps, model/ at the end" in text


def test_plan_reads_no_data_from_the_hub():
    assert "org/name from the hub, not read; 6,400 demonstrations are taken in 200 steps" in plan("data.path=org/name")
