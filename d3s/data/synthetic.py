"""Two embedded tasks: problems that need no download, and the worked answers that a tiny base model is warmed up on.

Both show the base model facts and a format, not the skill: `precedence` demonstrations reduce a random pair, not the
one that the rules of arithmetic ask for; `countdown` demonstrations combine the numbers at random, a few times over.
Reinforcement learning has to find the rest.
"""

import operator
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256

from d3s.common import UserError

SPLITS = ("train", "validation", "test")
OPERATIONS = {"+": operator.add, "-": operator.sub, "*": operator.mul}
SYMBOLS = tuple(OPERATIONS)
TRIES = 6  # of a countdown demonstration: about half of them end at the target
LARGEST = 50  # of the values met on the right way to an answer: facts that a tiny model can learn


@dataclass(frozen=True)
class Problem:
    """One problem with its gold answer, in text. `source` names the data set, after slashes its subject or level."""

    id: str
    problem: str
    answer: str
    source: str


@dataclass(frozen=True)
class Task:
    """A generator of problems with worked answers.

    `draw(rng)` gives (problem text, gold answer, level); equal problems have equal texts, and the hash of the text
    alone decides the split, so that train, validation and test are disjoint whatever the seeds.
    `demonstrate(rng, text)` writes a worked answer in the right format that is right only by luck. `reward` is the
    `module:function` that scores a response, None for the verifier.
    """

    name: str
    draw: Callable[[random.Random], tuple[str, str, str]]
    demonstrate: Callable[[random.Random, str], str]
    reward: str | None = None
    train_size: int = 4096  # training problems where no number is given

    def problems(self, split: str, count: int, seed: int) -> list[Problem]:
        """`count` different problems of a split; the first m of them are those that count=m gives.

        Raises UserError for an unknown split, or when the task has fewer problems than that.
        """
        rng, found, misses = random.Random(f"{self.name}/{split}/{seed}"), {}, 0
        while len(found) < count:
            text, answer, level = self._draw_in(split, rng)
            misses = misses + 1 if text in found else 0
            if misses > 500:
                raise UserError(
                    f"synthetic:{self.name} has about {len(found)} {split} problems, {count} were asked for"
                )
            if text not in found:
                found[text] = Problem(f"{self.name}/{text}", text, answer, f"synthetic/{self.name}/{level}")
        return list(found.values())

    def demonstrations(self, count: int, seed: int) -> list[tuple[str, str]]:
        """`count` pairs (prompt, response) over training problems; a problem may come again with another response."""
        rng = random.Random(f"{self.name}/demonstrations/{seed}")
        prompts = (self._draw_in("train", rng)[0] for _ in range(count))
        return [(text, self.demonstrate(rng, text)) for text in prompts]

    def _draw_in(self, split: str, rng: random.Random) -> tuple[str, str, str]:
        while True:
            drawn = self.draw(rng)
            if split_of(drawn[0]) == split:
                return drawn


def split_of(text: str) -> str:
    """The split that a problem text belongs to: 80 % train, 10 % validation, 10 % test."""
    bucket = sha256(text.encode()).digest()[0] % 10
    return {0: "validation", 1: "test"}.get(bucket, "train")


# --- precedence: 3+6*3= ---------------------------------------------------------------------------


def _reduce(numbers: list[int], signs: list[str], i: int) -> tuple[list[int], list[str]]:
    """Replace the pair of operands around sign i by its value."""
    value = OPERATIONS[signs[i]](numbers[i], numbers[i + 1])
    return [*numbers[:i], value, *numbers[i + 2 :]], signs[:i] + signs[i + 1 :]


def _write(numbers: list[int], signs: list[str]) -> str:
    return str(numbers[0]) + "".join(f"{sign}{number}" for sign, number in zip(signs, numbers[1:], strict=True))


def _right_values(numbers: list[int], signs: list[str]) -> list[int]:
    """The values met when products go first, then sums and differences from left to right; the last is the answer."""
    values = []
    while signs:
        i = signs.index("*") if "*" in signs else 0
        numbers, signs = _reduce(numbers, signs, i)
        values.append(numbers[i])
    return values


def _all_outcomes(numbers: list[int], signs: list[str]) -> list[int]:
    """The final value of each of the (operands - 1)! orders of reduction."""
    if not signs:
        return numbers
    return [v for i in range(len(signs)) for v in _all_outcomes(*_reduce(numbers, signs, i))]


def _draw_precedence(rng: random.Random) -> tuple[str, str, str]:
    """An expression of 3 or 4 operands for which at most half of the orders of reduction give the right value."""
    while True:
        count = rng.choice((3, 4))
        numbers, signs = [rng.randint(1, 9) for _ in range(count)], [rng.choice(SYMBOLS) for _ in range(count - 1)]
        values = _right_values(numbers, signs)
        if min(values) < 0 or max(values) > LARGEST:
            continue
        outcomes = _all_outcomes(numbers, signs)
        if 2 * outcomes.count(values[-1]) <= len(outcomes):
            return _write(numbers, signs) + "=", str(values[-1]), f"{count}-operands"


