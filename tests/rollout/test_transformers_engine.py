"""The transformers engine: batches, padding and head precision, against one prompt at a time.

tests/rollout/test_engine.py has what it shares with the vLLM engine.
"""

import pytest
import torch
from transformers import AutoModelForCausalLM, Qwen2ForCausalLM

from d3s.config.load import load_config
from d3s.rollout import build_engine
from d3s.rollout.engine import SamplingParams
from tests.helpers.rollouts import MAX_LENGTH, PROMPTS


def build(path, *options, dtype="float32", head_dtype="auto"):
    config = load_config([], ["rollout.engine=transformers", *options]).rollout
    return build_engine(str(path), config, dtype=dtype, max_model_len=MAX_LENGTH, seed=0, head_dtype=head_dtype)


@pytest.mark.parametrize("rows", [1, 6])
def test_batch_size_does_not_change_responses(tied_model, rows):
    """Batches of 1, which share no rows, and batches that split a group, against one batch."""
    arguments = PROMPTS, 4, SamplingParams(max_tokens=100), list(range(16))
    expected, rollouts = (build(tied_model, f"rollout.max_num_seqs={n}").generate(*arguments) for n in (256, rows))
    assert [r.response_ids for r in rollouts] == [r.response_ids for r in expected]
    assert [(r.prompt_index, r.sample) for r in rollouts] == [(p, i) for p in range(4) for i in range(4)]
    assert len({len(r.response_ids) for r in rollouts}) > 3


@torch.no_grad()
@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_tokens_invert_the_cumulative_distribution(tied_model, temperature):
    """Each token is the first whose cumulative probability exceeds the number that the response's seed gives.

    At the lower temperature most responses of a prompt share rows for a while; on no CPU may rounding move a cumulative
    probability by more than the tolerance.
    """
    model = AutoModelForCausalLM.from_pretrained(tied_model, dtype=torch.float32)
    params, seeds = SamplingParams(max_tokens=30, temperature=temperature), range(100, 132)
    for rollout, seed in zip(build(tied_model).generate(PROMPTS, 8, params, list(seeds)), seeds):
        uniforms = torch.rand(100, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        ids = torch.tensor([rollout.prompt_ids + rollout.response_ids])
        logits = model(ids).logits[0, len(rollout.prompt_ids) - 1 : -1].double() / temperature
        for token, row, uniform in zip(rollout.response_ids, logits.softmax(-1), uniforms.tolist()):
            assert row[:token].sum() - 1e-5 <= uniform <= row[: token + 1].sum() + 1e-5


@pytest.mark.parametrize(("temperature", "most", "least"), [(1.0, 32, 32), (0.1, 31, 5), (0.0, 4, 4)])
def test_equal_histories_are_decoded_as_one_row(tied_model, monkeypatch, temperature, most, least):
    """The passes have a row per distinct history of the responses that have not ended, the first one per prompt."""
    engine, rows, forward = build(tied_model), [], Qwen2ForCausalLM.__call__

    def count(module, *arguments, **inputs):
        rows.append(len(inputs["input_ids"]))
        return forward(module, *arguments, **inputs)

    monkeypatch.setattr(Qwen2ForCausalLM, "__call__", count)
    params = SamplingParams(max_tokens=40, temperature=temperature)
    rollouts = engine.generate(PROMPTS, 8, params, list(range(32)))
    histories = [set() for _ in range(max(len(r.response_ids) for r in rollouts))]
    for r in rollouts:
        for length in range(len(r.response_ids)):
            histories[length].add((r.prompt_index, *r.response_ids[:length]))
    assert rows == [len(distinct) for distinct in histories]
    assert rows[0] == 4 and least <= max(rows) <= most


@torch.no_grad()
@pytest.mark.parametrize(("head_dtype", "low", "high"), [("float32", 0, 1e-4), ("auto", 1e-3, 1)])
def test_float32_head_is_exact_in_a_bfloat16_model(tied_model, head_dtype, low, high):
    """First tokens against the bfloat16 model's last hidden state times its head in float32."""
    engine, prompt = build(tied_model, dtype="bfloat16", head_dtype=head_dtype), PROMPTS[2]
    rollouts = engine.generate([prompt], 16, SamplingParams(max_tokens=1), list(range(16)))
    model = AutoModelForCausalLM.from_pretrained(tied_model, dtype=torch.bfloat16)
    hidden = model.model(torch.tensor([prompt])).last_hidden_state[0, -1]
    expected = (model.lm_head.weight.float() @ hidden.float()).log_softmax(-1)
    gaps = [abs(expected[r.response_ids[0]].item() - r.logprobs[0]) for r in rollouts]
    assert low <= max(gaps) < high
