"""Synthetic tasks: problems without a download, and demonstrations to warm up a tiny base model.

Demonstrations show arithmetic facts and the answer format, not the skill: `precedence` demonstrations reduce random
pairs of operands instead of following operator precedence; `countdown` demonstrations combine the numbers at random, up
to TRIES times; those of `code` are the best of random programs. Reinforcement learning has to find the rest. `mixed` is
`precedence` with 2 to 6 operands: its responses differ in length, as those of large models do. `words`, in
d3s/data/word_problems.py, is for a language model, whose demonstrations are right and of other kinds; `chains` has its
problems of two steps.
"""

import ast
import json
import operator
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from hashlib import sha256
from itertools import product

from d3s.common import UserError
from d3s.data import word_problems

SPLITS = ("train", "validation", "test")
TRIES = 6  # random expressions per countdown demonstration; about 60 % of demonstrations reach the target
LARGEST = 50  # bound on the intermediate values of a correct solution: facts that a tiny model can learn
OPERATIONS = {"+": operator.add, "-": operator.sub, "*": operator.mul}
SYMBOLS = tuple(OPERATIONS)
NODES = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*"}
MAX_EXPRESSION = 100  # characters; also bounds the recursion depth and the size of the numbers


@dataclass(frozen=True)
class Task:
    """A generator of problems with demonstrations.

    A problem's text alone decides its split, so train, validation and test are disjoint for all seeds.
    """

    name: str
    # Draws one problem as (text, gold answer, level). Equal problems have equal texts.
    generate: Callable[[random.Random], tuple[str, str, str]]
    # For a problem's text: in the right format, right only by chance. None: `shown` draws solved problems instead.
    demonstrate: Callable[[random.Random, str], str] | None = None
    reward: str | None = None  # the `module:function` or class that scores a response; None for the verifier
    train_size: int = 4096  # default number of training problems
    split_of: Callable[[str], str] | None = None  # of a problem's text; None: the function split_of
    shown: Callable[[random.Random], tuple[str, str]] | None = None

    def draw(self, split: str, count: int, seed: int) -> list[tuple[str, str, str]]:
        """Draw `count` distinct problems of a split as (text, gold answer, level).

        The first m of them are those that `count=m` returns. Raises UserError if the task has fewer problems.
        """
        rng, drawn, misses = random.Random(f"{self.name}/{split}/{seed}"), {}, 0
        while len(drawn) < count:
            problem = self._generate_in(split, rng)
            misses = misses + 1 if problem[0] in drawn else 0
            if misses > 500:
                problem = f"got a request for {count} {split} problems, expected at most about {len(drawn)}"
                raise UserError(f"synthetic:{self.name}: {problem}, which is all there are")
            drawn.setdefault(problem[0], problem)
        return list(drawn.values())

    def demonstrations(self, count: int, seed: int) -> list[tuple[str, str]]:
        """`count` pairs (prompt, response), in no split but train; a problem may recur with another response."""
        rng = random.Random(f"{self.name}/demonstrations/{seed}")
        if not self.demonstrate:
            return [self.shown(rng) for _ in range(count)]
        texts = (self._generate_in("train", rng)[0] for _ in range(count))
        return [(text, self.demonstrate(rng, text)) for text in texts]

    def _generate_in(self, split: str, rng: random.Random) -> tuple[str, str, str]:
        while True:
            problem = self.generate(rng)
            if (self.split_of or split_of)(problem[0]) == split:
                return problem


def find_task(name: str) -> Task:
    """The task `name` of TASKS. Raises UserError if there is none."""
    if name not in TASKS:
        known = ", ".join(f"synthetic:{task}" for task in TASKS)
        raise UserError(f"synthetic:{name}: unknown task; expected one of {known}")
    return TASKS[name]


def split_of(text: str) -> str:
    """The split of a problem text: 80 % train, 10 % validation, 10 % test."""
    bucket = sha256(text.encode()).digest()[0] % 10
    return {0: "validation", 1: "test"}.get(bucket, "train")


# --- expressions ----------------------------------------------------------------------------------


def evaluate_expression(text: str) -> tuple[int, list[int]] | None:
    """Evaluate an expression of natural numbers, + - * and parentheses, from its syntax tree.

    Returns: its value and the numbers in it, in their order; None if the text is not such an expression.
    """
    text = text.rstrip(" \t")
    if len(text) > MAX_EXPRESSION or not re.fullmatch(r"[0-9+\-*() \t]+", text):
        return None
    numbers: list[int] = []

    def value(node: ast.expr) -> int:
        if isinstance(node, ast.Constant):
            numbers.append(node.value)
            return node.value
        if not isinstance(node, ast.BinOp) or type(node.op) not in NODES:  # a sign, a power, a call, a tuple
            raise ValueError("not an expression of + - *")
        left = value(node.left)
        return OPERATIONS[NODES[type(node.op)]](left, value(node.right))

    plain = re.sub(r"(?<![0-9])0+(?=[0-9])", "", text.lstrip(" \t"))  # Python refuses 007
    try:
        return value(ast.parse(plain, mode="eval").body), numbers
    except (SyntaxError, ValueError):
        return None


