"""Which rollouts and which of their tokens a step trains, by the rules of reward.advantages and selector."""

import math

import torch
from torch import Tensor

from d3s.advantage import compute_advantages
from d3s.config.schema import RewardConfig, SelectorConfig
from d3s.packing import Batch
from d3s.rollout.groups import RolloutGroups
from d3s.selector import ROLLOUT_RULES, TOKEN_RULES, top_tokens


def downsample_rollouts(
    selector: SelectorConfig,
    reward: RewardConfig,
    groups: RolloutGroups,
    eligible: Tensor,
    cross_share: float,
    n: int,
    generator: torch.Generator,
) -> tuple[Tensor, Tensor]:
    """Compute the advantages of B groups of G rollouts and choose those to train.

    Args:
        eligible: bool [B, G]; ineligible rollouts are never selected, do not count toward n, and get advantage 0.
        cross_share: fraction of n selected across the batch.
        n: rollouts kept per prompt.

    Returns: advantages [B, G]; kept, bool [B, G].
    """
    rewards, parts = groups.rewards, groups.parts
    after = selector.normalize == "after"  # PODS: the selection compares rewards, and only what it keeps is normalized
    advantages = rewards if after else compute_advantages(reward, rewards, parts)[0]
    kept = ROLLOUT_RULES.rule(selector.rollouts)(
        advantages=advantages, rewards=rewards, keep=n, eligible=eligible, cross_share=cross_share, generator=generator
    )
    if after:
        advantages = compute_advantages(reward, rewards, parts, kept)[0]
    return advantages.masked_fill(~eligible, 0.0), kept


def downsample_tokens(selector: SelectorConfig, batch: Batch, k: float, generator: torch.Generator) -> None:
    """Select the fraction k of the trainable response tokens, see Batch.select; the others are not trained.

    Priorities are kept where the rule ranks tokens: [T], NaN where not trainable.
    """
    candidates = batch.trainable.clone()
    if k == 1:
        batch.select(candidates)
        return
    sequence_ids = batch.sequence_ids[candidates]
    result = TOKEN_RULES.rule(selector.tokens)(
        advantages=batch.advantages[candidates],
        entropies=batch.entropies[candidates],
        logprobs=batch.rollout_logprobs[candidates],
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
        chosen = top_tokens(result, k, sequence_ids if selector.token_scope == "sample" else None, generator)
        batch.select(of_all(chosen, False), priorities=of_all(result, math.nan))
