"""The two levels of selection as the configuration words them, on top of the pure functions of selector.py."""

import torch
from torch import Tensor

from d3s.advantage import group_advantages
from d3s.config.schema import Config, SelectorConfig
from d3s.packing import Batch
from d3s.schedule import downsampling_schedule, training_progress
from d3s.selector import mixed_rollouts, random_rollouts, select_rollouts, select_tokens, top_tokens


def downsample_rollouts(
    config: Config, rewards: Tensor, eligible: Tensor, n: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Advantages [B, G] and which rollouts are kept (bool [B, G]).

    Args:
        rewards: [B, G].
        eligible: bool [B, G]; the others are never trained: no place is given to them, and their advantage is 0.
        n: rollouts kept per prompt.
    """
    selector, scale = config.selector, config.reward.scale_rewards
    advantages = group_advantages(rewards, scale)
    if selector.normalize == "before":
        kept = _pick(selector, advantages, n, generator, eligible)
        used = advantages.masked_fill(~eligible, 0.0)
    else:  # PODS: the selection looks at rewards, and only what it keeps is normalised
        kept = _pick(selector, rewards, n, generator, eligible)
        used = group_advantages(rewards, scale, kept)
    if selector.drop_zero_advantage:
        kept = kept & (used != 0)
    return used, kept


def _pick(selector: SelectorConfig, values: Tensor, n: int, generator: torch.Generator, eligible: Tensor) -> Tensor:
    if selector.rollouts == "random":
        return random_rollouts(values, n, selector.cross_group, generator, eligible)
    if selector.cross_group and selector.cross_share < 1:
        return mixed_rollouts(values, n, selector.cross_share, generator, eligible)
    return select_rollouts(values, n, selector.cross_group, generator, eligible)


def ranks_by_entropy(selector: SelectorConfig, fraction: float) -> bool:
    """Whether downsample_tokens looks at entropies."""
    return fraction < 1 and selector.tokens != "random"


def downsample_tokens(selector: SelectorConfig, batch: Batch, fraction: float, generator: torch.Generator) -> Tensor:
    """Which response tokens of the kept rollouts are trained, bool [T]."""
    if fraction == 1:
        return torch.ones(len(batch.sequence_ids), dtype=torch.bool)
    scope = batch.sequence_ids if selector.token_scope == "sample" else None
    if selector.tokens == "advantage_entropy":
        return select_tokens(batch.advantages, batch.entropies, fraction, scope, generator)
    if selector.tokens == "entropy":
        return top_tokens(batch.entropies, fraction, scope, generator)
    return top_tokens(torch.rand(len(batch.entropies), generator=generator), fraction, scope, generator)


def schedule_at(config: Config, step: int) -> tuple[int, float]:
    """N and K of training step `step` (0-based)."""
    s, g = config.schedule, config.rollout.num_generations
    return downsampling_schedule(
        training_progress(step, config.train.steps),
        s.n_init or g,
        s.n_final or g,
        s.k_init,
        s.k_final,
        s.n_shape or s.shape,
        s.k_shape or s.shape,
    )