# --- precedence, mixed: 3+6*3= ---------------------------------------------------------------------------


def _reduce(numbers: list[int], signs: list[str], i: int) -> tuple[list[int], list[str]]:
    """Replace the operands around sign i by the value of the operation."""
    value = OPERATIONS[signs[i]](numbers[i], numbers[i + 1])
    return [*numbers[:i], value, *numbers[i + 2 :]], signs[:i] + signs[i + 1 :]


def _expression(numbers: Sequence[object], signs: Sequence[str]) -> str:
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


def _generate_precedence(rng: random.Random, counts: Sequence[int]) -> tuple[str, str, str]:
    """An expression of one of these sizes; with three or more operands at most half of the orders give its value."""
    while True:
        count = rng.choice(counts)
        numbers, signs = [rng.randint(1, 9) for _ in range(count)], [rng.choice(SYMBOLS) for _ in range(count - 1)]
        values = values_by_precedence(numbers, signs)
        if min(values) < 0 or max(values) > LARGEST:
            continue
        outcomes = all_outcomes(numbers, signs)
        if count == 2 or 2 * outcomes.count(values[-1]) <= len(outcomes):
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


# --- code: 0,2>2;1,2>3;3,0>3: asks for a+b --------------------------------------------------------

# A problem shows three values of a hidden function of a and b. The response is an expression of a, b, digits and signs,
# which ExpressionReward (d3s/programs/code_reward.py) runs in the sandbox on all pairs that an example may show and on
# further ones: it is right only if it generalizes.
OPERANDS = ("a", "b", "1", "2")
LARGEST_ARGUMENT = 3  # of an example: small values make facts that a tiny model can learn
EXAMPLES = 3
PAIRS = tuple(product(range(LARGEST_ARGUMENT + 1), repeat=2))  # of arguments that examples may show
# The tests of a function, the same in all of its problems: so the sandbox runs a program once for each of them.
TESTED = (*PAIRS, (1, 7), (8, 2), (6, 9), (10, 3), (12, 12))
PROGRAM_TRIES = 64  # random programs per demonstration


@cache
def program_value(program: str, a: int, b: int) -> int:
    """Value of a program that this module wrote."""
    return evaluate_expression(program.replace("a", str(a)).replace("b", str(b)))[0]


@cache
def all_programs() -> tuple[str, ...]:
    """Every expression of two or three operands with both a and b in it, shortest first."""
    return tuple(
        _expression(operands, signs)
        for count in (2, 3)
        for operands in product(OPERANDS, repeat=count)
        for signs in product(SYMBOLS, repeat=count - 1)
        if {"a", "b"} <= set(operands)
    )


@cache
def hidden_functions() -> tuple[str, ...]:
    """One program for each function that all_programs compute."""
    by_values: dict[tuple[int, ...], str] = {}
    for program in all_programs():
        by_values.setdefault(tuple(_values(program, TESTED)), program)
    return tuple(by_values.values())


def _generate_code(rng: random.Random) -> tuple[str, str, str]:
    """A random function at random pairs in ascending order, at which no other function of the task has its values."""
    while True:
        program = rng.choice(hidden_functions())
        pairs = sorted(rng.sample(PAIRS, EXAMPLES))
        values = _values(program, pairs)
        if sum(_values(other, pairs) == values for other in hidden_functions()) == 1:
            break
    text = ";".join(f"{a},{b}>{value}" for (a, b), value in zip(pairs, values)) + ":"
    tests = [f"assert f({a}, {b}) == {program_value(program, a, b)}" for a, b in TESTED]
    return text, json.dumps(tests), f"{len(program) // 2 + 1}-operands"


def _demonstrate_code(rng: random.Random, text: str) -> str:
    """Of PROGRAM_TRIES random programs the first of those that are right about most examples."""
    examples = [tuple(map(int, re.split("[,>]", example))) for example in text.removesuffix(":").split(";")]
    tries = [rng.choice(all_programs()) for _ in range(PROGRAM_TRIES)]
    return max(tries, key=lambda program: sum(program_value(program, a, b) == value for a, b, value in examples))


def _values(program: str, pairs: Sequence[tuple[int, int]]) -> list[int]:
    return [program_value(program, a, b) for a, b in pairs]


_WORDS = Task("words", word_problems.generate, shown=word_problems.demonstrate, split_of=word_problems.split_of)
_TASKS = (
    Task("precedence", partial(_generate_precedence, counts=(3, 4)), _demonstrate_precedence),
    Task("mixed", partial(_generate_precedence, counts=(2, 3, 4, 5, 6)), _demonstrate_precedence),
    Task("countdown", _generate_countdown, _demonstrate_countdown, "d3s.data.synthetic:countdown_reward", 2048),
    Task("code", _generate_code, _demonstrate_code, "d3s.programs.code_reward:ExpressionReward"),
    _WORDS,
    replace(_WORDS, name="chains", generate=partial(word_problems.generate, steps=2)),
)
TASKS = {task.name: task for task in _TASKS}