def _demonstrate_precedence(rng: random.Random, text: str) -> str:
    r"""Reduce uniformly random adjacent pairs until one number is left: `6*3=18;3+18=21 \boxed{21}` for `3+6*3=`."""
    numbers, signs = [int(n) for n in re.findall(r"\d+", text)], re.findall(r"[-+*]", text)
    steps = []
    while signs:
        if steps and len(signs) > 1:
            steps.append(_write(numbers, signs))
        i = rng.randrange(len(signs))
        pair = _write(numbers[i : i + 2], signs[i : i + 1])
        numbers, signs = _reduce(numbers, signs, i)
        steps.append(f"{pair}={numbers[i]}")
    return f"{';'.join(steps)} \\boxed{{{numbers[0]}}}"


# --- countdown: 2,3,5->13: ------------------------------------------------------------------------


def _random_way(rng: random.Random, numbers: list[int]) -> tuple[list[str], str, int]:
    """Combine random pairs by random signs until one number is left: the steps, the whole expression, its value."""
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


def _draw_countdown(rng: random.Random) -> tuple[str, str, str]:
    """Three numbers 1..12 in rising order, and the value of one random expression over them as the target."""
    numbers = sorted(rng.randint(1, 12) for _ in range(3))
    gold = f"{','.join(map(str, numbers))}->{_random_way(rng, numbers)[2]}"
    return f"{gold}:", gold, "3-numbers"


def _demonstrate_countdown(rng: random.Random, text: str) -> str:
    r"""The first of a few random expressions that makes the target, or the last: `2*5=10;10+3=13 \boxed{(2*5)+3}`.

    Only the winner is shown, never the trying. With a single try the target has nothing to do with the answer; a tiny
    model then learns to ignore it, and reinforcement learning does not bring it back.
    """
    numbers, target = text.removesuffix(":").split("->")
    for _ in range(TRIES):
        steps, expression, value = _random_way(rng, [int(n) for n in numbers.split(",")])
        if value == int(target):
            break
    return f"{';'.join(steps)} \\boxed{{{expression}}}"


def countdown_reward(response: str, answer: str) -> float:
    r"""1.0 if the last \boxed{} holds an expression that uses each given number exactly once and makes the target.

    `answer` is the gold `2,3,5->13`: the numbers, then the target. Any way to the target is right.
    """
    from d3s.verifier.extraction import extract_answer

    numbers, target = answer.split("->")
    parsed = evaluate_expression(extract_answer(response, "strict") or "")
    if parsed is None:
        return 0.0
    value, used = parsed
    return float(value == int(target) and sorted(used) == sorted(map(int, numbers.split(","))))


MAX_EXPRESSION = 100  # characters: also bounds the depth of recursion and the size of the numbers
TOKEN = re.compile(r"[ \t]*([0-9]+|[-+*()])")


def evaluate_expression(text: str) -> tuple[int, list[int]] | None:
    """Value of an expression of natural numbers, + - * and parentheses, and the numbers in it; None if it is not one.

    Nothing is executed: the text is cut into tokens and read by recursive descent (a sum of products of atoms).
    """
    tokens, position = [], 0
    text = text.rstrip(" \t")
    if len(text) > MAX_EXPRESSION:
        return None
    while position < len(text):
        match = TOKEN.match(text, position)
        if match is None:
            return None
        tokens.append(match[1])
        position = match.end()
    tokens.reverse()  # a stack: the next token is the last
    used: list[int] = []
    try:
        value = _read_sum(tokens, used)
    except ValueError:
        return None
    return None if tokens else (value, used)


def _read_sum(tokens: list[str], used: list[int]) -> int:
    value = _read_product(tokens, used)
    while tokens and tokens[-1] in "+-":
        value = OPERATIONS[tokens.pop()](value, _read_product(tokens, used))
    return value


def _read_product(tokens: list[str], used: list[int]) -> int:
    value = _read_atom(tokens, used)
    while tokens and tokens[-1] == "*":
        tokens.pop()
        value *= _read_atom(tokens, used)
    return value


def _read_atom(tokens: list[str], used: list[int]) -> int:
    token = tokens.pop() if tokens else ""
    if token == "(":
        value = _read_sum(tokens, used)
        if not tokens or tokens.pop() != ")":
            raise ValueError("an opening parenthesis is never closed")
        return value
    if not token.isdigit():
        raise ValueError(f"a number or an opening parenthesis is missing before {token!r}")
    used.append(int(token))
    return used[-1]


TASKS: dict[str, Task] = {
    "precedence": Task("precedence", _draw_precedence, _demonstrate_precedence),
    "countdown": Task(
        "countdown",
        _draw_countdown,
        _demonstrate_countdown,
        reward="d3s.data.synthetic:countdown_reward",
        train_size=2048,
    ),
}
