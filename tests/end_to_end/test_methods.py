"""Every method overlay trains: the real loop with the transformers engine, selecting as the method defines."""

import signal
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from d3s.config.load import load_config
from tests.helpers.command_line import lines

METHODS = sorted(path.stem for path in Path("configs/method").glob("*.yaml"))
B, G, STEPS = 4, 16, 3


def train(model, folder, files=(), overrides=(), code=0):
    from d3s.trainer import Trainer

    config = load_config(
        ["configs/tiny.yaml", *files],
        [
            f"model.name={model}",
            f"train.output_dir={folder}",
            f"train.steps={STEPS}",
            f"train.prompts_per_step={B}",
            f"rollout.num_generations={G}",
            "rollout.engine=transformers",
            "rollout.max_completion_length=12",
            "reward.function=tests.helpers.rewards:even_length",
            "reward.workers=1",
            "data.limit=40",
            "eval.data=[]",
            *overrides,
        ],
    )
    trainer = Trainer(config)
    assert trainer.train() == code
    trainer.close()
    return config, lines(folder / "metrics.jsonl")


@pytest.mark.parametrize("method", METHODS)
def test_method_trains_and_keeps_what_it_defines(method, tied_model, tmp_path):
    config, steps = train(tied_model, tmp_path, [f"configs/method/{method}.yaml"])
    schedule = config.schedule
    first_n, last_n = schedule.n_init or G, schedule.n_final or G
    first_k, last_k = schedule.k_init, schedule.k_final
    if (schedule.n_shape or schedule.shape) == "constant":
        last_n = first_n
    if (schedule.k_shape or schedule.shape) == "constant":
        last_k = first_k
    assert [step["step"] for step in steps] == [1, 2, 3]
    assert (steps[0]["schedule/n"], steps[-1]["schedule/n"]) == (first_n, last_n)
    assert (steps[0]["schedule/k"], steps[-1]["schedule/k"]) == pytest.approx((first_k, last_k))
    for step in steps:
        kept = step["selection/rollouts"]
        assert kept <= step["schedule/n"] * B
        if not config.loss.overlong_filtering and not config.selector.drop_zero_advantage:
            assert kept == step["schedule/n"] * B
        if step["schedule/k"] == 1:
            assert step["selection/tokens"] <= step["selection/tokens_total"]
            assert (step["selection/tokens"] == step["selection/tokens_total"]) == (kept == B * G)
        else:
            assert step["selection/tokens"] < step["selection/tokens_forwarded"] < 60 * B * G
        assert 0 < step["grad_norm"] < float("inf")
        assert step["sync/max_abs_dlogp"] < 1e-4


@pytest.mark.parametrize(
    "overrides",
    [
        ["loss.beta=0.1", "loss.kl_estimator=k2", "optim.num_minibatches=1"],
        ["selector.entropy_source=actor", "loss.old_logprobs=actor"],
        ["loss.old_logprobs=actor", "loss.engine_correction=truncate"],
        ["loss.old_logprobs=actor", "loss.engine_correction=sequence_mask"],
        ["loss.kind=gspo", "loss.epsilon=3e-4", "loss.epsilon_high=4e-4", "optim.num_iterations=2"],
        ["selector.token_scope=sample", "loss.normalizer=sequence"],
        ["selector.tokens=random", "selector.rollouts=random", "loss.normalizer=all"],
        ["selector.cross_share=0.5", "selector.drop_zero_advantage=true", "reward.scale_rewards=batch"],
        ["reward.format_weight=0.5", "reward.overlong_buffer=4", "optim.lr_schedule=cosine", "optim.warmup_steps=1"],
    ],
    ids=lambda overrides: overrides[0],
)
def test_options_train(overrides, tied_model, tmp_path):
    _, steps = train(tied_model, tmp_path, overrides=overrides)
    assert all(0 < step["grad_norm"] < float("inf") for step in steps)
    assert any("beta" in o for o in overrides) == ("policy/kl_ref" in steps[-1])
    if overrides[0].startswith("loss.beta"):
        assert steps[0]["policy/kl_ref"] < 1e-9 < 1e-6 < steps[-1]["policy/kl_ref"]


