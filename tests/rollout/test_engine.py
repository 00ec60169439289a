"""The Engine contract on both in-process engines, against transformers and against the actor."""

import itertools
import math
from types import SimpleNamespace

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from d3s.config.load import load_config
from d3s.methods.two_rounds import TwoRounds
from d3s.rollout.engine import SamplingParams, token_entropies, weight_checksums
from tests.helpers.rollouts import (
    EOS,
    MAX_LENGTH,
    PROMPTS,
    actor_of,
    actor_statistics,
    assert_stops_where_complete,
    concatenate,
    greedy,
    greedy_by_hand,
    logprob_gap,
    sampled_gap,
    sampled_ids,
)


@pytest.fixture
def reloaded(engine, tied_model):
    """The engine; its weights are restored afterwards."""
    yield engine
    engine.load_weights(actor_of(tied_model).weights())


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


def test_two_rounds_sample_what_one_samples(engine):
    rule = TwoRounds(load_config([], []), first=2, extra=1)
    params, seeds = SamplingParams(max_tokens=30), list(range(16))

    def score(r):
        r.scoring = lambda: SimpleNamespace(verdict=float(r.response_ids[0] % 2))

    plain = engine.generate(PROMPTS, n=4, params=params, seeds=seeds)
    rollouts = rule.generate(engine, PROMPTS, [0, 1, 2, 3], 2, 4, params, seeds, True, score)
    same = [plain[4 * r.problem + r.sample] for r in rollouts]
    assert [(r.prompt_ids, r.response_ids) for r in rollouts] == [(r.prompt_ids, r.response_ids) for r in same]
    for field in ("logprobs", "entropies"):
        torch.testing.assert_close(concatenate(rollouts, field), concatenate(same, field), rtol=0, atol=1e-4)


def test_engine_logprobs_and_entropies_match_actor(engine, tied_model):
    """The 64 responses of up to 100 tokens exceed vLLM's cache, so it evicts and recomputes some."""
    received, params = [], SamplingParams(temperature=0.7, max_tokens=100)

    def record(rollout):
        received.append((rollout, list(rollout.response_ids), list(rollout.logprobs), rollout.finished))

    rollouts = engine.generate(PROMPTS, n=16, params=params, seeds=list(range(64)), on_finished=record)
    assert len(received) == 64 and {id(r) for r, *_ in received} == {id(r) for r in rollouts}
    assert all((r.response_ids, r.logprobs, r.finished) == tuple(at_call) for r, *at_call in received)
    logprobs, entropies = actor_statistics(actor_of(tied_model, 0.7), rollouts)
    torch.testing.assert_close(concatenate(rollouts, "logprobs"), logprobs, rtol=0, atol=1e-4)
    torch.testing.assert_close(concatenate(rollouts, "entropies"), entropies, rtol=0, atol=1e-4)
    assert entropies.std() > 0.1
    for r in rollouts:
        assert len(r.response_ids) == len(r.logprobs) == len(r.entropies)
        assert EOS not in r.response_ids[:-1]
        assert r.finished == (r.response_ids[-1] == EOS)
        assert r.finished or len(r.response_ids) == 100
    assert 0 < sum(r.finished for r in rollouts) < len(rollouts)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_tokens_are_drawn_from_the_softmax(engine, tied_model, temperature):
    count = 1000
    rollouts = engine.generate(
        PROMPTS[3:], n=count, params=SamplingParams(temperature=temperature, max_tokens=1), seeds=list(range(count))
    )
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


def test_entropies_are_returned_only_on_request(engine):
    warm, cold = (SamplingParams(temperature=t, max_tokens=3) for t in (1.0, 0.0))
    kwargs = {"n": 2, "seeds": list(range(8))}
    assert not any(r.entropies for r in engine.generate(PROMPTS, params=warm, entropies=False, **kwargs))
    assert not any(r.entropies for r in engine.generate(PROMPTS, params=cold, **kwargs))
    assert all(r.entropies for r in engine.generate(PROMPTS, params=warm, **kwargs))


def test_responses_end_at_the_model_length(engine):
    rollouts = engine.generate(PROMPTS, n=6, params=SamplingParams(max_tokens=1000), seeds=list(range(24)))
    for r in rollouts:
        assert r.finished or len(r.prompt_ids) + len(r.response_ids) == MAX_LENGTH
    assert {len(r.prompt_ids) for r in rollouts if not r.finished} >= {1, 70}


def test_several_stop_tokens_end_a_response(engine, monkeypatch):
    monkeypatch.setattr(engine, "stop_token_ids", [EOS, 175, 37])
    rollouts = engine.generate(PROMPTS, n=16, params=SamplingParams(max_tokens=60), seeds=list(range(64)))
    assert {r.response_ids[-1] for r in rollouts if r.finished} == {EOS, 175, 37}
    assert not any({EOS, 175, 37} & set(r.response_ids[:-1]) for r in rollouts)


def test_new_weights_replace_cache_and_tied_head(reloaded, tied_model, other_model):
    """The same prompts and tied embeddings, so that stale cached prefixes and a stale head would change the tokens."""
    before, after = greedy_by_hand(tied_model), greedy_by_hand(other_model)
    assert all(a != b for a, b in zip(before, after))
    assert greedy(reloaded) == before
    rollouts = reloaded.generate(PROMPTS, 1, SamplingParams(temperature=0.0, max_tokens=4), [0] * 4)
    assert logprob_gap(rollouts, tied_model) < 1e-4  # of greedy responses those at temperature 1
    reloaded.load_weights(actor_of(other_model).weights())
    assert greedy(reloaded) == after
    assert sampled_gap(reloaded, other_model) < 1e-4
    reloaded.load_weights(reversed(list(actor_of(tied_model).weights())))  # in any order
    assert greedy(reloaded) == before


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
    vector = torch.randn(1000, generator=torch.Generator().manual_seed(0))

    def checksum(tensor, dtype=torch.bfloat16):
        return weight_checksums([("norm.weight", tensor)], dtype)

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
def test_stop_texts_end_responses_where_they_are_complete(engine, tied_model, limit):
    """Against the same responses without them, cut by hand where their text first contains one."""
    assert_stops_where_complete(engine, AutoTokenizer.from_pretrained(tied_model), limit)
