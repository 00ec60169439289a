"""Select rollouts and tokens: pure functions on tensors. What they do not select is never computed.

A rule of selector.rollouts takes, by name, what it needs of (B problems, G responses to each):

    advantages    [B, G]  finite; with selector.normalize: after, the rewards
    rewards       [B, G]  finite
    keep                  N, rollouts kept per problem, 1 <= N <= G
    eligible      [B, G]  bool, rollouts that may be kept
    cross_share           the share of N selected across the batch
    generator             of every random number; ties are broken by it (the index would prefer the same rollouts)

and returns bool [B, G], at most N x B of the eligible ones.

A rule of selector.tokens takes, by name, what it needs of (T trainable response tokens of the kept rollouts):

    advantages    [T]     of the rollout of each token, or of the token itself
    entropies     [T]     in nats, by selector.entropy_source; a rule that does not take them needs no entropies
    logprobs      [T]     log-probability of the token in the engine that sampled it
    ref_logprobs  [T]     log-probability of the token in the reference model, which then runs before the selection,
                          on all these tokens; only where the loss reads it too
    sequence_ids  [T]     the rollout of each token, ascending from 0
    fraction              K in (0, 1]
    generator             as above

and returns priorities, float32 or float64 [T], of which the fraction K with the highest is trained, ties at random, by
selector.token_scope; or the tokens to train, bool [T]; or (bool [T], weights, float32 [T]). A weight multiplies its
token's loss, so that the weighted sum estimates the sum over all T tokens. loss.normalizer then counts all T.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from d3s.advantage import ADVANTAGE_RULES, equal_rewards
from d3s.packing import Batch
from d3s.rules import Contract, Value, tensor_problem

if TYPE_CHECKING:  # pydantic may be missing
    from d3s.config.schema import RewardConfig, SelectorConfig
    from d3s.groups import RolloutGroups

TIE = 1e-9  # relative difference below which the variances of two subsets count as equal


# S* = argmax_{S, |S| = N} Var(A_S)               D3S sample level; within a group (intra) or over the batch (cross)
#
# The optimum is always the k largest and the N - k smallest values for some k (PODS, arXiv 2504.13818, Lemma 3.1), so
# sorting and scanning the N + 1 splits with prefix sums is exact.
def select_rollouts(
    advantages: Tensor,
    keep: int,
    cross_share: float = 1.0,
    generator: torch.Generator | None = None,
    eligible: Tensor | None = None,
) -> Tensor:
    """Select the rollouts with the largest variance of the advantage, within the groups or across the batch.

    Args:
        advantages: [B, G], finite; compared as given, never normalized again.
        cross_share: 1 selects keep * B of the pooled batch (D3S), 0 selects `keep` of every group (D3S-I). In between,
            groups first select (1 - cross_share) * keep * B in all, in pairs, as a single rollout has no variance: each
            the same number, and one more in groups drawn at random. The rest is selected across the batch.
        generator: breaks ties uniformly, first among equally good splits, then among equal advantages.
        eligible: bool [B, G]; if given, only these are selected, and all of them where they are fewer than asked for.

    Returns: bool [B, G].
    Raises: ValueError for another shape, `keep` out of range or a non-finite advantage.
    """
    if advantages.dim() != 2 or not 1 <= keep <= advantages.shape[1] or not advantages.isfinite().all():
        raise ValueError(f"need finite advantages [B, G] and 1 <= keep <= G, not {list(advantages.shape)} and {keep}")
    values, groups = advantages.double(), len(advantages)
    eligible = torch.ones_like(advantages, dtype=torch.bool) if eligible is None else eligible
    if cross_share == 0:
        return _max_variance_subset(values, eligible, keep, generator)
    chosen = torch.zeros_like(eligible)
    if cross_share < 1:
        chosen = _pairs_within_groups(values, eligible, keep, 1 - cross_share, generator)
    pool, allowed, missing = values.view(1, -1), (eligible & ~chosen).view(1, -1), keep * groups - int(chosen.sum())
    return chosen | _max_variance_subset(pool, allowed, missing, generator).view_as(chosen)


def _pairs_within_groups(
    values: Tensor, eligible: Tensor, keep: int, share: float, generator: torch.Generator | None
) -> Tensor:
    """Select share * keep * B rollouts in pairs: each group as many, and one pair more in groups drawn at random."""
    chosen, groups = torch.zeros_like(eligible), len(values)
    pairs, more = divmod(math.floor(share * keep * groups / 2 + 1e-9), groups)
    order = torch.randperm(groups, generator=generator)
    for rows, within in ((order[:more], min(2 * pairs + 2, keep)), (order[more:], 2 * pairs)):
        if within:
            chosen[rows] = _max_variance_subset(values[rows], eligible[rows], within, generator)
    return chosen


def _max_variance_subset(pools: Tensor, eligible: Tensor, keep: int, generator: torch.Generator | None) -> Tensor:
    """Mark, in each row of `pools` [R, M], the `keep` eligible values of largest variance, or all if fewer."""
    shuffle = torch.rand(pools.shape, generator=generator, dtype=torch.float64).argsort(dim=1)
    values, order = pools.masked_fill(~eligible, math.inf).gather(1, shuffle).sort(dim=1, stable=True)
    order = shuffle.gather(1, order)
    count = eligible.sum(1, keepdim=True)  # [R, 1]; eligible values sort first
    size = count.clamp(max=keep)
    rank = torch.arange(pools.shape[1])
    values = values.masked_fill(rank >= count, 0.0)

    # Split k has the `lost[k]` smallest values, and those from rank `gained[k]` on, which are the k largest.
    top = torch.arange(keep + 1)
    lost, gained = (size - top).clamp(min=0), (count - top).clamp(min=0)  # [R, keep + 1] each
    centered = values - values.sum(1, keepdim=True) / count.clamp(min=1)  # keeps the prefix sums small
    sums = (pad(x.cumsum(1), (1, 0)) for x in (centered, centered.square()))
    totals = (x.gather(1, count) - x.gather(1, gained) + x.gather(1, lost) for x in sums)
    means, squares = (total / size.clamp(min=1) for total in totals)
    variances = (squares - means.square()).masked_fill(top > size, -math.inf)
    best = variances.max(dim=1, keepdim=True).values
    candidates = variances >= best - TIE * best.abs()

    # Split k has a largest value in the place of a smallest one of split k - 1; of equal values it is the same subset.
    changes = values.gather(1, lost[:, 1:]) != values.gather(1, gained[:, 1:])
    subset = pad(changes.cumsum(1), (1, 0))  # [R, keep + 1] number of the split's subset
    noise = torch.rand(variances.shape, generator=generator, dtype=torch.float64)
    drawn = noise.gather(1, subset).masked_fill(~candidates, -1.0).argmax(dim=1, keepdim=True)
    candidates &= subset == subset.gather(1, drawn)
    split = noise.masked_fill(~candidates, -1.0).argmax(dim=1, keepdim=True)  # [R, 1]
    chosen = ((rank >= count - split) | (rank < size - split)) & (rank < count)
    return torch.zeros_like(chosen).scatter(1, order, chosen)


def random_rollouts(eligible: Tensor, keep: int, cross_share: float, generator: torch.Generator | None) -> Tensor:
    """The control: keep * B of the pooled batch at random, or `keep` of every group if the share is 0; bool [B, G]."""
    noise = torch.rand(eligible.shape, generator=generator).masked_fill(~eligible, math.inf)
    pools, size = (noise.view(1, -1), keep * len(noise)) if cross_share else (noise, keep)
    lowest = pools.argsort(dim=1)[:, :size]
    return torch.zeros(pools.shape, dtype=torch.bool).scatter(1, lowest, True).view_as(eligible) & eligible


# T* = top_K%( y_{i,t} in S ; |A_{i,t}| * H_{i,t} )       D3S token level; H: entropy over the full vocabulary
def advantage_entropy(advantages: Tensor, entropies: Tensor) -> Tensor:
    """|advantage| x entropy, D3S's priority of each token. Returns: [T]."""
    return advantages.abs() * entropies


