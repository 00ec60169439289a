"""The selection of tokens against the pure selectors: the share, the order, the weights, what is read."""

import math

import pytest
import torch

from d3s.actor.logprobs import forward_passes
from d3s.downsampling import downsample_tokens
from d3s.methods.nat import keep_probabilities, nat
from d3s.packing import Batch
from d3s.selector import top_tokens
from tests.helpers.selection import config
from tests.helpers.subsets import seeded


def random_tokens():
    """A batch of four responses with random advantages and entropies, and their lengths."""
    lengths = [5, 1, 10, 4]
    advantages, entropies = torch.rand(2, sum(lengths), generator=seeded(1))
    return Batch([[1]] * 4, [[2] * n for n in lengths], advantages - 0.5, entropies, 2 * entropies), lengths


@pytest.mark.parametrize("every", [1, 2])
@pytest.mark.parametrize("scope", ["batch", "sample"])
@pytest.mark.parametrize("kind", ["advantage_entropy", "entropy", "random"])
def test_token_options_match_top_tokens(kind, scope, every):
    """K of the trainable tokens: all, or every second one."""
    batch, lengths = random_tokens()
    batch.trainable = torch.arange(sum(lengths)) % every == 0
    selector = config(f"selector.tokens={kind}", f"selector.token_scope={scope}").selector
    selected, weights, scores = downsample_tokens(selector, batch, 0.3, seeded(0))
    assert weights is None and not selected[~batch.trainable].any()
    counts = batch.sequence_ids[batch.trainable].unique(return_counts=True)[1].tolist()
    counts = counts if scope == "sample" else [sum(counts)]
    assert int(selected.sum()) == sum(math.ceil(0.3 * count - 1e-9) for count in counts)
    ids = batch.sequence_ids[batch.trainable] if scope == "sample" else None
    priorities = {"advantage_entropy": batch.advantages.abs() * batch.entropies, "entropy": batch.entropies}
    if kind in priorities:
        expected = priorities[kind].where(batch.trainable, math.nan)
        torch.testing.assert_close(scores, expected, rtol=0, atol=0, equal_nan=True)
        assert torch.equal(selected[batch.trainable], top_tokens(scores[batch.trainable], 0.3, ids, seeded(0)))
        random, *_ = downsample_tokens(config("selector.tokens=random").selector, batch, 0.3, seeded(0))
        assert not torch.equal(selected, random)
    assert torch.equal(downsample_tokens(selector, batch, 1.0, seeded(0))[0], batch.trainable)


@pytest.mark.parametrize("prefix", [False, True])
def test_weighted_tokens_follow_keep_probabilities(prefix):
    """Forced tokens are never kept; the position of a token counts the others."""
    batch, _ = random_tokens()
    batch.trainable = torch.ones(20, dtype=torch.bool)
    batch.trainable[[0, 7]] = False
    selector = config(f"selector.tokens={{rule: d3s.methods.nat:nat, prefix: {prefix}}}").selector
    ids = batch.sequence_ids
    candidates = batch.trainable
    selected, weights, _ = downsample_tokens(selector, batch, 0.3, seeded(0))
    assert not selected[~candidates].any()
    assert torch.equal(selected[candidates], nat(0.3, ids[candidates], seeded(0), prefix)[0])
    expected = 1 / keep_probabilities(0.3, ids[candidates], prefix)
    torch.testing.assert_close(weights[candidates], expected.float())
    assert (weights[~candidates] == 1).all() and downsample_tokens(selector, batch, 1.0, seeded(0))[1] is None


def test_k_of_one_selects_all_tokens():
    batch, _ = random_tokens()
    batch.entropies[:] = math.nan  # not read
    assert downsample_tokens(config().selector, batch, 1.0, seeded(0))[0].all()


@pytest.mark.parametrize("kind", ["advantage_entropy", "entropy", "random", "d3s.methods.nat:nat"])
@pytest.mark.parametrize("k", [0.3, 1.0])
def test_entropies_are_computed_where_they_are_read(kind, k):
    """Tokens are ranked by entropy where NaN entropies change the selection or are refused."""
    settings = config(f"selector.tokens={kind}", "selector.entropy_source=actor")
    selector = settings.selector
    batch, _ = random_tokens()
    expected, *_ = downsample_tokens(selector, batch, k, seeded(0))
    batch.entropies[:] = math.nan
    try:
        reads = not torch.equal(downsample_tokens(selector, batch, k, seeded(0))[0], expected)
    except ValueError:
        reads = True
    assert forward_passes(settings, k).kept_rollouts is reads
