"""What a step keeps and computes: advantages, kept rollouts, kept tokens, forward passes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from d3s.advantage import compute_advantages
from d3s.loss import LOSS_RULES, reads_sequences
from d3s.packing import Batch
from d3s.rules import RuleObject
from d3s.schedule import follow_has, schedule_bounds
from d3s.selector import ROLLOUT_RULES, TOKEN_RULES, top_tokens

if TYPE_CHECKING:  # pydantic may be missing
    from d3s.config.schema import Config, SelectorConfig


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


def follow_n(
    follow: RuleObject,
    config: Config,
    rewards: Tensor,
    eligible: Tensor,
    n: int,
    generator: torch.Generator,
    cross_share: float | None = None,
    parts: dict[str, Tensor] | None = None,
) -> int:
    """N of this step: what schedule.follow decides by the rewards, otherwise `n`.

    It sees the choice that downsample_rollouts makes from the same arguments; the generator remains as it is.
    """
    low, high = schedule_bounds(config)[0]
    if low == high or not follow.has("n_of"):
        return n

    def choose(number: int) -> tuple[Tensor, Tensor]:
        trial = torch.Generator().set_state(generator.get_state())
        return downsample_rollouts(config, rewards, eligible, number, trial, cross_share, parts)

    return follow.n_of(advantages=choose(high)[0], choose=lambda number: choose(number)[1])


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
        cross_share=(selector.cross_share if cross_share is None else cross_share) if selector.cross_group else 0.0,
        generator=generator,
    )


# --- tokens ----------------------------------------------------------------------------------------------------------


def follow_k(follow: RuleObject, config: Config, batch: Batch, k: float) -> float:
    """K of this step: what schedule.follow decides by the tokens of the kept rollouts, otherwise `k`."""
    low, high = schedule_bounds(config)[1]
    if low == high or not follow.has("k_of"):
        return k
    candidates = batch.trainable_tokens()
    return follow.k_of(advantages=batch.advantages[candidates], entropies=batch.entropies[candidates])


def reads_entropies(selector: SelectorConfig, k: float) -> bool:
    """Whether downsample_tokens reads entropies at this K."""
    return k < 1 and "entropies" in TOKEN_RULES.rule(selector.tokens).takes


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
    result, weights = result if isinstance(result, tuple) else (result, None)
    priorities = None
    if result.dtype != torch.bool:
        priorities = torch.full(candidates.shape, math.nan, dtype=result.dtype).masked_scatter(candidates, result)
        result = top_tokens(result, k, sequence_ids if selector.token_scope == "sample" else None, generator)
    if weights is not None:
        weights = torch.ones(len(candidates)).masked_scatter(candidates, weights)
    return torch.zeros_like(candidates).masked_scatter(candidates, result), weights, priorities


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
    k_low, k_high = schedule_bounds(config)[1]
    decides_k = k_low < k_high and follow_has(config, "k_of")  # by the entropies
    entropies = config.selector.entropy_source == "actor" and (decides_k or reads_entropies(config.selector, k))
    reads_logprobs = loss.engine_correction != "none" or (several_updates and loss.old_logprobs == "actor")
    return Passes(
        kept_rollouts=entropies,
        selected_tokens=reads_logprobs and not entropies,
        reference=loss.beta > 0,
        several_updates=several_updates,
        full_rollouts=reads_sequences(LOSS_RULES.rule(loss.kind))
        and (several_updates or loss.old_logprobs == "engine"),
    )
