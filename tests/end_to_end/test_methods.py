"""Method overlays and LoRA train, keep what a method defines and resume bitwise; on two ranks they choose as on one."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from d3s.collector import Collector
from d3s.config.schema import Config
from d3s.schedule import planned_curve, schedule_bounds
from tests.helpers.command_line import complete, lines, timeless
from tests.helpers.rounding import assert_same_way
from tests.helpers.small_run import parameters, same_run
from tests.helpers.training import B, train

NEED_VLLM = ("carry_over", "latr")  # tests/rollout/test_strategies.py
OVERLAYS = [path for path in sorted(Path("configs/method").glob("*.yaml")) if path.stem not in NEED_VLLM]


def assert_keeps_what_it_defines(overlay: str, config: Config, steps: list[dict]) -> None:
    """N and K are those of the schedule, and as many rollouts and tokens are kept."""
    prompts, total = config.train.prompts_per_step, config.train.prompts_per_step * config.rollout.num_generations
    if config.schedule.follow == "none":
        ends = [planned_curve(config)(progress) for progress in (0, 1)]
        assert [(steps[i]["schedule/n"], steps[i]["schedule/k"]) for i in (0, -1)] == [pytest.approx(e) for e in ends]
    (n_low, n_high), (k_low, k_high) = schedule_bounds(config)
    for step in steps:
        n, k, kept = step["schedule/n"], step["schedule/k"], step["selection/rollouts"]
        assert n_low <= n <= n_high and k_low <= k <= k_high
        if overlay == "variance_mass":
            assert kept <= n * prompts and kept % n == 0  # all of some problems
        elif config.loss.overlong_filtering or overlay == "nonzero":
            assert kept <= n * prompts
        else:
            assert kept == n * prompts
        if k == 1:
            selected = step["selection/tokens"] + step["selection/tokens_skipped"]
            assert (selected == step["selection/tokens_total"]) == (kept == total)
        elif kept:
            assert step["selection/tokens"] < max(step["selection/tokens_forwarded"], 2)
        assert step["grad_norm"] < float("inf") and step["sync/max_abs_dlogp"] < 1e-4


@pytest.mark.parametrize("overlay", [*OVERLAYS, Path("configs/lora.yaml")], ids=lambda overlay: overlay.stem)
def test_overlay_trains_and_resumes(overlay, tied_model, gqa_model, tmp_path):
    """Resumed where a checkpoint has a state of the method or an adapter, or with a teacher; else by test_faults.py."""
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    options = ["train.steps=2", "train.seed=1", "rollout.num_generations=8", "schedule.n_init=2", "schedule.n_final=4"]
    options += ["loss.old_logprobs=actor", "checkpoint.every=1"]
    options += [f"loss.reference={gqa_model}"] * overlay.stem.startswith("distill")
    config, steps = train(tied_model, whole, [str(overlay)], options)
    assert_keeps_what_it_defines(overlay.stem, config, steps)
    assert [step["step"] for step in steps] == [1, 2]
    assert any(step["grad_norm"] > 0 for step in steps)  # a step of groups without signal has no gradient
    settings = (config.data.order, config.schedule.follow, config.lora.rank, config.rollout.strategy)
    if (*settings, config.loss.reference) == ("shuffle", "none", None, "plain", None):
        return
    shutil.copytree(whole, resumed)
    shutil.rmtree(resumed / "model")
    train(tied_model, resumed, [str(overlay)], options, checkpoint=resumed / "checkpoints" / "step_000001")
    assert same_run(whole, resumed)


# --- problems and a share that follow earlier outcomes ----------------------------------------------------------------

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
    for key in ("step", "prompts/expected_mixed", "reward/mean", "selection/cross_share", "selection/rollouts"):
        assert [line[key] for line in got] == [line[key] for line in expected]
    for left, right in zip(got, expected):
        assert left["control/deviation"] == pytest.approx(right["control/deviation"], abs=1e-3)
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
