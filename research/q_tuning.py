"""Measure Q-Tuning in the supervised warm-up at equal CPU seconds, against full training and random pruning.

    python -m research.q_tuning [--seeds 2] [--processes 2]

Every run continues the warm-up of a built-in base model that was stopped after a quarter of its steps, on its
demonstrations, through train_sft.py. The steps of a row are set so that the CPU seconds of all training steps agree;
the table states them. The warmed-up models are evaluated on validation problems. A restart continues where the last
one stopped. Writes the table between the `q-tuning` marks of beyond-tables.md.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness import ENVIRONMENT, ROOT, machine, markdown, write_between_marks
from d3s.tiny import WARMUP, ensure_base
from research.records import RESEARCH

FIRST_SEED = 100
START = WARMUP["steps"] // 4  # steps of the base model's own warm-up
HALF, FIFTH = ("sft.sample_share=0.5", "sft.token_share=0.75"), ("sft.sample_share=0.2", "sft.token_share=0.75")
RANDOM = ("sft.samples=random", "sft.tokens=random")
SETTINGS = (
    "sft.path=synthetic:precedence", "sft.batch_size=24", "optim.learning_rate=2e-3", "optim.warmup_steps=20",
    "checkpoint.every=0",
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One way to train, for as many steps as fit into the seconds of the first row."""

    name: str
    steps: int
    overrides: tuple[str, ...] = ()


ROWS = (
    Row("full", 600),
    Row("Q-Tuning, 0.5 / 0.75", 620, HALF),
    Row("random, 0.5 / 0.75", 1020, (*HALF, *RANDOM)),
    Row("Q-Tuning, 0.2 / 0.75", 700, FIFTH),
    Row("random, 0.2 / 0.75", 1720, (*FIFTH, *RANDOM)),
)


def call(log: Path, *command: str) -> None:
    """Run a program of the repository with one thread. Raises RuntimeError with the end of its log."""
    with log.open("a") as output:
        environment = os.environ | ENVIRONMENT
        done = subprocess.run([sys.executable, *command], cwd=ROOT, env=environment, stdout=output, stderr=output)
    if done.returncode:
        raise RuntimeError(f"{log}: exit code {done.returncode}:\n{log.read_text()[-2000:]}")


def evaluate(model: Path, folder: Path) -> dict:
    """Pass@1 and Pass@8 of a model on 256 validation problems; read if they are there."""
    summary = folder / "summary.json"
    if not summary.exists():
        options = ["--engine", "transformers", "--split", "validation", "--n", "8", "--limit", "256"]
        options += ["--data", "synthetic:precedence", "--max-tokens", "64", "--output", str(folder)]
        call(folder.with_suffix(".log"), "eval.py", "--model", str(model), *options)
    [result] = json.loads(summary.read_text())["results"]
    return {"pass@1": 100 * result["pass@1"], "pass@8": 100 * result["pass@8"]}


def measure(row: Row, seed: int, root: Path) -> dict:
    """Train and evaluate one row with one seed, unless that is done."""
    base = ensure_base("tiny:precedence", seed=seed, steps=START, folder=root / "bases")
    name = "".join(character if character.isalnum() else "-" for character in row.name)
    folder = root / f"{name}-{row.steps}-seed{seed}"
    if not (folder / "model" / "config.json").exists():
        overrides = [f"model.name={base}", f"train.output_dir={folder}", f"train.seed={seed}"]
        overrides += [*SETTINGS, *row.overrides, f"train.steps={row.steps}", "--resume", "auto"]
        call(folder.with_suffix(".log"), "train_sft.py", "--config", "configs/sft.yaml", *overrides)
    steps = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    used = {"seconds": sum(step["time/cpu"] for step in steps), "tokens": steps[-1]["tokens_trained"]}
    return {"row": row.name, "seed": seed, "steps": row.steps} | used | evaluate(folder / "model", folder / "eval")


def table(records: list[dict], start: dict) -> str:
    """Means over seeds by row, and the values of every seed for Pass@k."""
    lines = [["start", "0", "0", *(f"{start[key]:.1f}" for key in ("pass@1", "pass@8"))]]
    for row in ROWS:
        own = [record for record in records if record["row"] == row.name]
        cells = [f"{statistics.mean(record['seconds'] for record in own):.0f}"]
        for key in ("pass@1", "pass@8"):
            values = [record[key] for record in own]
            cells.append(f"{statistics.mean(values):.1f} ({', '.join(f'{value:.1f}' for value in values)})")
        lines.append([row.name, f"{row.steps}", *cells])
    return markdown(["samples / tokens kept", "steps", "CPU seconds", "Pass@1, %", "Pass@8, %"], lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2, help="seeds per row (default: 2)")
    parser.add_argument("--processes", type=int, default=2, help="runs at the same time (default: 2)")
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "q-tuning", help="where the runs are kept")
    args = parser.parse_args()
    seeds = range(FIRST_SEED, FIRST_SEED + args.seeds)
    args.folder.mkdir(parents=True, exist_ok=True)
    starts = []
    for seed in seeds:  # before the runs, which share them
        base = ensure_base("tiny:precedence", seed=seed, steps=START, folder=args.folder / "bases")
        starts.append(evaluate(base, args.folder / f"start-seed{seed}"))
    with ThreadPoolExecutor(args.processes) as pool:
        pairs = [(row, seed) for seed in seeds for row in ROWS]
        records = list(pool.map(lambda pair: measure(*pair, args.folder), pairs))
    start = {key: statistics.mean(record[key] for record in starts) for key in starts[0]}
    origin = machine()
    text = (
        f"{args.seeds} seeds (the values in brackets), 256 validation problems x 8 samples, code at "
        f"{origin['revision']}, on {origin['cpu']}:\n\n{table(records, start)}\n"
    )
    write_between_marks(RESEARCH / "beyond-tables.md", "q-tuning", text)
    print(text)


if __name__ == "__main__":
    main()
