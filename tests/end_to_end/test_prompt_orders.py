"""Runs that choose their problems, and one its share, by earlier outcomes: resumed, on two ranks, resampling."""

import json
import shutil

import pytest
import torch

from d3s.collector import Collector
from d3s.common import UserError
from d3s.config.load import load_config
from d3s.trainer import Trainer
from tests.helpers.command_line import complete, lines, timeless
from tests.helpers.rounding import assert_same_way
from tests.helpers.small_run import parameters, same_run
from tests.helpers.training import B, train

VADE, MOPPS = "d3s.methods.vade:Vade", "d3s.methods.mopps:Mopps"
OPTIONS = [
    "data.limit=10", "train.steps=4", "checkpoint.every=2", "rollout.num_generations=4",
    "schedule.n_init=2", "schedule.n_final=4",
]  # fmt: skip


def sampler_state(folder, step: int, rule: str = VADE) -> dict:
    """The sampler's state in a checkpoint."""
    path = folder / "checkpoints" / f"step_{step:06d}" / "parts.pt"
    return torch.load(path, weights_only=True)[f"data.order {rule}"]


def assert_same_state(left, right, step: int, rule: str = VADE) -> None:
    first, second = sampler_state(left, step, rule), sampler_state(right, step, rule)
    assert first.keys() == second.keys() and first["cursor"] == second["cursor"]
    assert all(torch.equal(first[name], second[name]) for name in ("alpha", "beta", "visits"))


def lose_half(run, copy, steps=4):
    """Copy a run without what it saved after half of its steps. Return the checkpoint of that step."""
    shutil.copytree(run, copy)
    shutil.rmtree(copy / "checkpoints" / f"step_{steps:06d}")
    shutil.rmtree(copy / "model")
    return copy / "checkpoints" / f"step_{steps // 2:06d}"


@pytest.mark.parametrize("order", [VADE, MOPPS])
def test_resumed_run_asks_the_same_problems(order, tied_model, tmp_path):
    """The repeated steps are equal bit for bit; on other problems the run does not resume."""
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    train(tied_model, whole, overrides=[*OPTIONS, f"data.order={order}"])
    checkpoint = lose_half(whole, resumed)
    config = load_config([whole / "config.yaml"], [f"train.output_dir={resumed}"])
    trainer = Trainer(config, checkpoint)
    assert trainer.train() == 0
    trainer.close()
    assert same_run(whole, resumed)
    assert_same_state(whole, resumed, 4, order)
    state = sampler_state(whole, 4, order)
    assert state["visits"].sum() == 4 * B and (state["alpha"] + state["beta"]).max() > 4  # more than one group
    config.data.limit = 11
    with pytest.raises(UserError, match=r"data\.path: got other problems than those of the checkpoint"):
        Trainer(config, checkpoint)


def test_two_ranks_choose_as_one(tied_model, tmp_path):
    """Both go on with the problems and the share of one process, from a checkpoint before the share first changes.

    Up to rounding, their run ends like the one of one process.
    """
    single, ranks = tmp_path / "single", tmp_path / "ranks"
    options = [*OPTIONS, f"data.order={VADE}", "schedule.follow=d3s.methods.auto_share:AutoShare"]
    train(tied_model, single, overrides=[*options, "train.steps=12", "checkpoint.every=6"])
    lose_half(single, ranks, 12)
    options = ["--config", str(single / "config.yaml"), f"train.output_dir={ranks}", "--resume", "auto"]
    complete(["train.py", *options], "ddp")
    assert_same_state(single, ranks, 12)
    expected, got = (timeless(lines(folder / "metrics.jsonl")) for folder in (single, ranks))
    for key in ("prompts/seen", "prompts/visits_max", "prompts/expected_mixed", "reward/mean"):
        assert [line[key] for line in got] == [line[key] for line in expected] and len(got) == 12
    for key in ("selection/cross_share", "control/change", "selection/rollouts"):
        assert [line[key] for line in got] == [line[key] for line in expected]
    deviations = [[line["control/deviation"] for line in metrics] for metrics in (got, expected)]
    assert deviations[0] == pytest.approx(deviations[1], abs=1e-3)
    assert {line["selection/cross_share"] for line in got} == {0.0, 0.25}
    decisions, whole = (lines(folder / "warnings.jsonl") for folder in (ranks, single))
    assert decisions == whole and {w["key"] for w in decisions} == {"schedule.follow"}
    end, expected = (parameters(folder / "model") for folder in (ranks, single))
    assert_same_way(end, expected, parameters(tied_model))


@pytest.mark.parametrize("order", ["shuffle", VADE])
def test_dynamic_sampling_learns_from_all_groups(order, tied_model, tmp_path, monkeypatch):
    """Also from those that it replaces. A position is used once, so a problem never gets the same seeds again."""
    collect, asked = Collector.collect, []

    def recorded(self, problems, position, **options):
        asked.append((problems, position))
        return collect(self, problems, position, **options)

    monkeypatch.setattr(Collector, "collect", recorded)
    train(tied_model, tmp_path, overrides=[*OPTIONS, f"data.order={order}", "rollout.dynamic_sampling=true"])
    assert len(asked) > 4  # at least one step sampled again
    assert [position for _, position in asked] == [i * B for i in range(len(asked))]
    state = json.loads((tmp_path / "checkpoints" / "step_000004" / "state.json").read_text())
    assert state["position"] == len(asked) * B
    if order == VADE:
        counts = torch.bincount(torch.tensor([problem for problems, _ in asked for problem in problems]), minlength=10)
        assert torch.equal(sampler_state(tmp_path, 4)["visits"], counts)
