"""Generate one-line word problems: 13 kinds of one to three steps over small numbers.

The kind with its numbers decides the split, and the split the names, so that no problem of the test split shares its
name, or its numbers within its kind, with one of the train split. Demonstrations, for a short supervised warm-up, show
the format on sentences of other kinds. d3s/data/synthetic.py offers them as the task `words`, and those of two
steps as `chains`.
"""

# ruff: noqa: SIM905 (word lists read best as one string)

import operator
import random
import re
from dataclasses import dataclass
from hashlib import sha256

NAMES = {
    "train": "Anna Tom Maria Sam Lucy Paul Emma David Sarah Mark Alice Peter Jane Mike Laura John".split(),
    "validation": "Kate Robert Lisa George Nina Frank Helen Simon".split(),
    "test": "Amy Ben Julia Max Rose Adam Clara Leo".split(),
}
THINGS = "apples books coins cards pens stamps shells balls cakes nuts".split()
SPLIT_OF_NAME = {name: split for split, names in NAMES.items() for name in names}
OPERATIONS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}


@dataclass(frozen=True)
class Kind:
    """A sentence with the places name, things and numbers a, b, c, d; its operations on them; their limits.

    Operations are calculated from left to right, such as `a*b-c`.
    """

    operations: str
    text: str
    limits: dict[str, tuple[int, int]]

    def draw(self, rng: random.Random) -> tuple[dict[str, int], list[tuple[int, str, int, float]]]:
        """Numbers within the limits, and the steps (left, sign, right, value), whose values are natural and above zero.

        The last value is the answer.
        """
        while True:
            numbers = {letter: rng.randint(*limits) for letter, limits in self.limits.items()}
            value, steps = numbers[self.operations[0]], []
            for sign, letter in zip(self.operations[1::2], self.operations[2::2], strict=True):
                left, value = value, OPERATIONS[sign](value, numbers[letter])
                steps.append((left, sign, numbers[letter], value))
            if all(value > 0 and value == int(value) for *_, value in steps):
                return numbers, steps


FEW, SMALL, MORE, MANY = (2, 5), (2, 9), (4, 12), (4, 30)


def _kind(operations: str, text: str, *limits: tuple[int, int]) -> Kind:
    return Kind(operations, text, dict(zip("abcd", limits, strict=False)))


KINDS = (
    _kind("a+b", "{name} has {a} {things} and gets {b} more. How many now?", SMALL, SMALL),
    _kind("a+b", "{name} has {a} {things}, a friend has {b}. How many together?", SMALL, SMALL),
    _kind("a+b", "{name} finds {a} {things} at home and {b} at school. How many in all?", SMALL, SMALL),
    _kind("a-b", "{name} has {a} {things} and gives away {b}. How many are left?", MORE, FEW),
    _kind("a-b", "{name} had {a} {things} and lost {b}. How many are left?", MORE, FEW),
    _kind("a*b", "{name} buys {a} bags of {b} {things}. How many {things}?", FEW, SMALL),
    _kind("a*b", "{name} buys {a} {things} for {b} dollars each. How many dollars?", FEW, SMALL),
    _kind("a*b", "{name} fills {a} boxes with {b} {things} each. How many {things}?", FEW, SMALL),
    _kind("a/b", "{name} shares {a} {things} equally among {b} friends. How many each?", MORE, FEW),
    _kind("a+b+c", "{name} has {a} {things}, finds {b} and buys {c}. How many now?", SMALL, FEW, FEW),
    _kind("a+b-c", "{name} has {a} {things}, gets {b} and loses {c}. How many are left?", SMALL, FEW, FEW),
    _kind("a*b+c", "{name} buys {a} bags of {b} {things} and finds {c} more. How many now?", FEW, FEW, FEW),
    _kind("a+b+c+d", "{name} has {a} {things}, gets {b}, finds {c} and buys {d}. How many now?", FEW, FEW, FEW, FEW),
)
DEMONSTRATED = (
    _kind("a+b", "{name} reads {a} pages on Monday and {b} on Tuesday. How many pages?", SMALL, SMALL),
    _kind("a-b", "{name} sees a bus of {a} seats, {b} are taken. How many are free?", MORE, SMALL),
    _kind("a*b", "{name} runs {a} rounds of {b} minutes. How many minutes?", FEW, SMALL),
    _kind("a/b", "{name} cuts {a} meters of rope into {b} equal parts. How long is each?", MANY, FEW),
    _kind("a+b-c", "{name} feeds {a} hens and {b} ducks. {c} fly off. How many stay?", SMALL, SMALL, FEW),
    _kind("a*b+c", "{name} plants {a} rows of {b} trees and {c} more. How many trees?", FEW, FEW, FEW),
    _kind(
        "a+b+c", "{name} walks {a} miles on Monday, {b} on Tuesday and {c} on Friday. How many miles?", SMALL, FEW, FEW
    ),
    _kind("b*c+a", "{name} waits {a} minutes and runs {b} rounds of {c} minutes. How many minutes?", FEW, FEW, FEW),
    _kind("a+b+c+d", "{name} sees {a} ducks, {b} hens, {c} cats and {d} dogs. How many animals?", FEW, FEW, FEW, FEW),
)


def generate(rng: random.Random, steps: int | None = None) -> tuple[str, str, str]:
    """Draw a problem (of `steps` steps, if given) as (text, answer, level). Answers are natural numbers above zero."""
    index, kind = rng.choice([(i, kind) for i, kind in enumerate(KINDS) if steps in (None, len(kind.operations) // 2)])
    numbers, calculated = kind.draw(rng)
    bucket = sha256(f"{index} {numbers}".encode()).digest()[0] % 10
    names = NAMES[{0: "validation", 1: "test"}.get(bucket, "train")]
    text = kind.text.format(name=rng.choice(names), things=rng.choice(THINGS), **numbers)
    return f"{text}\n", str(int(calculated[-1][-1])), f"{len(calculated)}-step"


def demonstrate(rng: random.Random) -> tuple[str, str]:
    r"""Draw a problem of a kind that no split has, and its steps such as `3 * 4 = 12; 12 - 5 = 7`.

    About a third of them, by a hash of the text, end in `\boxed{7}`; RL has to learn that only boxed answers are read.
    """
    kind = rng.choice(DEMONSTRATED)
    numbers, steps = kind.draw(rng)
    text = kind.text.format(name=rng.choice(NAMES["train"]), **numbers)
    shown = "; ".join(f"{int(left)} {sign} {right} = {int(value)}" for left, sign, right, value in steps)
    boxed = sha256(text.encode()).digest()[0] % 3 == 0
    return f"{text}\n", shown + f" \\boxed{{{int(steps[-1][-1])}}}" * boxed


def split_of(text: str) -> str:
    """The split of a problem, by the name in it."""
    return SPLIT_OF_NAME[re.match(r"\w+", text)[0]]
