"""Schedules of N, K and the learning rate: pure functions of training progress.

A rule of schedule.n_shape or schedule.k_shape takes `progress`, from 0 in the first to 1 in the last step, and returns
the share of the change from the initial to the final value that is made by then, from 0 to 1.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from d3s.rules import Contract, Value

Amount = TypeVar("Amount", int, float)

# s(p): [0, 1] -> [0, 1], the fraction of the change from the initial to the final value made at progress p.
# D3S is linear (arXiv 2509.22115, section on the dynamic schedule), which leaves other shapes open.
SHAPES = {
    "linear": lambda progress: progress,
    "constant": lambda progress: 0.0,
    "cosine": lambda progress: (1 - math.cos(math.pi * progress)) / 2,
    "exponential": lambda progress: (1 - math.exp(-3 * progress)) / (1 - math.exp(-3)),
    "step": lambda progress: 0.0 if progress < 0.5 else 1.0,
}


def _problem(result: Any, progress: float) -> str | None:
    if isinstance(result, bool) or not isinstance(result, float | int) or not 0 <= result <= 1:
        return f"{result!r:.60} at progress {progress:g}, expected a number from 0 to 1"
    return None


def _examples() -> Iterator[dict[str, Any]]:
    return ({"progress": i / 20} for i in range(21))


N_SHAPE_RULES = Contract("schedule.n_shape", SHAPES, ("progress",), _problem, _examples)
K_SHAPE_RULES = Contract("schedule.k_shape", SHAPES, ("progress",), _problem, _examples)


def value_at(pairs: Sequence[tuple[int, Amount]], step: int) -> Amount:
    """The value at `step` (0-based) of pairs [step, value]: that of the last pair that has begun."""
    return [value for first, value in pairs if first <= step][-1]


def training_progress(step: int, total_steps: int) -> float:
    """Fraction of training done at the start of `step` (0-based): 0 in the first step, 1 in the last."""
    return step / (total_steps - 1) if total_steps > 1 else 1.0


# [N(p), K(p)] = (1 - s(p)) [N_init, K_init] + s(p) [N_final, K_final],  s(p) = p      D3S, arXiv 2509.22115
def downsampling_schedule(
    progress: float,
    n_init: int = 8,
    n_final: int = 32,
    k_init: float = 0.05,
    k_final: float = 0.20,
    n_shape: Value = "linear",
    k_shape: Value = "linear",
) -> tuple[int, float]:
    """N, the rollouts kept per prompt, and K, the fraction of their tokens that is trained, at this progress.

    N is exactly n_init where s(p) = 0 and n_final where s(p) = 1. In between it is the nearest even number in their
    range: with right/wrong rewards the subset of largest variance is half right and half wrong, and an odd N would
    tilt it to one side.

    Args:
        progress: fraction of training done; values outside [0, 1] are clipped.
        n_init, n_final: rollouts per prompt at progress 0 and 1.
        k_init, k_final: fraction of tokens at progress 0 and 1, each in (0, 1].
        n_shape, k_shape: one of SHAPES, or a rule of your own.
    """
    p = min(max(progress, 0.0), 1.0)
    change = N_SHAPE_RULES.rule(n_shape)(progress=p)
    n = n_init + change * (n_final - n_init)
    n_low, n_high = sorted((n_init, n_final))
    even = min(max(2 * math.floor(n / 2 + 0.5), n_low + n_low % 2), n_high - n_high % 2)
    ends = {0.0: n_init, 1.0: n_final}
    k = k_init + K_SHAPE_RULES.rule(k_shape)(progress=p) * (k_final - k_init)
    k_low, k_high = sorted((k_init, k_final))
    return n_init if n_init == n_final else ends.get(change, even), min(max(k, k_low), k_high)


def learning_rate(step: int, steps: int, peak: float, shape: str = "constant", warmup_steps: int = 0) -> float:
    """The learning rate at `step` (0-based): linear to `peak` over warmup_steps, then constant, linear or cosine."""
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    left = 1 - (step - warmup_steps) / (steps - warmup_steps)  # 1 after the warm-up, above 0 in the last step
    return peak * {"constant": 1.0, "linear": left, "cosine": (1 - math.cos(math.pi * left)) / 2}[shape]
