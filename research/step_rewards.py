"""Rewards and shapers that the learning experiments compare: the nulls of graded, step-aware and verified rewards.

The synthetic tasks write steps that end with a semicolon or a space: `6*3=18;3+18=21 \\boxed{21}`.
"""

import random
import re

from d3s.data.synthetic import OPERATIONS, countdown_reward
from d3s.groups import Span
from d3s.methods.step_shaper import STEP, spare_reachable, unreachable
from d3s.reward import Scored
from d3s.verifier.verifier import verify

STEP_REWARD = 0.2


def steps_of(response: str) -> list[tuple[int, int, str]]:
    """Start, end and text of each finished step; the end is after its separator."""
    return [(match.start(), match.end(), match[1]) for match in re.finditer(r"([^; ]*)[; ]", response)]


def reward_reachable_steps(response: str, answer: str, row: dict) -> Scored:
    """1 for a right answer, and 0.2 for each step, of at most three, after which it can still be reached."""
    spans: list[Span] = []
    for start, end, _ in steps_of(response)[:3]:
        if unreachable(row["problem"], response[:end]):
            break
        spans.append((start, end, STEP_REWARD))
    return Scored(verify(response, answer) + STEP_REWARD * len(spans), {"steps": len(spans)}, spans)


def reward_reachable_total(response: str, answer: str, row: dict) -> float:
    """The same total, given to the response as a whole: the null of reward_reachable_steps."""
    return reward_reachable_steps(response, answer, row).total


def spare_random(problem: str, response: str, answer: str, advantage: float) -> list[Span]:
    """Spare a wrong answer up to a random step, fixed by the text: the null of spare_reachable."""
    steps = steps_of(response)
    if advantage >= 0 or not steps:
        return []
    start = random.Random(f"{problem}/{response}").choice(steps)[0]
    return [(0, start, 0.0)] if start else []


def spare_true_equations(problem: str, response: str, answer: str, advantage: float) -> list[Span]:
    """Spare a wrong answer up to its first false equation; all of it up to the last step if every equation is true."""
    steps = steps_of(response)
    if advantage >= 0 or not steps:
        return []
    wrong = (start for start, _, text in steps if (m := STEP.fullmatch(text)) and not _is_true(m))
    start = next(wrong, steps[-1][1])
    return [(0, start, 0.0)] if start else []


def reward_prefix(problem: str, response: str, answer: str, advantage: float) -> list[Span]:
    """spare_reachable with 0.3 of the opposite advantage on what it spares."""
    return [(start, end, -0.3 * advantage) for start, end, _ in spare_reachable(problem, response, answer, advantage)]


def random_reward(response: str, answer: str) -> float:
    """0 or 1, fixed by the text: equal responses have equal rewards, and no response is better than another."""
    return float(random.Random(f"{answer}/{response}").random() < 0.5)


def verified(response: str, answer: str) -> float:
    """The reward of the synthetic tasks: evaluations use it where random_reward trains."""
    return countdown_reward(response, answer) if "->" in answer else verify(response, answer)


def _is_true(match: re.Match) -> bool:
    left, sign, right, value = match.groups()
    return OPERATIONS[sign](int(left), int(right)) == int(value)
