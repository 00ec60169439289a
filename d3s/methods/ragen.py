"""The filter of RAGEN-2, arXiv 2604.06268: train the fewest problems that hold a share of the summed reward variance.

    selector: {rollouts: {rule: "d3s.methods.ragen:variance_mass", share: 0.9}}     # configs/method/variance_mass.yaml

Problems are dropped after generation; of the others, D3S's rule keeps the rollouts: N x B of them together, or N of
each with selector.cross_share: 0. GRPO here already skips problems without variance, which is exact; the filter
also drops those that are nearly solved or nearly hopeless. It reads the rewards, whatever reward.advantages makes of
them.

Worth using? Not measured (3 seeds, G = 16, intervals of 2.1 to 3.8 points on either side; 0.9 is the only share tried).
"""

import torch
from torch import Tensor

from d3s.selector import TIE, select_rollouts


# min |P| such that sum_{b in P} Var_b >= share * sum_b Var_b
def variance_mass(
    advantages: Tensor,
    rewards: Tensor,
    keep: int,
    eligible: Tensor,
    cross_share: float,
    generator: torch.Generator | None = None,
    share: float = 0.9,
) -> Tensor:
    """Drop all problems but those of the largest variances, then select as max_variance does. Returns: bool [B, G].

    Raises: ValueError for a share out of (0, 1].
    """
    centered = (rewards.double() - rewards.double().mean(1, keepdim=True)).to(rewards.dtype)
    variances = centered.square().sum(1) / (rewards.shape[1] - 1)
    variances[(rewards == rewards[:, :1]).all(1)] = 0.0  # despite rounding
    chosen = groups_of_variance_mass(variances, share, generator)
    return select_rollouts(advantages, keep, cross_share, generator, eligible & chosen[:, None])


def groups_of_variance_mass(variances: Tensor, share: float, generator: torch.Generator | None = None) -> Tensor:
    """Select the fewest groups that hold this share of the sum of variances [B], ties at random; bool [B].

    A group without variance is never selected. Raises: ValueError for a share out of (0, 1].
    """
    if not 0 < share <= 1:
        raise ValueError(f"share must be in (0, 1], not {share}")
    order = torch.randperm(len(variances), generator=generator)
    order = order[variances[order].argsort(descending=True, stable=True)]
    largest = variances[order].double()
    missing = share * largest.sum() * (1 - TIE) - (largest.cumsum(0) - largest)  # before the group is added
    return torch.zeros(len(variances), dtype=torch.bool).scatter(0, order, (missing > 0) & (largest > 0))
