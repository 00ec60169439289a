"""The selection of tokens against the pure selectors: the share, the order, the weights, what is read."""

import math

import pytest
import torch

from d3s.actor.logprobs import forward_passes
from d3s.downsampling import downsample_tokens
from d3s.methods.nat import keep_probabilities, nat
from d3s.packing import Batch
from d3s.selector import top_tokens
from tests.helpers.actors import make_batch
from tests.helpers.selection import config
from tests.helpers.subsets import seeded


def random_tokens():
    """A batch of four responses with random advantages and entropies, and their lengths."""
    lengths = [5, 1, 10, 4]
    advantages, entropies = torch.rand(2, sum(lengths), generator=seeded(1))
    return Batch([[1]] * 4, [[2] * n for n in lengths], advantages - 0.5, entropies, 2 * entropies), lengths


@pytest.mark.parametrize("scope", ["batch", "sample"])
@pytest.mark.parametrize("kind", ["advantage_entropy", "entropy", "random"])
def test_token_options_match_top_tokens(kind, scope):
    batch, lengths = random_tokens()
    selector = config(f"selector.tokens={kind}", f"selector.token_scope={scope}").selector
    selected, weights, _ = downsample_tokens(selector, batch, 0.3, seeded(0))
    assert weights is None
    counts = [int(part.sum()) for part in selected.split(lengths)]
    assert sum(counts) == 6 if scope == "batch" else counts == [2, 1, 3, 2]
    ids = batch.sequence_ids if scope == "sample" else None
    priorities = {"advantage_entropy": batch.advantages.abs() * batch.entropies, "entropy": batch.entropies}
    if kind in priorities:
        assert torch.equal(selected, top_tokens(priorities[kind], 0.3, ids, seeded(0)))
        random, *_ = downsample_tokens(config("selector.tokens=random").selector, batch, 0.3, seeded(0))
        assert not torch.equal(selected, random)


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


@pytest.mark.parametrize("tokens", ["advantage_entropy", "entropy", "random"])
@pytest.mark.parametrize("scope", ["batch", "sample"])
def test_tokens_are_a_fraction_of_the_trainable_ones(scope, tokens):
    batch = make_batch()
    batch.trainable = torch.arange(len(batch.sequence_ids)) % 2 == 0
    selector = config(f"selector.token_scope={scope}", f"selector.tokens={tokens}").selector
    counts = batch.sequence_ids[batch.trainable].unique(return_counts=True)[1].tolist()
    selected, weights, _ = downsample_tokens(selector, batch, 0.3, seeded(0))
    assert weights is None
    assert not selected[~batch.trainable].any()
    groups = counts if scope == "sample" else [sum(counts)]
    assert int(selected.sum()) == sum(max(1, math.ceil(0.3 * count - 1e-9)) for count in groups)
    assert torch.equal(downsample_tokens(selector, batch, 1.0, seeded(0))[0], batch.trainable)
