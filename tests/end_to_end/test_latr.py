"""The overlay of tree rollouts through the command line: trained, killed and resumed."""

import shutil

import pytest

from tests.helpers.command_line import lines, run
from tests.helpers.small_run import same_run


@pytest.fixture
def arguments(tied_model, tmp_path):
    """Function (folder) -> train.py and its arguments."""
    return lambda folder: [
        "train.py", "--config", "configs/tiny.yaml", "tests/helpers/small.yaml",
        "configs/method/latr.yaml", f"model.name={tied_model}",
        f"train.output_dir={folder}", "train.steps=3", "train.prompts_per_step=4", "rollout.max_completion_length=30",
        "rollout.strategy={rule: d3s.methods.latr:LATR, absolute: 0.02, relative: 0.5}",
        "reward.functions=[tests.helpers.rewards:even_length]", "reward.workers=1", "data.limit=40", "eval.data=[]",
        "checkpoint.every=1", "checkpoint.keep=3",
    ]  # fmt: skip


def test_tree_overlay_trains_and_resumes_bitwise(arguments, tmp_path):
    first, again = tmp_path / "run", tmp_path / "again"
    code, output = run(arguments(first))
    assert code == 0, output
    steps = lines(first / "metrics.jsonl")
    assert all(step["strategy/branches"] > 0 < step["strategy/forced"] and step["grad_norm"] > 0 for step in steps)
    assert all(step["mismatch/max_abs"] < 1e-4 and step["selection/rollouts_total"] == 64 for step in steps)
    shutil.copytree(first, again)
    for step in (2, 3):  # as if killed in the second step
        shutil.rmtree(again / "checkpoints" / f"step_{step:06d}")
    code, output = run([*arguments(again), "--resume", "auto"])
    assert code == 0, output
    assert same_run(first, again)
