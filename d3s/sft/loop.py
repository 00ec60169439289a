"""The supervised loop: one update for every batch of demonstrations, packed without padding.

The built-in base models (d3s/tiny.py) and train_sft.py run it, each with its own `update`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

from d3s.packing import Batch, pack
from d3s.policy import Policy

Sample = tuple[list[int], list[int]]  # token ids of prompt and response; the response ends with end-of-sequence
Metrics = dict[str, Any]


def supervised_batch(samples: Sequence[Sample]) -> Batch:
    """A batch of demonstrations that trains every response token.

    Each token has advantage 1: the on-policy gradient of a policy loss is then that of the cross-entropy.
    """
    total = sum(len(response) for _, response in samples)
    zeros = torch.zeros(total)
    batch = Batch([p for p, _ in samples], [r for _, r in samples], torch.ones(total), zeros, zeros)
    batch.selected = torch.ones(total, dtype=torch.bool)
    return batch


def supervised_loop(
    batches: Iterable[Batch],
    update: Callable[[Batch], Metrics],
    prune: Callable[[Batch], Metrics] | None = None,
) -> Iterator[Metrics]:
    """Update on every batch, after `prune` has restricted `batch.selected`. Yields the metrics of each step."""
    for batch in batches:
        pruned = prune(batch) if prune else {}
        yield pruned | update(batch)


# L = -1/|S| sum_{t in S} log pi(y_t | x, y_<t),   S: the selected tokens of the batch
def single_process_update(
    policy: Policy, optimizers: Sequence[torch.optim.Optimizer], max_grad_norm: float, batch: Batch
) -> Metrics:
    """Forward, backward and a step of every optimizer on the selected tokens of a batch that fits into one pass."""
    lengths = batch.forward_lengths(cut=True)
    micro = pack(batch, [i for i, length in enumerate(lengths) if length], lengths)
    logprobs, _, _ = policy(micro, batch.selected[micro.flat], temperature=1.0)
    loss = -logprobs.mean()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(policy.parameters(), max_grad_norm)
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return {"loss": loss.detach()}