# arXiv 2506.01939 trains the 20 % of the tokens with the highest entropy.
def entropy(entropies: Tensor) -> Tensor:
    """Entropy alone as the priority of each token. Returns: [T]."""
    return entropies


def random_priorities(sequence_ids: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Random priorities, the control. Returns: [T]."""
    return torch.rand(len(sequence_ids), generator=generator)


def top_tokens(
    priorities: Tensor, fraction: float, sequence_ids: Tensor | None = None, generator: torch.Generator | None = None
) -> Tensor:
    """Select the ceil(fraction * T) tokens of highest priority, at least one; ties at random, never by index.

    Args:
        priorities: [T], finite.
        fraction: in (0, 1].
        sequence_ids: [T], ascending from 0; if given, select that fraction of each sequence.

    Returns: bool [T].
    Raises: ValueError for a fraction out of range or a priority that is not finite.
    """
    if not (0 < fraction <= 1 and priorities.isfinite().all()):  # NaN would sort first
        raise ValueError(f"need finite priorities and a fraction in (0, 1], not {fraction}")
    if not len(priorities):
        return torch.zeros(0, dtype=torch.bool)
    if sequence_ids is not None:
        sequences = priorities.split(sequence_ids.bincount().tolist())
        return torch.cat([top_tokens(own, fraction, None, generator) for own in sequences])
    # despite rounding in the product (in floats 0.07 * 100 > 7)
    count = max(1, math.ceil(fraction * len(priorities) - 1e-9 * len(priorities)))
    place = len(priorities) - count
    threshold = torch.tensor(np.partition(priorities.numpy(), place)[place])  # sorting all of them takes longer
    chosen = priorities > threshold
    ties = (priorities == threshold).nonzero()[:, 0]
    order = torch.randperm(len(ties), generator=generator)
    return chosen.index_fill(0, ties[order[: count - int(chosen.count_nonzero())]], True)


def _rollouts_problem(result: Any, advantages: Tensor, keep: int, eligible: Tensor, **_: Any) -> str | None:
    if problem := tensor_problem(result, tuple(advantages.shape), torch.bool):
        return problem
    if (result & ~eligible).any():
        return "rollouts that are not eligible"
    count, most = int(result.sum()), keep * len(advantages)
    return f"{count} rollouts, expected at most N x B = {most}" if count > most else None


def _tokens_problem(result: Any, sequence_ids: Tensor, **_: Any) -> str | None:
    shape = tuple(sequence_ids.shape)
    if isinstance(result, tuple) and len(result) == 2:
        chosen, weights = result
        problem = tensor_problem(chosen, shape, torch.bool) or tensor_problem(weights, shape, torch.float32)
        return problem or tensor_problem(weights[chosen], (int(chosen.sum()),), torch.float32, entry="a weight")
    if getattr(result, "dtype", None) == torch.bool:
        return tensor_problem(result, shape, torch.bool)
    problem = tensor_problem(result, shape, torch.float32, torch.float64, entry="a priority")
    return problem and f"{problem}; priorities are float [T], chosen tokens bool [T], or (bool [T], weights [T])"


def _rollout_examples() -> Iterable[dict[str, Any]]:
    rewards = torch.tensor([[1.0, 0.0, 0.0, 0.5], [0.0, 0.0, 0.0, 0.0]])
    for cross_share in (0.0, 1.0):
        yield {
            "advantages": rewards - rewards.mean(1, keepdim=True),
            "rewards": rewards,
            "keep": 2,
            "eligible": torch.tensor([[True, True, True, True], [True, True, True, False]]),
            "cross_share": cross_share,
            "generator": torch.Generator().manual_seed(0),
        }


def _token_examples() -> Iterable[dict[str, Any]]:
    for count in (8, 0):
        yield {
            "advantages": torch.linspace(-1.0, 1.5, count),
            "entropies": torch.linspace(0.0, 2.0, count),
            "logprobs": -torch.linspace(0.0, 3.0, count),
            "ref_logprobs": -torch.linspace(2.0, 0.5, count),
            "sequence_ids": torch.arange(count) // 4,
            "fraction": 0.25,
            "generator": torch.Generator().manual_seed(0),
        }


ROLLOUT_RULES = Contract(
    "selector.rollouts",
    {"max_variance": select_rollouts, "random": random_rollouts},
    ("advantages", "rewards", "keep", "eligible", "cross_share", "generator"),
    _rollouts_problem,
    examples=_rollout_examples,
)
TOKEN_RULES = Contract(
    "selector.tokens",
    {"advantage_entropy": advantage_entropy, "entropy": entropy, "random": random_priorities},
    ("advantages", "entropies", "logprobs", "ref_logprobs", "sequence_ids", "fraction", "generator"),
    _tokens_problem,
    examples=_token_examples,
)


def ranks_by_reference(tokens: Value) -> bool:
    """Whether the rule of selector.tokens ranks tokens by the reference model."""
    return "ref_logprobs" in TOKEN_RULES.rule(tokens).takes


# --- the rules of a run ----------------------------------------------------------------------------------------------


@dataclass
class Selection:
    """What a step decides about its rollouts, B groups of G. The batch, the metrics and the samples follow from it."""

    n: int  # rollouts kept per problem
    cross_share: float  # of n, selected across the batch
    eligible: Tensor  # bool [B, G]
    all_advantages: Tensor  # [B, G], over all G responses
    advantages: Tensor  # [B, G], those that are trained; 0 where not eligible or not counted
    divisors: Tensor | None  # [B, 1], of their centered rewards, see d3s/advantage.py
    kept: Tensor  # bool [B, G]


class Selector:
    """Applies the rules of reward.advantages and selector, which it loads once."""

    def __init__(self, settings: SelectorConfig, reward: RewardConfig) -> None:
        self.settings = settings
        self.rollout_rule, self.token_rule = ROLLOUT_RULES.rule(settings.rollouts), TOKEN_RULES.rule(settings.tokens)
        self.advantage_rule, self.part_weights = ADVANTAGE_RULES.rule(reward.advantages), reward.part_weights()

    def advantages(self, groups: RolloutGroups, counted: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Apply the rule of reward.advantages. Rewards that are not counted, bool [B, G], get 0.

        Returns: advantages [B, G]; divisors [B, 1] if the rule has them, infinite where all rewards of a group are
            equal, so that its spans get advantage 0.
        Raises: UserError for rewards for which the rule is not defined.
        """
        rewards = groups.rewards
        counted = torch.ones_like(rewards, dtype=torch.bool) if counted is None else counted
        parts = {name: groups.parts[name] for name in self.part_weights if name in groups.parts}
        result = self.advantage_rule(rewards=rewards, counted=counted, parts=parts, weights=self.part_weights)
        advantages, divisors = result if isinstance(result, tuple) else (result, None)
        if divisors is not None:
            divisors = divisors.masked_fill(equal_rewards(rewards, counted), math.inf)
        return advantages.masked_fill(~counted, 0.0).to(torch.promote_types(rewards.dtype, torch.float32)), divisors

    def rollouts(
        self,
        groups: RolloutGroups,
        of_all: tuple[Tensor, Tensor | None],
        eligible: Tensor,
        cross_share: float,
        n: int,
        generator: torch.Generator,
    ) -> Selection:
        """Choose the rollouts to train by their advantages.

        Args:
            of_all: what `advantages` gives for the groups.
            eligible: bool [B, G]; others are never selected, do not count toward n, and get advantage 0.
        """
        rewards, (all_advantages, divisors) = groups.rewards, of_all
        advantages, after = all_advantages, self.settings.normalize == "after"
        kept = self.rollout_rule(
            advantages=rewards if after else advantages,
            rewards=rewards,
            keep=n,
            eligible=eligible,
            cross_share=cross_share,
            generator=generator,
        )
        if after:  # PODS: the selection compares rewards, and only what it keeps is normalized
            advantages, divisors = self.advantages(groups, kept)
        advantages = advantages.masked_fill(~eligible, 0.0)
        return Selection(n, cross_share, eligible, all_advantages, advantages, divisors, kept)

    def tokens(self, batch: Batch, k: float, generator: torch.Generator) -> None:
        """Select the fraction k of the trainable response tokens, see Batch.select; the others are not trained.

        Priorities are kept where the rule ranks tokens: [T], NaN where not trainable.
        """
        candidates = batch.trainable.clone()
        if k == 1:
            batch.select(candidates)
            return
        sequence_ids = batch.sequence_ids[candidates]
        result = self.token_rule(
            advantages=batch.advantages[candidates],
            entropies=batch.entropies[candidates],
            logprobs=batch.rollout_logprobs[candidates],
            ref_logprobs=None if batch.ref_logprobs is None else batch.ref_logprobs[candidates],
            sequence_ids=sequence_ids,
            fraction=k,
            generator=generator,
        )

        def of_all(values: Tensor, otherwise: float) -> Tensor:  # [candidates] -> [T]
            return torch.full(candidates.shape, otherwise, dtype=values.dtype).masked_scatter(candidates, values)

        if isinstance(result, tuple):
            chosen, weights = result
            batch.select(of_all(chosen, False), weights=of_all(weights, 1.0))
        elif result.dtype == torch.bool:
            batch.select(of_all(result, False))
        else:
            scope = sequence_ids if self.settings.token_scope == "sample" else None
            batch.select(of_all(top_tokens(result, k, scope, generator), False), priorities=of_all(result, math.nan))
