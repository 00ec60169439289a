"""What a step keeps and computes: N and K now, advantages, kept rollouts, kept tokens, forward passes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from d3s.advantage import compute_advantages
from d3s.loss import LOSS_RULES, reads_sequences
from d3s.packing import Batch
from d3s.schedule import downsampling_schedule, training_progress
from d3s.selector import (
    ROLLOUT_RULES,
    TOKEN_RULES,
    covering_fraction,
    covering_keep,
    top_tokens,
)

if TYPE_CHECKING:  # pydantic may be missing
    from d3s.config.schema import Config, SelectorConfig


def curve_at(config: Config, progress: float) -> tuple[int, float]:
    """N, the rollouts kept per prompt, and K, the fraction of their tokens that is trained, at this progress."""
    s, g = config.schedule, config.rollout.num_generations
    return downsampling_schedule(progress, s.n_init or g, s.n_final or g, s.k_init, s.k_final, s.n_shape, s.k_shape)


def schedule_bounds(config: Config) -> tuple[tuple[int, int], tuple[float, float]]:
    """The smallest and the largest N, and the smallest and the largest K, of the run."""
    ns, ks = zip(*(curve_at(config, i / 64) for i in range(65)))  # a shape of one's own may turn in between
    return (min(ns), max(ns)), (min(ks), max(ks))


def schedule_at(config: Config, step: int) -> tuple[int, float]:
    """N and K as planned for `step` (0-based): their upper bounds where schedule.follow lets the run decide."""
    if config.schedule.follow == "none":
        return curve_at(config, training_progress(step, config.train.steps))
    (_, n), (_, k) = schedule_bounds(config)
    return n, k


# --- rollouts --------------------------------------------------------------------------------------------------------


def downsample_rollouts(
    config: Config,
    rewards: Tensor,
    eligible: Tensor,
    n: int,
    generator: torch.Generator,
    cross_share: float | None = None,
    parts: dict[str, Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute advantages and choose the rollouts to train.

    Args:
        rewards: [B, G].
        eligible: bool [B, G]; ineligible rollouts are never selected, do not count toward n, and get advantage 0.
        n: rollouts kept per prompt.
        cross_share: fraction of n selected across the batch; None: selector.cross_share.
        parts: of the rewards, see compute_advantages.

    Returns: advantages [B, G]; kept, bool [B, G].
    """
    selector, reward = config.selector, config.reward
    if selector.normalize == "before":
        advantages = compute_advantages(reward, rewards, parts)[0]
        kept = _select(selector, advantages, rewards, n, generator, eligible, cross_share)
        advantages = advantages.masked_fill(~eligible, 0.0)
    else:  # PODS: the selection compares rewards, and only what it keeps is normalized
        kept = _select(selector, rewards, rewards, n, generator, eligible, cross_share)
        advantages = compute_advantages(reward, rewards, parts, kept)[0]
    if selector.drop_zero_advantage:
        kept = kept & (advantages != 0)
    return advantages, kept


def covering_n(
    config: Config,
    rewards: Tensor,
    eligible: Tensor,
    n: int,
    generator: torch.Generator,
    cross_share: float | None = None,
    parts: dict[str, Tensor] | None = None,
) -> int:
    """N of this step: with schedule.follow: coverage the smallest that holds coverage_n, otherwise `n`.

    It measures the choice that downsample_rollouts makes from the same arguments, and leaves the generator as it is.
    """
    if config.schedule.follow != "coverage":
        return n
    selector, cover, ((low, high), _) = config.selector, config.schedule.coverage_n, schedule_bounds(config)
    advantages = compute_advantages(config.reward, rewards, parts)[0]
    share = _share(selector, cross_share)
    return covering_keep(advantages, cover, low, high, selector.cross_group, generator, eligible, share)


def _share(selector: SelectorConfig, cross_share: float | None) -> float:
    """The given share, or that of the configuration; `auto` starts within groups."""
    if cross_share is not None:
        return cross_share
    return 0.0 if selector.cross_share == "auto" else selector.cross_share