def test_importance_weights_do_not_choose_tokens(tied_model, tmp_path, monkeypatch):
    """Engine probabilities far from the actor's change what is learned from the tokens, not which they are."""
    from d3s.rollout.transformers_engine import TransformersEngine

    real = TransformersEngine.generate

    def off(self, *arguments, **options):
        rollouts = real(self, *arguments, **options)
        for rollout in rollouts:
            rollout.logprobs = [x + (token % 5 - 2) for x, token in zip(rollout.logprobs, rollout.response_ids)]
        return rollouts

    monkeypatch.setattr(TransformersEngine, "generate", off)
    settings = ["loss.old_logprobs=actor", "rollout.max_logprob_gap=9", "train.steps=1", "tracker.samples_every=1"]
    settings += ["tracker.samples=64", "schedule.k_init=0.2"]
    results = []
    for correction in ("none", "truncate"):
        more = [*settings, f"loss.engine_correction={correction}"]
        _, [step] = train(tied_model, tmp_path / correction, overrides=more)
        kept = [sample["kept"] for sample in lines(tmp_path / correction / "samples" / "step_000001.jsonl")]
        results.append((step, kept))
    (plain, chosen), (weighted, same) = results
    assert chosen == same and any(any(kept) for kept in chosen)
    assert 0.2 < weighted["mismatch/tokens_capped"] < 0.8 and "mismatch/tokens_capped" not in plain
    assert abs(weighted["loss"] - plain["loss"]) > 1e-4


def test_a_sequence_mask_masks(tied_model, tmp_path, monkeypatch):
    """At its default cap, the half of the rollouts that the engine found 5 % likelier per token than the actor."""
    from d3s.rollout.transformers_engine import TransformersEngine

    real, shifted = TransformersEngine.generate, []

    def off(self, *arguments, **options):
        rollouts = real(self, *arguments, **options)
        for i, rollout in enumerate(rollouts):
            if i % 2:
                rollout.logprobs = [x + 0.05 for x in rollout.logprobs]
                shifted.append(len(rollouts))
        return rollouts

    monkeypatch.setattr(TransformersEngine, "generate", off)
    settings = ["loss.old_logprobs=actor", "loss.engine_correction=sequence_mask", "rollout.max_logprob_gap=9"]
    settings += ["schedule.n_final=16", "schedule.n_init=8", "train.steps=2", "selector.rollouts=random"]
    _, steps = train(tied_model, tmp_path, overrides=settings)
    assert shifted and all(step["mismatch/rollouts_masked"] == 0.5 for step in steps)
    assert [step["selection/rollouts"] for step in steps] == [B * 8, B * 8]  # 16 of each would fit, 8 are eligible
    assert all(step["mismatch/max_abs"] < 1e-3 for step in steps)


@pytest.mark.parametrize("drop", ["true", "false"])
def test_a_run_without_a_signal_moves_nothing(drop, tied_model, tmp_path):
    """Nothing is kept, or only rollouts with advantage 0: the steps are logged, and weight decay does nothing."""
    settings = [
        "reward.function=tests.helpers.rewards:always",
        f"selector.drop_zero_advantage={drop}",
        "train.steps=2",
    ]
    settings += ["selector.entropy_source=actor", "optim.weight_decay=0.1", "loss.old_logprobs=actor"]
    _, steps = train(tied_model, tmp_path, overrides=settings)
    assert [step["selection/rollouts"] > 0 for step in steps] == [drop == "false"] * 2
    assert all(step["optimizer_steps"] == step["loss"] == step["grad_norm"] == 0 for step in steps)
    assert all(step["reward/accuracy"] == step["reward/zero_std_groups"] == 1 for step in steps)
    start, end = (load_file(folder / "model.safetensors") for folder in (tied_model, tmp_path / "model"))
    assert all(torch.equal(end[name], start[name]) for name in start)


