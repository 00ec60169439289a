"""Runs that choose their problems, and one its share, by earlier outcomes: resumed on two ranks, resampling."""

import json
import shutil

import pytest
import torch

from d3s.collector import Collector
from tests.helpers.command_line import complete, lines, timeless
from tests.helpers.rounding import assert_same_way
from tests.helpers.small_run import parameters
from tests.helpers.training import B, train

VADE = "d3s.methods.vade:Vade"
OPTIONS = [
    "data.limit=10", "train.steps=4", "checkpoint.every=2", "rollout.num_generations=4",
    "schedule.n_init=2", "schedule.n_final=4",
]  # fmt: skip


def sampler_state(folder, step: int) -> dict:
    """The sampler's state in a checkpoint."""
    path = folder / "checkpoints" / f"step_{step:06d}" / "parts.pt"
    return torch.load(path, weights_only=True)[f"data.order {VADE}"]


def test_two_ranks_choose_as_one(tied_model, tmp_path):
    """Both go on with the problems and the share of one process, from a checkpoint before the share first changes.

    Up to rounding, their run ends like the one of one process.
    """
    single, ranks = tmp_path / "single", tmp_path / "ranks"
    options = [*OPTIONS, f"data.order={VADE}", "schedule.follow=d3s.methods.auto_share:AutoShare"]
    train(tied_model, single, overrides=[*options, "train.steps=12", "checkpoint.every=6"])
    shutil.copytree(single, ranks, ignore=shutil.ignore_patterns("step_000012", "model"))
    options = ["--config", str(single / "config.yaml"), f"train.output_dir={ranks}", "--resume", "auto"]
    complete(["train.py", *options], "ddp")
    first, second = (sampler_state(folder, 12) for folder in (single, ranks))
    assert first.keys() == second.keys() and first["cursor"] == second["cursor"]
    assert all(torch.equal(first[name], second[name]) for name in ("alpha", "beta", "visits"))
    expected, got = (timeless(lines(folder / "metrics.jsonl")) for folder in (single, ranks))
    assert [line["step"] for line in got] == [*range(1, 13)]
    for key in (
        "prompts/seen", "prompts/visits_max", "prompts/expected_mixed", "reward/mean", "selection/cross_share",
        "control/change", "selection/rollouts",
    ):  # fmt: skip
        assert [line[key] for line in got] == [line[key] for line in expected]
    deviations = [[line["control/deviation"] for line in metrics] for metrics in (got, expected)]
    assert deviations[0] == pytest.approx(deviations[1], abs=1e-3)
    assert {line["selection/cross_share"] for line in got} == {0.0, 0.25}
    decisions, whole = (lines(folder / "warnings.jsonl") for folder in (ranks, single))
    assert decisions == whole and {w["key"] for w in decisions} == {"schedule.follow"}
    end, expected = (parameters(folder / "model") for folder in (ranks, single))
    assert_same_way(end, expected, parameters(tied_model))


def test_dynamic_sampling_learns_from_all_groups(tied_model, tmp_path, monkeypatch):
    """Also from those that it replaces. A position is used once, so a problem never gets the same seeds again."""
    collect, asked = Collector.collect, []

    def recorded(self, problems, position, **options):
        asked.append((problems, position))
        return collect(self, problems, position, **options)

    monkeypatch.setattr(Collector, "collect", recorded)
    train(tied_model, tmp_path, overrides=[*OPTIONS, f"data.order={VADE}", "rollout.dynamic_sampling=true"])
    assert len(asked) > 4  # at least one step sampled again
    assert [position for _, position in asked] == [i * B for i in range(len(asked))]
    state = json.loads((tmp_path / "checkpoints" / "step_000004" / "state.json").read_text())
    assert state["position"] == len(asked) * B
    counts = torch.bincount(torch.tensor([problem for problems, _ in asked for problem in problems]), minlength=10)
    assert torch.equal(sampler_state(tmp_path, 4)["visits"], counts)
