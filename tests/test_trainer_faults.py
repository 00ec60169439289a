"""Faults during training in one process: signals, stale weights in the engine, non-finite losses, too little memory."""

import re
import signal

import pytest

from d3s.actor import Actor
from d3s.common import UserError
from d3s.loss import LOSS_RULES, grpo_loss
from d3s.rollout.transformers_engine import TransformersEngine
from d3s.trainer import Trainer
from tests.helpers.command_line import lines
from tests.helpers.rounding import assert_same_way
from tests.helpers.small_memory import above, small_memory
from tests.helpers.small_run import parameters, same_run
from tests.helpers.training import train

FAST = "optim.learning_rate=1e-2"  # one update moves the weights far enough for the probe


def checkpoint_names(folder):
    """The names of the checkpoints of a run."""
    return [path.name for path in (folder / "checkpoints").iterdir()]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signal_finishes_the_step_and_saves(number, tied_model, tmp_path, monkeypatch, capsys):
    """A signal during the first update. tests/end_to_end/test_resume.py tests how a process ends by a signal."""
    update = Actor.update
    monkeypatch.setattr(Actor, "update", lambda *a: signal.raise_signal(number) or update(*a))
    handler = signal.getsignal(number)
    _, steps = train(tied_model, tmp_path, overrides=["checkpoint.every=0"], code=128 + number)
    assert signal.getsignal(number) == handler
    assert [step["step"] for step in steps] == [1]
    assert checkpoint_names(tmp_path) == ["step_000001"]
    expected = "stopped after step 1, which is saved; continue with --resume auto"
    assert capsys.readouterr().out.splitlines()[-1] == expected


@pytest.fixture
def skip_syncs(monkeypatch):
    """skip_syncs(numbers): these calls of load_weights, from 1, drop the weights. Returns the calls so far."""
    load_weights, calls = TransformersEngine.load_weights, []

    def install(skipped: range) -> list[int]:
        def load_some_weights(self, weights):
            calls.append(len(calls) + 1)
            list(weights) if calls[-1] in skipped else load_weights(self, weights)

        monkeypatch.setattr(TransformersEngine, "load_weights", load_some_weights)
        return calls

    return install


@pytest.mark.parametrize(
    ("checksums", "message"),
    [(True, "norm.weight are not the actor's"), (False, "rollout.max_logprob_gap allows 0.001")],
)
def test_stale_weights_end_the_run(tied_model, tmp_path, skip_syncs, monkeypatch, checksums, message):
    """By checksums; without them the log-probabilities of the probe prompts reveal the weights."""
    calls = skip_syncs(range(2, 100))
    if not checksums:
        monkeypatch.setattr(TransformersEngine, "checksums", lambda engine: {})
    with pytest.raises(UserError, match=f"sync of step 1: .*{message}.*stale or wrongly"):
        train(tied_model, tmp_path, overrides=[FAST])
    assert len(calls) == 3  # before training, after the first step, and its repetition


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


@pytest.mark.parametrize(("call", "every", "message"), [(3, 0, "is nan"), (4, 1, "step 2 .* not saved: .* is nan")])
def test_half_a_step_is_never_saved(tied_model, tmp_path, monkeypatch, call, every, message):
    """A loss that is NaN in an optimizer step of step 2: the first saves step 1, the second leaves its checkpoint."""
    calls, saved, checkpoint = [], {}, tmp_path / "checkpoints" / "step_000001"

    def nan_once(logprobs, old_logprobs, advantages, clip, denominator):
        calls.append(1)
        value, stats = grpo_loss(logprobs, old_logprobs, advantages, clip, denominator)
        if len(calls) == 4:
            saved.update(parameters(checkpoint))
        return (value * float("nan") if len(calls) == call else value), stats

    monkeypatch.setitem(LOSS_RULES.builtin, "grpo", nan_once)
    with pytest.raises(UserError, match=message):
        train(tied_model, tmp_path, overrides=[f"checkpoint.every={every}"])
    assert checkpoint_names(tmp_path) == ["step_000001"] and bool(saved) == bool(every)
    after = parameters(checkpoint)
    assert all((after[name] == value).all() for name, value in saved.items())


def test_run_goes_on_with_smaller_micro_batches(tied_model, tmp_path):
    """As a run that begins with them, up to rounding, after one warning with the value to set."""
    with small_memory(above(60)):
        train(tied_model, tmp_path / "halved")
    [warning] = [line for line in lines(tmp_path / "halved" / "warnings.jsonl") if "microbatch" in line["message"]]
    tokens = int(re.search(r"goes on with (\d+),", warning["message"]).group(1))
    assert 15 <= tokens <= 60
    train(tied_model, tmp_path / "small", overrides=[f"train.max_tokens_per_microbatch={tokens}"])
    end, expected = (parameters(tmp_path / name / "model") for name in ("halved", "small"))
    assert_same_way(end, expected, parameters(tied_model))


@pytest.mark.parametrize(("failing", "place"), [("update", "backward"), ("compute_logprobs", "forward")])
def test_sequence_beyond_memory_stops_after_a_checkpoint(tied_model, tmp_path, monkeypatch, failing, place):
    """In the second step. Resumed with enough memory, the run ends as one that always had it."""
    options = ["checkpoint.every=0", "loss.old_logprobs=actor", "data.order=d3s.methods.mopps:Mopps"]
    train(tied_model, tmp_path / "enough", overrides=options)
    method, collect, finished = getattr(Actor, failing), Trainer.collect, []

    def in_small_memory(*arguments, **options):
        with small_memory(lambda tokens: place if finished == [0, 1] else None):
            return method(*arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "collect", lambda run: finished.append(run.state.step) or collect(run))
        patched.setattr(Actor, failing, in_small_memory)
        with pytest.raises(UserError, match=r"passes of one sequence, .*; step 1 is saved in .*checkpoints$"):
            train(tied_model, tmp_path / "run", overrides=options)
    [name] = checkpoint_names(tmp_path / "run")
    assert name == "step_000001"
    train(tied_model, tmp_path / "run", overrides=options, checkpoint=tmp_path / "run" / "checkpoints" / name)
    assert same_run(tmp_path / "enough", tmp_path / "run")


def test_mismatch_is_warned_of_once(tied_model, tmp_path, monkeypatch):
    """A process has one precision, so that of this test is the other tests' (tests/config/test_checks.py)."""
    monkeypatch.setattr("d3s.trainer.mismatch_problem", lambda config: "bfloat16")
    train(tied_model, tmp_path)
    assert [line["key"] for line in lines(tmp_path / "warnings.jsonl")].count("engine_correction") == 1
