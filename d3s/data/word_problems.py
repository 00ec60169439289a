"""Generate one-line word problems: 15 kinds of one to three steps over small numbers.

The kind with its numbers decides the split, and the split the names, so that no problem of the test split shares its
name, or its numbers within its kind, with one of the train split. Demonstrations show the format and calculate right,
with random operations: which one a sentence asks for is left to reinforcement learning. d3s/data/synthetic.py offers
them as the task `words`.
"""

# ruff: noqa: SIM905 (word lists read best as one string)

import operator
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256

NAMES = {
    "train": "Anna Tom Maria Sam Lucy Paul Emma David Sarah Mark Alice Peter Jane Mike Laura John".split(),
    "validation": "Kate Robert Lisa George Nina Frank Helen Simon".split(),
    "test": "Amy Ben Julia Max Rose Adam Clara Leo".split(),
}
THINGS = "apples books coins cards pens stamps shells balls cakes nuts".split()
SPLIT_OF_NAME = {name: split for split, names in NAMES.items() for name in names}


@dataclass(frozen=True)
class Kind:
    """A sentence with the places name, things and numbers a, b, c, the limits of the numbers, and the answer."""

    steps: int
    text: str
    limits: dict[str, tuple[int, int]]
    answer: Callable[..., int]


def _kind(steps: int, text: str, answer: Callable[..., int], **limits: tuple[int, int]) -> Kind:
    return Kind(steps, text, limits, answer)


OPERATIONS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}
LARGEST = 99  # value of a step of a demonstration, except of a sum
EXTRA = 0.3  # share of the demonstrations with a number more: some kinds use one twice, or the half
SMALL, SUM = (2, 9), (2, 20)
KINDS = {
    "join": _kind(
        1, "{name} has {a} {things} and gets {b} more. How many now?", lambda a, b: a + b, a=(3, 30), b=SUM
    ),
    "give": _kind(
        1, "{name} has {a} {things} and gives away {b}. How many are left?", lambda a, b: a - b, a=(5, 30), b=SUM
    ),
    "bags": _kind(
        1, "{name} buys {a} bags of {b} {things}. How many {things}?", lambda a, b: a * b, a=SMALL, b=SMALL
    ),
    "share": _kind(
        1, "{name} shares {a} {things} equally among {b} friends. How many each?", lambda a, b: a / b,
        a=(4, 60), b=SMALL,
    ),
    "more": _kind(
        1, "{name} has {a} {things}, a friend has {b}. How many more has {name}?", lambda a, b: a - b, a=(5, 30), b=SUM
    ),
    "join_twice": _kind(
        2, "{name} has {a} {things}, finds {b} and buys {c}. How many now?", lambda a, b, c: a + b + c,
        a=SMALL, b=SMALL, c=SMALL,
    ),
    "join_give": _kind(
        2, "{name} has {a} {things}, gets {b} and loses {c}. How many are left?", lambda a, b, c: a + b - c,
        a=SUM, b=SMALL, c=SMALL,
    ),
    "give_twice": _kind(
        2, "{name} has {a} {things}, sells {b} and loses {c}. How many are left?", lambda a, b, c: a - b - c,
        a=(9, 30), b=SMALL, c=SMALL,
    ),
    "bags_join": _kind(
        2, "{name} has {a} {things} and buys {b} bags of {c}. How many now?", lambda a, b, c: a + b * c,
        a=SMALL, b=SMALL, c=SMALL,
    ),
    "bags_give": _kind(
        2, "{name} buys {a} bags of {b} {things} and gives away {c}. How many are left?", lambda a, b, c: a * b - c,
        a=SMALL, b=SMALL, c=SMALL,
    ),
    "twice": _kind(
        2, "{name} has {a} {things}, a friend has {b} times as many. How many together?", lambda a, b: a + a * b,
        a=SMALL, b=(2, 5),
    ),
    "change": _kind(
        2, "{name} buys {a} {things} for {b} dollars each and pays with {c} dollars. How many dollars back?",
        lambda a, b, c: c - a * b, a=SMALL, b=SMALL, c=(10, 50),
    ),
    "bags_join_give": _kind(
        3, "{name} buys {a} bags of {b} {things}, gets {c} more and loses {d}. How many are left?",
        lambda a, b, c, d: a * b + c - d, a=(2, 6), b=(2, 6), c=SMALL, d=SMALL,
    ),
    "two_bags": _kind(
        3, "{name} buys {a} bags of {b} {things} and {c} boxes of {d}. How many {things}?",
        lambda a, b, c, d: a * b + c * d, a=(2, 6), b=(2, 6), c=(2, 6), d=(2, 6),
    ),
    "join_share_give": _kind(
        3, "{name} has {a} {things}, gets {b}, gives half away and loses {c}. How many are left?",
        lambda a, b, c: (a + b) / 2 - c, a=SUM, b=SMALL, c=SMALL,
    ),
}  # fmt: skip


def generate(rng: random.Random) -> tuple[str, str, str]:
    """Draw a problem as (text, answer, level). Answers are natural numbers above zero."""
    while True:
        name, kind = rng.choice(list(KINDS.items()))
        numbers = {letter: rng.randint(*limits) for letter, limits in kind.limits.items()}
        answer = kind.answer(**numbers)
        if answer > 0 and answer == int(answer):
            break
    bucket = sha256(f"{name} {numbers}".encode()).digest()[0] % 10
    names = NAMES[{0: "validation", 1: "test"}.get(bucket, "train")]
    text = kind.text.format(name=rng.choice(names), things=rng.choice(THINGS), **numbers)
    return f"{text}\n", str(int(answer)), f"{kind.steps}-step"


def demonstrate(rng: random.Random, text: str) -> str:
    r"""Combine random pairs of the numbers in a problem, now and then with one more: `3*4=12;12-5=7 \boxed{7}`."""
    terms, steps = [int(number) for number in re.findall(r"\d+", text)], []
    if rng.random() < EXTRA:
        terms.append(rng.choice([2, *terms]))
    while len(terms) > 1:
        i, j = sorted(rng.sample(range(len(terms)), 2))
        sign = rng.choice(list(OPERATIONS))
        value = OPERATIONS[sign](terms[i], terms[j])
        if sign == "+" or value in range(1, LARGEST + 1):
            steps.append(f"{terms[i]}{sign}{terms[j]}={int(value)}")
            terms[i] = int(value)
            del terms[j]
    return f"{';'.join(steps)} \\boxed{{{terms[0]}}}"


def split_of(text: str) -> str:
    """The split of a problem, by the name in it."""
    return SPLIT_OF_NAME[re.match(r"\w+", text)[0]]