def _select(
    selector: SelectorConfig,
    values: Tensor,
    rewards: Tensor,
    n: int,
    generator: torch.Generator,
    eligible: Tensor,
    cross_share: float | None,
) -> Tensor:
    return ROLLOUT_RULES.rule(selector.rollouts)(
        advantages=values,
        rewards=rewards,
        keep=n,
        eligible=eligible,
        cross_group=selector.cross_group,
        cross_share=_share(selector, cross_share) if selector.cross_group else 0.0,
        generator=generator,
    )


# --- tokens ----------------------------------------------------------------------------------------------------------


def covering_k(config: Config, batch: Batch, k: float) -> float:
    """K of this step: with schedule.follow: coverage the smallest that holds coverage_k, otherwise `k`."""
    if config.schedule.follow != "coverage":
        return k
    _, (low, high) = schedule_bounds(config)
    if low == high:
        return low
    scores = (batch.advantages.abs() * batch.entropies)[batch.trainable_tokens()]
    return covering_fraction(scores, config.schedule.coverage_k, low, high)


def reads_entropies(selector: SelectorConfig, k: float) -> bool:
    """Whether downsample_tokens reads entropies at this K."""
    return k < 1 and "entropies" in TOKEN_RULES.rule(selector.tokens).takes


def downsample_tokens(
    selector: SelectorConfig, batch: Batch, k: float, generator: torch.Generator
) -> tuple[Tensor, Tensor | None]:
    """Choose the trainable response tokens of the kept rollouts to train; k is a fraction of these.

    Returns: bool [T]; the weight of each token's loss [T], None if the rule does not weight tokens.
    """
    candidates = batch.trainable_tokens()
    if k == 1:
        return candidates, None
    sequence_ids = batch.sequence_ids[candidates]
    result = TOKEN_RULES.rule(selector.tokens)(
        advantages=batch.advantages[candidates],
        entropies=batch.entropies[candidates],
        logprobs=batch.rollout_logprobs[candidates],
        sequence_ids=sequence_ids,
        fraction=k,
        generator=generator,
    )
    result, weights = result if isinstance(result, tuple) else (result, None)
    if result.dtype != torch.bool:
        result = top_tokens(result, k, sequence_ids if selector.token_scope == "sample" else None, generator)
    if weights is not None:
        weights = torch.ones(len(candidates)).masked_scatter(candidates, weights)
    return torch.zeros_like(candidates).masked_scatter(candidates, result), weights


# --- forward passes --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Passes:
    """The forward passes of a step besides generation. At most one of the first two runs."""

    kept_rollouts: bool  # log-probabilities and entropies of every token of the kept rollouts, to rank the tokens
    selected_tokens: bool  # log-probabilities of the selected tokens at the start of the step
    reference: bool  # the reference model's log-probabilities of the selected tokens
    several_updates: bool  # a step makes several updates: after the first, pi_old is not the current policy
    full_rollouts: bool  # the loss reads the ratio of the full sequence: unselected tokens are computed too


def forward_passes(config: Config, k: float) -> Passes:
    """Decide which forward passes a step with this K needs. The trainer runs them; the dry run prints them.

    A step with a single update defines pi_old by its own forward pass, and needs none before it.
    """
    loss, optim = config.loss, config.optim
    several_updates = optim.num_minibatches * optim.num_iterations > 1
    lowest = schedule_bounds(config)[1][0] if config.schedule.follow == "coverage" else k  # known after the entropies
    entropies = config.selector.entropy_source == "actor" and reads_entropies(config.selector, lowest)
    reads_logprobs = loss.engine_correction != "none" or (several_updates and loss.old_logprobs == "actor")
    return Passes(
        kept_rollouts=entropies,
        selected_tokens=reads_logprobs and not entropies,
        reference=loss.beta > 0,
        several_updates=several_updates,
        full_rollouts=reads_sequences(LOSS_RULES.rule(loss.kind))
        and (several_updates or loss.old_logprobs == "engine"),
    )
