"""Token rules of the shelf: the gradient by autograd, a loop, and for NAT the expectation over all selections."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from d3s.loss import Clip, denominators
from d3s.methods.gmts import gmts
from d3s.methods.likely_tokens import likely_tokens
from d3s.methods.nat import keep_probabilities, nat
from tests.helpers.losses import compute_loss
from tests.helpers.subsets import frequencies, seeded


@given(st.integers(0, 2**31), st.integers(2, 9))
def test_gmts_is_half_the_gradient_at_the_logits(seed, vocabulary):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(5, vocabulary, generator=generator, dtype=torch.float64, requires_grad=True)
    advantages = torch.randn(5, generator=generator, dtype=torch.float64)
    sampled = torch.randint(vocabulary, (5, 1), generator=generator)
    logprobs = logits.log_softmax(-1).gather(1, sampled)[:, 0]
    (gradient,) = torch.autograd.grad(-(advantages * logprobs).sum(), logits)
    torch.testing.assert_close(2 * gmts(advantages, logprobs.detach()), gradient.abs().sum(1))


@given(st.lists(st.tuples(st.floats(-2, 2), st.floats(0, 3), st.floats(0.01, 1)), max_size=8), st.floats(0, 1))
def test_unlikely_tokens_rank_last(tokens, least):
    advantages, entropies, probabilities = torch.tensor(tokens, dtype=torch.float64).view(-1, 3).unbind(1)
    logprobs = probabilities.log()
    found = likely_tokens(advantages, entropies, logprobs, least).tolist()
    expected = [-1 if p < least else abs(a) * h for a, h, p in zip(advantages, entropies, logprobs.exp(), strict=True)]
    assert found == pytest.approx([float(x) for x in expected])


# --- NAT --------------------------------------------------------------------------------------------------------------

LENGTHS = [3, 1, 2]
IDS = torch.arange(3).repeat_interleave(torch.tensor(LENGTHS))


def possible_selections(prefix, fraction):
    """All selections of the tokens of LENGTHS with their probabilities, from keep_probabilities."""
    kept = keep_probabilities(fraction, IDS, prefix).split(LENGTHS if prefix else 1)
    bounds = [[1.0, *p.tolist(), 0.0] for p in kept]  # a cut is behind a token with the probability of the token
    for cuts in itertools.product(*(range(len(b) - 1) for b in bounds)):
        mask = [t < cut for b, cut in zip(bounds, cuts) for t in range(len(b) - 2)]
        yield mask, math.prod(b[cut] - b[cut + 1] for b, cut in zip(bounds, cuts))


@pytest.mark.parametrize("normalizer", ["selected", "all", "sequence", "constant"])
@pytest.mark.parametrize("fraction", [0.2, 0.5, 0.8])
@pytest.mark.parametrize("prefix", [False, True])
def test_weighted_random_tokens_are_unbiased(prefix, fraction, normalizer):
    """The expected gradient over all selections is that of all tokens, of a loss that clips, for every normalizer."""
    parameters = torch.randn(len(IDS), generator=seeded(0), dtype=torch.float64, requires_grad=True)
    old, advantages = torch.randn(2, len(IDS), generator=seeded(1), dtype=torch.float64)
    every = torch.ones(len(IDS), dtype=torch.bool)
    divisors = denominators(normalizer, IDS.bincount(), IDS.bincount(), 4)[IDS]

    def gradient(selected, weights):
        chosen = torch.tensor(selected)
        terms = [values[chosen] for values in (parameters, old, advantages * weights)]
        loss, _ = compute_loss("grpo", *terms, None, Clip(0.2), divisors[chosen])
        return torch.autograd.grad(loss, parameters)[0]

    weights = 1 / keep_probabilities(fraction, IDS, prefix)
    total, expected = 0.0, torch.zeros(len(IDS), dtype=torch.float64)
    for selected, probability in possible_selections(prefix, fraction):
        total += probability
        expected += probability * gradient(selected, weights)
    assert total == pytest.approx(1)
    torch.testing.assert_close(expected, gradient(every.tolist(), 1.0))


@pytest.mark.parametrize("fraction", [0.2, 0.5, 0.8])
@pytest.mark.parametrize("prefix", [False, True])
def test_random_tokens_follow_their_probabilities(prefix, fraction):
    shares, tolerance = frequencies(lambda g: nat(fraction, IDS, g, prefix)[0])
    assert (shares - keep_probabilities(fraction, IDS, prefix)).abs().max() < tolerance
    seen = {tuple(nat(fraction, IDS, seeded(seed), prefix)[0].tolist()) for seed in range(500)}
    possible = {tuple(mask) for mask, probability in possible_selections(prefix, fraction) if probability > 0}
    assert seen <= possible and len(seen) >= 4


@pytest.mark.parametrize("fraction", [0.05, 0.25, 0.5, 0.9])
def test_prefixes_keep_the_fraction_on_average(fraction):
    for length in (1, 2, 10, 1000):
        kept = keep_probabilities(fraction, torch.zeros(length, dtype=torch.long), prefix=True)
        assert fraction - 1e-12 <= kept.mean() <= fraction + 1 / length
        assert (kept > 0).all() and (kept.diff() <= 0).all() and kept[0] == 1
    half = keep_probabilities(0.5, torch.zeros(4, dtype=torch.long), prefix=True)
    assert half.tolist() == [1, 0.75, 0.5, 0.25]


def test_tokens_at_the_limits():
    none = torch.zeros(0, dtype=torch.long)
    for prefix in (False, True):
        chosen, weights = nat(1.0, IDS, None, prefix)
        assert chosen.all() and (weights == 1).all() and nat(0.5, none, None, prefix)[0].shape == (0,)
        with pytest.raises(ValueError, match="fraction"):
            nat(0.0, IDS, None, prefix)
