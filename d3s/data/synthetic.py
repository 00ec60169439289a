"""Synthetic tasks: problems without a download, and demonstrations to warm up a tiny base model.

Demonstrations show arithmetic facts and the answer format, not the skill: `precedence` demonstrations reduce random
pairs of operands instead of following operator precedence; `countdown` demonstrations combine the numbers at random, up
to TRIES times; those of `code` are in d3s/data/synthetic_code.py. Reinforcement learning has to find the rest.
"""

import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256

from d3s.common import UserError
from d3s.data.expressions import OPERATIONS, SYMBOLS, evaluate_expression
from d3s.data.synthetic_code import demonstrate_code, generate_code

SPLITS = ("train", "validation", "test")
TRIES = 6  # random expressions per countdown demonstration; about 60 % of demonstrations reach the target
LARGEST = 50  # bound on the intermediate values of a correct solution: facts that a tiny model can learn


@dataclass(frozen=True)
class Task:
    """A generator of problems with demonstrations.

    The hash of a problem's text alone decides its split, so train, validation and test are disjoint for all seeds.
    """

    name: str
    generate: Callable[[random.Random], tuple[str, str, str]]
    """Draw one problem: (text, gold answer, level). Equal problems have equal texts."""
    demonstrate: Callable[[random.Random, str], str]
    """Write a demonstration for a problem's text: in the right format, correct only by chance."""
    reward: str | None = None
    """The `module:function` or class that scores a response; None for the verifier."""
    train_size: int = 4096
    """Default number of training problems."""

    def draw(self, split: str, count: int, seed: int) -> list[tuple[str, str, str]]:
        """Draw `count` distinct problems of a split as (text, gold answer, level).

        The first m of them are those that `count=m` returns. Raises UserError if the task has fewer problems.
        """
        rng, drawn, misses = random.Random(f"{self.name}/{split}/{seed}"), {}, 0
        while len(drawn) < count:
            problem = self._generate_in(split, rng)
            misses = misses + 1 if problem[0] in drawn else 0
            if misses > 500:
                raise UserError(
                    f"synthetic:{self.name}: got a request for {count} {split} problems, expected at most about "
                    f"{len(drawn)}, which is all there are"
                )
            drawn.setdefault(problem[0], problem)
        return list(drawn.values())

    def demonstrations(self, count: int, seed: int) -> list[tuple[str, str]]:
        """`count` pairs (prompt, response) over training problems; a problem may recur with another response."""
        rng = random.Random(f"{self.name}/demonstrations/{seed}")
        prompts = (self._generate_in("train", rng)[0] for _ in range(count))
        return [(text, self.demonstrate(rng, text)) for text in prompts]

    def _generate_in(self, split: str, rng: random.Random) -> tuple[str, str, str]:
        while True:
            problem = self.generate(rng)
            if split_of(problem[0]) == split:
                return problem


def split_of(text: str) -> str:
    """The split of a problem text: 80 % train, 10 % validation, 10 % test."""
    bucket = sha256(text.encode()).digest()[0] % 10
    return {0: "validation", 1: "test"}.get(bucket, "train")


# --- precedence: 3+6*3= ---------------------------------------------------------------------------


def _reduce(numbers: list[int], signs: list[str], i: int) -> tuple[list[int], list[str]]:
    """Replace the operands around sign i by the value of the operation."""
    value = OPERATIONS[signs[i]](numbers[i], numbers[i + 1])
    return [*numbers[:i], value, *numbers[i + 2 :]], signs[:i] + signs[i + 1 :]


def _expression(numbers: list[int], signs: list[str]) -> str:
    return str(numbers[0]) + "".join(f"{sign}{number}" for sign, number in zip(signs, numbers[1:], strict=True))


def values_by_precedence(numbers: list[int], signs: list[str]) -> list[int]:
    """Intermediate values with products first, then sums and differences from left to right; the last is the answer."""
    values = []
    while signs:
        i = signs.index("*") if "*" in signs else 0
        numbers, signs = _reduce(numbers, signs, i)
        values.append(numbers[i])
    return values


def all_outcomes(numbers: list[int], signs: list[str]) -> list[int]:
    """Final value of each of the (operands - 1)! orders of reduction."""
    if not signs:
        return numbers
    return [v for i in range(len(signs)) for v in all_outcomes(*_reduce(numbers, signs, i))]


