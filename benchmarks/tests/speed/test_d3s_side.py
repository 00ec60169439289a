"""Losses of the d3s side, against GRPO and DAPO losses from the model's full logits."""

import io
import json

import pytest
import torch
from transformers import AutoModelForCausalLM

from benchmarks.speed import d3s_side
from benchmarks.speed.workload import make_rollouts
from d3s.advantage import group_advantages
from tests.helpers.models import save_random_model


@pytest.mark.parametrize("loss", ["grpo", "dapo"])
def test_first_loss_matches_full_logits(tmp_path, monkeypatch, loss):
    """On policy every ratio is 1, so the first loss is minus the mean advantage, over rollouts or over tokens."""
    path = save_random_model(tmp_path / "model", seed=3)
    work = make_rollouts(257, prompts=2, group=4, prompt_tokens=6, response_tokens=9, ragged=True)
    settings = {"group": 4, "micro_batch": 4, "response_tokens": 9, "temperature": 1.0, "learning_rate": 1e-3}
    work |= settings | {"loss": loss, "iterations": 2}
    (tmp_path / "work.json").write_text(json.dumps(work))
    output = io.StringIO()
    monkeypatch.setattr(d3s_side, "open_channel", lambda: output)
    d3s_side.main("losses", tmp_path)
    reported = json.loads(output.getvalue())
    advantages = group_advantages(torch.tensor(work["rewards"]).view(-1, 4)).flatten()
    lengths = torch.tensor([len(response) for response in work["responses"]])
    weights = torch.ones(8) / 8 if loss == "grpo" else lengths / lengths.sum()
    assert reported["loss"][0] == pytest.approx(-float((weights * advantages).sum()), abs=1e-5)

    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    total = torch.zeros(())
    for prompt, response, advantage, weight in zip(work["prompts"], work["responses"], advantages, weights):
        logprobs = model(torch.tensor([prompt + response])).logits[0].log_softmax(-1)
        tokens = torch.stack([logprobs[len(prompt) - 1 + t, token] for t, token in enumerate(response)])
        total = total - weight * advantage * (tokens - tokens.detach()).exp().mean()
    total.backward()
    norm = torch.stack([p.grad.norm() for p in model.parameters() if p.grad is not None]).norm().item()
    assert reported["grad_norm"][0] == pytest.approx(norm, rel=1e-3)
    assert reported["loss"][1] < reported["loss"][0]
