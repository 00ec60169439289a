"""The selection of rollouts and of tokens against the pure selectors and hand-computed advantages and weights."""

import math
from copy import copy

import pytest
import torch

from d3s.advantage import ADVANTAGE_RULES
from d3s.methods.nat import keep_probabilities, nat
from d3s.packing import Batch
from d3s.selector import Selector, select_rollouts, top_tokens
from tests.helpers.selection import ALL, REWARDS, config, downsample
from tests.helpers.subsets import seeded

# --- rollouts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_rollout_options_match_the_selector(scale, share):
    """The share is given by the caller, which may replace the option."""
    settings = config(f"reward.advantages={scale}", "selector.cross_share=0.7")
    advantages, kept = downsample(settings, REWARDS, ALL, 4, seeded(5), share)
    assert torch.equal(advantages, ADVANTAGE_RULES.builtin[scale](REWARDS)[0].float())
    assert torch.equal(kept, select_rollouts(advantages, 4, share, seeded(5)))


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
def test_pods_compares_rewards_and_normalizes_what_is_kept(scale):
    eligible = torch.rand(3, 8, generator=seeded(1)) < 0.7
    settings = config("selector.normalize=after", "selector.cross_share=0", f"reward.advantages={scale}")
    advantages, kept = downsample(settings, REWARDS, eligible, 4, seeded(0))
    assert torch.equal(kept, select_rollouts(REWARDS, 4, 0.0, seeded(0), eligible))
    assert torch.equal(advantages, ADVANTAGE_RULES.builtin[scale](REWARDS, kept)[0].float())


@pytest.mark.parametrize("option", ["cross_share=1", "cross_share=0.5", "rollouts=random", "normalize=after"])
def test_ineligible_rollouts_are_never_selected(option):
    """Ineligible rollouts have advantage 0, also where no rollout is eligible."""
    within = ["selector.cross_share=0"] if option == "normalize=after" else []
    settings = config(f"selector.{option}", *within)
    eligible = ALL.clone()
    eligible[0, 0] = eligible[1, 5] = False  # the first group loses its only right answer
    for seed in range(20):
        advantages, kept = downsample(settings, REWARDS, eligible, 4, seeded(seed))
        assert kept.any() and not kept[~eligible].any() and not advantages[~eligible].any()
    advantages, kept = downsample(settings, REWARDS, torch.zeros_like(ALL), 4, seeded(0))
    assert not kept.any() and not advantages.any()


def test_zero_advantages_can_be_dropped():
    settings = config("selector.rollouts=d3s.methods.nonzero:nonzero")
    for n in (4, 8):
        advantages, kept = downsample(settings, REWARDS, ALL, n, seeded(0))
        assert int(kept.sum()) == min(16, 3 * n) and advantages[kept].all()


# --- tokens -----------------------------------------------------------------------------------------------------------

LENGTHS = [5, 1, 10, 4]


def random_tokens() -> Batch:
    """A batch of four responses with random advantages and entropies."""
    advantages, entropies = torch.rand(2, sum(LENGTHS), generator=seeded(1))
    return Batch([[1]] * 4, [[2] * n for n in LENGTHS], advantages - 0.5, entropies, 2 * entropies)


def downsampled(batch: Batch, k: float, *options: str) -> Batch:
    """A copy of the batch with the tokens that the options of `selector` choose."""
    changed = copy(batch)
    settings = config(*(f"selector.{option}" for option in options))
    Selector(settings.selector, settings.reward).tokens(changed, k, seeded(0))
    return changed


@pytest.mark.parametrize("every", [1, 2])
@pytest.mark.parametrize("scope", ["batch", "sample"])
@pytest.mark.parametrize("kind", ["advantage_entropy", "entropy", "random"])
def test_token_options_match_top_tokens(kind, scope, every):
    """K of the trainable tokens: all, or every second one."""
    batch = random_tokens()
    trainable = batch.trainable = torch.arange(sum(LENGTHS)) % every == 0
    chosen = downsampled(batch, 0.3, f"tokens={kind}", f"token_scope={scope}")
    assert chosen.weights is None and not chosen.selected[~trainable].any()
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
    assert chosen.counts_all and not chosen.selected[~candidates].any()
    assert torch.equal(chosen.selected[candidates], nat(0.3, ids, seeded(0), prefix)[0])
    weights = torch.ones(20)
    weights[candidates] = (1 / keep_probabilities(0.3, ids, prefix)).float()
    torch.testing.assert_close(chosen.weights, weights)
    assert downsampled(batch, 1.0, rule).weights is None
