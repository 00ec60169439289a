"""NAT's tokens and weights: the expected gradient over all selections, and frequencies over seeds."""

import itertools
import math

import pytest
import torch

from d3s.common import UserError
from d3s.config.load import load_config
from d3s.loss import Clip, denominators
from d3s.methods.nat import keep_probabilities, nat
from d3s.plan.trials import attempt_rules
from tests.helpers.losses import compute_loss
from tests.helpers.subsets import frequencies, seeded

LENGTHS = [3, 1, 2]
IDS = torch.arange(3).repeat_interleave(torch.tensor(LENGTHS))


def possible_selections(prefix, fraction):
    """All selections of the tokens of LENGTHS with their probabilities, from keep_probabilities."""
    kept = keep_probabilities(fraction, IDS, prefix).tolist()
    if not prefix:
        for mask in itertools.product([False, True], repeat=len(kept)):
            yield list(mask), math.prod(p if m else 1 - p for p, m in zip(kept, mask))
        return
    starts = [sum(LENGTHS[:i]) for i in range(len(LENGTHS))]
    for cuts in itertools.product(*(range(1, n + 1) for n in LENGTHS)):
        probability = 1.0
        for start, length, cut in zip(starts, LENGTHS, cuts):
            probability *= kept[start + cut - 1] - (kept[start + cut] if cut < length else 0.0)
        yield [t < cut for length, cut in zip(LENGTHS, cuts) for t in range(length)], probability


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


def test_weights_exclude_a_kl_term():
    with pytest.raises(UserError, match=r"^selector\.tokens: d3s\.methods\.nat:nat requires loss\.beta: 0"):
        attempt_rules(load_config(["configs/method/nat_prefix.yaml"], ["loss.beta=0.1"]))
