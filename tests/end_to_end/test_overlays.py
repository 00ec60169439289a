"""Method overlays and LoRA: a run keeps what its method defines, and resumes bitwise from its second step."""

import shutil
from pathlib import Path

import pytest

from d3s.config.schema import Config
from d3s.schedule import planned_curve, schedule_bounds
from tests.helpers.small_run import same_run
from tests.helpers.training import train

OVERLAYS = sorted(Path("configs/method").glob("*.yaml"))
OVERLAYS.append(Path("configs/lora.yaml"))
for needs_vllm in ("carry_over", "latr"):  # tests/rollout/test_carry_over.py, test_latr.py
    OVERLAYS.remove(Path(f"configs/method/{needs_vllm}.yaml"))


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


@pytest.mark.parametrize("overlay", OVERLAYS, ids=lambda overlay: overlay.stem)
def test_overlay_trains_and_resumes(overlay, tied_model, tmp_path):
    """Resumed where a checkpoint has a state of the method or an adapter; test_faults.py resumes all others."""
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    options = ["train.steps=3", "rollout.num_generations=8", "schedule.n_init=2", "schedule.n_final=4"]
    options += ["loss.old_logprobs=actor", "checkpoint.every=2"]
    config, steps = train(tied_model, whole, [str(overlay)], options)
    assert_keeps_what_it_defines(overlay.stem, config, steps)
    assert [step["step"] for step in steps] == [1, 2, 3]
    assert any(step["grad_norm"] > 0 for step in steps)  # a step of groups without signal has no gradient
    settings = (config.data.order, config.schedule.follow, config.lora.rank, config.rollout.strategy)
    if settings == ("shuffle", "none", None, "plain"):
        return
    shutil.copytree(whole, resumed)
    shutil.rmtree(resumed / "model")
    train(tied_model, resumed, [str(overlay)], options, checkpoint=resumed / "checkpoints" / "step_000002")
    assert same_run(whole, resumed)
