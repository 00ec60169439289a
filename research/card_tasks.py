"""Tasks of the runs on one card beside the word problems of the package: solutions in sentences, and sorting."""

import json
import random
from hashlib import sha256
from pathlib import Path

from d3s.data import word_problems

VERBS = {"+": "add", "-": "take away", "*": "multiply by", "/": "divide by"}
SIZES = {"train": 4096, "validation": 128, "test": 128}  # problems of the sorting task


def shown(rng: random.Random) -> tuple[str, str]:
    r"""A demonstration of the task `words` such as `3*4=12;12-5=7 \boxed{7}`."""
    problem, steps = word_problems.demonstrate(rng)
    steps = steps.partition(" \\")[0].replace(" ", "")
    return problem, f"{steps} \\boxed{{{steps.rpartition('=')[2]}}}"


def spoken(rng: random.Random) -> tuple[str, str]:
    """A demonstration of the task `words` whose steps are sentences, about 30 tokens each."""
    kind = rng.choice(word_problems.DEMONSTRATED)
    numbers, steps = kind.draw(rng)
    said = [
        f"Step {i}: I begin with {left} and {VERBS[sign]} {right}. "
        f"That is {left} {sign} {right} = {int(value)}, so now I have {int(value)}."
        for i, (left, sign, right, value) in enumerate(steps, start=1)
    ]
    problem = kind.text.format(name=rng.choice(word_problems.NAMES["train"]), **numbers)
    end = f"There are no other steps. The answer is \\boxed{{{int(steps[-1][-1])}}}"
    return f"{problem}\n", " ".join([*said, end])


def sorting(rng: random.Random) -> tuple[str, str]:
    """A problem of sorting four to six numbers of two digits, and its answer."""
    numbers = rng.sample(range(10, 100), rng.randint(4, 6))
    return f"Sort {', '.join(map(str, numbers))} from low to high.\n", f"({', '.join(map(str, sorted(numbers)))})"


def sorting_problems() -> dict[str, list[tuple[str, str]]]:
    """The different problems of each split, which the text of a problem decides."""
    rng, found = random.Random(0), {split: {} for split in SIZES}
    while any(len(found[split]) < size for split, size in SIZES.items()):
        problem, answer = sorting(rng)
        split = {0: "validation", 1: "test"}.get(sha256(problem.encode()).digest()[0] % 10, "train")
        if len(found[split]) < SIZES[split]:
            found[split][problem] = answer
    return {split: list(problems.items()) for split, problems in found.items()}


def write(output: Path) -> None:
    """Write the demonstrations of both tasks, and the problems of each split of the second, as JSONL."""
    rng = random.Random("words/demonstrations/0")
    rows = {"shown": [shown(rng) for _ in range(24)]}
    rng = random.Random(0)
    rows["spoken"] = [spoken(rng) for _ in range(48)]
    solutions = (sorting(rng) for _ in range(192))
    rows["sorting-shown"] = [(problem, f"\\boxed{{{answer}}}") for problem, answer in solutions]
    rows |= {f"sorting-{split}": problems for split, problems in sorting_problems().items()}
    for name, pairs in rows.items():
        lines = (json.dumps({"problem": problem, "answer": answer}) + "\n" for problem, answer in pairs)
        (output / f"{name}.jsonl").write_text("".join(lines))
