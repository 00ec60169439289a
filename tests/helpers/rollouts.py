"""Engines and prompts for their tests, and the actor's and transformers' own view of what an engine sampled."""

import itertools
from collections.abc import Sequence

import pytest
import torch
from accelerate import Accelerator

from d3s.actor import Actor
from d3s.config.load import load_config
from d3s.packing import Batch
from d3s.rollout import build_engine
from d3s.rollout.engine import SamplingParams, rollout_seed

EOS, MAX_LENGTH = 0, 192
PROMPTS = [
    torch.randint(1, 257, (length,), generator=torch.Generator().manual_seed(length)).tolist()
    for length in (1, 40, 70, 5)  # with blocks of 32 tokens, two of them have a prefix that vLLM caches
]


def build(path, *options, **settings):
    """The engine of these options with the model at `path`; float32 unless `settings` say other."""
    settings = {"dtype": "float32", "max_model_len": MAX_LENGTH, "seed": 0} | settings
    return build_engine(str(path), load_config([], options).rollout, **settings)


def engine_of(servers, path, folder, *options):
    """The engine of a run that uses the servers at these addresses, with weight files in `folder`."""
    options = [f"rollout.servers=[{','.join(servers)}]", "selector.entropy_source=actor", *options]
    return build(path, *options, weights_folder=folder / "weights")


def actor_of(path, temperature=1.0) -> Actor:
    """An actor with the weights at `path`."""
    config = load_config([], [f"rollout.temperature={temperature}"])
    return Actor(str(path), config, Accelerator(), MAX_LENGTH)


def sampled_ids(engine, indices, samples=range(4), seed=0) -> list[list[list[int]]]:
    """Token ids [prompts][samples] of the PROMPTS at `indices`, after a check of the order of the result."""
    n = len(samples)
    seeds = [rollout_seed(seed, "train", 4 * i + j) for i in indices for j in samples]
    rollouts = engine.generate([PROMPTS[i] for i in indices], n=n, params=SamplingParams(max_tokens=20), seeds=seeds)
    assert [r.problem for r in rollouts] == [i for i in range(len(indices)) for _ in range(n)]
    assert [r.sample for r in rollouts] == [*range(n)] * len(indices)
    assert all(r.prompt_ids == PROMPTS[indices[r.problem]] for r in rollouts)
    return [[r.response_ids for r in rollouts[j : j + n]] for j in range(0, len(rollouts), n)]


def assert_depends_on_seed(engine) -> None:
    """A response depends on its seed alone, not on its batch, and no two of 32 are the same."""
    together = sampled_ids(engine, [0, 1, 2, 3])
    assert sampled_ids(engine, [3, 2, 1, 0]) == together[::-1]
    assert sampled_ids(engine, [2]) == [together[2]]
    assert sampled_ids(engine, [0, 1, 2, 3], samples=[2]) == [[group[2]] for group in together]
    other = sampled_ids(engine, [0, 1, 2, 3], seed=1)  # the same indices in another run
    assert len({tuple(response) for group in together + other for response in group}) == 32
    assert sampled_ids(engine, []) == []


def actor_statistics(actor, rollouts):
    """The actor's log-probabilities and entropies [T] of what an engine sampled."""
    unused = torch.zeros(sum(len(r.response_ids) for r in rollouts))
    return actor.compute_logprobs(
        Batch([r.prompt_ids for r in rollouts], [r.response_ids for r in rollouts], unused, unused, unused)
    )


def concatenate(rollouts, field):
    """One field of all rollouts as a tensor [T]."""
    return torch.tensor(list(itertools.chain(*(getattr(r, field) for r in rollouts))))


def assert_statistics(rollouts, path, temperature=1.0) -> None:
    """Log-probabilities and entropies are those of the actor with the weights at `path`."""
    expected = actor_statistics(actor_of(path, temperature), rollouts)
    for field, values in zip(("logprobs", "entropies"), expected):
        torch.testing.assert_close(concatenate(rollouts, field), values, rtol=0, atol=1e-4)


def assert_whole(rollouts, limit: int, stops: Sequence[int] = (EOS,)) -> None:
    """Every response ends with its first stop token or at a limit, some with each; all have log-probabilities."""
    for r in rollouts:
        length = min(limit, MAX_LENGTH - len(r.prompt_ids))
        assert len(r.response_ids) == len(r.logprobs) <= length and not set(stops) & set(r.response_ids[:-1])
        assert r.finished == (r.response_ids[-1] in stops) and (r.finished or len(r.response_ids) == length)
    assert {r.response_ids[-1] for r in rollouts if r.finished} == set(stops) and not all(r.finished for r in rollouts)


def logprob_gap(rollouts, path, temperature=1.0) -> float:
    """The largest |engine's - actor's| log-probability, the actor having the weights at `path`."""
    logprobs, _ = actor_statistics(actor_of(path, temperature), rollouts)
    return (logprobs - concatenate(rollouts, "logprobs")).abs().max().item()


def sampled_gap(engine, path) -> float:
    """`logprob_gap` of a few fresh responses."""
    rollouts = engine.generate(PROMPTS, 2, SamplingParams(max_tokens=12), seeds=list(range(8)))
    return logprob_gap(rollouts, path)


def assert_ends(engine, monkeypatch) -> None:
    """Stop tokens that are not the tokenizer's end responses, and so does the length of the model."""
    stops = [175, 37]
    monkeypatch.setattr(engine, "stop_token_ids", stops)
    assert_whole(engine.generate(PROMPTS, 8, SamplingParams(max_tokens=1000), list(range(32))), 1000, stops)


def assert_stops(engine, tokenizer, limit: int) -> None:
    """Responses with stop texts are those without them, cut where their decoded text first contains one of them."""
    engine.stop = []
    params, seeds = SamplingParams(max_tokens=limit), list(range(4 * 16))
    prompts = [tokenizer.encode(f"{number} times {number} is") for number in range(4)]
    plain = engine.generate(prompts, 16, params, seeds)
    texts = [tokenizer.decode(r.response_ids) for r in plain]
    # from the middle of responses, the end of some, and one that never occurs; a part of a character is no text
    pieces = [text[3 : 3 + 1 + i % 3] for i, text in enumerate(texts)] + [text[-2:] for text in texts]
    engine.stop = [*[piece for piece in pieces if piece.isascii() and piece][::30][:3], "never anywhere"]
    cut = 0
    for whole, stopped in zip(plain, engine.generate(prompts, 16, params, seeds), strict=True):
        texts = [tokenizer.decode(whole.response_ids[: n + 1]) for n in range(len(whole.response_ids))]
        length = next((n for n, text in enumerate(texts, 1) if any(stop in text for stop in engine.stop)), None)
        assert stopped.response_ids == whole.response_ids[:length]
        assert stopped.logprobs == pytest.approx(whole.logprobs[:length], abs=1e-4)
        assert stopped.entropies == pytest.approx(whole.entropies[:length], abs=1e-4)
        assert stopped.finished == (length is not None or whole.finished)
        cut += length is not None
    assert 0 < cut < 64
    engine.stop = []
