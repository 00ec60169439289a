"""Both engines against transformers run by hand and against the actor's own view of what they sampled.

vLLM runs inside this process and can be started there once, so all tests that need it are in this file.
"""

import itertools
import json
import math
import os

import pytest
import torch
from accelerate import Accelerator
from conftest import save_random_model
from transformers import AutoModelForCausalLM

from d3s.actor import Actor
from d3s.config import load_config
from d3s.errors import UserError
from d3s.packing import Batch
from d3s.rollout import build_engine, stop_token_ids

EOS, MAX_LENGTH = 0, 192
PROMPTS = [
    torch.randint(1, 257, (length,), generator=torch.Generator().manual_seed(length)).tolist()
    for length in (1, 40, 70, 5)  # with blocks of 32 tokens, two of them have a prefix that is cached
]


@pytest.fixture(scope="module")
def engines(tied_model):
    """Both on the same weights. vLLM's cache is so small that a full batch does not fit: some are preempted."""
    Accelerator()  # as in training: vLLM would otherwise decide how processes are connected
    environment, rng = dict(os.environ), torch.get_rng_state()
    built = {}
    for name in ("vllm", "transformers"):
        config = load_config(
            [], [f"rollout.engine={name}", "rollout.kv_cache_gb=0.004", "rollout.max_num_seqs=48"]
        ).rollout
        built[name] = build_engine(str(tied_model), config, dtype="float32", max_model_len=MAX_LENGTH, seed=0)
    assert torch.equal(torch.get_rng_state(), rng)
    yield built
    os.environ.clear()
    os.environ.update(environment)


@pytest.fixture(params=["vllm", "transformers"])
def engine(request, engines):
    return engines[request.param]


@pytest.fixture(scope="module")
def other_model(tmp_path_factory):
    """The same architecture with other weights."""
    return save_random_model(tmp_path_factory.mktemp("other") / "model", seed=7)


def actor_of(path, temperature=1.0):
    config = load_config([], [f"rollout.temperature={temperature}"])
    return Actor(str(path), config, Accelerator(), MAX_LENGTH)


def scores(actor, rollouts):
    """The actor's log-probabilities and entropies of what an engine sampled."""
    flat = torch.zeros(sum(len(r.response_ids) for r in rollouts))
    return actor.score(Batch([r.prompt_ids for r in rollouts], [r.response_ids for r in rollouts], flat, flat, flat))


def flat(rollouts, field):
    return torch.tensor(list(itertools.chain(*(getattr(r, field) for r in rollouts))))


def largest_gap(engine, path, prompts=PROMPTS):
    rollouts = engine.generate(prompts, n=2, temperature=1.0, max_tokens=12, seeds=[10, 20, 30, 40])
    return (scores(actor_of(path), rollouts)[0] - flat(rollouts, "logprobs")).abs().max().item()


def greedy(engine, prompts=PROMPTS, length=24):
    rollouts = engine.generate(prompts, n=1, temperature=0.0, max_tokens=length, seeds=[0] * len(prompts))
    return [r.response_ids for r in rollouts]


@torch.no_grad()
def greedy_by_hand(path, prompts=PROMPTS, length=24):
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    responses = []
    for prompt in prompts:
        ids = list(prompt)
        while len(ids) < len(prompt) + length and ids[-1] != EOS:
            ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
        responses.append(ids[len(prompt) :])
    return responses


# --- seeds -----------------------------------------------------------------------------------------------------------


def test_a_seed_is_a_response_whatever_else_is_sampled(engine):
    def sample(indices, n=4, seed=lambda i: 100 * i):
        rollouts = engine.generate(
            [PROMPTS[i] for i in indices], n=n, temperature=1.0, max_tokens=20, seeds=[seed(i) for i in indices]
        )
        assert [r.prompt_index for r in rollouts] == [i for i in range(len(indices)) for _ in range(n)]
        assert [r.sample for r in rollouts] == [*range(n)] * len(indices)
        assert all(r.prompt_ids == PROMPTS[indices[r.prompt_index]] for r in rollouts)
        return [[r.response_ids for r in rollouts[j : j + n]] for j in range(0, len(rollouts), n)]

    together = sample([0, 1, 2, 3])
    assert sample([3, 2, 1, 0]) == together[::-1]
    assert sample([2]) == [together[2]]
    assert sample([0, 1, 2, 3], n=1, seed=lambda i: 100 * i + 2) == [[group[2]] for group in together]
    assert sample([0, 1, 2, 3], seed=lambda i: 100 * i + 50) != together
    responses = [tuple(response) for group in together for response in group]
    assert len(set(responses)) == len(responses)


