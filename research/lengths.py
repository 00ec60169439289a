"""Which tokens are kept, by the length of the responses: |A| x H against random tokens on the built-in model.

    python -m research.lengths --jobs 2     # again for what is left

The model of `make demo` learns to write its steps with few, some or many words, which it repeats without doubt: the
choices of a response are as many, among more tokens. Each of these models is then trained by D3S with both rules, at
the best of five learning rates on validation problems. A finished run is added to docs/data/lengths.csv. Written down
before the runs: the gain over random tokens after the last step is smaller with many words than with few.
"""

import argparse
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from benchmarks.harness import ROOT, markdown
from d3s.common import exit_code
from d3s.data.synthetic import find_task
from research.records import DOCS, SAMPLES, append_rows, read_rows
from research.statistics import Scores, interval, show, subtract

MEASURED = DOCS / "data" / "lengths.csv"
OUTPUT = ROOT / "runs" / "lengths"
# Words around each step of a solution, and the steps of the warm-up: models that write more need more of them.
STYLES = {
    "few": ("{}", 100),
    "some": ("next I take {} and", 300),
    "many": ("then I look at the signs and choose one of them, so that the next line is {} and", 600),
}
RULES = ("advantage_entropy", "random")
RATES, SEARCH_SEED, SEEDS, STEPS = (1.25e-5, 2.5e-5, 5e-5, 1e-4, 2e-4), 100, tuple(range(1, 9)), 40
DEMONSTRATIONS = 8192
COMMON = (
    "configs/tiny.yaml",
    "rollout.engine=transformers",
    "rollout.max_completion_length=400",
    "schedule.k_init=0.05",
    "schedule.k_final=0.2",
    "optim.lr_schedule=constant",
    "optim.num_minibatches=4",
    f"train.steps={STEPS}",
    f"eval.every={STEPS // 2}",
    "eval.limit=128",
    "eval.n=8",
    "tracker.samples_every=0",
    "reward.workers=1",
)
COLUMNS = ("words", "rule", "rate", "seed", "step", "length", "tokens_trained", "entropy", "right")


def written(solution: str, around: str) -> str:
    r"""The solution `6*3=18;3+18=21 \boxed{21}` with words around each of its steps."""
    steps, _, answer = solution.partition(" ")
    return " ".join([*(around.format(step) for step in steps.split(";")), answer])


def warm_up(words: str) -> None:
    """Make the model that writes its steps with these words."""
    folder, (around, steps) = OUTPUT / words, STYLES[words]
    if (folder / "model").exists():
        return
    pairs = find_task("precedence").demonstrations(DEMONSTRATIONS, seed=0)
    rows = ({"prompt": problem, "response": written(solution, around)} for problem, solution in pairs)
    path = OUTPUT / f"{words}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    own = (f"data.path={path}", "data.template=plain", f"train.steps={steps}", f"train.output_dir={folder}")
    limit = "rollout.max_completion_length=400"
    call([sys.executable, "train_sft.py", "--config", "configs/sft.yaml", *own, limit], folder)


def command(words: str, rule: str, rate: float, seed: int) -> list[str]:
    """The arguments of a run; those of the search have validation problems."""
    own = (f"model.name={OUTPUT / words / 'model'}", f"selector.tokens={rule}", f"optim.learning_rate={rate:g}")
    split = f"eval.split={'validation' if seed == SEARCH_SEED else 'test'}"
    folder = OUTPUT / f"{words}-{rule}-{rate:g}-{seed}"
    return [*COMMON, *own, split, f"train.seed={seed}", f"train.output_dir={folder}"]


def train(words: str, rule: str, rate: float, seed: int) -> None:
    """Train one run and append its evaluations to the CSV file."""
    arguments = command(words, rule, rate, seed)
    folder = Path(arguments[-1].partition("=")[2])
    call([sys.executable, "train.py", "--config", *arguments, "--resume", "auto"], folder)
    steps = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    rows = []
    for line in map(json.loads, (folder / "eval.jsonl").read_text().splitlines()):
        last = steps[max(line["step"] - 1, 0)]
        trained = last["tokens_trained"] if line["step"] else 0
        cells = (f"{line['mean_length']:.1f}", trained, f"{last['policy/entropy']:.3f}")
        rows.append([words, rule, f"{rate:g}", seed, line["step"], *cells, "".join(map(str, line["right"]))])
    append_rows(MEASURED, COLUMNS, rows)
    print(f"{words}, {rule}, rate {rate:g}, seed {seed}: done", flush=True)


