"""Step-aware advantages: functions for reward.shaper that spare the part of a wrong answer before its first error.

A built-in rule knows the answer and judges single steps, which is process supervision.
"""

from d3s.data.reachability import unreachable
from d3s.rewards.scored import Span

ENDS_OF_STEPS = "; "  # of the synthetic tasks


# A_t = 0 for t < e and A_i from e on, where A_i < 0 and e is the first character of the first wrong step
# VPPO, arXiv 2601.18984: only the first error matters, and the prefix before it is spared.
def spare_reachable(problem: str, response: str, answer: str, advantage: float) -> list[Span]:
    """Spare the steps of a wrong answer to `precedence` or `countdown` after which the answer could still be reached.

    Nothing is spared if no step rules the answer out.
    """
    if advantage >= 0:
        return []
    start = 0  # of the step that ends at i
    for i, character in enumerate(response):
        if character in ENDS_OF_STEPS:
            if unreachable(problem, response[: i + 1]):
                return [(0, start, 0.0)] if start else []
            start = i + 1
    return []
