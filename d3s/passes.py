"""Decide which forward passes precede an update; fill in the log-probabilities and weights that the loss reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from d3s.distributed import require_equal
from d3s.loss import CORRECTION_RULES, LOSS_RULES, reads_reference, reads_sequences
from d3s.packing import Batch
from d3s.rules import Rule
from d3s.schedule import follow_has, schedule_bounds
from d3s.selector import TOKEN_RULES, ranks_by_reference

if TYPE_CHECKING:  # pydantic may be missing
    from accelerate import Accelerator
    from torch import Tensor

    from d3s.actor.actor import Actor
    from d3s.config.schema import Config


@dataclass(frozen=True)
class Passes:
    """The forward passes of a step besides generation. At most one of the first two runs."""

    kept_rollouts: bool  # log-probabilities and entropies of every token of the kept rollouts, to rank the tokens
    selected_tokens: bool  # log-probabilities of the selected tokens at the start of the step
    reference: bool  # the reference model's log-probabilities of the selected tokens
    ranking_reference: bool  # those of all tokens that may be trained, to rank them, and no pass after it
    several_updates: bool  # a step makes several updates: after the first, pi_old is not the current policy
    full_rollouts: bool  # the loss reads the ratio of the full sequence: unselected tokens are computed too
    correction: Rule  # loss.engine_correction


def forward_passes(config: Config, k: float) -> Passes:
    """The forward passes of a step with this K: the same ones for every K below 1.

    A step with a single update defines pi_old by its own forward pass, and needs none before it.
    """
    loss, optim, selector = config.loss, config.optim, config.selector
    kind, correction = LOSS_RULES.rule(loss.kind), CORRECTION_RULES.rule(loss.engine_correction)
    several_updates = optim.num_minibatches * optim.num_iterations > 1
    decides_k = follow_has(config, "k_of") and len(set(schedule_bounds(config)[1])) == 2  # by the entropies
    ranks_by_entropies = "entropies" in TOKEN_RULES.rule(selector.tokens).takes
    reads_logprobs = correction.name != "none" or (several_updates and loss.old_logprobs == "actor")
    entropies = selector.entropy_source == "actor" and (decides_k or (k < 1 and ranks_by_entropies))
    ranking = ranks_by_reference(selector.tokens) and (decides_k or k < 1)
    return Passes(
        kept_rollouts=entropies,
        selected_tokens=reads_logprobs and not entropies,
        reference=reads_reference(loss.kind, loss.beta) and not ranking,
        ranking_reference=ranking,
        several_updates=several_updates,
        full_rollouts=reads_sequences(kind) and (several_updates or loss.old_logprobs == "engine"),
        correction=correction,
    )


def add_ranks(actor: Actor, batch: Batch, passes: Passes) -> None:
    """Compute what ranks the tokens and the engine did not provide. No-op by default."""
    if passes.kept_rollouts:  # selector.entropy_source: actor
        batch.actor_logprobs, batch.entropies = actor.compute_logprobs(batch)
    if passes.ranking_reference:
        batch.ref_logprobs, _ = actor.compute_logprobs(batch, reference=True, wanted=batch.trainable)


def add_logprobs(actor: Actor, batch: Batch, passes: Passes) -> dict[str, float]:
    """Compute log-probabilities that the loss reads and the engine did not provide. No-op by default.

    A pass that ranked the tokens may have set batch.actor_logprobs. Returns the metrics of loss.engine_correction.
    """
    loss, trained = actor.config.loss, actor.trained_tokens(batch)
    if not trained.any():
        return {}
    correction = passes.correction
    read = batch.rollouts_with(trained) if "sequence_ids" in correction.takes else trained
    if passes.selected_tokens:
        wanted = batch.rollouts_with(trained) if passes.full_rollouts else read
        batch.actor_logprobs, _ = actor.compute_logprobs(batch, wanted=wanted, entropies=False)
    if loss.old_logprobs == "engine":
        batch.old_logprobs = batch.rollout_logprobs
    elif passes.several_updates:
        batch.old_logprobs = batch.actor_logprobs
    metrics = {} if correction.name == "none" else _correct(batch, correction, read, actor.accelerator)
    if passes.reference:
        batch.ref_logprobs, _ = actor.compute_logprobs(batch, reference=True, wanted=trained)
    return metrics


def _correct(batch: Batch, correction: Rule, read: Tensor, accelerator: Accelerator) -> dict[str, float]:
    """Weigh the tokens that the correction reads, bool [T]. Returns its metrics."""
    index = read.nonzero()[:, 0]
    weights, metrics = correction(
        log_ratios=batch.actor_logprobs[index] - batch.rollout_logprobs[index],
        sequence_ids=batch.sequence_ids[index],
        counted=batch.trainable[index],
    )
    batch.weigh(index, weights)
    require_equal("loss.engine_correction", batch.weights, accelerator)
    return {f"mismatch/{name}": value for name, value in metrics.items()}
