"""The Engine contract on both in-process engines, against transformers and against the actor.

tests/rollout/test_vllm_engine.py has what only vLLM does.
"""

import itertools
import math

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen2ForCausalLM

from d3s.common import UserError
from d3s.rollout.engine import SamplingParams, token_entropies, weight_checksums
from tests.helpers.rollouts import (
    PROMPTS,
    actor_of,
    actor_statistics,
    assert_depends_on_seed,
    assert_ends,
    assert_statistics,
    assert_stops,
    assert_whole,
    build,
    concatenate,
    logprob_gap,
    sampled_gap,
)


def test_response_depends_on_its_seed_alone(engine):
    assert_depends_on_seed(engine)
    with pytest.raises(ValueError):
        engine.generate(PROMPTS, n=2, params=SamplingParams(max_tokens=1), seeds=[1, 2, 3, 4])


def test_engine_logprobs_and_entropies_match_actor(any_engine, tied_model):
    """The 64 responses of up to 100 tokens exceed vLLM's cache, so it evicts and recomputes some.

    Prompts of one problem may differ, as those of several turns.
    """
    received, params = [], SamplingParams(temperature=0.7, max_tokens=100)

    def record(rollout):
        received.append((rollout, list(rollout.response_ids), list(rollout.logprobs), rollout.finished))

    options = {"on_finished": record, "problems": [7] * len(PROMPTS)}
    rollouts = any_engine.generate(PROMPTS, n=16, params=params, seeds=list(range(64)), **options)
    assert len(received) == 64 and {id(r) for r, *_ in received} == {id(r) for r in rollouts}
    assert all((r.response_ids, r.logprobs, r.finished) == tuple(at_call) for r, *at_call in received)
    assert_statistics(rollouts, tied_model, temperature=0.7)
    assert_whole(rollouts, 100)
    assert concatenate(rollouts, "entropies").std() > 0.1


def test_top_p_restricts_tokens_and_logprobs(engine, tied_model, top_p=0.4):
    """Log-probabilities are normalized over the tokens that may be drawn, entropies over the full vocabulary."""
    rollouts = engine.generate(PROMPTS, n=4, params=SamplingParams(top_p=top_p, max_tokens=6), seeds=list(range(16)))
    model = AutoModelForCausalLM.from_pretrained(tied_model, dtype=torch.float32)
    for r in rollouts:
        with torch.no_grad():
            logits = model(torch.tensor([r.prompt_ids + r.response_ids])).logits[0, len(r.prompt_ids) - 1 : -1]
        for token, logprob, p in zip(r.response_ids, r.logprobs, logits.softmax(-1)):
            ranked = p.sort(descending=True).values.tolist()
            size = 1 + sum(total < top_p for total in itertools.accumulate(ranked))
            assert p[token] >= ranked[size - 1] - 1e-6
            assert logprob == pytest.approx(math.log(p[token] / sum(ranked[:size])), abs=1e-3)
    _, entropies = actor_statistics(actor_of(tied_model), rollouts)
    torch.testing.assert_close(concatenate(rollouts, "entropies"), entropies, rtol=0, atol=1e-4)


def test_entropies_are_returned_only_on_request(engine):
    """Greedy responses have none."""
    for temperature, asked in ((1.0, False), (0.0, True)):
        params = SamplingParams(temperature=temperature, max_tokens=3)
        assert not any(r.entropies for r in engine.generate(PROMPTS, 2, params, list(range(8)), entropies=asked))


def test_stop_tokens_and_model_length_end_responses(engine, monkeypatch):
    assert_ends(engine, monkeypatch)


@torch.no_grad()
def test_greedy_responses_match_transformers(engine, tied_model):
    """One prompt at a time, without a cache; the log-probabilities are those at temperature 1."""
    model = AutoModelForCausalLM.from_pretrained(tied_model, dtype=torch.float32)
    rollouts = engine.generate(PROMPTS, 1, SamplingParams(temperature=0.0, max_tokens=24), [0] * 4)
    for r in rollouts:
        for i, token in enumerate(r.response_ids):
            assert token == int(model(torch.tensor([r.prompt_ids + r.response_ids[:i]])).logits[0, -1].argmax())
    assert logprob_gap(rollouts, tied_model) < 1e-4


