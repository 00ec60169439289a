"""BCPG-NSA, arXiv 2505.14403: correct steps of a wrong response are punished less, or rewarded.

A function for reward.shaper, made of two judges of steps:

    shaper = consensus_shaper(language_model_judge, process_reward_model)     # in my_judges.py
    reward: {shaper: "my_judges:shaper"}

`synthetic` is one for the built-in tasks, whose judges are rules; configs/method/bcpg_nsa.yaml names it. The paper's
term tau / 2 (log pi / pi_ref)^2 of the whole response is loss.beta with loss.kl_estimator: k2 here, token by token.
Departures: the paper trains offline on responses of the initial policy, and cuts them into steps by a model (SaT).

Worth using? No run measured it.
"""

import re
from collections.abc import Callable
from functools import partial

from d3s.data.synthetic import OPERATIONS
from d3s.groups import Span
from d3s.methods.step_shaper import STEP, unreachable

Step = tuple[int, int]  # start and end as characters of the response
StepJudge = Callable[[str, str, list[Step]], list[bool]]  # (problem, response, steps) -> whether each step is correct


# J = 1/G sum_i 1/|y_i| sum_t beta_it (r_i - mean r) log pi(y_it) - ...                         eq. 6
# beta_it = beta in the steps of a wrong response that both judges call correct, else 1         eqs. 3-5, 7
def consensus_shaper(
    first: StepJudge, second: StepJudge, beta: float = 0.5, split: Callable[[str], list[Step]] | None = None
) -> Callable[[str, str, str, float], list[Span]]:
    """Make a reward.shaper that multiplies the negative advantage of steps that both judges call correct by `beta`.

    Args:
        first, second: the judges; a step on which they differ keeps its advantage, as do wrong ones.
        beta: 1 punishes correct steps like the others, 0 does not punish them, below 0 they are rewarded. The paper
            takes 0.5, and gains with -0.5 too.
        split: cuts a response into steps; by default into lines.
    """

    def shaper(problem: str, response: str, answer: str, advantage: float) -> list[Span]:
        if advantage >= 0:
            return []
        steps = (split or split_steps)(response)
        verdicts = zip(steps, first(problem, response, steps), second(problem, response, steps), strict=True)
        return [(start, end, beta * advantage) for (start, end), one, other in verdicts if one and other]

    return shaper


def split_steps(response: str, separators: str = "\n") -> list[Step]:
    """Cut a response behind each run of these characters; a step without other characters is left out."""
    apart = re.escape(separators)
    pieces = re.finditer(f"(?<![^{apart}])[^{apart}]++[{apart}]*+", response)
    return [piece.span() for piece in pieces]


def reachable_steps(problem: str, response: str, steps: list[Step]) -> list[bool]:
    """Whether a synthetic problem's answer can still be reached after each finished step; the answer is none."""
    return [response[end - 1] in "; " and not unreachable(problem, response[:end]) for _, end in steps]


def true_steps(problem: str, response: str, steps: list[Step]) -> list[bool]:
    """Whether each step is no false equation."""
    equations = [STEP.fullmatch(response[start:end].rstrip("; ")) for start, end in steps]
    return [not e or OPERATIONS[e[2]](int(e[1]), int(e[3])) == int(e[4]) for e in equations]


synthetic = consensus_shaper(reachable_steps, true_steps, split=partial(split_steps, separators="; "))
