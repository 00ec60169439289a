"""How near two float32 results lie that are the same but for the order of additions and the CPU's own exp and log.

One operation is off by 2**-24 = 6e-8 of the number at hand, and some hundred of them in a row by up to 1e-5. The number
at hand is the largest that takes part, not the result: what cancels leaves the error behind. Log-probabilities of
magnitude 10 are so off by 1e-4, and whatever is made of their exponentials by the same share of itself. A wrong sign,
factor or token is off by a hundredth and more.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

ROUNDING = 1e-5
AFTER_EXP = 1e-4


def assert_same_values(got: Tensor, expected: Tensor, largest: float = 0.0) -> None:
    """Up to ROUNDING times the largest magnitude, of the values themselves or of what they were added from."""
    scale = max([largest, *expected.detach().abs().flatten().tolist()])
    torch.testing.assert_close(got, expected, rtol=0, atol=ROUNDING * scale)


def assert_same_gradients(got: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    """Every tensor up to AFTER_EXP times its own largest magnitude, or a hundredth of the largest of all."""
    assert got.keys() == expected.keys()
    largest = {name: tensor.abs().max().item() for name, tensor in expected.items()}
    for name in expected:
        atol = AFTER_EXP * max(largest[name], 0.01 * max(largest.values()))
        torch.testing.assert_close(
            got[name], expected[name], rtol=0, atol=atol, msg=lambda text, name=name: f"{name}: {text}"
        )


def distance(left: Mapping[str, Tensor], right: Mapping[str, Tensor]) -> float:
    """Euclidean distance of two sets of parameters."""
    assert left.keys() == right.keys()
    return sum((left[name].double() - right[name].double()).square().sum().item() for name in left) ** 0.5


def assert_same_way(got: Mapping[str, Tensor], expected: Mapping[str, Tensor], start: Mapping[str, Tensor]) -> None:
    """Two trainings from `start` end at the same place, to a hundredth of the way.

    AdamW divides each gradient by its own size, so a parameter whose gradient is nearly nothing goes by rounding alone:
    such parameters are few, but no bound below the learning rate holds for them.
    """
    way = distance(expected, start)
    assert way > 0 and distance(got, expected) < 0.01 * way
