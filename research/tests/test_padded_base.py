"""Padded base models: the added tokens are never likely, and all else is as before."""

import re

import pytest
import torch

from d3s.config.schema import RolloutConfig
from d3s.rollout import build_engine
from d3s.rollout.engine import SamplingParams
from research import padded_base
from research.padded_base import LARGEST, SUFFIX, VOCABULARY, ensure, unlikely_row

PROMPTS = ["3+6*3=", "8-2*4=", "9*5-7=", "1+2-3*1="]


def test_unlikely_row_keeps_the_bound():
    """Random states around a common mean, as hidden states have; the total probability counts all added tokens."""
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(200, 24, generator=generator) + 2 * torch.randn(24, generator=generator)
    logits = hidden @ torch.randn(24, 50, generator=generator)
    row = unlikely_row(hidden, logits.logsumexp(-1), 30_000)
    added = (hidden @ row)[:, None].expand(-1, 30_000)
    probabilities = torch.cat([logits, added], dim=1).double().softmax(-1)[:, 50:].sum(-1)
    assert 0 < probabilities.max() <= LARGEST


def test_opposite_states_allow_no_unlikely_row():
    """r h and -r h cannot both be far below 0."""
    states = torch.ones(1, 4)
    with pytest.raises(ValueError, match="1000 added tokens keep a probability of"):
        unlikely_row(torch.cat([states, -states]), torch.zeros(2), 1000)


@pytest.fixture(scope="module")
def padded(base_model, tmp_path_factory):
    """A short warm-up, padded in a directory of the test."""
    from shutil import copytree

    plain = copytree(base_model, tmp_path_factory.mktemp("base") / "plain")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(padded_base, "ensure_base", lambda name: plain)
        assert ensure("tiny:precedence") == plain
        folder = ensure("tiny:precedence" + SUFFIX)
        patch.setattr(padded_base, "unlikely_row", None)  # another call would fail
        assert ensure("tiny:precedence" + SUFFIX) == folder
    return plain, folder


def test_padded_model_has_the_same_logprobs(padded):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    plain, large = (AutoModelForCausalLM.from_pretrained(path) for path in padded)
    known = plain.config.vocab_size
    assert large.config.vocab_size == VOCABULARY == large.get_output_embeddings().weight.shape[0]
    assert large.get_output_embeddings().weight is large.get_input_embeddings().weight  # tied as before
    tokenizer = AutoTokenizer.from_pretrained(padded[1])
    for prompt in PROMPTS:
        text = prompt + r"6*3=18;3+18=21 \boxed{21}"
        ids = torch.tensor([tokenizer.encode(text)])
        with torch.no_grad():
            logprobs = [model(ids).logits[0, len(prompt) - 1 :].log_softmax(-1) for model in (plain, large)]
        torch.testing.assert_close(logprobs[1][:, :known], logprobs[0], atol=1e-5, rtol=0)


def test_padded_model_samples_the_same_tokens(padded):
    """Responses in the format of the task. The base is so weak that others leave it, where added tokens are likely."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(padded[0])
    settings = {"dtype": "float32", "max_model_len": 96, "seed": 0}
    sampled = []
    for path in padded:
        engine = build_engine(str(path), RolloutConfig(engine="transformers"), **settings)
        params, seeds = SamplingParams(max_tokens=48), list(range(48))
        rollouts = engine.generate(tokenizer(PROMPTS).input_ids, 12, params, seeds, entropies=False)
        sampled.append([tokenizer.decode(rollout.response_ids, skip_special_tokens=True) for rollout in rollouts])
    formatted = [pair for pair in zip(*sampled) if re.fullmatch(r"[-+*=;\d]+ \\boxed\{\d+\}", pair[0])]
    assert len({plain for plain, _ in formatted}) > 4
    assert all(plain == large for plain, large in formatted)
