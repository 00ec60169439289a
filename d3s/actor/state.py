"""The weights of the actor: gathered for the engine, and described."""

from collections.abc import Iterator

import torch
from torch import Tensor

from d3s.actor.zero3 import gathered, is_sharded, size_of
from d3s.policy import decoder_layers

BUCKET_BYTES = 2**29  # of parameters gathered at once by full_weights under ZeRO-3


def full_weights(lm: torch.nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield (name, full tensor) of every parameter, tied ones under each name, gathered bucket by bucket; then buffers.

    Under ZeRO-3 every rank must exhaust the iterator, and the tensors are copies. Else they are the parameters
    themselves, which the next update changes.
    """
    bucket, size = [], 0
    for name, parameter in lm.named_parameters(remove_duplicate=False):
        bucket.append((name, parameter))
        size += size_of(parameter) * parameter.element_size()
        if size >= BUCKET_BYTES:
            yield from _gathered(bucket)
            bucket, size = [], 0
    yield from _gathered(bucket)
    yield from saved_buffers(lm)


def saved_buffers(lm: torch.nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield (name, buffer) of the constants that weight files hold, without which engines reload garbage (Apertus)."""
    saved = lm.state_dict().keys()
    for name, buffer in lm.named_buffers(remove_duplicate=False):
        if name in saved and buffer.is_floating_point():
            yield name, buffer


def _gathered(bucket: list[tuple[str, Tensor]]) -> list[tuple[str, Tensor]]:
    with gathered([p for _, p in bucket]):
        return [(name, p.data.clone() if is_sharded(p) else p.data) for name, p in bucket]


def describe_size(lm: torch.nn.Module, compiled: bool = False) -> str:
    """The number of parameters, also under ZeRO-3, of trained ones if others are frozen; what is done with layers."""
    sizes = [(size_of(p), p.requires_grad) for p in lm.parameters()]
    total, trained = sum(size for size, _ in sizes), sum(size for size, needed in sizes if needed)
    recomputed = [layer.gradient_checkpointing for layer in decoder_layers(lm)]
    size = f"{total:,} parameters" + (f" ({trained:,} trained by LoRA)" if trained < total else "")
    size += f", {sum(recomputed)} of {len(recomputed)} layers recomputed" if any(recomputed) else ""
    return size + ", layers compiled when they first run" * compiled