def test_new_weights_replace_cache_and_tied_head(any_engine, tied_model, other_model):
    """The same prompts and tied embeddings, so that stale cached prefixes and a stale head would show.

    Engines keep copies: what the actor does to its weights after that changes none.
    """
    assert sampled_gap(any_engine, tied_model) < 1e-4
    any_engine.load_weights(weights := list(actor_of(other_model).weights()))
    for _, weight in weights:
        weight.zero_()
    assert sampled_gap(any_engine, other_model) < 1e-4
    any_engine.load_weights(reversed(list(actor_of(tied_model).weights())))  # in any order
    assert sampled_gap(any_engine, tied_model) < 1e-4


def test_checksums_identify_the_loaded_weights(any_engine, tied_model, other_model):
    own, other = (weight_checksums(actor_of(path).weights(), torch.float32) for path in (tied_model, other_model))
    vectors = {("model.norm.weight", (64,)), ("model.layers.1.input_layernorm.weight", (64,))}
    assert set(any_engine.checksums()) & set(own) >= {("model.embed_tokens.weight", (64, 64)), *vectors}

    def wrong(sums):
        held = any_engine.checksums()
        return {name for name, shape in held.keys() & sums.keys() if held[name, shape] != sums[name, shape]}

    assert not wrong(own) and "model.embed_tokens.weight" in wrong(other)
    tied = ("model.embed_tokens.weight", "lm_head.weight")
    any_engine.load_weights((name, tensor) for name, tensor in actor_of(other_model).weights() if name not in tied)
    assert wrong(other) == {"model.embed_tokens.weight"}
    any_engine.load_weights(actor_of(tied_model).weights())


def test_checksums_detect_one_bit_after_rounding():
    """Checksums ignore the order of the elements and what rounding to bfloat16 removes.

    A tensor parallel engine's first rank has the first rows of the embedding, possibly fewer than the checksum's.
    """

    def checksum(tensor, dtype=torch.bfloat16, name="norm.weight"):
        return weight_checksums([(name, tensor)], dtype)

    vector = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    changed = vector.clone()
    changed[3] *= 1 + 2**-7
    assert checksum(vector) == checksum(vector.flip(0)) == checksum(vector.bfloat16()) != checksum(changed)
    assert checksum(vector, torch.float32) != checksum(vector.bfloat16(), torch.float32)
    assert checksum(torch.ones(8, 8), name="mlp.weight") == {}
    rows = vector.view(125, 8)
    for name in ("model.embed_tokens.weight", "transformer.wte.weight"):  # GPT-2's embedding
        full = checksum(rows, name=name)
        assert full.keys() == {(name, (64, 8))} and full == checksum(rows[:96], name=name)
        assert full == checksum(rows[:64], name=name) and not full.keys() & checksum(rows[:40], name=name).keys()


def test_token_entropies_match_categorical():
    """The reference is torch.distributions in float64, over several chunks; tokens at -inf contribute nothing."""
    logits = 3 * torch.randn(600, 1000, generator=torch.Generator().manual_seed(0))
    logits[:, 500:] = float("-inf")
    expected = torch.distributions.Categorical(logits=logits[:, :500].double()).entropy()
    torch.testing.assert_close(token_entropies(logits).double(), expected, rtol=1e-5, atol=1e-5)
    uniform = token_entropies(torch.zeros(2, 1000, dtype=torch.bfloat16))
    torch.testing.assert_close(uniform, torch.full((2,), math.log(1000)))


@pytest.mark.parametrize("limit", [40, 9])
def test_stop_texts_end_responses_where_they_are_complete(any_engine, tied_model, limit):
    """Against the same responses without them, cut by hand where their text first contains one."""
    assert_stops(any_engine, AutoTokenizer.from_pretrained(tied_model), limit)


