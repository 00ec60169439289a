"""Select rollouts and tokens: pure functions on tensors. What they do not select is never computed.

A rule of selector.rollouts takes, by name, what it needs of (B problems, G responses to each):

    advantages    [B, G]  finite; with selector.normalize: after, the rewards
    rewards       [B, G]  finite
    keep                  N, rollouts kept per problem, 1 <= N <= G
    eligible      [B, G]  bool, rollouts that may be kept
    cross_group           whether N x B rollouts of the pooled batch are kept, or N of every group
    cross_share           selector.cross_share, the share of N selected across the batch; 0 without cross_group
    generator             of every random number; ties are broken by it (the index would prefer the same rollouts)

and returns bool [B, G], at most N x B of the eligible ones.

A rule of selector.tokens takes, by name, what it needs of (T trainable response tokens of the kept rollouts):

    advantages    [T]     of the rollout of each token, or of the token itself
    entropies     [T]     in nats, by selector.entropy_source; a rule that does not take them needs no entropies
    logprobs      [T]     log-probability of the token in the engine that sampled it
    sequence_ids  [T]     the rollout of each token, ascending from 0
    fraction              K in (0, 1]
    generator             as above

and returns priorities, float32 or float64 [T], of which the fraction K with the highest is trained, ties at random, by
selector.token_scope; or the tokens to train, bool [T]; or (bool [T], weights, float32 [T]), where a weight multiplies
the loss of its token: the sum over the kept tokens then estimates that over all T tokens, which every loss.normalizer
counts.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from d3s.rules import Contract, tensor_problem

TIE = 1e-9  # relative difference below which the variances of two subsets count as equal


# S* = argmax_{S, |S| = N} Var(A_S)               D3S sample level; within a group (intra) or over the batch (cross)
#
# The optimum is always the k largest and the N - k smallest values for some k (PODS, arXiv 2504.13818, Lemma 3.1), so
# sorting and scanning the N + 1 splits with prefix sums is exact.
def select_rollouts(
    advantages: Tensor,
    keep: int,
    cross_group: bool = True,
    generator: torch.Generator | None = None,
    eligible: Tensor | None = None,
) -> Tensor:
    """Select the subset of rollouts with the largest variance of the advantage.

    Args:
        advantages: [B, G], finite; compared as given, never normalized again.
        keep: rollouts kept per prompt, 1 <= keep <= G.
        cross_group: True keeps keep * B of the pooled batch, False keeps `keep` of every row.
        generator: breaks ties uniformly (never by index, which would prefer the same rollout slots every time): among
            equally good numbers of largest and smallest advantages, then among equal advantages.
        eligible: bool [B, G]; if given, only these are selected, and all of them where they are fewer than asked for.

    Returns: bool [B, G].
    Raises: ValueError for another shape, `keep` out of range or a non-finite advantage.
    """
    if advantages.dim() != 2:
        raise ValueError(f"advantages must be [B, G], not {list(advantages.shape)}")
    if not 1 <= keep <= advantages.shape[1]:
        raise ValueError(f"keep must be between 1 and G = {advantages.shape[1]}, not {keep}")
    if not torch.isfinite(advantages).all():
        raise ValueError("advantages must be finite")
    values, allowed, size = pools(advantages, keep, cross_group, eligible)
    return _max_variance_subset(values.double(), allowed, size, generator).reshape(advantages.shape)


def pools(advantages: Tensor, keep: int, cross_group: bool, eligible: Tensor | None) -> tuple[Tensor, Tensor, int]:
    """The pools to select from [R, M], the eligible entries (bool [R, M]), and how many to keep of each pool."""
    allowed = torch.ones_like(advantages, dtype=torch.bool) if eligible is None else eligible
    if cross_group:
        return advantages.reshape(1, -1), allowed.reshape(1, -1), keep * advantages.shape[0]
    return advantages, allowed, keep


def _max_variance_subset(pools: Tensor, eligible: Tensor, keep: int, generator: torch.Generator | None) -> Tensor:
    """Mark, in each row of `pools` [R, M], the `keep` eligible values of largest variance, or all if fewer."""
    rows, columns = pools.shape
    shuffle = torch.rand(pools.shape, generator=generator, dtype=torch.float64).argsort(dim=1)
    values, order = pools.masked_fill(~eligible, math.inf).gather(1, shuffle).sort(dim=1, stable=True)
    order = shuffle.gather(1, order)
    count = eligible.sum(1, keepdim=True)  # [R, 1]; eligible values sort first
    size = count.clamp(max=keep)
    rank = torch.arange(columns)

    values = values.masked_fill(rank >= count, 0.0)
    centered = values - values.sum(1, keepdim=True) / count.clamp(min=1)  # keeps the prefix sums small
    zero = torch.zeros(rows, 1, dtype=values.dtype)
    top = torch.arange(keep + 1)  # number of largest values in the subset; the rest are the smallest

    def totals(numbers: Tensor) -> Tensor:  # [R, keep + 1]: sum over the subset of each split
        smallest = torch.cat([zero, numbers.cumsum(1)], dim=1)  # smallest[j]: the sum of the j smallest
        above = smallest.gather(1, count) - smallest.gather(1, (count - top).clamp(min=0))
        return above + smallest.gather(1, (size - top).clamp(min=0))

    means = totals(centered) / size.clamp(min=1)
    variances = totals(centered.square()) / size.clamp(min=1) - means.square()
    variances = variances.masked_fill(top > size, -math.inf)

    best = variances.max(dim=1, keepdim=True).values
    candidates = variances >= best - TIE * best.abs()
    # Split k has a largest value in the place of a smallest one of split k - 1; of equal values it is the same subset.
    lost, gained = ((ends - top[1:]).clamp(min=0) for ends in (size, count))
    subset = pad((values.gather(1, lost) != values.gather(1, gained)).cumsum(1), (1, 0))  # number of the split's subset
    noise = torch.rand(variances.shape, generator=generator, dtype=torch.float64)
    drawn = noise.gather(1, subset).masked_fill(~candidates, -1.0).argmax(dim=1, keepdim=True)
    candidates &= subset == subset.gather(1, drawn)
    largest = noise.masked_fill(~candidates, -1.0).argmax(dim=1, keepdim=True)  # [R, 1]: k of the selected split

    chosen = ((rank >= count - largest) | (rank < size - largest)) & (rank < count)
    return torch.zeros_like(chosen).scatter(1, order, chosen)


def mixed_rollouts(
    advantages: Tensor,
    keep: int,
    cross_share: float,
    generator: torch.Generator | None = None,
    eligible: Tensor | None = None,
) -> Tensor:
    """Largest variance of the advantage: (1 - cross_share) * keep * B within the groups, then the rest across them.

    This interpolates between D3S-I (0) and D3S (1), which are select_rollouts within groups and across the batch. The
    groups reserve pairs, as a single rollout has no variance: each the same number, and one more in groups drawn at
    random, so that the total is right. Returns: bool [B, G].
    """
    if cross_share in (0, 1):
        return select_rollouts(advantages, keep, bool(cross_share), generator, eligible)
    pool, allowed, budget = pools(advantages, keep, True, eligible)
    groups = len(advantages)
    pairs, more = divmod(math.floor((1 - cross_share) * keep * groups / 2 + 1e-9), groups)
    order = torch.randperm(groups, generator=generator)
    chosen = torch.zeros_like(advantages, dtype=torch.bool)
    for rows, within in ((order[:more], min(2 * pairs + 2, keep)), (order[more:], 2 * pairs)):
        if within and len(rows):
            allowed_rows = allowed.reshape(advantages.shape)[rows]
            chosen[rows] = select_rollouts(advantages[rows], within, False, generator, allowed_rows)
    chosen = chosen.reshape(1, -1)
    missing = min(budget, int(allowed.sum())) - int(chosen.sum())
    chosen = chosen | _max_variance_subset(pool.double(), allowed & ~chosen, missing, generator)
    return chosen.reshape(advantages.shape)


def random_rollouts(
    advantages: Tensor,
    keep: int,
    cross_group: bool = True,
    generator: torch.Generator | None = None,
    eligible: Tensor | None = None,
) -> Tensor:
    """As many rollouts at random, the control. Returns: bool [B, G]."""
    values, allowed, size = pools(advantages, keep, cross_group, eligible)
    order = torch.rand(values.shape, generator=generator).masked_fill(~allowed, 2.0).argsort(dim=1)
    first = torch.zeros(values.shape, dtype=torch.bool).scatter(1, order[:, :size], True)
    return (first & allowed).reshape(advantages.shape)


# T* = top_K%( y_{i,t} in S ; |A_{i,t}| * H_{i,t} )       D3S token level; H: entropy over the full vocabulary
def select_tokens(
    advantages: Tensor,
    entropies: Tensor,
    fraction: float,
    sequence_ids: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Select the ceil(fraction * T) tokens of largest |advantage| * entropy.

    Args:
        advantages, entropies: [T], one value per response token; entropy in nats.
        fraction: in (0, 1].
        sequence_ids: [T]; if given, select ceil(fraction * length) tokens of each sequence, at least one. With one
            advantage per sequence this ranks by entropy alone.
        generator: breaks ties at random (never by index, which would prefer the first tokens of the first rollouts).

    Returns: bool [T].
    Raises: ValueError for a fraction out of range, tensors of unequal length or a non-finite value.
    """
    if advantages.shape != entropies.shape:
        raise ValueError(f"need one entropy per advantage, not {list(entropies.shape)} and {list(advantages.shape)}")
    return top_tokens(advantage_entropy(advantages, entropies), fraction, sequence_ids, generator)


