"""Group-relative advantages: how much better a response is than the other responses to its prompt."""

import math

import torch
from torch import Tensor

STD_FLOOR = 1e-4  # added to the standard deviation, as TRL does


# A_i = (R_i - mean_group R) / (std + 1e-4)       GRPO, arXiv 2402.03300; std with Bessel's correction
def group_advantages(
    rewards: Tensor, scale: str = "group", counted: Tensor | None = None, std_floor: float = 0.0
) -> Tensor:
    """Normalize B groups of G rewards; a group of equal rewards gets exactly 0.

    Args:
        rewards: [B, G], finite.
        scale: what the centered rewards are divided by: "group" (GRPO), "batch" (the standard deviation of all B x G
            rewards, Lite PPO, arXiv 2508.08221), "mean" (the group's mean of nonnegative rewards, MaxRL, arXiv
            2602.02710) or "none" (Dr. GRPO, arXiv 2503.20783).
        counted: bool [B, G]; if given, means and deviations are those of these rewards, and the others get 0 (PODS).
        std_floor: lower limit of a standard deviation.

    Returns: [B, G], same dtype; of integers and booleans float32.
    Raises: ValueError for another shape, fewer than two rewards a group, a non-finite reward, a negative one with
        "mean", or an unknown scale.
    """
    counted = torch.ones_like(rewards, dtype=torch.bool) if counted is None else counted
    divisors = advantage_divisors(rewards, scale, counted, std_floor)
    centered = _centered(rewards, counted)[0]
    return (centered / divisors).masked_fill(_equal(rewards, counted), 0.0).to(_result_dtype(rewards))


def advantage_divisors(
    rewards: Tensor, scale: str = "group", counted: Tensor | None = None, std_floor: float = 0.0
) -> Tensor:
    """What group_advantages divides the centered rewards of each group by, [B, 1] float64. Same arguments and errors.

    Of a group of equal rewards it is infinite, unless there is a std_floor: nothing tells its responses apart.
    """
    if rewards.dim() != 2 or rewards.shape[1] < 2:
        raise ValueError(f"rewards must be [B, G] with G >= 2, not {list(rewards.shape)}")
    if not torch.isfinite(rewards).all():
        raise ValueError("rewards must be finite")
    if scale not in ("group", "batch", "mean", "none"):
        raise ValueError(f'scale must be "group", "batch", "mean" or "none", not {scale!r}')
    counted = torch.ones_like(rewards, dtype=torch.bool) if counted is None else counted
    if scale == "mean" and (rewards[counted] < 0).any():
        raise ValueError('rewards must not be negative with scale "mean"')
    centered, means, counts = _centered(rewards, counted)
    divisors = torch.ones_like(means)
    if scale == "group":
        variances = centered.square().sum(1, keepdim=True) / (counts - 1).clamp(min=1)
        divisors = variances.sqrt().clamp(min=std_floor) + STD_FLOOR
    elif scale == "batch" and counts.sum() > 1:
        divisors = (rewards.double()[counted].std().clamp(min=std_floor) + STD_FLOOR).expand_as(means)
    elif scale == "mean":
        divisors = means
    return divisors if std_floor else divisors.masked_fill(_equal(rewards, counted), math.inf)


def _centered(rewards: Tensor, counted: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Rewards minus the mean of their group [B, G], 0 where not counted; means and counts [B, 1]."""
    exact = rewards.double()  # in float32 the result would depend on the order of the rewards
    counts = counted.sum(1, keepdim=True)
    means = exact.where(counted, 0.0).sum(1, keepdim=True) / counts.clamp(min=1)
    return (exact - means).masked_fill(~counted, 0.0), means, counts


def _equal(rewards: Tensor, counted: Tensor) -> Tensor:
    """Whether a group's rewards are equal, bool [B, 1]; the mean of equal floats can be off by one bit."""
    first = rewards.gather(1, counted.int().argmax(1, keepdim=True))
    return ((rewards == first) | ~counted).all(1, keepdim=True)


def _result_dtype(rewards: Tensor) -> torch.dtype:
    return rewards.dtype if rewards.is_floating_point() else torch.float32


# Of n responses w are wrong. R = 1 - C(w, k) / C(n, k),   s = sqrt(R (1 - R))
# A_right = (1 - R) / s,   A_wrong = (1 - R - C(w - 1, k - 1) / C(n - 1, k - 1)) / s
# Pass@k training, arXiv 2508.10751. It is the mean, over all subsets of k responses that contain the response, of the
# subset's standardized reward, which is 1 if one of them is right.
def pass_at_k_advantages(rewards: Tensor, k: int) -> Tensor:
    """Advantages for the probability that one of k responses is right; 0 where all subsets of a group are alike.

    Args:
        rewards: [B, G], 0 or 1.

    Returns: [B, G], same dtype; of integers and booleans float32.
    Raises: ValueError for another shape, another reward or k < 1.
    """
    if rewards.dim() != 2 or k < 1:
        raise ValueError(f"need rewards [B, G] and k >= 1, not {list(rewards.shape)} and k = {k}")
    right = rewards == 1
    if not (right | (rewards == 0)).all():
        raise ValueError("rewards must be 0 or 1")
    wrong = (~right).sum(1).tolist()
    pairs = torch.tensor([_wrong_and_right(rewards.shape[1], w, k) for w in wrong], dtype=torch.float64)
    return pairs.gather(1, right.long()).to(_result_dtype(rewards))


def _wrong_and_right(size: int, wrong: int, k: int) -> tuple[float, float]:
    """The Pass@k advantages of the wrong and the right responses of a group."""
    if wrong < k or wrong == size:
        return 0.0, 0.0
    failing = math.comb(wrong, k) / math.comb(size, k)  # 1 - R
    deviation = math.sqrt(failing * (1 - failing))
    return (failing - math.comb(wrong - 1, k - 1) / math.comb(size - 1, k - 1)) / deviation, failing / deviation
