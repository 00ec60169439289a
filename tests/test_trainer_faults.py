"""Faults during training in one process: signals, stale weights in the engine, non-finite losses."""

import signal

import pytest

from d3s.actor import Actor
from d3s.common import UserError
from d3s.loss import LOSS_RULES, grpo_loss
from d3s.rollout.transformers_engine import TransformersEngine
from tests.helpers.training import train

FAST = "optim.learning_rate=1e-2"  # one update moves the weights far enough for the probe


def checkpoint_names(folder):
    """The names of the checkpoints of a run."""
    return [path.name for path in (folder / "checkpoints").iterdir()]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signal_finishes_the_step_and_saves(number, tied_model, tmp_path, monkeypatch):
    """A signal during the first update. tests/end_to_end/test_resume.py tests how a process ends by a signal."""
    update = Actor.update
    monkeypatch.setattr(Actor, "update", lambda *a: signal.raise_signal(number) or update(*a))
    handler = signal.getsignal(number)
    _, steps = train(tied_model, tmp_path, overrides=["checkpoint.every=0"], code=128 + number)
    assert signal.getsignal(number) == handler
    assert [step["step"] for step in steps] == [1]
    assert checkpoint_names(tmp_path) == ["step_000001"]


@pytest.fixture
def skip_syncs(monkeypatch):
    """skip_syncs(numbers): these calls of load_weights, from 1, drop the weights. Returns the calls so far."""
    load_weights = TransformersEngine.load_weights

    def install(skipped: range) -> list[int]:
        calls = []

        def load_some_weights(self, weights):
            calls.append(len(calls) + 1)
            list(weights) if calls[-1] in skipped else load_weights(self, weights)

        monkeypatch.setattr(TransformersEngine, "load_weights", load_some_weights)
        return calls

    return install


def test_stale_weights_fail_the_checksums(tied_model, tmp_path, skip_syncs):
    calls = skip_syncs(range(2, 100))
    message = r"sync of step 1: .*norm.weight are not the actor's, .* stale or wrongly loaded"
    with pytest.raises(UserError, match=message):
        train(tied_model, tmp_path, overrides=[FAST])
    assert len(calls) == 3  # before training, after the first step, and its repetition


def test_stale_weights_fail_the_probe(tied_model, tmp_path, skip_syncs, monkeypatch):
    """Without checksums, the log-probabilities of the probe prompts reveal them."""
    calls = skip_syncs(range(2, 100))
    monkeypatch.setattr(TransformersEngine, "checksums", lambda engine: {})
    message = r"sync of step 1: .* rollout.max_logprob_gap allows 0.001.* stale or wrongly"
    with pytest.raises(UserError, match=message):
        train(tied_model, tmp_path, overrides=[FAST])
    assert len(calls) == 3


def test_failed_sync_is_repeated_once(tied_model, tmp_path, skip_syncs):
    calls = skip_syncs(range(2, 3))
    _, steps = train(tied_model, tmp_path, overrides=[FAST, "train.steps=1"])
    assert len(calls) == 3 and steps[0]["sync/mean_abs_dlogp"] < 1e-5


def test_probe_limits_the_mean_gap(tied_model, tmp_path, monkeypatch):
    """One deviating token passes. When all deviate before any training, the message names the architecture."""
    generate, every = TransformersEngine.generate, 1000

    def perturbed_probes(self, prompts, **settings):
        rollouts = generate(self, prompts, **settings)
        if settings["n"] == 1:
            tokens = [(r, i) for r in rollouts for i in range(len(r.logprobs))]
            for r, i in tokens[::every]:
                r.logprobs[i] += 0.006
        return rollouts

    monkeypatch.setattr(TransformersEngine, "generate", perturbed_probes)
    _, [step] = train(tied_model, tmp_path / "one", overrides=["train.steps=1"])
    assert step["sync/mean_abs_dlogp"] == pytest.approx(0.006 / 16, rel=0.2)
    assert step["sync/max_abs_dlogp"] == pytest.approx(0.006, rel=1e-2)
    every = 1
    with pytest.raises(UserError, match=r"tied.*nothing has been trained yet, .* use rollout.engine: transformers$"):
        train(tied_model, tmp_path / "all")


def test_non_finite_loss_stops_after_a_checkpoint(tied_model, tmp_path, monkeypatch):
    """NaN in the second step, whose two mini-batches are the third and fourth call of the loss."""
    calls = []

    def nan_in_second_step(logprobs, old_logprobs, advantages, clip, denominator):
        calls.append(1)
        value, stats = grpo_loss(logprobs, old_logprobs, advantages, clip, denominator)
        return (value * float("nan") if len(calls) == 3 else value), stats

    monkeypatch.setitem(LOSS_RULES.builtin, "grpo", nan_in_second_step)
    with pytest.raises(UserError, match="loss is nan"):
        train(tied_model, tmp_path, overrides=["checkpoint.every=0"])
    assert checkpoint_names(tmp_path) == ["step_000001"]
