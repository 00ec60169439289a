"""Pass@k training, arXiv 2508.10751: advantages for the probability that one of k responses is right.

    reward: {advantages: {rule: "d3s.methods.pass_at_k:pass_at_k", k: 4}}         # configs/method/pass_at_k.yaml

The advantage of a response is the mean, over all subsets of k responses that contain it, of the subset's standardized
reward, which is 1 if one of them is right; in closed form. A problem with fewer than k wrong answers of G has no signal
left, so training turns to hard problems. Rewards must be 0 or 1: no format or length terms, no graded functions.

Worth using? Not measured (k = 4, 3 seeds, G = 16, intervals of 2.1 to 3.8 points on either side): less Pass@1 and more
Pass@8 than GRPO in the mean, as it is meant to have.
"""

import math

import torch
from torch import Tensor

from d3s.common import UserError


# Of n responses w are wrong. R = 1 - C(w, k) / C(n, k),   s = sqrt(R (1 - R))
# A_right = (1 - R) / s,   A_wrong = (1 - R - C(w - 1, k - 1) / C(n - 1, k - 1)) / s
def pass_at_k(rewards: Tensor, k: int) -> Tensor:
    """For the probability that one of k responses is right; 0 where all subsets of a group are alike.

    Args:
        rewards: [B, G], 0 or 1.

    Returns: [B, G], same dtype; of integers and booleans float32.
    Raises: UserError for another reward; ValueError for another k.
    """
    if type(k) is not int or not 1 <= k < rewards.shape[1]:
        raise ValueError(f"k must be 1 to G - 1 = {rewards.shape[1] - 1}, not {k}")
    right = rewards == 1
    if not (valid := right | (rewards == 0)).all():
        raise UserError(
            f"reward.advantages: got the reward {rewards[~valid][0].item():g}, expected 0 or 1 with "
            "d3s.methods.pass_at_k:pass_at_k; for graded rewards set reward.advantages: group"
        )
    pairs = torch.tensor(
        [_wrong_and_right(rewards.shape[1], w, k) for w in (~right).sum(1).tolist()], dtype=torch.float64
    )
    return pairs.gather(1, right.long()).to(rewards.dtype if rewards.is_floating_point() else torch.float32)


def _wrong_and_right(size: int, wrong: int, k: int) -> tuple[float, float]:
    """The Pass@k advantages of the wrong and the right responses of a group."""
    if wrong < k or wrong == size:
        return 0.0, 0.0
    failing = math.comb(wrong, k) / math.comb(size, k)  # 1 - R
    deviation = math.sqrt(failing * (1 - failing))
    return (failing - math.comb(wrong - 1, k - 1) / math.comb(size - 1, k - 1)) / deviation, failing / deviation
