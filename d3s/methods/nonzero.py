"""The zero-variance filter, as of ScaleRL (arXiv 2510.13786): train no rollout of advantage 0.

    selector: {rollouts: "d3s.methods.nonzero:nonzero"}                              # configs/method/nonzero.yaml

The policy loss of such a rollout is 0, but it counts in the loss's denominator, and a KL penalty would train it. They
occur where N is close to G. It compares advantages, so it needs selector.normalize: before.

Worth using? No difference seen: Pass@1 of GRPO with groups of 4 -0.1 points (-0.8 to +0.5), research/results-tables.md.
"""

import torch
from torch import Tensor

from d3s.selector import select_rollouts


def nonzero(
    advantages: Tensor, keep: int, eligible: Tensor, cross_share: float, generator: torch.Generator | None = None
) -> Tensor:
    """Select as max_variance does, without rollouts of advantage 0. Returns: bool [B, G]."""
    return select_rollouts(advantages, keep, cross_share, generator, eligible) & (advantages != 0)
