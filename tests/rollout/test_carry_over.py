"""Carried responses on vLLM: the log-probabilities of the weights that sampled each token, and exact resume."""

import shutil

import pytest
import torch

from d3s.config.load import load_config
from d3s.methods.carry_over import CarryOver
from d3s.rollout.engine import SamplingParams
from tests.helpers.rollouts import PROMPTS, actor_of, actor_statistics, concatenate
from tests.helpers.small_run import same_run
from tests.helpers.training import train


@pytest.mark.parametrize("scheduling", ["synchronous", "asynchronous"])
def test_tokens_have_the_statistics_of_their_weights(request, engines, tied_model, other_model, scheduling):
    """Two groups of four are whole in a step; the others end with other weights."""
    engine = engines["vllm"] if scheduling == "synchronous" else request.getfixturevalue("asynchronous")
    rule = CarryOver(load_config([], ["rollout.engine=vllm", "loss.old_logprobs=engine"]), extra=1.0)
    n, params, seen = 16, SamplingParams(max_tokens=40), []

    def generate(rows, step):
        prompts, seeds = [PROMPTS[row] for row in rows], [100 * row + j for row in rows for j in range(n)]
        return rule.generate(engine, prompts, rows, 2, n, params, seeds, step, lambda r: seen.append(r.problem))

    first = generate([0, 1, 2, 3], 0)
    old, new = actor_of(tied_model), actor_of(other_model)
    engine.load_weights(new.weights())
    second = generate([0, 1], 1)
    engine.load_weights(old.weights())
    assert len(seen) == 4 * n and not engine.busy()
    stale = torch.tensor([i < r.counts["stale"] for r in second for i in range(len(r.response_ids))])
    assert any(0 < r.counts["stale"] < len(r.response_ids) for r in second)
    assert not any(r.counts["stale"] for r in first)
    for field, by_old, by_new in zip(("logprobs", "entropies"), *(actor_statistics(a, second) for a in (old, new))):
        expected = torch.where(stale, by_old, by_new)
        torch.testing.assert_close(concatenate(second, field), expected, rtol=0, atol=1e-4)
        assert (by_old - by_new).abs().max() > 0.01


def test_killed_run_that_carries_resumes_bitwise(engines, tied_model, tmp_path, monkeypatch):
    """The resumed run starts from the checkpoint after the first step, with cut responses in it."""
    monkeypatch.setattr("d3s.trainer.build_engine", lambda *_, **__: engines["vllm"])
    monkeypatch.setattr("signal.signal", lambda *_: None)
    starts, submit = [], engines["vllm"].submit
    monkeypatch.setattr(
        engines["vllm"],
        "submit",
        lambda *values, **options: (starts.append(options.get("start", 0)), submit(*values, **options)),
    )
    overlay, options = ["configs/method/carry_over.yaml"], ["rollout.engine=vllm", "train.steps=4"]
    options += ["rollout.strategy={rule: d3s.methods.carry_over:CarryOver, extra: 1}"]
    options += ["rollout.max_completion_length=30", "checkpoint.every=1", "checkpoint.keep=4"]
    _, steps = train(tied_model, tmp_path / "run", overlay, options)
    assert max(starts) > 0 and all(step["strategy/carried"] > 0 for step in steps)
    assert all(step["strategy/stale"] > 0 and step["grad_norm"] > 0 for step in steps[1:])
    shutil.copytree(tmp_path / "run", tmp_path / "again")
    checkpoint = tmp_path / "again" / "checkpoints" / "step_000001"
    train(tied_model, tmp_path / "again", overlay, options, checkpoint=checkpoint)
    assert same_run(tmp_path / "run", tmp_path / "again")
    engines["vllm"].load_weights(actor_of(tied_model).weights())
