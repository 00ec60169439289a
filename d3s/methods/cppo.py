"""CPPO, arXiv 2503.22342: train the N rollouts of largest |A| of each group.

    selector: {rollouts: "d3s.methods.cppo:largest", cross_share: 0}                    # configs/method/cppo.yaml

Of right and wrong answers this keeps the rarer kind first, where the largest variance keeps both kinds. It compares
advantages, so it needs selector.normalize: before. Refill is train.prompts_per_step times G / N, which an overlay
cannot say; generation then costs G / N times as much. Departure: N is at least 2, where the paper also keeps 1.

Worth using? D3S with groups of 4 is 4.0 points above it (2.5 to 5.5) at the learning rate that its search chose, and
equals it at the next one (docs/results.md).
"""

import math

import torch
from torch import Tensor


# S = top_N( |A_i| )
def largest(
    advantages: Tensor, keep: int, eligible: Tensor, cross_share: float, generator: torch.Generator | None = None
) -> Tensor:
    """Select keep * B of the batch, or `keep` of every group if cross_share is 0, ties at random; bool [B, G]."""
    shape, size = ((1, -1), keep * len(advantages)) if cross_share else (advantages.shape, keep)
    shuffle = torch.rand(advantages.shape, generator=generator, dtype=torch.float64).reshape(shape).argsort(dim=1)
    pools = advantages.abs().masked_fill(~eligible, -math.inf).reshape(shape).gather(1, shuffle)
    order = shuffle.gather(1, pools.argsort(dim=1, descending=True, stable=True))
    first = torch.zeros(order.shape, dtype=torch.bool).scatter(1, order[:, :size], True)
    return first.view_as(eligible) & eligible
