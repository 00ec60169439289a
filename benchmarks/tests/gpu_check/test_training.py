"""The stage `training` in forks with the transformers engine, and on metrics by hand."""

import json
import shutil
from pathlib import Path

import pytest

from benchmarks.gpu_check import training
from benchmarks.tests.stages import not_held
from d3s.common import NOTHING_TRAINED
from tests.helpers.command_line import run


@pytest.fixture
def without_vllm(monkeypatch):
    """Its engine is transformers'."""
    monkeypatch.setattr(training, "find_spec", lambda name: None)


def test_training_holds_on_the_cpu(without_vllm, monkeypatch):
    def train(folder: Path, *options: str) -> tuple[int, list[dict]]:
        code, _ = run(["train.py", "--config", "configs/tiny.yaml", f"train.output_dir={folder}", *options])
        return code, [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]

    monkeypatch.setattr(training, "train", train)
    rows = list(training.run("cpu", 600))
    assert not not_held(rows) and [row.measured for row in rows[:3]] == ["transformers", "0", "3"]
    assert rows[-1].measured == "[0, 0]" and float(rows[6].measured.split()[0]) > 0


@pytest.fixture
def run_by_hand(without_vllm, monkeypatch):
    """run_by_hand(code, changes) judges a run with this exit code whose steps have these metrics; no weight changes."""

    def judge(code: int, **changes: float) -> list[str]:
        def train(folder: Path, *options: str) -> tuple[int, list[dict]]:
            model = next(option.partition("=")[2] for option in options if option.startswith("model.name="))
            shutil.copytree(model, folder / "model")
            metrics = {
                "sync/mean_abs_dlogp": 0.0, "loss": 0.0, "grad_norm": 1.0, "time/step": 1.0, "memory/generate_gb": 1.0,
                "memory/update_gb": 1.0,
            }  # fmt: skip
            ended = NOTHING_TRAINED if folder.name == "empty" and code == 0 else code
            return ended, [metrics | {"selection/rollouts": 1} | changes] * 3

        monkeypatch.setattr(training, "train", train)
        return not_held(training.run("cpu", 600))

    return judge


def test_runs_that_train_nothing_are_noticed(run_by_hand):
    kept = ["weights that changed", "steps that keep no rollout: rollouts kept"]
    assert run_by_hand(0) == kept
    for changes in ({"grad_norm": 0.0}, {"loss": float("nan")}):
        assert run_by_hand(0, **changes) == ["steps with a finite loss and gradient", *kept]
    assert run_by_hand(0, **{"sync/mean_abs_dlogp": 0.1}) == ["largest mean gap of the probe after a sync", *kept]
    assert run_by_hand(1) == ["exit code"]
