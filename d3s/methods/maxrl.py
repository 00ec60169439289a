"""MaxRL, arXiv 2602.02710: divide the centered rewards by the mean of the group, so that hard problems count more.

    reward: {advantages: "d3s.methods.maxrl:maxrl"}          # configs/method/maxrl.yaml

Of c > 0 right answers in G each gets G / c - 1, each wrong one -1; without a right one all get 0. In expectation this
is the gradient of the log-probability of success, expanded to order G - 1. Rewards must not be negative, so
reward.length should be none.

Worth using? Not measured (3 seeds, G = 16, intervals of 2.1 to 3.8 points on either side): less Pass@1 and more Pass@8
than GRPO in the mean, as it is meant to have.
"""

from torch import Tensor

from d3s.advantage import center
from d3s.common import UserError


# A_i = (R_i - mean_group R) / mean_group R
def maxrl(rewards: Tensor, counted: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """(reward - mean) / mean of the group. Raises UserError for a negative reward."""
    if (lowest := rewards.min().item()) < 0:
        raise UserError(
            f"reward.advantages: got the reward {lowest:g}, expected at least 0 with d3s.methods.maxrl:maxrl; for "
            "negative rewards set reward.advantages: group"
        )
    centered, means, _ = center(rewards, counted)
    return centered / means.masked_fill(means == 0, 1.0), means
