"""Run a pass micro-batch by micro-batch; where memory runs out, begin it again with smaller ones. Add up statistics."""

import gc
import math
from collections.abc import Callable

import torch
from accelerate import Accelerator
from torch import Tensor

from d3s.common import UserError
from d3s.distributed import heartbeat
from d3s.loss import Largest, Stats
from d3s.packing import Batch, MicroBatch, dummy_micro_batch, pack, packed_tokens, padded_tokens, split_by_tokens

Work = Callable[[MicroBatch, bool], None]


class SequenceMemoryError(UserError):
    """A single sequence does not fit into memory. Raised on all ranks, without a change of the parameters."""


class MicroBatches:
    """Divides the sequences of a pass into micro-batches of at most `max_tokens` tokens.

    If memory runs out on a rank, all ranks forget the pass, halve `max_tokens` for the rest of the run, and begin the
    pass again. So no pass may make a rank wait for another. Under ZeRO-3 every pass does, as each layer is gathered
    from all ranks; there the run ends.
    """

    def __init__(self, accelerator: Accelerator, zero3: bool, max_tokens: int, padded: bool = False) -> None:
        self.accelerator = accelerator
        self.zero3 = zero3
        self.padded = padded  # the policy runs rows of equal length
        self.max_tokens = self.wanted = max_tokens

    def problem(self) -> str | None:
        """A warning with the value to set, if memory ran out."""
        if self.max_tokens == self.wanted:
            return None
        return (
            f"train.max_tokens_per_microbatch: {self.wanted} tokens exceed the memory; the pass was repeated with "
            f"{self.max_tokens}, which the rest of this run uses; set it to {self.max_tokens}"
        )

    def run(
        self,
        work: Work,
        forget: Callable[[], None],
        batch: Batch,
        shards: list[list[int]],
        lengths: list[int],
    ) -> int:
        """Call `work(micro-batch, whether it is the last)` for each micro-batch of this rank. Collective.

        Args:
            forget: called after a pass for which memory ran out.
            shards: the sequences of each rank.
            lengths: tokens of each sequence.

        Returns: tokens of all ranks' micro-batches; a shared prompt counts once, padding counts.
        Raises: SequenceMemoryError if every micro-batch has a single sequence, UserError under ZeRO-3.
        """
        while True:
            shared = None if self.padded else batch.groups
            splits = [split_by_tokens(shard, lengths, self.max_tokens, shared) for shard in shards]
            fits = self._run_once(work, batch, splits, lengths)
            groups = [group for split in splits for group in split]
            padded = [padded_tokens(group, lengths) for group in groups] if self.padded else []
            if fits if self.zero3 else self._fits_everywhere(fits):
                return sum(padded or (packed_tokens(batch, group, lengths) for group in groups))
            largest = max(padded or (sum(lengths[i] for i in group) for group in groups))
            self._halve(largest, any(len(group) > 1 for group in groups), forget)

    def _halve(self, largest: int, divisible: bool, forget: Callable[[], None]) -> None:
        """Free the memory of a pass that did not fit, and halve its micro-batches.

        Args:
            largest: tokens of its largest micro-batch.
            divisible: whether any micro-batch has several sequences.

        Raises: see run.
        """
        smaller = min(self.max_tokens, largest) // 2 if divisible else 0
        advice = (
            f"train.max_tokens_per_microbatch: {self.max_tokens} tokens do not fit into the memory of rank "
            f"{self.accelerator.process_index}; set it to {smaller}"
            if smaller
            else f"out of memory in passes of one sequence, of at most {largest:,} tokens; set "
            "model.gradient_checkpointing: true, or see docs/running.md#memory"
        )
        if self.zero3:
            raise UserError(f"{advice}, and continue with --resume auto")
        forget()
        gc.collect()
        torch.cuda.empty_cache()
        if not smaller:
            raise SequenceMemoryError(advice)
        self.max_tokens = smaller

    def _run_once(self, work: Work, batch: Batch, splits: list[list[list[int]]], lengths: list[int]) -> bool:
        """Run the pass, up to the micro-batch for which memory runs out. Returns whether all of them fit."""
        own, count, fits = splits[self.accelerator.process_index], max(1, *map(len, splits)), True
        for i in range(count):  # every rank has as many micro-batches, and as many heartbeats, which ranks compare
            heartbeat()
            try:
                if fits:
                    work(pack(batch, own[i], lengths) if i < len(own) else dummy_micro_batch(), i == count - 1)
            except torch.OutOfMemoryError:
                fits = False
            if self.zero3 and not fits:
                break
        return fits

    def _fits_everywhere(self, fits: bool) -> bool:
        failures = torch.full((), float(not fits), device=self.accelerator.device)
        return self.accelerator.reduce(failures, "sum").item() == 0


class Tally:
    """Sums and maxima over the micro-batches of an optimizer step, kept on the device until its end."""

    def __init__(self) -> None:
        self.sums: dict[str, Tensor] = {}
        self.largest: dict[str, Tensor] = {}

    def add(self, stats: Stats) -> None:
        """Add a micro-batch's statistics; every micro-batch has the same names."""
        for name, value in stats.items():
            if isinstance(value, Largest):
                values = value.values.detach().float().flatten()
                largest = self.largest.get(name, values.new_full((), -math.inf))
                self.largest[name] = torch.cat([values, largest[None]]).max()
            else:
                self.sums[name] = self.sums.get(name, 0.0) + value.detach().float().sum()

    def gathered(self, accelerator: Accelerator) -> dict[str, float | Largest]:
        """Reduce over all ranks, with one copy from the device. Collective."""
        sums, largest = sorted(self.sums), sorted(self.largest)  # a rule may return its names in any order
        values = torch.stack([self.sums[name] for name in sums] + [self.largest[name] for name in largest])
        gathered = accelerator.gather(values.to(accelerator.device)[None]).cpu()  # [ranks, names]
        added, highest = gathered.split([len(sums), len(largest)], dim=1)
        return dict(zip(sums, added.sum(0).tolist())) | {
            name: Largest(value) for name, value in zip(largest, highest.amax(0))
        }
