"""Method overlays, LoRA and options train; a run keeps what its method defines, and resumes bitwise from step 2."""

import shutil
from pathlib import Path

import pytest

from d3s.config.schema import Config
from d3s.schedule import planned_curve, schedule_bounds
from tests.helpers.small_run import same_run
from tests.helpers.training import train

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


KL = "loss.beta=0.1 loss.kl_estimator=k2 optim.num_minibatches=1 selector.token_scope=sample loss.normalizer=sequence"
RANDOM = "selector.tokens=random selector.rollouts=random loss.normalizer=all loss.kind=gspo loss.epsilon=3e-4"
FOLLOWED = "schedule.follow=d3s.methods.coverage:Coverage selector.entropy_source=actor schedule.k_final=1"
OTHERS = "schedule.n_init=null schedule.n_final=4 schedule.k_init=0.4 optim.lr_schedule=cosine optim.warmup_steps=1"


@pytest.mark.parametrize(
    "overrides",
    [
        KL.split(),
        [*RANDOM.split(), "loss.epsilon_high=4e-4", "optim.num_iterations=2"],
        [*FOLLOWED.split(), "selector.cross_share=0.5"],
        ["selector.cross_share=0.5", "selector.rollouts=d3s.methods.nonzero:nonzero", "reward.advantages=batch"],
        [
            *OTHERS.split(), "reward.functions=[d3s.reward:verify, [d3s.reward:boxed, 0.5]]",
            "reward.length={rule: overlong, buffer: 0.33}",
        ],
    ],
    ids=lambda overrides: overrides[0],
)  # fmt: skip
def test_options_train(overrides, tied_model, tmp_path):
    _, steps = train(tied_model, tmp_path, overrides=overrides)
    assert all(0 < step["grad_norm"] < float("inf") for step in steps)
    assert (overrides == KL.split()) == ("policy/kl_ref" in steps[-1])
    if overrides == KL.split():
        assert steps[0]["policy/kl_ref"] < 1e-9 < 1e-6 < steps[-1]["policy/kl_ref"]