def test_sources_of_entropy_and_old_logprobs_agree(tied_model, tmp_path):
    """In float32 the engine's numbers select the same tokens and give the same training as the actor's own."""
    _, engine = train(tied_model, tmp_path / "engine")
    _, actor = train(
        tied_model, tmp_path / "actor", overrides=["selector.entropy_source=actor", "loss.old_logprobs=actor"]
    )
    for left, right in zip(engine, actor):
        assert left["selection/tokens"] == right["selection/tokens"]
        assert left["loss"] == pytest.approx(right["loss"], rel=1e-3, abs=1e-5)
        assert left["grad_norm"] == pytest.approx(right["grad_norm"], rel=1e-3)


def test_a_signal_finishes_the_step_and_saves(tied_model, tmp_path, monkeypatch):
    """SIGTERM in the middle of the first step; how a process ends by one is in tests/end_to_end/test_resume.py."""
    from d3s.actor import Actor

    real = Actor.update
    monkeypatch.setattr(Actor, "update", lambda *a: signal.raise_signal(signal.SIGTERM) or real(*a))
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    _, steps = train(tied_model, tmp_path, overrides=["checkpoint.every=0"], code=128 + signal.SIGTERM)
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before
    assert [step["step"] for step in steps] == [1]
    assert [p.name for p in (tmp_path / "checkpoints").iterdir()] == ["step_000001"]


def test_stale_engine_is_caught(tied_model, tmp_path, monkeypatch):
    from d3s.common import UserError
    from d3s.rollout.transformers_engine import TransformersEngine

    synced = []
    real = TransformersEngine.load_weights

    def forgets_after_the_first(self, weights):
        synced.append(1)
        real(self, weights) if len(synced) == 1 else list(weights)

    monkeypatch.setattr(TransformersEngine, "load_weights", forgets_after_the_first)
    with pytest.raises(
        UserError, match=r"sync of step 1: .*norm.weight are not the actor's, .* stale or wrongly loaded"
    ):
        train(tied_model, tmp_path / "checksums", overrides=["optim.learning_rate=1e-2"])
    assert len(synced) == 3  # of the start, of the first step, and once more
    synced.clear()
    monkeypatch.setattr(TransformersEngine, "checksums", lambda engine: {})
    with pytest.raises(UserError, match=r"sync of step 1: .* rollout.max_logprob_gap allows 0.001.* stale or wrongly"):
        train(tied_model, tmp_path / "probe", overrides=["optim.learning_rate=1e-2"])
    assert len(synced) == 3


def test_a_sync_that_fails_once_is_repeated(tied_model, tmp_path, monkeypatch):
    from d3s.rollout.transformers_engine import TransformersEngine

    synced = []
    real = TransformersEngine.load_weights

    def forgets_the_second(self, weights):
        synced.append(1)
        real(self, weights) if len(synced) != 2 else list(weights)

    monkeypatch.setattr(TransformersEngine, "load_weights", forgets_the_second)
    _, steps = train(tied_model, tmp_path, overrides=["optim.learning_rate=1e-2", "train.steps=1"])
    assert len(synced) == 3 and steps[0]["sync/mean_abs_dlogp"] < 1e-5


