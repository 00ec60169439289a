"""Carried responses on vLLM: the log-probabilities of the weights that sampled each token, and exact resume."""

import torch

from d3s.config.load import load_config
from d3s.methods.carry_over import CarryOver
from d3s.rollout.engine import SamplingParams
from tests.helpers.rollouts import PROMPTS, actor_of, actor_statistics, concatenate


def test_tokens_have_the_statistics_of_their_weights(vllm, tied_model, other_model):
    """Two groups of four are whole in a step; the others end with other weights."""
    rule = CarryOver(load_config([], ["rollout.engine=vllm", "loss.old_logprobs=engine"]), extra=1.0)
    n, params, seen = 16, SamplingParams(max_tokens=40), []

    def generate(rows, step):
        prompts, seeds = [PROMPTS[row] for row in rows], [100 * row + j for row in rows for j in range(n)]
        return rule.generate(vllm, prompts, rows, 2, n, params, seeds, step, lambda r: seen.append(r.problem))

    first = generate([0, 1, 2, 3], 0)
    old, new = actor_of(tied_model), actor_of(other_model)
    vllm.load_weights(new.weights())
    second = generate([0, 1], 1)
    vllm.load_weights(old.weights())
    assert len(seen) == 4 * n and not vllm.busy()
    stale = torch.tensor([i < r.counts["stale"] for r in second for i in range(len(r.response_ids))])
    assert any(0 < r.counts["stale"] < len(r.response_ids) for r in second)
    assert not any(r.counts["stale"] for r in first)
    for field, by_old, by_new in zip(("logprobs", "entropies"), *(actor_statistics(a, second) for a in (old, new))):
        expected = torch.where(stale, by_old, by_new)
        torch.testing.assert_close(concatenate(second, field), expected, rtol=0, atol=1e-4)
        assert (by_old - by_new).abs().max() > 0.01


def test_killed_run_that_carries_resumes_bitwise(train_and_resume):
    """The resumed run starts from the checkpoint after the first step, with cut responses in it."""
    options = [
        "rollout.strategy={rule: d3s.methods.carry_over:CarryOver, extra: 1}", "train.steps=4",
        "rollout.max_completion_length=30", "checkpoint.every=1", "checkpoint.keep=4",
    ]  # fmt: skip
    steps = train_and_resume(["configs/method/carry_over.yaml"], options, 1)
    assert all(step["strategy/carried"] > 0 for step in steps)
    assert all(step["strategy/stale"] > 0 and step["grad_norm"] > 0 for step in steps[1:])
