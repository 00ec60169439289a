"""GDPO, arXiv 2601.05242: normalize each of several rewards within its group before they are added.

    reward: {advantages: "d3s.methods.gdpo:gdpo"}            # configs/method/gdpo.yaml

A reward that rarely differs then counts as much as one that often does. The length terms together are one
more reward of weight 1.

Worth using? No run measured it.
"""

from torch import Tensor

from d3s.advantage import group_advantages, normalize_by_batch


# R = sum_m w_m (R^m - mean_g R^m) / std_g R^m, and then A = R / std R over the batch
def gdpo(parts: dict[str, Tensor], weights: dict[str, float]) -> Tensor:
    """Each reward normalized within its group, added by weight, divided by the deviation of the batch."""
    return normalize_by_batch(sum(weights[name] * group_advantages(values) for name, values in parts.items()))[0]
