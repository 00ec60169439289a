"""What a step keeps and computes: N and K now, advantages, kept rollouts, kept tokens, forward passes."""

from dataclasses import dataclass

import torch
from torch import Tensor

from d3s.advantage import group_advantages, pass_at_k_advantages
from d3s.common import UserError
from d3s.config.schema import Config, RewardConfig, SelectorConfig
from d3s.loss import SEQUENCE_LOSSES
from d3s.packing import Batch
from d3s.schedule import downsampling_schedule, training_progress
from d3s.selector import (
    groups_of_variance_mass,
    keep_probabilities,
    largest_rollouts,
    mixed_rollouts,
    random_rollouts,
    random_tokens,
    select_rollouts,
    select_tokens,
    top_tokens,
)


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


def compute_advantages(settings: RewardConfig, rewards: Tensor, present: Tensor | None = None) -> Tensor:
    """The advantages [B, G] that the reward options define.

    Args:
        rewards: [B, G].
        present: bool [B, G]; if given, the others do not count and get 0.

    Raises: UserError for a reward for which they are not defined.
    """
    values = rewards if present is None else rewards[present]
    if settings.pass_at_k is not None:
        graded = values[(values != 0) & (values != 1)]
        if len(graded):
            raise UserError(
                f"reward.pass_at_k: got the reward {graded[0].item():g}, expected 0 or 1; for graded rewards set "
                "reward.pass_at_k: null"
            )
        return pass_at_k_advantages(rewards, settings.pass_at_k, present)
    if settings.scale_rewards == "mean" and (values < 0).any():
        raise UserError(
            f"reward.scale_rewards: got the reward {values.min().item():g}, expected at least 0 with 'mean'; for "
            "negative rewards set reward.scale_rewards: group"
        )
    return group_advantages(rewards, settings.scale_rewards, present)


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
    selector, reward = config.selector, config.reward
    if present is not None:
        eligible = eligible & present
    if selector.variance_mass is not None:
        variances = reward_variances(rewards, present)
        eligible = eligible & groups_of_variance_mass(variances, selector.variance_mass, generator)[:, None]
    if selector.normalize == "before":
        advantages = compute_advantages(reward, rewards, present)
        kept = _select(selector, advantages, n, generator, eligible, cross_share)
        advantages = advantages.masked_fill(~eligible, 0.0)
    else:  # PODS: the selection compares rewards, and only what it keeps is normalized
        kept = _select(selector, rewards, n, generator, eligible, cross_share)
        advantages = compute_advantages(reward, rewards, kept)
    if selector.drop_zero_advantage:
        kept = kept & (advantages != 0)
    return advantages, kept


def reward_variances(rewards: Tensor, present: Tensor | None = None) -> Tensor:
    """The variance of each group's rewards with Bessel's correction, exactly 0 where they are equal, [B]."""
    counts = torch.full((len(rewards),), rewards.shape[1]) if present is None else present.sum(1)
    return group_advantages(rewards, "none", present).square().sum(1) / (counts - 1).clamp(min=1)


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
    if selector.rollouts == "abs_advantage":
        return largest_rollouts(values, n, selector.cross_group, generator, eligible)
    if selector.cross_group and share < 1:
        return mixed_rollouts(values, n, share, generator, eligible)
    return select_rollouts(values, n, selector.cross_group, generator, eligible)


# --- tokens ----------------------------------------------------------------------------------------------------------


def ranks_by_entropy(selector: SelectorConfig, k: float) -> bool:
    """Whether downsample_tokens reads entropies at this K."""
    return k < 1 and selector.tokens in ("advantage_entropy", "entropy")


def weights_tokens(selector: SelectorConfig) -> bool:
    """Whether tokens are kept at random and weighted, so that their loss estimates that of all tokens."""
    return selector.tokens in ("nat", "nat_prefix")


def token_weights(selector: SelectorConfig, batch: Batch, k: float) -> Tensor:
    """The weights 1 / p_t of the tokens' advantages [T]; 1 unless tokens are kept at random and weighted."""
    weights = torch.ones(len(batch.sequence_ids))
    if k == 1 or not weights_tokens(selector):
        return weights
    candidates = batch.trainable_tokens()
    probabilities = keep_probabilities(k, batch.sequence_ids[candidates], selector.tokens == "nat_prefix")
    return weights.masked_scatter(candidates, 1 / probabilities.float())


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
    elif weights_tokens(selector):
        chosen = random_tokens(k, batch.sequence_ids[candidates], selector.tokens == "nat_prefix", generator)
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