def advantage_entropy(advantages: Tensor, entropies: Tensor) -> Tensor:
    """|advantage| x entropy, D3S's priority of each token, [T]."""
    return advantages.abs() * entropies


# arXiv 2506.01939 trains the 20 % of the tokens with the highest entropy.
def entropy(entropies: Tensor) -> Tensor:
    """Entropy alone as the priority of each token, [T]."""
    return entropies


def random_priorities(sequence_ids: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Random priorities, the control, [T]."""
    return torch.rand(len(sequence_ids), generator=generator)


def top_tokens(
    priorities: Tensor, fraction: float, sequence_ids: Tensor | None = None, generator: torch.Generator | None = None
) -> Tensor:
    """Select the ceil(fraction * T) tokens of highest priority [T], or that fraction of each sequence; bool [T].

    Arguments and errors are those of select_tokens.
    """
    if not 0 < fraction <= 1:
        raise ValueError(f"fraction must be in (0, 1], not {fraction}")
    if priorities.dim() != 1 or (sequence_ids is not None and priorities.shape != sequence_ids.shape):
        ids = "no" if sequence_ids is None else list(sequence_ids.shape)
        raise ValueError(f"need one priority and sequence id per token, not {list(priorities.shape)} and {ids}")
    if len(priorities) == 0:
        return torch.zeros(0, dtype=torch.bool)
    if not torch.stack(priorities.aminmax()).isfinite().all():
        raise ValueError("priorities must be finite")  # NaN would sort first
    if sequence_ids is None:
        return _largest(priorities, int(token_budget(torch.tensor([len(priorities)]), fraction)), generator)
    order = torch.randperm(len(priorities), generator=generator)
    order = order[priorities[order].argsort(descending=True)]
    order = order[sequence_ids[order].argsort(stable=True)]  # sequence by sequence, best first
    _, group, counts = sequence_ids[order].unique_consecutive(return_inverse=True, return_counts=True)
    rank = torch.arange(len(order)) - (counts.cumsum(0) - counts)[group]
    return torch.zeros_like(priorities, dtype=torch.bool).scatter(
        0, order, rank < token_budget(counts, fraction)[group]
    )


def _largest(priorities: Tensor, count: int, generator: torch.Generator | None) -> Tensor:
    """Mark the `count` highest priorities [T] without sorting all of them."""
    place = len(priorities) - count
    threshold = torch.tensor(np.partition(priorities.numpy(), place)[place])
    chosen = priorities > threshold
    ties = (priorities == threshold).nonzero()[:, 0]
    order = torch.randperm(len(ties), generator=generator)
    return chosen.index_fill(0, ties[order[: count - int(chosen.count_nonzero())]], True)


def token_budget(counts: Tensor, fraction: float) -> Tensor:
    """ceil(fraction * count), at least 1, despite rounding in the product (in floats 0.07 * 100 > 7)."""
    return torch.tensor([max(1, math.ceil(fraction * n - 1e-9 * n)) for n in counts.tolist()], dtype=torch.long)


# --- contracts -------------------------------------------------------------------------------------------------------


def _rollouts_problem(result: Any, advantages: Tensor, keep: int, eligible: Tensor, **_: Any) -> str | None:
    if problem := tensor_problem(result, tuple(advantages.shape), torch.bool):
        return problem
    if (result & ~eligible).any():
        return "rollouts that are not eligible"
    most = keep * len(advantages)
    return f"{int(result.sum())} rollouts, expected at most N x B = {most}" if result.sum() > most else None


def _tokens_problem(result: Any, sequence_ids: Tensor, **_: Any) -> str | None:
    shape = tuple(sequence_ids.shape)
    if isinstance(result, tuple) and len(result) == 2:
        chosen, weights = result
        if problem := tensor_problem(chosen, shape, torch.bool) or tensor_problem(weights, shape, torch.float32):
            return problem
        return None if weights[chosen].isfinite().all() else "NaN or infinity as a weight"
    if isinstance(result, Tensor) and result.dtype == torch.bool:
        return tensor_problem(result, shape, torch.bool)
    if problem := tensor_problem(result, shape, torch.float32, torch.float64):
        return f"{problem}; priorities are float [T], chosen tokens bool [T], or (bool [T], weights [T])"
    return None if result.isfinite().all() else "NaN or infinity as a priority"


def _rollouts_examples() -> Iterator[dict[str, Any]]:
    rewards = torch.tensor([[1.0, 0.0, 0.0, 0.5], [0.0, 0.0, 0.0, 0.0]])
    for cross in (False, True):
        yield {
            "advantages": rewards - rewards.mean(1, keepdim=True),
            "rewards": rewards,
            "keep": 2,
            "eligible": torch.tensor([[True, True, True, True], [True, True, True, False]]),
            "cross_group": cross,
            "cross_share": float(cross),
            "generator": torch.Generator().manual_seed(0),
        }


def _tokens_examples() -> Iterator[dict[str, Any]]:
    for count in (8, 0):
        yield {
            "advantages": torch.linspace(-1.0, 1.5, count),
            "entropies": torch.linspace(0.0, 2.0, count),
            "logprobs": -torch.linspace(0.0, 3.0, count),
            "sequence_ids": torch.arange(count) // 4,
            "fraction": 0.25,
            "generator": torch.Generator().manual_seed(0),
        }


ROLLOUT_RULES = Contract(
    "selector.rollouts",
    {"max_variance": mixed_rollouts, "random": random_rollouts},
    ("advantages", "rewards", "keep", "eligible", "cross_group", "cross_share", "generator"),
    _rollouts_problem,
    _rollouts_examples,
)
TOKEN_RULES = Contract(
    "selector.tokens",
    {"advantage_entropy": advantage_entropy, "entropy": entropy, "random": random_priorities},
    ("advantages", "entropies", "logprobs", "sequence_ids", "fraction", "generator"),
    _tokens_problem,
    _tokens_examples,
)
