"""Group-relative advantages: how much better a response is than the other responses to its prompt.

A rule of reward.advantages takes, by name, what it needs of (B problems, G responses to each):

    rewards  [B, G]  finite
    counted  [B, G]  bool, the responses that count, with selector.normalize: after those that were selected, else all;
                     a rule that does not take it requires selector.normalize: before
    parts            the values [B, G] of each reward function by name, and of the length term
    weights          of the parts in the rewards, by name

and returns finite advantages, floating point [B, G]; or (advantages, divisors, floating point [B, 1]), where a divisor
is what centered rewards of the group were divided by: rewards of parts of a response need it, see
d3s/rewards/token_advantages.py. Advantages of responses that do not count become 0.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from d3s.rules import Contract, tensor_problem

EPSILON = 1e-4  # added to the standard deviation, as TRL does


# A_i = (R_i - mean_group R) / (std + 1e-4)       GRPO, arXiv 2402.03300; std with Bessel's correction
def normalize_by_group(rewards: Tensor, counted: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """(reward - mean) / standard deviation of the group. Returns: [B, G]; the divisors [B, 1]; float64."""
    centered, _, counts = center(rewards, counted)
    variances = centered.square().sum(1, keepdim=True) / (counts - 1).clamp(min=1)
    divisors = variances.sqrt() + EPSILON
    return centered / divisors, divisors


# The standard deviation of all B x G rewards: Lite PPO, arXiv 2508.08221
def normalize_by_batch(rewards: Tensor, counted: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """(reward - mean of the group) / standard deviation of the batch. Returns: [B, G]; the divisors [B, 1]; float64."""
    centered, means, _ = center(rewards, counted)
    values = rewards.double() if counted is None else rewards.double()[counted]
    divisors = torch.ones_like(means) * (values.std() + EPSILON if values.numel() > 1 else 1.0)
    return centered / divisors, divisors


# Dr. GRPO, arXiv 2503.20783
def center_only(rewards: Tensor, counted: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """reward - mean of the group. Returns: [B, G]; the divisors 1 [B, 1]; float64."""
    centered, means, _ = center(rewards, counted)
    return centered, torch.ones_like(means)


def group_advantages(rewards: Tensor) -> Tensor:
    """GRPO's advantages of rewards [B, G], float64 if these are, else float32. Raises: ValueError; see center."""
    return normalize_by_group(rewards)[0].to(torch.promote_types(rewards.dtype, torch.float32))


def center(rewards: Tensor, counted: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Rewards minus the mean of their group [B, G]; means and counts of the groups [B, 1]; in float64.

    Exactly 0 where a reward does not count, and in groups whose counted rewards are equal: the mean of equal floats can
    be off by one bit.

    Raises: ValueError for another shape, fewer than two rewards a group, or a non-finite reward.
    """
    if rewards.dim() != 2 or rewards.shape[1] < 2 or not rewards.isfinite().all():
        raise ValueError(f"rewards must be finite, [B, G] with G >= 2, not {list(rewards.shape)}")
    exact = rewards.double()  # in float32 the result would depend on the order of the rewards
    counted = torch.ones_like(rewards, dtype=torch.bool) if counted is None else counted
    counts = counted.sum(1, keepdim=True)
    means = exact.where(counted, 0.0).sum(1, keepdim=True) / counts.clamp(min=1)
    return (exact - means).masked_fill(~counted | equal_rewards(rewards, counted), 0.0), means, counts


def equal_rewards(rewards: Tensor, counted: Tensor) -> Tensor:
    """Whether the counted rewards of a group are equal, bool [B, 1]."""
    first = rewards.gather(1, counted.int().argmax(1, keepdim=True))
    return ((rewards == first) | ~counted).all(1, keepdim=True)


def _problem(result: Any, rewards: Tensor, **_: Any) -> str | None:
    advantages, *divisors = result if isinstance(result, tuple) and len(result) == 2 else (result,)
    problem = tensor_problem(advantages, tuple(rewards.shape), entry="an advantage")
    return problem or (tensor_problem(divisors[0], (len(rewards), 1)) if divisors else None)


def _examples() -> Iterable[dict[str, Any]]:
    rewards = torch.zeros(3, 128)  # large groups, as a rule may need some responses
    rewards[0, 0] = rewards[1, ::2] = 1.0
    yield {
        "rewards": rewards,
        "counted": torch.ones_like(rewards, dtype=torch.bool),
        "parts": {"first": rewards, "second": rewards.flip(1)},
        "weights": {"first": 1.0, "second": 0.5},
    }


ADVANTAGE_RULES = Contract(
    "reward.advantages",
    {"group": normalize_by_group, "batch": normalize_by_batch, "none": center_only},
    ("rewards", "counted", "parts", "weights"),
    _problem,
    examples=_examples,
)
