"""Run a pass micro-batch by micro-batch; where memory runs out, begin the pass again with smaller ones."""

import gc
from collections.abc import Callable

import torch
from accelerate import Accelerator

from d3s.common import UserError
from d3s.distributed import heartbeat
from d3s.packing import Batch, MicroBatch, dummy_micro_batch, pack, split_by_tokens


class SequenceMemoryError(UserError):
    """A single sequence does not fit into memory. Raised on all ranks, without a change of the parameters."""


class MicroBatches:
    """Divides the sequences of a pass into micro-batches of at most `max_tokens` tokens.

    If memory runs out on a rank, all ranks forget the pass, halve `max_tokens` for the rest of the run, and begin the
    pass again. So no pass may make a rank wait for another. Under ZeRO-3 every pass does, as each layer is gathered
    from all ranks; there the run ends.
    """

    def __init__(self, accelerator: Accelerator, zero3: bool, max_tokens: int) -> None:
        self.accelerator = accelerator
        self.zero3 = zero3
        self.max_tokens = self._wanted = max_tokens

    def problem(self) -> str | None:
        """A warning with the value to set, if memory ran out."""
        if self.max_tokens == self._wanted:
            return None
        return (
            f"train.max_tokens_per_microbatch: {self._wanted} tokens do not fit into memory; this run goes on with "
            f"{self.max_tokens}, and repeated what did not fit; set it to that"
        )

    def run(
        self,
        work: Callable[[MicroBatch, bool], None],
        forget: Callable[[], None],
        batch: Batch,
        shards: list[list[int]],
        lengths: list[int],
    ) -> None:
        """Call `work(micro-batch, whether it is the last)` for each micro-batch of this rank. Collective.

        Args:
            forget: called after a pass for which memory ran out.
            shards: the sequences of each rank.
            lengths: tokens of each sequence.

        Raises: SequenceMemoryError if every micro-batch has a single sequence, UserError under ZeRO-3.
        """
        while True:
            splits = [split_by_tokens(shard, lengths, self.max_tokens) for shard in shards]
            fits = self._run_once(work, batch, splits, lengths)
            if self.zero3 and not fits:
                raise UserError(f"{self._advice(splits, lengths)}, and continue with --resume auto")
            if self.zero3 or self._on_all_ranks(fits):
                return
            forget()
            gc.collect()
            torch.cuda.empty_cache()
            if not (smaller := self._halved(splits, lengths)):
                raise SequenceMemoryError(self._advice(splits, lengths))
            self.max_tokens = smaller

    def _run_once(
        self,
        work: Callable[[MicroBatch, bool], None],
        batch: Batch,
        splits: list[list[list[int]]],
        lengths: list[int],
    ) -> bool:
        """Run the pass, up to the micro-batch for which memory runs out. Returns whether all of them fit."""
        rank = self.accelerator.process_index
        count, fits = max(1, *map(len, splits)), True
        for i in range(count):  # every rank has as many micro-batches, and as many heartbeats, which ranks compare
            heartbeat()
            group = splits[rank][i] if i < len(splits[rank]) else None
            try:
                if fits:
                    work(pack(batch, group, lengths) if group else dummy_micro_batch(), i == count - 1)
            except torch.OutOfMemoryError:
                fits = False
            if self.zero3 and not fits:
                break
        return fits

    def _on_all_ranks(self, fits: bool) -> bool:
        failures = torch.full((), float(not fits), device=self.accelerator.device)
        return self.accelerator.reduce(failures, "sum").item() == 0

    def _halved(self, splits: list[list[list[int]]], lengths: list[int]) -> int:
        """Half of the tokens of the largest micro-batch of any rank; 0 if each of them has a single sequence."""
        groups = [group for split in splits for group in split]
        largest = max(sum(lengths[i] for i in group) for group in groups)
        return min(self.max_tokens, largest) // 2 if any(len(group) > 1 for group in groups) else 0

    def _advice(self, splits: list[list[list[int]]], lengths: list[int]) -> str:
        if smaller := self._halved(splits, lengths):
            return (
                f"train.max_tokens_per_microbatch: {self.max_tokens} tokens do not fit into the memory of rank "
                f"{self.accelerator.process_index}; set it to {smaller}"
            )
        longest = max(lengths[i] for split in splits for group in split for i in group)
        return (
            f"out of memory in passes of one sequence, of at most {longest:,} tokens; set "
            "model.gradient_checkpointing: true, or see docs/running.md#memory"
        )
