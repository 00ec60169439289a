"""The synthetic task `code`: find a program from examples. `0,2>2;1,2>3;3,0>3:` asks for `a+b`.

A problem shows three values of a hidden function of a and b. The response is an expression of a, b, digits and signs,
which ExpressionReward (d3s/sandbox/code_reward.py) runs in the sandbox on all pairs that an example may show and on
further ones: it is right only if it generalizes.
"""

import json
import random
import re
from collections.abc import Sequence
from functools import cache
from itertools import chain, product

from d3s.data.expressions import SYMBOLS, evaluate_expression

OPERANDS = ("a", "b", "1", "2")
LARGEST_ARGUMENT = 3  # of an example: small values make facts that a tiny model can learn
EXAMPLES = 3
PAIRS = tuple(product(range(LARGEST_ARGUMENT + 1), repeat=2))  # of arguments that examples may show
# The tests of a function, the same in all of its problems: so the sandbox runs a program once for each of them.
TESTED = (*PAIRS, (1, 7), (8, 2), (6, 9), (10, 3), (12, 12))
PROGRAM_TRIES = 64  # random programs per demonstration

Pairs = Sequence[tuple[int, int]]


@cache
def program_value(program: str, a: int, b: int) -> int:
    """Value of a program that this module wrote."""
    value, _ = evaluate_expression(program.replace("a", str(a)).replace("b", str(b)))
    return value


@cache
def all_programs() -> tuple[str, ...]:
    """Every expression of two or three operands with both a and b in it, shortest first."""
    return tuple(
        "".join(chain(*zip(operands, (*signs, ""))))
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
        by_values.setdefault(tuple(program_value(program, a, b) for a, b in TESTED), program)
    return tuple(by_values.values())


def generate_code(rng: random.Random) -> tuple[str, str, str]:
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


def demonstrate_code(rng: random.Random, text: str) -> str:
    """Of PROGRAM_TRIES random programs the first of those that are right about most examples."""
    examples = [tuple(map(int, re.split("[,>]", example))) for example in text.removesuffix(":").split(";")]
    tries = [rng.choice(all_programs()) for _ in range(PROGRAM_TRIES)]
    return max(tries, key=lambda program: sum(program_value(program, a, b) == value for a, b, value in examples))


def _values(program: str, pairs: Pairs) -> list[int]:
    return [program_value(program, a, b) for a, b in pairs]