# --- log-probabilities and entropies ---------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_what_is_told_of_every_token_is_what_the_actor_computes(engine, tied_model, temperature):
    """Also of responses that vLLM interrupted and computed again: 64 of up to 100 tokens do not fit its cache."""
    rollouts = engine.generate(PROMPTS, n=16, temperature=temperature, max_tokens=100, seeds=[1000, 2000, 3000, 4000])
    logprobs, entropies = scores(actor_of(tied_model, temperature), rollouts)
    torch.testing.assert_close(flat(rollouts, "logprobs"), logprobs, rtol=0, atol=1e-4)
    torch.testing.assert_close(flat(rollouts, "entropies"), entropies, rtol=0, atol=1e-4)
    assert entropies.std() > 0.1
    for r in rollouts:
        assert len(r.response_ids) == len(r.logprobs) == len(r.entropies)
        assert EOS not in r.response_ids[:-1]
        assert r.finished == (r.response_ids[-1] == EOS)
        assert r.finished or len(r.response_ids) == 100
    assert 0 < sum(r.finished for r in rollouts) < len(rollouts)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_tokens_are_drawn_from_the_softmax(engine, tied_model, temperature):
    count = 2000
    rollouts = engine.generate(PROMPTS[3:], n=count, temperature=temperature, max_tokens=1, seeds=[5])
    drawn = torch.tensor([r.response_ids[0] for r in rollouts]).bincount(minlength=257)
    with torch.no_grad():
        logits = AutoModelForCausalLM.from_pretrained(tied_model, dtype=torch.float32)(torch.tensor(PROMPTS[3:])).logits
    expected = count * (logits[0, -1] / temperature).softmax(-1)
    common = expected > 5
    observed = torch.cat([drawn[common], drawn[~common].sum()[None]])
    expected = torch.cat([expected[common], expected[~common].sum()[None]])
    chi_square, freedom = ((observed - expected) ** 2 / expected).sum().item(), len(expected) - 1
    assert freedom > 10 and chi_square < freedom + 5 * math.sqrt(2 * freedom)


@pytest.mark.parametrize(("top_k", "top_p"), [(3, 1.0), (-1, 0.4)])
def test_truncated_sampling(engine, tied_model, top_k, top_p):
    """Only likely tokens are drawn; log-probabilities are those among them, entropies those of the whole vocabulary."""
    rollouts = engine.generate(
        PROMPTS, n=4, temperature=1.0, top_k=top_k, top_p=top_p, max_tokens=6, seeds=[10, 20, 30, 40]
    )
    model = AutoModelForCausalLM.from_pretrained(tied_model, dtype=torch.float32)
    for r in rollouts:
        with torch.no_grad():
            logits = model(torch.tensor([r.prompt_ids + r.response_ids])).logits[0, len(r.prompt_ids) - 1 : -1]
        for token, logprob, p in zip(r.response_ids, r.logprobs, logits.softmax(-1)):
            ranked = p.sort(descending=True).values.tolist()
            size = top_k if top_k > 0 else 1 + sum(total < top_p for total in itertools.accumulate(ranked))
            assert p[token] >= ranked[size - 1] - 1e-6
            assert logprob == pytest.approx(math.log(p[token] / sum(ranked[:size])), abs=1e-3)
    _, entropies = scores(actor_of(tied_model), rollouts)
    torch.testing.assert_close(flat(rollouts, "entropies"), entropies, rtol=0, atol=1e-4)


def test_entropies_only_where_asked_for(engine):
    kwargs = {"n": 2, "max_tokens": 3, "seeds": [0, 10, 20, 30]}
    assert not any(r.entropies for r in engine.generate(PROMPTS, temperature=1.0, entropies=False, **kwargs))
    assert not any(r.entropies for r in engine.generate(PROMPTS, temperature=0.0, **kwargs))
    assert all(r.entropies for r in engine.generate(PROMPTS, temperature=1.0, **kwargs))


# --- ends ------------------------------------------------------------------------------------------------------------


def test_no_room_left(engine):
    rollouts = engine.generate(PROMPTS, n=6, temperature=1.0, max_tokens=1000, seeds=[100, 200, 300, 400])
    for r in rollouts:
        assert r.finished or len(r.prompt_ids) + len(r.response_ids) == MAX_LENGTH
    assert {len(r.prompt_ids) for r in rollouts if not r.finished} >= {1, 70}


