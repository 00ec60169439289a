"""Coverage: N and K that hold a share of what all rollouts and tokens have to teach. Our own rule.

    schedule: {follow: {rule: "d3s.methods.coverage:Coverage", n: 0.8}}     # configs/method/d3s_coverage.yaml

A rule of schedule.follow; D3S (arXiv 2509.22115) leaves open how N and K follow training. N falls as groups saturate,
since fewer rollouts hold the sum. Worth using? Not measured well enough to tell, see docs/beyond.md.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from d3s.common import UserError
from d3s.rules import rule_name

TIE = 1e-9  # relative difference below which two sums count as equal


class Coverage:
    """The smallest even N that holds the share `n` of the sum of A², the smallest K that holds `k` of |A| x entropy.

    Raises: UserError for options under which the selection does not compare these values.
    """

    def __init__(self, config: Any, bounds: tuple, n: float = 0.8, k: float = 0.95) -> None:
        selector, k_moves = config.selector, bounds[1][0] < bounds[1][1]
        if not (0 < n <= 1 and 0 < k <= 1):
            raise UserError(f"schedule.follow: got the shares n {n} and k {k}, expected more than 0 and at most 1")
        if selector.normalize == "after":
            raise UserError("schedule.follow: coverage requires selector.normalize: before")
        if k_moves and (rule_name(selector.tokens) != "advantage_entropy" or selector.token_scope == "sample"):
            raise UserError(
                "schedule.follow: coverage requires selector.tokens: advantage_entropy and selector.token_scope: "
                "batch, or a fixed K (schedule.k_shape: constant)"
            )
        self.bounds, self.n, self.k = bounds, n, k

    def n_of(self, advantages: Tensor, choose: Callable[[int], Tensor]) -> int:
        """The smallest sufficient N of the choice that is then made."""
        return covering_keep(advantages, choose, self.n, *self.bounds[0])

    def k_of(self, advantages: Tensor, entropies: Tensor) -> float:
        """The smallest sufficient K."""
        return covering_fraction(advantages.abs() * entropies, self.k, *self.bounds[1])


# N_t = min { even N in [low, high] : sum_{S*(N)} A^2 >= c * sum A^2 },  S*(N): the choice of N rollouts per prompt
def covering_keep(advantages: Tensor, choose: Callable[[int], Tensor], cover: float, low: int, high: int) -> int:
    """The smallest even number of rollouts per prompt whose choice holds the share `cover` of the sum of A^2.

    Args:
        advantages: [B, G], 0 for ineligible rollouts.
        choose: number -> the choice, bool [B, G].
        low, high: bounds of the number; without any advantage it is low, and where no even number suffices, high.
    """
    squares = advantages.double().square()
    needed = cover * squares.sum() * (1 - TIE)
    if not needed:
        return low
    numbers = range(low + low % 2, high, 2)
    return next((number for number in numbers if squares[choose(number)].sum() >= needed), high)


# K_t = min { K in [low, high] : sum_{top K%} |A| H >= c * sum |A| H }
def covering_fraction(scores: Tensor, cover: float, low: float, high: float) -> float:
    """The smallest fraction of tokens, within [low, high], whose highest scores hold the share `cover` of their sum.

    Args:
        scores: [T], |advantage| * entropy of the tokens of the kept rollouts, >= 0.
        low, high: bounds of the fraction; without any score it is low.
    """
    held = scores.double().sort(descending=True).values.cumsum(0)
    if not len(held) or not held[-1]:
        return low
    count = int((held < cover * held[-1] * (1 - TIE)).sum()) + 1
    return min(max(count / len(held), low), high)
