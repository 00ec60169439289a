"""SmolLM2-135M after training on word problems teaches the model before it, by the share K of trained tokens.

    make demo-real                  # both models; docs/data/teacher.csv has those of commit bb1904c
    python -m research.teacher      # again for what is left

A smaller K has more steps, so that all rows spend about the same CPU seconds. Each run is one process with one thread,
two at the same time; its records are added to docs/data/teacher.csv.
"""

import json
import os
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from benchmarks.harness import ROOT, markdown
from d3s.common import exit_code
from research.records import DOCS, append_rows, read_rows
from research.statistics import interval, show, subtract

MEASURED = DOCS / "data" / "teacher.csv"
OUTPUT = ROOT / "runs" / "teacher"
STEPS = {1.0: 6, 0.5: 8, 0.2: 10, 0.05: 14}  # by K
EQUAL_STEPS, SEEDS = STEPS[1.0], (1, 2, 3, 4, 5)
COMMON = (
    "research/words.yaml",
    "model.name=runs/smollm2-warmup/model",
    "rollout.max_completion_length=28",
    "configs/method/distill.yaml",
    "loss.reference=runs/demo-real/model",
    "train.prompts_per_step=8",
    "eval.split=test",
    "eval.limit=128",
    "eval.n=1",
    "eval.k=[1]",
    f"eval.every={EQUAL_STEPS}",
)
COLUMNS = ("k", "seed", "step", "cpu_seconds", "tokens_trained", "right")


def train(k: float, seed: int) -> None:
    """Train one run and append its evaluations, with what was spent before each, to the CSV file."""
    folder = OUTPUT / f"{k:g}-{seed}"
    own = (f"schedule.k_init={k}", f"schedule.k_final={k}", f"train.seed={seed}", f"train.steps={STEPS[k]}")
    command = [sys.executable, "train.py", "--config", *COMMON, *own, f"train.output_dir={folder}", "--resume", "auto"]
    with open(f"{folder}.log", "a") as log:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        subprocess.run(command, cwd=ROOT, stdout=log, stderr=log, env=environment, check=True)
    steps = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    rows = []
    for line in map(json.loads, (folder / "eval.jsonl").read_text().splitlines()):
        before = steps[: line["step"]]
        spent = sum(step["time/cpu"] for step in before)
        trained = before[-1]["tokens_trained"] if before else 0
        rows.append([f"{k:g}", seed, line["step"], f"{spent:.0f}", trained, "".join(map(str, line["right"]))])
    append_rows(MEASURED, COLUMNS, rows)
    print(f"K = {k:.0%}, seed {seed}: done", flush=True)


def read(path: Path = MEASURED) -> list[dict]:
    """The rows of the CSV file; all but those of `right` are numbers."""
    return read_rows(path, texts=("right",))


def scores(rows: list[dict], k: float, axis: str, budget: float) -> np.ndarray:
    """Whether each problem is answered rightly at a budget of an axis, interpolated: [runs, problems]."""
    runs = []
    for seed in sorted(set.intersection(*({row["seed"] for row in rows if row["k"] == k} for k in STEPS))):
        own = [row for row in rows if (row["k"], row["seed"]) == (k, seed)]
        spent = [row[axis] for row in own]
        levels = np.array([[int(digit) for digit in row["right"]] for row in own])
        runs.append([np.interp(budget, spent, problem) for problem in levels.T])
    return np.array(runs)


def table(path: Path = MEASURED) -> str:
    """Pass@1 by K after as many steps and in as many CPU seconds, with the differences to all tokens."""
    rows = read(path)
    ends = [row["cpu_seconds"] for row in rows if row["step"] == STEPS[row["k"]]]
    budgets = {"step": EQUAL_STEPS, "cpu_seconds": min(ends)}
    cells = []
    for k in sorted(STEPS):
        line = [f"{k:.0%}"]
        at = [row for row in rows if row["k"] == k and row["step"] == EQUAL_STEPS]
        for key in ("tokens_trained", "cpu_seconds"):
            line.append(f"{statistics.mean(row[key] for row in at) / EQUAL_STEPS:,.0f}")
        for axis, budget in budgets.items():
            own = {"words": scores(rows, k, axis, budget)}
            everything = {"words": scores(rows, 1.0, axis, budget)}
            gap = "" if k == 1 else f"; {show(interval(subtract(own, everything)), signed=True)}"
            line.append(f"{100 * own['words'].mean():.1f}{gap}")
        cells.append(line)
    names = [f"Pass@1 after {EQUAL_STEPS} steps; over all tokens", f"in {budgets['cpu_seconds']:.0f} CPU s; over them"]
    return markdown(["K", "tokens a step", "CPU s a step", *names], cells)


def main() -> None:
    OUTPUT.mkdir(parents=True, exist_ok=True)
    done = {(row["k"], row["seed"]) for row in read()}
    missing = [(k, seed) for seed in SEEDS for k in STEPS if (k, seed) not in done]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda run: train(*run), missing))
    print(table())


if __name__ == "__main__":
    sys.exit(exit_code(main))
