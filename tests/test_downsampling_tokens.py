"""The selection of tokens against the pure selectors: the share, the order, the weights, what is read."""

import math
from copy import copy

import pytest
import torch

from d3s.actor.logprobs import forward_passes
from d3s.downsampling import downsample_tokens
from d3s.methods.nat import keep_probabilities, nat
from d3s.packing import Batch
from d3s.selector import top_tokens
from tests.helpers.selection import config
from tests.helpers.subsets import seeded

LENGTHS = [5, 1, 10, 4]


def random_tokens() -> Batch:
    """A batch of four responses with random advantages and entropies."""
    advantages, entropies = torch.rand(2, sum(LENGTHS), generator=seeded(1))
    return Batch([[1]] * 4, [[2] * n for n in LENGTHS], advantages - 0.5, entropies, 2 * entropies)


def downsampled(batch: Batch, k: float, *options: str) -> Batch:
    """A copy of the batch with the tokens that the options of `selector` choose."""
    changed = copy(batch)
    downsample_tokens(config(*(f"selector.{option}" for option in options)).selector, changed, k, seeded(0))
    return changed


@pytest.mark.parametrize("every", [1, 2])
@pytest.mark.parametrize("scope", ["batch", "sample"])
@pytest.mark.parametrize("kind", ["advantage_entropy", "entropy", "random"])
def test_token_options_match_top_tokens(kind, scope, every):
    """K of the trainable tokens: all, or every second one."""
    batch = random_tokens()
    trainable = batch.trainable = torch.arange(sum(LENGTHS)) % every == 0
    chosen = downsampled(batch, 0.3, f"tokens={kind}", f"token_scope={scope}")
    assert not chosen.weighted and not chosen.selected[~trainable].any()
    ids = batch.sequence_ids[trainable]
    counts = ids.bincount().tolist() if scope == "sample" else [len(ids)]
    assert int(chosen.selected.sum()) == sum(math.ceil(0.3 * count - 1e-9) for count in counts)
    if kind != "random":
        priorities = batch.entropies * (1 if kind == "entropy" else batch.advantages.abs())
        expected = priorities.where(trainable, math.nan)
        torch.testing.assert_close(chosen.priorities, expected, rtol=0, atol=0, equal_nan=True)
        ids = ids if scope == "sample" else None
        assert torch.equal(chosen.selected[trainable], top_tokens(priorities[trainable], 0.3, ids, seeded(0)))
        assert not torch.equal(chosen.selected, downsampled(batch, 0.3, "tokens=random").selected)
    batch.entropies[:] = math.nan  # not read
    assert torch.equal(downsampled(batch, 1.0, f"tokens={kind}", f"token_scope={scope}").selected, trainable)


@pytest.mark.parametrize("prefix", [False, True])
def test_weighted_tokens_follow_keep_probabilities(prefix):
    """Forced tokens are never kept; the position of a token counts the others."""
    batch = random_tokens()
    candidates = batch.trainable = torch.ones(20, dtype=torch.bool)
    candidates[[0, 7]] = False
    rule, ids = f"tokens={{rule: d3s.methods.nat:nat, prefix: {prefix}}}", batch.sequence_ids[candidates]
    chosen = downsampled(batch, 0.3, rule)
    assert chosen.weighted and not chosen.selected[~candidates].any()
    assert torch.equal(chosen.selected[candidates], nat(0.3, ids, seeded(0), prefix)[0])
    weights = torch.ones(20)
    weights[candidates] = (1 / keep_probabilities(0.3, ids, prefix)).float()
    torch.testing.assert_close(chosen.advantages, batch.advantages * weights)
    assert not downsampled(batch, 1.0, rule).weighted


@pytest.mark.parametrize("kind", ["advantage_entropy", "entropy", "random", "d3s.methods.nat:nat"])
@pytest.mark.parametrize("k", [0.3, 1.0])
def test_entropies_are_computed_where_they_are_read(kind, k):
    """Tokens are ranked by entropy where NaN entropies change the selection or are refused."""
    batch = random_tokens()
    expected = downsampled(batch, k, f"tokens={kind}").selected
    batch.entropies[:] = math.nan
    try:
        reads = not torch.equal(downsampled(batch, k, f"tokens={kind}").selected, expected)
    except ValueError:
        reads = True
    settings = config(f"selector.tokens={kind}", "selector.entropy_source=actor")
    assert forward_passes(settings, k).kept_rollouts is reads
