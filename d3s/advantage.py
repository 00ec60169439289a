"""Group-relative advantages: how much better a response is than the other responses to its prompt."""

import math

import torch
from torch import Tensor

STD_FLOOR = 1e-4  # added to the standard deviation, as TRL does


# A_i = (R_i - mean_group R) / (std + 1e-4)       GRPO, arXiv 2402.03300; std with Bessel's correction
def group_advantages(rewards: Tensor, scale: str = "group", present: Tensor | None = None) -> Tensor:
    """Normalize B groups of G rewards; a group of equal rewards gets exactly 0.

    Args:
        rewards: [B, G], finite.
        scale: what the centered rewards are divided by: "group" (GRPO), "batch" (the standard deviation of all B x G
            rewards, Lite PPO, arXiv 2508.08221), "mean" (the group's mean of nonnegative rewards, MaxRL, arXiv
            2602.02710) or "none" (Dr. GRPO, arXiv 2503.20783).
        present: bool [B, G]; if given, means and deviations are those of the present rewards, and absent ones get 0.

    Returns: [B, G], same dtype.
    Raises: ValueError for another shape, fewer than two rewards a group, a non-finite reward, a negative one with
        "mean", or an unknown scale.
    """
    if rewards.dim() != 2 or rewards.shape[1] < 2:
        raise ValueError(f"rewards must be [B, G] with G >= 2, not {list(rewards.shape)}")
    if not torch.isfinite(rewards).all():
        raise ValueError("rewards must be finite")
    if scale not in ("group", "batch", "mean", "none"):
        raise ValueError(f'scale must be "group", "batch", "mean" or "none", not {scale!r}')
    present = torch.ones_like(rewards, dtype=torch.bool) if present is None else present
    if scale == "mean" and (rewards[present] < 0).any():
        raise ValueError('rewards must not be negative with scale "mean"')
    exact = rewards.double()  # in float32 the result would depend on the order of the rewards
    counts = present.sum(1, keepdim=True)
    means = exact.where(present, 0.0).sum(1, keepdim=True) / counts.clamp(min=1)
    advantages = (exact - means).masked_fill(~present, 0.0)
    if scale == "group":
        variances = advantages.square().sum(1, keepdim=True) / (counts - 1).clamp(min=1)
        advantages = advantages / (variances.sqrt() + STD_FLOOR)
    elif scale == "batch" and counts.sum() > 1:
        advantages = advantages / (exact[present].std() + STD_FLOOR)
    elif scale == "mean":
        advantages = advantages / means  # where the mean is 0 the rewards are equal
    first = rewards.gather(1, present.int().argmax(1, keepdim=True))
    equal = ((rewards == first) | ~present).all(1, keepdim=True)  # the mean of equal floats can be off by one bit
    return advantages.masked_fill(equal, 0.0).to(rewards.dtype)


# Of n responses w are wrong. R = 1 - C(w, k) / C(n, k),   s = sqrt(R (1 - R))
# A_right = (1 - R) / s,   A_wrong = (1 - R - C(w - 1, k - 1) / C(n - 1, k - 1)) / s
# Pass@k training, arXiv 2508.10751. It is the mean, over all subsets of k responses that contain the response, of the
# subset's standardized reward, which is 1 if one of them is right.
def pass_at_k_advantages(rewards: Tensor, k: int, present: Tensor | None = None) -> Tensor:
    """Advantages for the probability that one of k responses is right; 0 where all subsets of a group are alike.

    Args:
        rewards: [B, G], 0 or 1.
        present: bool [B, G]; if given, only these count; the others get 0, as do groups of fewer than k.

    Returns: [B, G], same dtype.
    Raises: ValueError for another shape, another reward or k < 1.
    """
    if rewards.dim() != 2 or k < 1:
        raise ValueError(f"need rewards [B, G] and k >= 1, not {list(rewards.shape)} and k = {k}")
    right = rewards == 1
    present = torch.ones_like(right) if present is None else present
    if not (right | (rewards == 0) | ~present).all():
        raise ValueError("rewards must be 0 or 1")
    sizes, wrong = present.sum(1).tolist(), (present & ~right).sum(1).tolist()
    pairs = torch.tensor([_wrong_and_right(n, w, k) for n, w in zip(sizes, wrong)], dtype=torch.float64)
    return pairs.gather(1, right.long()).masked_fill(~present, 0.0).to(rewards.dtype)


def _wrong_and_right(size: int, wrong: int, k: int) -> tuple[float, float]:
    """The Pass@k advantages of the wrong and the right responses of a group."""
    if wrong < k or wrong == size:
        return 0.0, 0.0
    failing = math.comb(wrong, k) / math.comb(size, k)  # 1 - R
    deviation = math.sqrt(failing * (1 - failing))
    return (failing - math.comb(wrong - 1, k - 1) / math.comb(size - 1, k - 1)) / deviation, failing / deviation