def _generate_precedence(rng: random.Random) -> tuple[str, str, str]:
    """An expression of 3 or 4 operands for which at most half of the orders of reduction give the correct value."""
    while True:
        count = rng.choice((3, 4))
        numbers, signs = [rng.randint(1, 9) for _ in range(count)], [rng.choice(SYMBOLS) for _ in range(count - 1)]
        values = values_by_precedence(numbers, signs)
        if min(values) < 0 or max(values) > LARGEST:
            continue
        outcomes = all_outcomes(numbers, signs)
        if 2 * outcomes.count(values[-1]) <= len(outcomes):
            return _expression(numbers, signs) + "=", str(values[-1]), f"{count}-operands"


def _demonstrate_precedence(rng: random.Random, text: str) -> str:
    r"""Reduce uniformly random adjacent pairs until one number remains: `6*3=18;3+18=21 \boxed{21}` for `3+6*3=`."""
    numbers, signs = [int(n) for n in re.findall(r"\d+", text)], re.findall(r"[-+*]", text)
    steps = []
    while signs:
        if steps and len(signs) > 1:
            steps.append(_expression(numbers, signs))
        i = rng.randrange(len(signs))
        pair = _expression(numbers[i : i + 2], signs[i : i + 1])
        numbers, signs = _reduce(numbers, signs, i)
        steps.append(f"{pair}={numbers[i]}")
    return f"{';'.join(steps)} \\boxed{{{numbers[0]}}}"


# --- countdown: 2,3,5->13: ------------------------------------------------------------------------


def _random_expression(rng: random.Random, numbers: list[int]) -> tuple[list[str], str, int]:
    """Combine random pairs by random signs until one number remains. Returns (steps, full expression, its value)."""
    terms, steps = [(str(n), n) for n in numbers], []
    while len(terms) > 1:
        (left, a), (right, b) = rng.sample(terms, 2)
        sign = rng.choice(SYMBOLS)
        value = OPERATIONS[sign](a, b)
        if 0 <= value <= LARGEST:
            terms.remove((left, a))
            terms.remove((right, b))
            terms.append((f"({left}{sign}{right})", value))
            steps.append(f"{a}{sign}{b}={value}")
    return steps, terms[0][0][1:-1], terms[0][1]


def _generate_countdown(rng: random.Random) -> tuple[str, str, str]:
    """Three numbers from 1 to 12 in ascending order, and the value of a random expression over them as the target."""
    numbers = sorted(rng.randint(1, 12) for _ in range(3))
    gold = f"{','.join(map(str, numbers))}->{_random_expression(rng, numbers)[2]}"
    return f"{gold}:", gold, "3-numbers"


def _demonstrate_countdown(rng: random.Random, text: str) -> str:
    r"""The first of TRIES random expressions that reaches the target, else the last: `2*5=10;10+3=13 \boxed{(2*5)+3}`.

    Failed tries are not shown. More than one try is needed: with a single try the target is independent of the answer,
    a tiny model learns to ignore it, and reinforcement learning does not undo that.
    """
    numbers, target = text.removesuffix(":").split("->")
    for _ in range(TRIES):
        steps, expression, value = _random_expression(rng, [int(n) for n in numbers.split(",")])
        if value == int(target):
            break
    return f"{';'.join(steps)} \\boxed{{{expression}}}"


def countdown_reward(response: str, answer: str) -> float:
    r"""1.0 if the last \boxed{} has an expression that uses each given number exactly once and equals the target.

    `answer` is the gold answer `2,3,5->13`: the numbers, then the target. Every such expression is correct.
    """
    return float(countdown_graded(response, answer) == 1)


def countdown_graded(response: str, answer: str) -> float:
    """1.0 for a right answer as in countdown_reward, 0.2 for any expression that uses each number once, else 0.0."""
    from d3s.verifier.extraction import extract_answer

    numbers, target = answer.split("->")
    parsed = evaluate_expression(extract_answer(response, "strict") or "")
    if parsed is None or sorted(parsed[1]) != sorted(map(int, numbers.split(","))):
        return 0.0
    return 1.0 if parsed[0] == int(target) else 0.2


TASKS: dict[str, Task] = {
    "precedence": Task("precedence", _generate_precedence, _demonstrate_precedence),
    "countdown": Task(
        "countdown",
        _generate_countdown,
        _demonstrate_countdown,
        reward="d3s.data.synthetic:countdown_reward",
        train_size=2048,
    ),
    "code": Task("code", generate_code, demonstrate_code, reward="d3s.sandbox.code_reward:ExpressionReward"),
}
