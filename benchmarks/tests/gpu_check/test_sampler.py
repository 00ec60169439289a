"""The stage `sampler` on the CPU: it holds, and does not with wrong entropies or shared noise."""

import pytest
import torch

from benchmarks.gpu_check import sampler
from benchmarks.tests.stages import not_held
from d3s.rollout.engine import token_entropies


def test_sampler_holds_on_the_cpu():
    rows = list(sampler.run("cpu", 60))
    assert not not_held(rows) and len(rows) == 2 * 5 + 2


@pytest.mark.parametrize("wrong", [torch.zeros_like, lambda h: h.roll(1), lambda h: h * torch.nan])
def test_wrong_entropies_are_noticed(monkeypatch, wrong):
    monkeypatch.setattr(sampler, "token_entropies", lambda logits: wrong(token_entropies(logits)))
    assert not_held(sampler.run("cpu", 60)) == [f"{n} requests: largest error of entropies" for n in (4, 8)]


def test_noise_of_one_generator_is_noticed(monkeypatch):
    """Requests that share a generator have noise that depends on the batch."""
    monkeypatch.setattr(sampler, "draw_each", lambda noise, generators: noise.exponential_(generator=generators[0]))
    assert not_held(sampler.seed_rows("cpu")) == ["noise of a seed in a batch and alone is equal"]


def test_equal_seeds_are_noticed(monkeypatch):
    monkeypatch.setattr(sampler, "rollout_seeds", lambda *args: [7] * args[-1])
    assert not_held(sampler.seed_rows("cpu")) == ["seeds with noise of their own"]
