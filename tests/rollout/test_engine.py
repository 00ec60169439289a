"""The Engine contract on both in-process engines, against transformers and against the actor."""

import itertools
import math

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from d3s.rollout.engine import SamplingParams, token_entropies, weight_checksums
from tests.helpers.rollouts import (
    PROMPTS,
    actor_of,
    actor_statistics,
    assert_statistics,
    assert_stops,
    assert_whole,
    concatenate,
    logprob_gap,
    sampled_gap,
    sampled_ids,
)


@pytest.fixture
def reloaded(any_engine, tied_model):
    """The engine; its weights are restored afterwards."""
    yield any_engine
    any_engine.load_weights(actor_of(tied_model).weights())


def test_response_depends_on_its_seed_alone(engine):
    together = sampled_ids(engine, [0, 1, 2, 3])
    assert sampled_ids(engine, [3, 2, 1, 0]) == together[::-1]
    assert sampled_ids(engine, [2]) == [together[2]]
    assert sampled_ids(engine, [0, 1, 2, 3], samples=[2]) == [[group[2]] for group in together]
    other = sampled_ids(engine, [0, 1, 2, 3], seed=1)  # the same indices in another run
    responses = [tuple(response) for group in together + other for response in group]
    assert len(set(responses)) == len(responses) == 32
    with pytest.raises(ValueError):
        engine.generate(PROMPTS, n=2, params=SamplingParams(max_tokens=1), seeds=[1, 2, 3, 4])


def test_engine_logprobs_and_entropies_match_actor(any_engine, tied_model):
    """The 64 responses of up to 100 tokens exceed vLLM's cache, so it evicts and recomputes some."""
    received, params = [], SamplingParams(temperature=0.7, max_tokens=100)

    def record(rollout):
        received.append((rollout, list(rollout.response_ids), list(rollout.logprobs), rollout.finished))

    rollouts = any_engine.generate(PROMPTS, n=16, params=params, seeds=list(range(64)), on_finished=record)
    assert len(received) == 64 and {id(r) for r, *_ in received} == {id(r) for r in rollouts}
    assert all((r.response_ids, r.logprobs, r.finished) == tuple(at_call) for r, *at_call in received)
    assert_statistics(rollouts, tied_model, temperature=0.7)
    assert_whole(rollouts, 100)
    assert concatenate(rollouts, "entropies").std() > 0.1


def test_tokens_are_drawn_from_the_softmax(engine, tied_model, temperature=0.7):
    count, params = 1000, SamplingParams(temperature=temperature, max_tokens=1)
    rollouts = engine.generate(PROMPTS[3:], count, params, seeds=list(range(count)))
    drawn = torch.tensor([r.response_ids[0] for r in rollouts]).bincount(minlength=257)
    with torch.no_grad():
        logits = AutoModelForCausalLM.from_pretrained(tied_model, dtype=torch.float32)(torch.tensor(PROMPTS[3:])).logits
    expected = count * (logits[0, -1] / temperature).softmax(-1)
    common = expected > 5
    observed = torch.cat([drawn[common], drawn[~common].sum()[None]])
    expected = torch.cat([expected[common], expected[~common].sum()[None]])
    chi_square, freedom = ((observed - expected) ** 2 / expected).sum().item(), len(expected) - 1
    assert freedom > 10 and chi_square < freedom + 5 * math.sqrt(2 * freedom)


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


@pytest.mark.parametrize(("temperature", "asked"), [(1.0, False), (0.0, True)])
def test_entropies_are_returned_only_on_request(engine, temperature, asked):
    """Greedy responses have none."""
    params = SamplingParams(temperature=temperature, max_tokens=3)
    assert not any(r.entropies for r in engine.generate(PROMPTS, 2, params, list(range(8)), entropies=asked))


def test_stop_tokens_and_model_length_end_responses(engine, monkeypatch):
    stops = [175, 37]  # not the tokenizer's
    monkeypatch.setattr(engine, "stop_token_ids", stops)
    assert_whole(engine.generate(PROMPTS, 8, SamplingParams(max_tokens=1000), list(range(32))), 1000, stops)


@torch.no_grad()
def test_greedy_responses_match_transformers(engine, tied_model):
    """One prompt at a time, without a cache; the log-probabilities are those at temperature 1."""
    model = AutoModelForCausalLM.from_pretrained(tied_model, dtype=torch.float32)
    rollouts = engine.generate(PROMPTS, 1, SamplingParams(temperature=0.0, max_tokens=24), [0] * 4)
    for r in rollouts:
        for i, token in enumerate(r.response_ids):
            assert token == int(model(torch.tensor([r.prompt_ids + r.response_ids[:i]])).logits[0, -1].argmax())
    assert logprob_gap(rollouts, tied_model) < 1e-4


def test_new_weights_replace_cache_and_tied_head(reloaded, tied_model, other_model):
    """The same prompts and tied embeddings, so that stale cached prefixes and a stale head would show."""
    assert sampled_gap(reloaded, tied_model) < 1e-4
    reloaded.load_weights(actor_of(other_model).weights())
    assert sampled_gap(reloaded, other_model) < 1e-4
    reloaded.load_weights(reversed(list(actor_of(tied_model).weights())))  # in any order
    assert sampled_gap(reloaded, tied_model) < 1e-4


def test_checksums_identify_the_loaded_weights(reloaded, tied_model, other_model):
    def actors(path):
        return weight_checksums(actor_of(path).weights(), torch.float32)

    own, other = actors(tied_model), actors(other_model)
    assert set(reloaded.checksums()) & set(own) >= {
        ("model.embed_tokens.weight", (64, 64)),
        ("model.norm.weight", (64,)),
        ("model.layers.1.input_layernorm.weight", (64,)),
    }

    def wrong(sums):
        held = reloaded.checksums()
        return {name for name, shape in held.keys() & sums.keys() if held[name, shape] != sums[name, shape]}

    assert not wrong(own) and "model.embed_tokens.weight" in wrong(other)
    tied = ("model.embed_tokens.weight", "lm_head.weight")
    reloaded.load_weights((name, tensor) for name, tensor in actor_of(other_model).weights() if name not in tied)
    assert wrong(other) == {"model.embed_tokens.weight"}


def test_checksums_detect_one_bit_after_rounding():
    """Checksums ignore the order of the elements and what rounding to bfloat16 removes."""

    def checksum(tensor, dtype=torch.bfloat16):
        return weight_checksums([("norm.weight", tensor)], dtype)

    vector = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    changed = vector.clone()
    changed[3] *= 1 + 2**-7
    assert checksum(vector) == checksum(vector.flip(0)) == checksum(vector.bfloat16()) != checksum(changed)
    assert checksum(vector, torch.float32) != checksum(vector.bfloat16(), torch.float32)
    assert weight_checksums([("mlp.weight", torch.ones(8, 8))], torch.float32) == {}
    for name in ("model.embed_tokens.weight", "transformer.wte.weight"):  # GPT-2's embedding
        assert weight_checksums([(name, torch.ones(80, 8))], torch.float32).keys() == {(name, (64, 8))}


@pytest.mark.parametrize(("rows", "compared"), [(96, True), (64, True), (40, False)])
def test_sharded_embedding_checksum_matches_or_is_absent(rows, compared):
    """A tensor parallel engine's first rank has its first rows, possibly fewer than the checksum's."""
    full = torch.randn(320, 8, generator=torch.Generator().manual_seed(0))
    actor, shard = (weight_checksums([("embed_tokens.weight", w)], torch.bfloat16) for w in (full, full[:rows]))
    assert bool(actor.keys() & shard.keys()) == compared and (actor == shard) == compared


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
