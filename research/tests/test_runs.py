"""Curves, crossings and pairing of runs against hand-computed values; one cell trained by train.py."""

import json
import sys
from hashlib import sha256

import pytest

from d3s.config.load import load_config
from research.runs import Cell, curve, in_fork, provenance, scores, train, train_all
from research.tables import difference
from research.tests.experiments import make_run

SMALL = (
    "train.steps=2",
    "optim.warmup_steps=0",
    "train.prompts_per_step=2",
    "rollout.num_generations=2",
    "schedule.n_init=2",
    "schedule.n_final=2",
    "eval.limit=2",
    "eval.n=2",
    "eval.k=[1,2]",
    "rollout.max_completion_length=8",
)


def test_curves_sum_tokens_and_seconds(tmp_path):
    run = make_run(tmp_path / "run", [0.2, 0.4, 0.8], tokens=100, seconds=10.0)
    assert [x.tolist() for x in curve(run, "pass@1", "tokens")] == [[0, 200, 400], [0.2, 0.4, 0.8]]
    assert curve(run, "pass@1", "seconds")[0].tolist() == [0, 20, 40]


def test_fork_returns_the_exit_code():
    assert [in_fork(sys.exit, code) for code in (0, 3)] == [0, 3]


def test_differences_are_paired_by_problem(tmp_path):
    """Problems differ by up to 70 points and seeds by 10, every pair by exactly 20."""
    low, high = ([make_run(tmp_path / f"{name}{i}", [0, 0.1], 10, 1.0, 4) for i in range(2)] for name in "ab")
    for seed in range(2):
        low[seed].evaluations[-1]["right"] = [seed, 1, 4, 7 + seed]
        high[seed].evaluations[-1]["right"] = [2 + seed, 3, 6, 9 + seed]
    assert scores([low], 1)["x@0"][1].tolist() == pytest.approx([0.1, 0.1, 0.4, 0.8])
    assert scores([low], 2)["x@0"][1, 3] == pytest.approx(1 - 1 / 45)  # 2 wrong of 10: one pair of 45
    gap = difference([high], [low], 1)
    assert (gap.value, gap.low, gap.high) == pytest.approx((0.2, 0.2, 0.2))


def test_finished_run_is_not_trained_again(tied_model, tmp_path):
    cell = Cell("two steps: a trial", (*SMALL, f"model.name={tied_model}"))
    run = train_all([(cell, 3)], tmp_path, processes=1)[cell, 3]
    assert run.seed == 3 and run.last_step == 2 and all(line["time/cpu"] > 0 for line in run.metrics)
    assert (curve(run, "pass@1", "seconds")[0] > 0).tolist() == [False, True]
    before = (run.path / "metrics.jsonl").stat().st_mtime_ns
    assert train(cell, 3, tmp_path) == run.path
    assert (run.path / "metrics.jsonl").stat().st_mtime_ns == before
    assert cell.extended("schedule.n_shape=linear").folder(tmp_path) == run.path.parent  # an explicit default
    assert cell.extended("optim.learning_rate=1e-9").folder(tmp_path) != run.path.parent
    with pytest.raises(RuntimeError, match="nowhere"):
        train(cell.extended("model.name=nowhere"), 0, tmp_path)
    origin = json.loads((tmp_path / "machine.json").read_text())
    assert origin["torch"] and provenance(tmp_path) == origin


def test_shared_shape_keeps_the_directory_of_old_runs(tmp_path):
    """When N and K shared one option, the settings of these cells were hashed with the key "shape"."""
    shapes = ("schedule.n_shape=step", "schedule.k_shape=step")
    cell = Cell("steps", ("schedule.n_init=null", "schedule.n_final=null", *shapes))
    config = load_config(*cell.sources())
    settings = config.model_dump_json(exclude={"train": {"seed", "output_dir"}}, exclude_defaults=True)
    assert settings.count('"n_shape":"step","k_shape":"step"') == 1
    old = settings.replace('"n_shape":"step","k_shape":"step"', '"shape":"step"')
    assert cell.folder(tmp_path).name == f"steps-{sha256(old.encode()).hexdigest()[:8]}"
    assert cell.extended("schedule.k_shape=linear").folder(tmp_path) != cell.folder(tmp_path)


def test_provenance_is_that_of_the_first_run(tmp_path):
    (tmp_path / "machine.json").write_text('{"revision": "abc", "cpu": "a CPU"}')
    assert provenance(tmp_path) == {"revision": "abc", "cpu": "a CPU"}
