"""Tasks of the runs on one card beside the word problems of the package, and the models that the runs begin with."""

import json
import random
import subprocess
import sys
from functools import cache
from hashlib import sha256
from pathlib import Path

from benchmarks.harness import ROOT
from d3s.data import word_problems
from d3s.data.problems import problem_order

VERBS = {"+": "add", "-": "take away", "*": "multiply by", "/": "divide by"}
# How a solution begins, says a step, and ends; a step has about 30 tokens, or 110.
STYLES = {
    "spoken": (
        "",
        "Step {i}: I begin with {left} and {verb} {right}. "
        "That is {left} {sign} {right} = {value}, so now I have {value}.",
        "There are no other steps.",
    ),
    "wordy": (
        "I solve this problem in small steps. First I look for the numbers in it, then I decide what to do with them. ",
        "Step {i}: I read the problem once more and look for what happens next. At this moment I have {left}, and the "
        "words tell me to {verb} {right}. I write it down and work it out with care: {left} {sign} {right} = {value}. "
        "I look at it again, it is {left} {sign} {right}, and this makes {value}. So now I have {value}, and I keep "
        "{value} in mind before I go on with the problem.",
        "There are no other steps. I read the problem one last time, and nothing else is left to do.",
    ),
}
SIZES = {"train": 4096, "validation": 128, "test": 128}  # problems of the sorting task
MIXED_SFT = "data.path=synthetic:words", "data.limit=96", "rollout.max_completion_length=64", "train.steps=12"
SORT_LENGTH, WORDY_LENGTH = "rollout.max_completion_length=40", "rollout.max_completion_length=400"
SHOWN = {"sorting": 48, "gemma": 192}  # model -> demonstrations of sorting in its warm-up
SFT = f"data.limit={SHOWN['sorting']}", "train.steps=6"  # a longer warm-up
SMOLLM2 = "runs/base/smollm2-135m-instruct"
BASES = {"gemma": "runs/base/gemma3-270m"}  # what the warm-up of a model begins with; of others SMOLLM2


def shown(rng: random.Random) -> tuple[str, str]:
    r"""A demonstration of the task `words` such as `3*4=12;12-5=7 \boxed{7}`."""
    problem, steps = word_problems.demonstrate(rng)
    steps = steps.partition(" \\")[0].replace(" ", "")
    return problem, f"{steps} \\boxed{{{steps.rpartition('=')[2]}}}"


def spoken(rng: random.Random, style: str = "spoken") -> tuple[str, str]:
    """A demonstration of the task `words` whose steps are sentences, with as many words around them as STYLES has."""
    begin, around, end = STYLES[style]
    kind = rng.choice(word_problems.DEMONSTRATED)
    numbers, steps = kind.draw(rng)
    said = [
        around.format(i=i, left=left, verb=VERBS[sign], sign=sign, right=right, value=int(value))
        for i, (left, sign, right, value) in enumerate(steps, start=1)
    ]
    problem = kind.text.format(name=rng.choice(word_problems.NAMES["train"]), **numbers)
    return f"{problem}\n", f"{begin}{' '.join(said)} {end} The answer is \\boxed{{{int(steps[-1][-1])}}}"


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


def sorting_demonstrations() -> list[tuple[str, str]]:
    """Problems and answers of the warm-up, from the random numbers of sorting_problems: some are in its splits."""
    rng = random.Random(0)
    for _ in range(48):
        spoken(rng)  # the recorded runs drew these before
    return [sorting(rng) for _ in range(SHOWN["gemma"])]


@cache
def unseen(model: str, count: int) -> list[int]:
    """Places, among the `count` test problems of sorting that evaluations take, of those that the warm-up did not show.

    `model` is one of SHOWN. Fewer problems than there are make a sample of them in the order of the file.
    """
    shown = {problem for problem, _ in sorting_demonstrations()[: SHOWN[model]]}
    problems = sorting_problems()["test"]
    asked = sorted(problem_order(len(problems), seed=0, position=0, count=count))
    return [i for i, place in enumerate(asked) if problems[place][0] not in shown]


def write(output: Path) -> None:
    """Write the demonstrations of both tasks, and the problems of each split of the second, as JSONL."""
    rng = random.Random("words/demonstrations/0")
    rows = {"shown": [shown(rng) for _ in range(24)]}
    for style, number in (("wordy", 128), ("spoken", 48)):
        rng = random.Random(0)
        rows[style] = [spoken(rng, style) for _ in range(number)]
    rows["sorting-shown"] = [(problem, f"\\boxed{{{answer}}}") for problem, answer in sorting_demonstrations()]
    rows |= {f"sorting-{split}": problems for split, problems in sorting_problems().items()}
    for name, pairs in rows.items():
        lines = (json.dumps({"problem": problem, "answer": answer}) + "\n" for problem, answer in pairs)
        (output / f"{name}.jsonl").write_text("".join(lines))


def warm_up(output: Path, names: set[str]) -> set[str]:
    """Make the models of these names to begin with, by supervised training.

    Returns:
        The names of those that are there; a model whose base is missing is left out.
    """
    write(output)
    shown = f"data.path={output / 'sorting-shown.jsonl'}"
    slow = f"data.limit={SHOWN['gemma']}", "train.steps=24", "optim.learning_rate=3e-5", "optim.warmup_steps=3"
    overrides = {
        "warmup": (f"data.path={output / 'shown.jsonl'}", "data.limit=24", "train.steps=3"),
        "spoken": (f"data.path={output / 'spoken.jsonl'}", *SFT, "rollout.max_completion_length=128"),
        "wordy": (f"data.path={output / 'wordy.jsonl'}", "data.limit=128", "train.steps=16", WORDY_LENGTH),
        "sorting": (shown, *SFT, SORT_LENGTH),
        "gemma": (shown, *slow, SORT_LENGTH),
        "mixed": (*MIXED_SFT, "optim.learning_rate=7e-5"),
    }
    for name in sorted(names):
        base = BASES.get(name, SMOLLM2)
        if (ROOT / base).exists() and not (output / name / "model").exists():
            command = [sys.executable, "train_sft.py", "--config", "research/sft_words.yaml", f"model.name={base}"]
            subprocess.run([*command, *overrides[name], f"train.output_dir={output / name}"], cwd=ROOT, check=True)
    return {name for name in names if (output / name / "model").exists()}
