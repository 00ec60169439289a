"""Which rollouts and which of their tokens a step trains, by the rules of reward.advantages and selector."""

import math

import torch
from torch import Tensor

from d3s.advantage import compute_advantages
from d3s.config.schema import RewardConfig, SelectorConfig
from d3s.packing import Batch
from d3s.selector import ROLLOUT_RULES, TOKEN_RULES, top_tokens


def downsample_rollouts(
    selector: SelectorConfig,
    reward: RewardConfig,
    rewards: Tensor,
    eligible: Tensor,
    n: int,
    generator: torch.Generator,
    cross_share: float | None = None,
    parts: dict[str, Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute the advantages of rewards [B, G] and choose the rollouts to train.

    Args:
        eligible: bool [B, G]; ineligible rollouts are never selected, do not count toward n, and get advantage 0.
        n: rollouts kept per prompt.
        cross_share: fraction of n selected across the batch; None: selector.cross_share.
        parts: of the rewards, see compute_advantages.

    Returns: advantages [B, G]; kept, bool [B, G].
    """
    after = selector.normalize == "after"  # PODS: the selection compares rewards, and only what it keeps is normalized
    advantages = rewards if after else compute_advantages(reward, rewards, parts)[0]
    kept = ROLLOUT_RULES.rule(selector.rollouts)(
        advantages=advantages,
        rewards=rewards,
        keep=n,
        eligible=eligible,
        cross_share=selector.cross_share if cross_share is None else cross_share,
        generator=generator,
    )
    if after:
        advantages = compute_advantages(reward, rewards, parts, kept)[0]
    return advantages.masked_fill(~eligible, 0.0), kept


def downsample_tokens(
    selector: SelectorConfig, batch: Batch, k: float, generator: torch.Generator
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Choose the trainable response tokens of the kept rollouts to train; k is a fraction of these.

    Returns: bool [T]; the weight of each token's loss [T], None if the rule does not weight tokens; the priorities that
        were compared [T], NaN where not trainable, None if there are none.
    """
    candidates = batch.trainable_tokens()
    if k == 1:
        return candidates, None, None
    sequence_ids = batch.sequence_ids[candidates]
    result = TOKEN_RULES.rule(selector.tokens)(
        advantages=batch.advantages[candidates],
        entropies=batch.entropies[candidates],
        logprobs=batch.rollout_logprobs[candidates],
        sequence_ids=sequence_ids,
        fraction=k,
        generator=generator,
    )
    chosen, weights = result if isinstance(result, tuple) else (result, None)

    def of_all(values: Tensor, otherwise: float) -> Tensor:  # [candidates] -> [T]
        return torch.full(candidates.shape, otherwise, dtype=values.dtype).masked_scatter(candidates, values)

    priorities = None
    if chosen.dtype != torch.bool:
        priorities = of_all(chosen, math.nan)
        chosen = top_tokens(chosen, k, sequence_ids if selector.token_scope == "sample" else None, generator)
    return of_all(chosen, False), None if weights is None else of_all(weights, 1.0), priorities
