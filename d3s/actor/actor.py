"""The actor: the policy under training, on one process, under DDP or under DeepSpeed ZeRO-3.

It computes only what selection kept and what has a gradient: dropped rollouts never arrive here, a kept rollout is run
forward up to its last trained token, a prompt once for all its rollouts in a micro-batch, and the head computes the
trained rows alone. Every rank holds the full (small) Batch and works on its shard of the sequences, so ranks agree on
denominators and on the number of micro-batches without communication.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from accelerate import Accelerator
from torch import Tensor

from d3s.actor.lora import attach_adapter, merged_weights
from d3s.actor.micro_batches import MicroBatches, SequenceMemoryError, Tally
from d3s.actor.zero3 import Shards, choose_placement, full_weights
from d3s.common import UserError
from d3s.distributed import require_equal
from d3s.loss import (
    LOSS_RULES,
    Largest,
    Stats,
    denominators,
    kl_penalty,
    reads_reference,
    reads_sequences,
    sequence_means,
)
from d3s.packing import MICROBATCH, Batch, MicroBatch, balance, causal_pairs, max_over_mean
from d3s.policy import Policy, deterministic_kernels
from d3s.rules import Rule

if TYPE_CHECKING:  # pydantic may be missing
    from d3s.config.schema import Config


NON_FINITE_ADVICE = "a lower optim.learning_rate or optim.max_grad_norm may help"
OPTIMIZER_MEMORY = (
    "out of memory in the optimizer step itself, which smaller micro-batches do not change; see docs/running.md#memory"
)


class NonFiniteError(Exception):
    """The loss or the gradient is not finite. The parameters are those before the training step."""


@dataclass(frozen=True)
class UpdateWork:
    """Token counts shared by the optimizer steps of an update; computed once, as T can reach 10 million."""

    trained: Tensor  # [T] bool, see Actor.trained_tokens
    full: bool  # the other tokens of their rollouts are computed too, for the ratio of the full sequence
    lengths: list[int]  # [rollouts] tokens of each forward pass
    rows: Tensor  # [rollouts] tokens that the head computes
    selected: Tensor  # [rollouts] tokens that are selected, for the denominators
    counted: Tensor  # [rollouts] tokens that may be trained, likewise


class Actor:
    """Computes log-probabilities and updates the policy. Collective: every rank calls a method with the same Batch."""

    def __init__(
        self,
        model_path: str,
        config: Config,
        accelerator: Accelerator,
        max_length: int,
        loss: Rule | None = None,
        teacher: str | None = None,
    ) -> None:
        """Load the policy and, where a rule reads it, the reference.

        Args:
            loss: by default that of loss.kind.
            teacher: path of the model of loss.reference; by default the reference is the initial policy.
        """
        self.config = config
        self.loss = loss or LOSS_RULES.rule(config.loss.kind)
        self.accelerator = accelerator
        self.placement = choose_placement(accelerator, config)
        self.zero3 = isinstance(self.placement, Shards)
        self.reads_reference = reads_reference(config.loss.kind, config.loss.beta)
        model, lora = config.model, bool(config.lora.rank)
        dtype = getattr(torch, model.dtype) if lora else torch.float32  # weights that are trained stay in float32
        policy = Policy(model_path, max_length, model.gradient_checkpointing, model.head_dtype, dtype, model.compile)
        limit = config.train.max_tokens_per_microbatch or MICROBATCH
        self.micro_batches = MicroBatches(accelerator, self.zero3, limit, policy.padded)
        self.lm = policy.lm  # the transformers model; accelerate's unwrap_model would import DeepSpeed for seconds
        self.adapter = attach_adapter(self.lm, model_path, config.lora, config.train.seed) if lora else None
        optim = config.optim
        optimizer = torch.optim.AdamW(
            [parameter for parameter in policy.parameters() if parameter.requires_grad],
            lr=optim.learning_rate,
            weight_decay=optim.weight_decay,
            fused=True,  # one pass over the parameters, without temporary tensors of their size
        )
        self.policy, self.optimizer = self.placement.prepare(policy, optimizer)
        self.reference = None
        self._statistics: list[str] | None = None  # names that the first call of the loss returned
        if self.reads_reference and (teacher or not lora):  # else the reference is the adapter's own frozen model
            dtype = getattr(torch, model.dtype) if teacher else torch.float32
            path = teacher or model_path
            copy = Policy(path, max_length, head_dtype=model.head_dtype, dtype=dtype, compiled=model.compile)
            self.reference = self.placement.frozen(copy.eval().requires_grad_(False))

    # --- log-probabilities -----------------------------------------------------------------------------------------

    @torch.no_grad()
    def compute_logprobs(
        self, batch: Batch, reference: bool = False, wanted: Tensor | None = None, entropies: bool = True
    ) -> tuple[Tensor, Tensor]:
        """Log-probabilities and entropies of the batch's response tokens, each [T], without gradient.

        Args:
            reference: use the reference model, and compute no entropies.
            wanted: bool [T], the tokens to compute, by default all. A rollout is run forward up to its last wanted
                token, and the head computes wanted tokens alone; the values of other tokens are 0.
            entropies: compute entropies; otherwise they are 0.
        """
        of_base = reference and self.reference is None
        model = self.reference if reference and not of_base else self.policy
        model.eval()
        wanted = torch.ones(len(batch.sequence_ids), dtype=torch.bool) if wanted is None else wanted
        lengths = batch.forward_lengths(wanted)
        shards = balance(list(range(len(lengths))), lengths, self.accelerator.num_processes)
        entropies = entropies and not reference
        results = torch.zeros(1 + entropies, len(wanted), device=self.accelerator.device)

        def score(micro: MicroBatch, _: bool) -> None:
            without_adapter = self.adapter.disable_adapter() if of_base else nullcontext()
            with without_adapter, self.accelerator.autocast():
                _, *values = model(micro, wanted[micro.flat], self.config.rollout.temperature, entropies=entropies)
            results[:, micro.flat.to(results.device)] = torch.stack(values)[: len(results)]

        self.micro_batches.run(score, lambda: None, batch, shards, lengths)
        # one rank computes a token, the other ranks have 0; tokens that are not wanted are 0 everywhere
        index = wanted.nonzero()[:, 0].to(results.device)
        results[:, index] = self.accelerator.reduce(results[:, index], "sum")
        logprobs = results[0].cpu()
        return logprobs, results[1].cpu() if entropies else torch.zeros(1).expand_as(logprobs)

    # --- update ----------------------------------------------------------------------------------------------------

    def update(
        self, batch: Batch, learning_rate: float, generator: torch.Generator
    ) -> list[dict[str, float | Largest]]:
        """Make the optimizer steps of a training step: num_iterations passes over num_minibatches each.

        Returns: for each optimizer step, sums over its trained tokens by name, and maxima as Largest (see
            tracking.metrics.update_metrics). Of all ranks together: "tokens" trained, tokens "forwarded", their causal
            "pairs", and "rows" of the head, with and without gradient.

        Raises: NonFiniteError and SequenceMemoryError before the first optimizer step, UserError after it: the
            parameters are then between two training steps; do not save them.
        """
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        optim = self.config.optim
        work = self._work(batch)
        steps: list[dict[str, float | Largest]] = []
        for _ in range(optim.num_iterations):
            order = torch.randperm(len(batch.responses), generator=generator).tolist()
            for part in range(optim.num_minibatches):
                sequences = order[part :: optim.num_minibatches]
                if not work.rows[sequences].any():  # momentum and weight decay alone would move the weights
                    continue
                try:
                    with deterministic_kernels(self.config.train.deterministic):
                        steps.append(self._optimizer_step(batch, sequences, work, first=not steps))
                except (SequenceMemoryError, NonFiniteError) as error:
                    if not steps:
                        raise
                    raise _half_a_step(error, len(steps)) from error
                except torch.OutOfMemoryError as error:
                    raise UserError(OPTIMIZER_MEMORY) from error
        return steps

    def trained_tokens(self, batch: Batch) -> Tensor:
        """The selected tokens whose loss has a gradient, bool [T]; no other token is run.

        The gradient of a token of weight 0, and without a reference that of one with advantage 0, is 0 under every
        loss, so leaving it out is exact; the denominators count all selected tokens. Every rank holds the full batch
        and decides alike.
        """
        weighted = batch.selected if batch.weights is None else batch.selected & (batch.weights != 0)
        return weighted if self.reads_reference else weighted & (batch.advantages != 0)

    def _work(self, batch: Batch) -> UpdateWork:
        trained = batch.trained = self.trained_tokens(batch)
        full = reads_sequences(self.loss) and batch.old_logprobs is not None
        computed = batch.rollouts_with(trained) if full else trained
        counted = batch.counts_of(batch.trainable)
        # a weighted sum of some tokens estimates the sum over all tokens, so all of them are counted
        selected = counted if batch.counts_all else batch.counts_of(batch.selected)
        rows = batch.counts_of(computed)
        return UpdateWork(trained, full, batch.forward_lengths(computed), rows, selected, counted)

    def _optimizer_step(
        self, batch: Batch, sequences: list[int], work: UpdateWork, first: bool
    ) -> dict[str, float | Largest]:
        """Forward, backward and one optimizer step on some of the batch's rollouts."""
        ranks, lengths = self.accelerator.num_processes, work.lengths
        denominator = torch.ones(len(lengths))  # [rollouts]
        denominator[sequences] = denominators(
            self.config.loss.normalizer,
            work.selected[sequences],
            work.counted[sequences],
            self.config.rollout.max_completion_length,
        )
        shards = balance(sequences, lengths, ranks)
        self.policy.train()
        tally, is_first_call = Tally(), self._statistics is None

        def backward(micro: MicroBatch, last: bool) -> None:
            with self.placement.micro_batch():
                with self.accelerator.autocast():
                    loss, stats = self._loss(batch, micro, work, denominator, first)
                tally.add(stats | {"loss": loss.detach()})
                self.placement.backward(loss * ranks, last)  # DDP and ZeRO average over ranks, the loss is a sum

        def forget() -> None:
            nonlocal tally
            tally = Tally()
            self.optimizer.zero_grad()

        forwarded = self.micro_batches.run(backward, forget, batch, shards, lengths)
        if is_first_call:  # later ones are compared with it
            remedy = "return the same statistics from every call"
            require_equal("loss.kind", self._statistics, self.accelerator, remedy)
        source = f" of {self.loss.name}" if self.loss.own else ""
        self._require_finite(f"loss{source}", float(self.accelerator.reduce(tally.sums["loss"], "sum")))
        self.placement.exchange_gradients()
        norm = self.placement.step(partial(self._require_finite, "gradient norm"))
        balanced = {"balance/tokens_max_over_mean": Largest(torch.tensor(max_over_mean(shards, lengths)))}
        run = [lengths[i] for i in sequences]
        cost = {"forwarded": forwarded, "pairs": causal_pairs(run), "rows": int(work.rows[sequences].sum())}
        return tally.gathered(self.accelerator) | {"grad_norm": norm} | balanced | cost

    def _loss(
        self, batch: Batch, micro: MicroBatch, work: UpdateWork, denominator: Tensor, first: bool
    ) -> tuple[Tensor, Stats]:
        """The loss of one micro-batch and the statistics of its trained tokens, by metric.

        Args:
            denominator: [rollouts], of each rollout's tokens.
            first: whether this is the training step's first optimizer step, which alone measures the mismatch between
                engine and actor.
        """
        config = self.config.loss
        chosen = work.trained[micro.flat]
        logprobs, all_logprobs, entropies = self.policy(
            micro, chosen, self.config.rollout.temperature, with_unchosen=work.full, entropies=first
        )
        device, flat, detached = logprobs.device, micro.flat[chosen], logprobs.detach()
        index = chosen.nonzero()[:, 0].to(device)  # a mask would be counted on the device, for which the host waits
        old = detached if batch.old_logprobs is None else batch.old_logprobs[flat].to(device)
        sequence_log_ratio = torch.zeros_like(old)  # on policy, the ratio is 1
        if work.full:
            ratios = all_logprobs - batch.old_logprobs[micro.flat].to(device)
            of_sequences = (x[micro.flat].to(device) for x in (batch.sequence_ids, batch.trainable))
            sequence_log_ratio = sequence_means(ratios, *of_sequences)[index]
        denominator = denominator[batch.sequence_ids[flat]].to(device)
        reference = None if batch.ref_logprobs is None else batch.ref_logprobs[flat].to(device)
        if batch.weights is not None:
            denominator = denominator / batch.weights[flat].to(device)
        rarely = {"rollout_logprobs": batch.rollout_logprobs, "sequence_ids": batch.sequence_ids}
        taken = {name: values[flat].to(device) for name, values in rarely.items() if name in self.loss.takes}
        loss, statistics = self.loss(
            **taken,
            logprobs=logprobs,
            old_logprobs=old,
            advantages=batch.advantages[flat].to(device),
            sequence_log_ratio=sequence_log_ratio,
            ref_logprobs=reference,
            epsilon=config.epsilon,
            epsilon_high=config.epsilon_high,
            denominator=denominator,
        )
        self._require_same(statistics)
        stats: Stats = {
            ("policy/" if k in ("clip_low", "clip_high") else "loss/") + k: v for k, v in statistics.items()
        }
        if reference is not None:
            kl = kl_penalty(logprobs, reference, config.kl_estimator)
            loss = loss + config.beta * (kl / denominator).sum() if config.beta else loss
            stats["policy/kl_ref"] = kl.detach().sum()
        stats["tokens"] = loss.new_full((), float(len(flat)))
        change = detached - old
        # k3 of KL(old || the policy before this update), as tokens are sampled from old
        stats["policy/approx_kl"] = (change.exp() - 1 - change).sum()
        if first:
            gap = detached - batch.rollout_logprobs[flat].to(device)
            stats["mismatch/mean_abs"] = gap.abs().sum()
            stats["mismatch/ratio"] = gap.clamp(max=20).exp().sum()
            stats["mismatch/max_abs"] = Largest(gap.abs())
            stats["policy/entropy_selected"] = entropies[index].sum()
        return loss, stats

    # --- weights and state -----------------------------------------------------------------------------------------

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yield (name, full tensor) of every parameter, tied ones under each name. Collective, see full_weights.

        With LoRA these are the weights with the adapter merged, see merged_weights."""
        return full_weights(self.lm) if self.adapter is None else merged_weights(self.lm)

    def save(self, folder: Path) -> None:
        """Write weights and optimizer state into a checkpoint's directory. Collective."""
        self.placement.save(folder)

    def load(self, folder: Path, saved_by: int) -> None:
        """Load what `save` wrote from `saved_by` ranks, on any number of ranks. Collective."""
        self.placement.load(folder, saved_by)

    def _require_same(self, statistics: Stats) -> None:
        """Raise UserError for other statistics of a loss than those of its first call."""
        names = sorted(f"Largest {name}" if isinstance(x, Largest) else name for name, x in statistics.items())
        self._statistics = names if self._statistics is None else self._statistics
        if names != self._statistics:
            raise UserError(
                f"loss.kind: {self.loss.name} returned the statistics {names}, expected {self._statistics}, those of "
                "its first call; return the same from every call"
            )

    def _require_finite(self, name: str, value: float) -> None:
        """Raise NonFiniteError for a value that is the same on all ranks, so that no rank waits for another."""
        if not math.isfinite(value):
            self.optimizer.zero_grad()
            raise NonFiniteError(f"the {name} is {value}")


def _half_a_step(error: Exception, made: int) -> UserError:
    """What is wrong after `made` optimizer steps of a training step, when the next one fails."""
    remedy = f"; {NON_FINITE_ADVICE}" if isinstance(error, NonFiniteError) else ""
    return UserError(
        f"optimizer step {made + 1} of a training step failed after others changed the weights, which are not saved: "
        f"{error}{remedy}; then continue with --resume auto"
    )
