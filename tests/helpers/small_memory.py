"""Run out of memory in chosen passes of a policy, in the middle of the forward or backward pass as on a GPU."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from d3s.policy import Policy

PLACES = ("forward", "backward")


def fail(*_: object) -> None:
    """Raise what a GPU raises."""
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")


@contextmanager
def small_memory(place_of: Callable[[int], str | None]) -> Iterator[None]:
    """Let passes fail behind the first layer: `place_of(tokens of the pass)` names the place, None where it fits."""
    forward = Policy.forward

    def limited(self, micro, *arguments, **options):
        place = place_of(micro.input_ids.numel())
        layer = self.lm.base_model.layers[0]
        if place == "forward":
            handle = layer.register_forward_hook(fail)
        elif place == "backward" and torch.is_grad_enabled():  # the layers above have their gradients by then
            handle = layer.register_forward_hook(lambda module, inputs, output: output.register_hook(fail) and None)
        else:
            return forward(self, micro, *arguments, **options)
        try:
            return forward(self, micro, *arguments, **options)
        finally:
            handle.remove()

    Policy.forward = limited
    try:
        yield
    finally:
        Policy.forward = forward


def above(limit: int, seed: int = 0) -> Callable[[int], str | None]:
    """Passes over more than `limit` tokens fail, in random places."""
    draw = random.Random(seed)
    return lambda tokens: draw.choice(PLACES) if tokens > limit else None


def at_call(number: int, place: str) -> Callable[[int], str | None]:
    """The pass of this number, from 0, fails; later ones fit, and those of a single token are not counted."""
    calls = iter(range(10**6))
    return lambda tokens: place if tokens > 1 and next(calls) == number else None