def call(arguments: list[str], folder: Path) -> None:
    """Run a command with one thread, its output in a file beside `folder`."""
    with open(f"{folder}.log", "a") as log:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        subprocess.run(arguments, cwd=ROOT, stdout=log, stderr=log, env=environment, check=True)


def read(path: Path = MEASURED) -> list[dict]:
    """The rows of the CSV file, with numbers as numbers."""
    return read_rows(path, texts=("words", "rule", "right"))


def pass_at_1(row: dict) -> float:
    """The mean over problems and samples."""
    return float(np.mean([int(digit) for digit in row["right"]])) / SAMPLES


def best_rate(rows: list[dict], words: str, rule: str) -> float:
    """The rate of the search with the highest last Pass@1."""
    own = [
        row
        for row in rows
        if (row["words"], row["rule"], row["seed"], row["step"]) == (words, rule, SEARCH_SEED, STEPS)
    ]
    return max(own, key=pass_at_1)["rate"]


def gap(rows: list[dict], words: str, step: int) -> tuple[list[float], Scores]:
    """Pass@1 of both rules after a step, and the difference of the first to the second, paired by seed and problem."""
    at = [row for row in rows if (row["words"], row["step"]) == (words, step) and row["seed"] != SEARCH_SEED]
    scores = [{row["seed"]: row["right"] for row in at if row["rule"] == rule} for rule in RULES]
    seeds = sorted(scores[0].keys() & scores[1].keys())
    levels = [{words: np.array([[int(d) / SAMPLES for d in own[seed]] for seed in seeds])} for own in scores]
    return [float(level[words].mean()) for level in levels], subtract(*levels)


def table(path: Path = MEASURED) -> str:
    """By words: length, Pass@1 of both rules in the middle and at the end, and the differences."""
    rows, cells = read(path), []
    for words in STYLES:
        first = [row for row in rows if (row["words"], row["step"]) == (words, 0) and row["seed"] != SEARCH_SEED]
        length, start = np.mean([row["length"] for row in first]), np.mean([pass_at_1(row) for row in first])
        rates = "; ".join(f"{best_rate(rows, words, rule):g}" for rule in RULES)
        line = [f"{words}, {length:.0f} tokens", str(len(first) // 2), rates, f"{100 * start:.1f}"]
        for step in (STEPS // 2, STEPS):
            levels, difference = gap(rows, words, step)
            found = "; ".join(f"{100 * level:.1f}" for level in levels)
            line.append(f"{found}; {show(interval(difference), signed=True)}")
        cells.append(line)
    names = [f"after {step}: \\|A\\| x H; random; difference" for step in (STEPS // 2, STEPS)]
    return markdown(["words", "seeds", "rates", "Pass@1 at first", *names], cells)


def claim(path: Path = MEASURED) -> str:
    """The gain with few words less the gain with many, paired by problem, in a sentence."""
    rows = read(path)
    gains = [gap(rows, words, STEPS)[1][words] for words in ("few", "many")]
    seeds = min(map(len, gains))
    few, many = ({"precedence": gain[:seeds]} for gain in gains)
    points = show(interval(subtract(few, many)), signed=True)
    return f"The gain with few words is {points} points above that with many."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=2, help="runs at the same time")
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help="number of seeds")
    args = parser.parse_args()
    OUTPUT.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(args.jobs) as pool:
        list(pool.map(warm_up, STYLES))
        for seeds in ((SEARCH_SEED,), SEEDS[: args.seeds]):
            rows = read()
            done = {(row["words"], row["rule"], row["rate"], row["seed"]) for row in rows}
            runs = [
                (words, rule, rate, seed)
                for seed in seeds
                for words in reversed(STYLES)
                for rule in RULES
                for rate in (RATES if seed == SEARCH_SEED else (best_rate(rows, words, rule),))
            ]
            list(pool.map(lambda run: train(*run), [run for run in runs if run not in done]))
    print(table(), claim(), sep="\n\n")


if __name__ == "__main__":
    sys.exit(exit_code(main))
