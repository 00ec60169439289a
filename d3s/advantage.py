"""Group-relative advantages: how much better a response is than the other responses to its prompt."""

import torch
from torch import Tensor

STD_FLOOR = 1e-4  # added to the standard deviation, as TRL does


# A_i = (R_i - mean_group R) / (std + 1e-4)       GRPO, arXiv 2402.03300; std with Bessel's correction
def group_advantages(rewards: Tensor, scale: str = "group", present: Tensor | None = None) -> Tensor:
    """Normalize B groups of G rewards; a group of equal rewards gets exactly 0.

    Args:
        rewards: [B, G], finite.
        scale: what the centered rewards are divided by: "group" (GRPO), "batch" (the standard deviation of all B x G
            rewards, Lite PPO, arXiv 2508.08221) or "none" (Dr. GRPO, arXiv 2503.20783).
        present: bool [B, G]; if given, means and deviations are those of the present rewards, and absent ones get 0.

    Returns: [B, G], same dtype.
    Raises: ValueError for another shape, fewer than two rewards a group, a non-finite reward or an unknown scale.
    """
    if rewards.dim() != 2 or rewards.shape[1] < 2:
        raise ValueError(f"rewards must be [B, G] with G >= 2, not {list(rewards.shape)}")
    if not torch.isfinite(rewards).all():
        raise ValueError("rewards must be finite")
    if scale not in ("group", "batch", "none"):
        raise ValueError(f'scale must be "group", "batch" or "none", not {scale!r}')
    present = torch.ones_like(rewards, dtype=torch.bool) if present is None else present
    exact = rewards.double()  # in float32 the result would depend on the order of the rewards
    counts = present.sum(1, keepdim=True)
    centered = exact - exact.where(present, 0.0).sum(1, keepdim=True) / counts.clamp(min=1)
    advantages = centered.masked_fill(~present, 0.0)
    if scale == "group":
        variances = advantages.square().sum(1, keepdim=True) / (counts - 1).clamp(min=1)
        advantages = advantages / (variances.sqrt() + STD_FLOOR)
    elif scale == "batch" and counts.sum() > 1:
        advantages = advantages / (exact[present].std() + STD_FLOOR)
    first = rewards.gather(1, present.int().argmax(1, keepdim=True))
    equal = ((rewards == first) | ~present).all(1, keepdim=True)  # the mean of equal floats can be off by one bit
    return advantages.masked_fill(equal, 0.0).to(rewards.dtype)
