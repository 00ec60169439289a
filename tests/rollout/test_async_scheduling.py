"""vLLM's asynchronous scheduling, forced on, against the same engine without it."""

import pytest
from transformers import AutoTokenizer

from d3s.config.load import load_config
from d3s.methods.latr import LATR
from d3s.rollout.engine import SamplingParams
from tests.helpers.rollouts import PROMPTS, actor_of, assert_stops_where_complete, sampled_gap

SEEDS = list(range(4 * 16))


def contents(rollouts):
    return [(r.response_ids, r.finished, r.lineage) for r in rollouts]


def same(left, right):
    assert contents(left) == contents(right)
    for a, b in zip(left, right):
        assert a.logprobs == pytest.approx(b.logprobs, abs=1e-4) and a.entropies == pytest.approx(b.entropies, abs=1e-4)


def test_responses_and_entropies_are_the_same(engines, asynchronous):
    """64 requests in 8 places: they end, join and are preempted while the next step is already scheduled."""
    params = SamplingParams(max_tokens=60)
    plain, other = (engine.generate(PROMPTS, 16, params, SEEDS) for engine in (engines["vllm"], asynchronous))
    same(plain, other)
    assert len({len(r.response_ids) for r in plain}) > 5


def test_trees_are_the_same(engines, asynchronous):
    """Branches start, and are dropped, while the next step is already scheduled."""
    strategy = LATR(load_config([]), share=1.0, absolute=0.02, relative=0.5, lookahead=5, similarity=0.9)
    seeds = [100 * i + j for i in range(4) for j in range(8)]
    plain, other = (
        strategy.generate(engine, PROMPTS, 8, SamplingParams(max_tokens=40), seeds, 0, lambda rollout: None)
        for engine in (engines["vllm"], asynchronous)
    )
    same(plain, other)
    assert all(sum(r.counts[name] for r in other) for name in ("branches", "pruned"))
    assert not asynchronous.busy()


def test_new_weights_and_stop_texts_hold(asynchronous, other_model, tied_model):
    """No step that was scheduled before a weight sync samples from the new weights, or the other way round."""
    asynchronous.load_weights(actor_of(other_model).weights())
    assert sampled_gap(asynchronous, other_model) < 1e-4
    asynchronous.load_weights(actor_of(tied_model).weights())
    assert sampled_gap(asynchronous, tied_model) < 1e-4
    assert_stops_where_complete(asynchronous, AutoTokenizer.from_pretrained(tied_model), 40)