def test_the_probe_judges_the_mean_gap(tied_model, tmp_path, monkeypatch):
    """One token that is off passes; when all are before anything has been trained, the weights are not called stale."""
    from d3s.common import UserError
    from d3s.rollout.transformers_engine import TransformersEngine

    real = TransformersEngine.generate
    every = 1000

    def shifted(self, prompts, **settings):
        rollouts = real(self, prompts, **settings)
        if settings["n"] == 1:
            flat = [(r, i) for r in rollouts for i in range(len(r.logprobs))]
            for r, i in flat[::every]:
                r.logprobs[i] += 0.006
        return rollouts

    monkeypatch.setattr(TransformersEngine, "generate", shifted)
    _, steps = train(tied_model, tmp_path / "one", overrides=["train.steps=1"])
    gap = steps[0]["sync/mean_abs_dlogp"], steps[0]["sync/max_abs_dlogp"]
    assert gap == (pytest.approx(0.006 / 16, rel=0.2), pytest.approx(0.006, rel=1e-2))
    every = 1
    with pytest.raises(UserError, match=r"tied.*nothing has been trained yet, .* use rollout.engine: transformers$"):
        train(tied_model, tmp_path / "all")


def test_dynamic_sampling_replaces_groups_of_equal_rewards(tied_model, tmp_path, monkeypatch):
    from d3s.rollout.transformers_engine import TransformersEngine

    def run(dynamic, folder):
        return train(
            tied_model,
            folder,
            overrides=[
                "reward.function=tests.helpers.rewards:rarely",
                f"rollout.dynamic_sampling={dynamic}",
                "rollout.max_resamples=8",
            ],
        )[1]

    sampled, real = [], TransformersEngine.generate

    def count(*arguments, **options):
        rollouts = real(*arguments, **options)
        if options.get("entropies", True):  # not the probes of the syncs
            sampled.append(sum(len(r.response_ids) for r in rollouts))
        return rollouts

    plain = run("false", tmp_path / "plain")
    monkeypatch.setattr(TransformersEngine, "generate", count)
    dynamic = run("true", tmp_path / "dynamic")
    assert sum(step["reward/zero_std_groups"] for step in plain) > 0
    assert sum(step["reward/zero_std_groups"] for step in dynamic) == 0
    assert len(sampled) > STEPS  # what replaced groups have cost is counted too
    assert dynamic[-1]["tokens_generated"] == sum(step["selection/tokens_total"] for step in dynamic) == sum(sampled)


def test_length_does_not_make_a_group_mixed(tied_model, tmp_path):
    """DAPO's dynamic sampling looks for right and wrong answers; its length penalty makes all rewards differ."""
    from d3s.trainer import Trainer

    seen = []
    real = Trainer.collect

    def remember(self):
        seen.append(real(self))
        return seen[-1]

    Trainer.collect = remember
    try:
        _, steps = train(
            tied_model,
            tmp_path,
            ["configs/method/dapo.yaml"],
            ["reward.function=tests.helpers.rewards:rarely", "reward.overlong_buffer=12", "rollout.max_resamples=8",
             "train.steps=2", "loss.overlong_filtering=false"],
        )  # fmt: skip
    finally:
        Trainer.collect = real
    for step, experience in zip(steps, seen, strict=True):
        right = experience.verdicts.sum(1)
        assert ((right > 0) & (right < G)).all() and step["reward/zero_std_groups"] == 0
        assert step["reward/accuracy"] == pytest.approx(right.mean().item() / G)
        penalty = 0.5 * (experience.lengths / 12).clamp(max=1)  # the buffer is the whole response
        assert (experience.rewards - (experience.verdicts - penalty)).abs().max() < 1e-6
        assert (experience.rewards != experience.verdicts).all()


def test_non_finite_loss_stops_after_a_checkpoint(tied_model, tmp_path, monkeypatch):
    from d3s.common import UserError
    from d3s.loss import LOSSES

    real, calls = LOSSES["grpo"], []

    def breaks_in_the_second_step(*arguments):
        calls.append(1)
        loss, stats = real(*arguments)
        return (loss * float("nan") if len(calls) == 3 else loss), stats

    monkeypatch.setitem(LOSSES, "grpo", breaks_in_the_second_step)
    with pytest.raises(UserError, match="loss is nan"):
        train(tied_model, tmp_path, overrides=["checkpoint.every=0"])
    assert [p.name for p in (tmp_path / "checkpoints").iterdir()] == ["step_000001"]
