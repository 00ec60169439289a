"""Tolerances for float32 results that differ only in the order of additions and the CPU's exp and log.

One operation is off by 2**-24 = 6e-8 of the largest magnitude that takes part, and hundreds of them in a row by up to
1e-5. Cancellation makes the result smaller, not the error. Log-probabilities of magnitude 10 are therefore off by 1e-4,
and their exponentials by the same share of themselves. A wrong sign, factor or token is off by 1 % and more.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

ROUNDING = 1e-5
AFTER_EXP = 1e-4


def assert_same_values(got: Tensor, expected: Tensor, largest: float = 0.0) -> None:
    """Equal up to ROUNDING times the largest magnitude of the values or of their summands (`largest`)."""
    scale = max([largest, *expected.detach().abs().flatten().tolist()])
    torch.testing.assert_close(got, expected, rtol=0, atol=ROUNDING * scale)


def assert_same_gradients(got: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    """Each tensor equal up to AFTER_EXP times its largest magnitude, or 1 % of the largest of all if that is more."""
    assert got.keys() == expected.keys()
    largest = {name: tensor.abs().max().item() for name, tensor in expected.items()}
    for name in expected:
        atol = AFTER_EXP * max(largest[name], 0.01 * max(largest.values()))
        torch.testing.assert_close(
            got[name], expected[name], rtol=0, atol=atol, msg=lambda text, name=name: f"{name}: {text}"
        )


def distance(left: Mapping[str, Tensor], right: Mapping[str, Tensor]) -> float:
    """Euclidean distance between two sets of parameters."""
    assert left.keys() == right.keys()
    return sum((left[name].double() - right[name].double()).square().sum().item() for name in left) ** 0.5


def assert_same_way(got: Mapping[str, Tensor], expected: Mapping[str, Tensor], start: Mapping[str, Tensor]) -> None:
    """Two trainings from `start` end within 1 % of the distance that they covered.

    AdamW divides each gradient by its size, so rounding decides where a parameter with a gradient near 0 moves. There
    are few of them, but no bound below the learning rate holds for each.
    """
    covered = distance(expected, start)
    assert covered > 0 and distance(got, expected) < 0.01 * covered
