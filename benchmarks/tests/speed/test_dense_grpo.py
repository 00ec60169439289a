"""The dense update, against a loop over tokens."""

import pytest
import torch
from transformers import AutoModelForCausalLM

from benchmarks.speed.dense_grpo import DenseGrpo
from benchmarks.speed.workload import make_rollouts
from tests.helpers.models import save_random_model


def test_dense_update_matches_a_loop_over_tokens(tmp_path):
    path = save_random_model(tmp_path / "model", seed=3)
    work = make_rollouts(257, prompts=2, group=3, prompt_tokens=6, response_tokens=9, ragged=True)
    advantages = torch.randn(6, generator=torch.Generator().manual_seed(0))
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    expected = 0.0
    for prompt, response, advantage in zip(work["prompts"], work["responses"], advantages):
        with torch.no_grad():
            logprobs = model(torch.tensor([prompt + response])).logits[0].log_softmax(-1)
        expected -= sum(float(advantage) for _ in response) / len(response) / 6  # on policy every ratio is 1
    before = model.lm_head.weight.detach().clone()
    dense = DenseGrpo(model, micro_batch=4)
    assert dense.update(work["prompts"], work["responses"], advantages) == pytest.approx(expected, abs=1e-5)
    assert not torch.equal(before, dense.model.lm_head.weight)
    last = torch.cat([logprobs[len(prompt) - 1 + t][None] for t in range(len(response))])
    expected_entropies = -(last.exp() * last).sum(-1)
    entropies = dense.entropies(prompt, response)
    torch.testing.assert_close(entropies, expected_entropies, atol=1e-3, rtol=1e-3)  # after a step of 1e-6
