"""Runs whose share follows the training, on two ranks and resumed, against one uninterrupted process."""

import shutil

import pytest

from tests.helpers.command_line import lines, run
from tests.helpers.training import train

OPTIONS = [
    "schedule.follow=d3s.methods.auto_share:AutoShare", "train.steps=12", "checkpoint.every=6",
]  # fmt: skip


def test_two_ranks_decide_as_one(tied_model, tmp_path):
    """From the checkpoint of one process, in the middle of the calm steps before its first change of the share."""
    single, ranks = tmp_path / "single", tmp_path / "ranks"
    train(tied_model, single, overrides=OPTIONS)
    shutil.copytree(single, ranks)
    shutil.rmtree(ranks / "checkpoints" / "step_000012")
    shutil.rmtree(ranks / "model")
    options = ["--config", str(single / "config.yaml"), f"train.output_dir={ranks}", "--resume", "auto"]
    code, output = run(["train.py", *options], "ddp")
    assert code == 0, output
    expected, got = (lines(folder / "metrics.jsonl") for folder in (single, ranks))
    for key in ("selection/cross_share", "control/change", "selection/rollouts"):
        assert [line[key] for line in got] == [line[key] for line in expected] and len(got) == 12
    deviations = [[line["control/deviation"] for line in metrics] for metrics in (got, expected)]
    assert deviations[0] == pytest.approx(deviations[1], abs=1e-3)
    assert {line["selection/cross_share"] for line in got} == {0.0, 0.25}
    decisions, whole = (lines(folder / "warnings.jsonl") for folder in (ranks, single))
    assert decisions == whole and {w["key"] for w in decisions} == {"schedule.follow"}
