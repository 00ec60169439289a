"""What a step keeps and computes: N and K now, kept rollouts, kept tokens, forward passes."""

from dataclasses import dataclass

import torch
from torch import Tensor

from d3s.advantage import group_advantages
from d3s.config.schema import Config, SelectorConfig
from d3s.loss import SEQUENCE_LOSSES
from d3s.packing import Batch
from d3s.schedule import downsampling_schedule, training_progress
from d3s.selector import mixed_rollouts, random_rollouts, select_rollouts, select_tokens, top_tokens


def schedule_at(config: Config, step: int) -> tuple[int, float]:
    """N, the rollouts kept per prompt, and K, the fraction of their tokens that is trained, at `step` (0-based)."""
    s, g = config.schedule, config.rollout.num_generations
    return downsampling_schedule(
        training_progress(step, config.train.steps),
        s.n_init or g,
        s.n_final or g,
        s.k_init,
        s.k_final,
        s.n_shape,
        s.k_shape,
    )


# --- rollouts --------------------------------------------------------------------------------------------------------


def downsample_rollouts(
    config: Config,
    rewards: Tensor,
    eligible: Tensor,
    n: int,
    generator: torch.Generator,
    cross_share: float | None = None,
    present: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute advantages and choose the rollouts to train.

    Args:
        rewards: [B, G].
        eligible: bool [B, G]; ineligible rollouts are never selected, do not count toward n, and get advantage 0.
        n: rollouts kept per prompt.
        cross_share: fraction of n selected across the batch; None: selector.cross_share.
        present: bool [B, G], False where a group has fewer than G rollouts; None: all groups are full.

    Returns: advantages [B, G]; kept, bool [B, G].
    """
    selector, scale = config.selector, config.reward.scale_rewards
    if present is not None:
        eligible = eligible & present
    if selector.normalize == "before":
        advantages = group_advantages(rewards, scale, present)
        kept = _select(selector, advantages, n, generator, eligible, cross_share)
        advantages = advantages.masked_fill(~eligible, 0.0)
    else:  # PODS: the selection compares rewards, and only what it keeps is normalized
        kept = _select(selector, rewards, n, generator, eligible, cross_share)
        advantages = group_advantages(rewards, scale, kept)
    if selector.drop_zero_advantage:
        kept = kept & (advantages != 0)
    return advantages, kept


def _select(
    selector: SelectorConfig,
    values: Tensor,
    n: int,
    generator: torch.Generator,
    eligible: Tensor,
    cross_share: float | None,
) -> Tensor:
    share = selector.cross_share if cross_share is None else cross_share
    if selector.rollouts == "random":
        return random_rollouts(values, n, selector.cross_group, generator, eligible)
    if selector.cross_group and share < 1:
        return mixed_rollouts(values, n, share, generator, eligible)
    return select_rollouts(values, n, selector.cross_group, generator, eligible)


# --- tokens ----------------------------------------------------------------------------------------------------------


def ranks_by_entropy(selector: SelectorConfig, k: float) -> bool:
    """Whether downsample_tokens reads entropies at this K."""
    return k < 1 and selector.tokens != "random"


def downsample_tokens(selector: SelectorConfig, batch: Batch, k: float, generator: torch.Generator) -> Tensor:
    """Choose the trainable response tokens of the kept rollouts to train, bool [T]; k is a fraction of these."""
    candidates = batch.trainable_tokens()
    if k == 1:
        return candidates
    sequence_ids = batch.sequence_ids[candidates] if selector.token_scope == "sample" else None
    advantages, entropies = batch.advantages[candidates], batch.entropies[candidates]
    if selector.tokens == "advantage_entropy":
        chosen = select_tokens(advantages, entropies, k, sequence_ids, generator)
    elif selector.tokens == "entropy":
        chosen = top_tokens(entropies, k, sequence_ids, generator)
    else:
        chosen = top_tokens(torch.rand(len(entropies), generator=generator), k, sequence_ids, generator)
    return torch.zeros_like(candidates).masked_scatter(candidates, chosen)


# --- forward passes --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Passes:
    """The forward passes of a step besides generation. At most one of the first three runs."""

    all_rollouts: bool  # log-probabilities of every rollout, before selection: loss.engine_correction: sequence_mask
    kept_rollouts: bool  # log-probabilities and entropies of every token of the kept rollouts, to rank the tokens
    selected_tokens: bool  # log-probabilities of the selected tokens at the start of the step
    reference: bool  # the reference model's log-probabilities of the selected tokens
    actor_entropies: bool  # tokens are ranked by entropies that the actor computes
    several_updates: bool  # a step makes several updates: after the first, pi_old is not the current policy
    full_rollouts: bool  # the loss reads the ratio of the full sequence: unselected tokens are computed too


def forward_passes(config: Config, k: float) -> Passes:
    """Decide which forward passes a step with this K needs. The trainer runs them; the dry run prints them.

    A step with a single update defines pi_old by its own forward pass, and needs none before it.
    """
    loss, optim = config.loss, config.optim
    several_updates = optim.num_minibatches * optim.num_iterations > 1
    all_rollouts = loss.engine_correction == "sequence_mask"
    entropies = config.selector.entropy_source == "actor" and ranks_by_entropy(config.selector, k)
    reads_logprobs = loss.engine_correction == "truncate" or (several_updates and loss.old_logprobs == "actor")
    return Passes(
        all_rollouts=all_rollouts,
        kept_rollouts=entropies and not all_rollouts,
        selected_tokens=reads_logprobs and not entropies and not all_rollouts,
        reference=loss.beta > 0,
        actor_entropies=entropies,
        several_updates=several_updates,
        full_rollouts=loss.kind in SEQUENCE_LOSSES and (several_updates or loss.old_logprobs == "engine"),
    )