# --- d3s.rollout.transformers_engine alone ----------------------------------------------------------------------------

ENGINE = "rollout.engine=transformers"


@pytest.mark.parametrize("rows", [1, 6])
def test_batch_size_does_not_change_responses(tied_model, rows):
    """Batches of 1, which share no rows, and batches that split a group, against one batch."""
    arguments, limit = (PROMPTS, 4, SamplingParams(max_tokens=100), list(range(16))), "rollout.max_num_seqs"
    expected, rollouts = (build(tied_model, ENGINE, f"{limit}={n}").generate(*arguments) for n in (256, rows))
    assert [r.response_ids for r in rollouts] == [r.response_ids for r in expected]
    assert [(r.problem, r.sample) for r in rollouts] == [(p, i) for p in range(4) for i in range(4)]
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
    for rollout, seed in zip(build(tied_model, ENGINE).generate(PROMPTS, 8, params, list(seeds)), seeds):
        uniforms = torch.rand(100, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        ids = torch.tensor([rollout.prompt_ids + rollout.response_ids])
        logits = model(ids).logits[0, len(rollout.prompt_ids) - 1 : -1].double() / temperature
        for token, row, uniform in zip(rollout.response_ids, logits.softmax(-1), uniforms.tolist()):
            assert row[:token].sum() - 1e-5 <= uniform <= row[: token + 1].sum() + 1e-5


@pytest.mark.parametrize(("temperature", "most", "least"), [(1.0, 32, 32), (0.1, 31, 5), (0.0, 4, 4)])
def test_equal_histories_are_decoded_as_one_row(tied_model, monkeypatch, temperature, most, least):
    """The passes have a row per distinct history of the responses that have not ended, the first one per prompt."""
    engine, rows, forward = build(tied_model, ENGINE), [], Qwen2ForCausalLM.__call__

    def count(module, *arguments, **inputs):
        rows.append(len(inputs["input_ids"]))
        return forward(module, *arguments, **inputs)

    monkeypatch.setattr(Qwen2ForCausalLM, "__call__", count)
    params = SamplingParams(max_tokens=40, temperature=temperature)
    rollouts = engine.generate(PROMPTS, 8, params, list(range(32)))
    histories = [set() for _ in range(max(len(r.response_ids) for r in rollouts))]
    for r in rollouts:
        for length in range(len(r.response_ids)):
            histories[length].add((r.problem, *r.response_ids[:length]))
    assert rows == [len(distinct) for distinct in histories]
    assert rows[0] == 4 and least <= max(rows) <= most


@torch.no_grad()
@pytest.mark.parametrize(("head_dtype", "low", "high"), [("float32", 0, 1e-4), ("auto", 1e-3, 1)])
def test_float32_head_is_exact_in_a_bfloat16_model(tied_model, head_dtype, low, high):
    """First tokens against the bfloat16 model's last hidden state times its head in float32."""
    engine, prompt = build(tied_model, ENGINE, dtype="bfloat16", head_dtype=head_dtype), PROMPTS[2]
    rollouts = engine.generate([prompt], 16, SamplingParams(max_tokens=1), list(range(16)))
    model = AutoModelForCausalLM.from_pretrained(tied_model, dtype=torch.bfloat16)
    hidden = model.model(torch.tensor([prompt])).last_hidden_state[0, -1]
    expected = (model.lm_head.weight.float() @ hidden.float()).log_softmax(-1)
    gaps = [abs(expected[r.response_ids[0]].item() - r.logprobs[0]) for r in rollouts]
    assert low <= max(gaps) < high


def test_model_without_a_cache_of_keys_is_refused(tmp_path):
    from transformers import MambaConfig, MambaForCausalLM

    MambaForCausalLM(MambaConfig(vocab_size=257, hidden_size=32, num_hidden_layers=1)).save_pretrained(tmp_path)
    with pytest.raises(UserError, match=r"mamba has no cache of keys and values, expected one"):
        build(tmp_path, ENGINE)