def test_several_tokens_may_end_a_response(engine, monkeypatch):
    monkeypatch.setattr(engine, "_stop", [EOS, 175, 37])
    rollouts = engine.generate(PROMPTS, n=16, temperature=1.0, max_tokens=60, seeds=[100, 200, 300, 400])
    assert {r.response_ids[-1] for r in rollouts if r.finished} == {EOS, 175, 37}
    assert not any({EOS, 175, 37} & set(r.response_ids[:-1]) for r in rollouts)


def test_every_rollout_is_announced_before_generate_returns(engine):
    heard = []

    def listen(rollout):
        heard.append((rollout, list(rollout.response_ids), list(rollout.logprobs), rollout.finished))

    rollouts = engine.generate(
        PROMPTS, n=16, temperature=1.0, max_tokens=40, seeds=[100, 200, 300, 400], on_finished=listen
    )
    assert len(heard) == 64 and {id(r) for r, *_ in heard} == {id(r) for r in rollouts}
    assert all((r.response_ids, r.logprobs, r.finished) == tuple(then) for r, *then in heard)


def test_vllm_announces_while_others_generate(engines):
    busy = []
    engine = engines["vllm"]
    engine.generate(
        PROMPTS,
        n=8,
        temperature=1.0,
        max_tokens=60,
        seeds=[100, 200, 300, 400],
        on_finished=lambda _: busy.append(engine._llm.llm_engine.has_unfinished_requests()),
    )
    assert busy[0] and not busy[-1]


def test_stop_tokens_of_a_model(tmp_path):
    def write(name, **content):
        (tmp_path / name).write_text(json.dumps(content))

    write("config.json", model_type="qwen2", eos_token_id=7)
    assert stop_token_ids(str(tmp_path)) == [7]
    write("generation_config.json", eos_token_id=[3, 4])
    assert stop_token_ids(str(tmp_path)) == [3, 4]
    write("generation_config.json", temperature=0.5)
    assert stop_token_ids(str(tmp_path)) == [7]
    write("config.json", model_type="qwen2", eos_token_id=None)
    with pytest.raises(UserError, match="eos_token_id"):
        stop_token_ids(str(tmp_path))


# --- weights ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def reloaded(engine, tied_model):
    """The engine, which gets its own weights back afterwards."""
    yield engine
    engine.load_weights(actor_of(tied_model).weights())


def test_both_engines_are_greedy_as_transformers_is(engines, tied_model):
    expected = greedy_by_hand(tied_model)
    assert greedy(engines["vllm"]) == expected
    assert greedy(engines["transformers"]) == expected
    first, second = (e.generate(PROMPTS, n=1, temperature=0.0, max_tokens=4, seeds=[0] * 4) for e in engines.values())
    torch.testing.assert_close(flat(first, "logprobs"), flat(second, "logprobs"), rtol=0, atol=1e-4)


def test_new_weights_give_the_tokens_of_the_new_weights(reloaded, tied_model, other_model):
    """The same prompts before and after, so that what was cached of them would show; tied embeddings, so that a head
    that was left behind would show."""
    before, after = greedy_by_hand(tied_model), greedy_by_hand(other_model)
    assert all(a != b for a, b in zip(before, after))
    assert greedy(reloaded) == before
    reloaded.load_weights(actor_of(other_model).weights())
    assert greedy(reloaded) == after
    assert largest_gap(reloaded, other_model) < 1e-4
    reloaded.load_weights(reversed(list(actor_of(tied_model).weights())))  # in any order
    assert greedy(reloaded) == before


@pytest.mark.skipif(torch.cuda.is_available(), reason="on a GPU vLLM keeps tied weights in one place")
def test_a_head_that_was_left_behind_is_noticed(engines, tied_model, other_model):
    engine = engines["vllm"]
    assert largest_gap(engine, tied_model) < 1e-4
    engine.load_weights((name, tensor) for name, tensor in actor_of(other_model).weights() if name != "lm_head.weight")
    assert largest_gap(engine, other_model) > 0.1
    engine.load_weights(actor_of(tied_model).weights())
    assert largest_gap(engine, tied_model) < 1e-4


def test_a_cached_prefix_of_old_weights_is_noticed(engines, tied_model, other_model, monkeypatch):
    engine = engines["vllm"]
    greedy(engine)
    with monkeypatch.context() as patch:
        patch.setattr(engine._llm, "reset_prefix_cache", lambda: True)
        engine.load_weights(actor_of(other_model).weights())
    assert largest_gap(engine, other_model) > 0.1
    engine.load_weights(actor_of(tied_model).weights())
    assert largest_gap(engine, tied_model) < 1e-4
