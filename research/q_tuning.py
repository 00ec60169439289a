"""Measure Q-Tuning in the supervised warm-up at equal CPU seconds, against full training and random pruning.

    python -m research.q_tuning [--seeds 2] [--processes 2]

Every run continues the warm-up of a built-in base model that was stopped after a quarter of its steps, on its
demonstrations, through train_sft.py. The steps of a row are set so that the CPU seconds of all training steps agree.
The models are evaluated on validation problems. A restart continues where the last one stopped. Writes the table
between the `q-tuning` marks of beyond-tables.md.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import mean

from benchmarks.harness import ENVIRONMENT, ROOT, machine, markdown, write_between_marks
from d3s.tiny import WARMUP, ensure_base
from research.records import RESEARCH

FIRST_SEED = 100
START = WARMUP["steps"] // 4  # steps of the base model's own warm-up
HALF, FIFTH = ("sft.sample_share=0.5", "sft.token_share=0.75"), ("sft.sample_share=0.2", "sft.token_share=0.75")
RANDOM = ("sft.samples=random", "sft.tokens=random")
SETTINGS = (
    "data.path=synthetic:precedence", "train.prompts_per_step=24", "optim.learning_rate=2e-3", "optim.warmup_steps=20",
    "checkpoint.every=0",
)  # fmt: skip
ROWS: dict[str, tuple[int, tuple[str, ...]]] = {  # name -> steps, in the seconds of the first row, and overrides
    "full": (600, ()),
    "Q-Tuning, 0.5 / 0.75": (620, HALF),
    "random, 0.5 / 0.75": (1020, (*HALF, *RANDOM)),
    "Q-Tuning, 0.2 / 0.75": (700, FIFTH),
    "random, 0.2 / 0.75": (1720, (*FIFTH, *RANDOM)),
}


def call(log: Path, *command: str) -> None:
    """Run a program of the repository with one thread. Raises RuntimeError with the end of its log."""
    with log.open("a") as output:
        environment = os.environ | ENVIRONMENT
        done = subprocess.run([sys.executable, *command], cwd=ROOT, env=environment, stdout=output, stderr=output)
    if done.returncode:
        raise RuntimeError(f"{log}: exit code {done.returncode}:\n{log.read_text()[-2000:]}")


def evaluate(model: Path, folder: Path) -> dict[str, float]:
    """Pass@1 and Pass@8 in percent of a model on 256 validation problems; read if they are there."""
    summary = folder / "summary.json"
    if not summary.exists():
        options = ["--engine", "transformers", "--split", "validation", "--n", "8", "--limit", "256"]
        options += ["--data", "synthetic:precedence", "--max-tokens", "64", "--output", str(folder)]
        call(folder.with_suffix(".log"), "eval.py", "--model", str(model), *options)
    [result] = json.loads(summary.read_text())["results"]
    return {key: 100 * result[key] for key in ("pass@1", "pass@8")}


def measure(name: str, seed: int, root: Path) -> dict:
    """CPU seconds and accuracy of one row with one seed, trained unless that is done; "start": of the base model."""
    base = ensure_base("tiny:precedence", seed=seed, steps=START, folder=root / "bases")
    if name == "start":
        return {"row": name, "seconds": 0.0} | evaluate(base, root / f"start-seed{seed}")
    steps, overrides = ROWS[name]
    folder = root / f"{re.sub(r'[^a-zA-Z0-9]', '-', name)}-{steps}-seed{seed}"
    if not (folder / "model" / "config.json").exists():
        own = [f"model.name={base}", f"train.output_dir={folder}", f"train.seed={seed}", f"train.steps={steps}"]
        command = ["train_sft.py", "--config", "configs/sft.yaml", *own, *SETTINGS, *overrides, "--resume", "auto"]
        call(folder.with_suffix(".log"), *command)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    seconds = sum(line["time/cpu"] for line in lines)
    return {"row": name, "seconds": seconds} | evaluate(folder / "model", folder / "eval")


def table(records: list[dict]) -> str:
    """Means over seeds by row, and the values of every seed for Pass@k."""
    lines = []
    for name, steps in (("start", 0), *((name, steps) for name, (steps, _) in ROWS.items())):
        own = [record for record in records if record["row"] == name]
        cells = [f"{steps}", f"{mean(record['seconds'] for record in own):.0f}"]
        for key in ("pass@1", "pass@8"):
            values = [record[key] for record in own]
            cells.append(f"{mean(values):.1f} ({', '.join(f'{value:.1f}' for value in values)})")
        lines.append([name, *cells])
    return markdown(["samples / tokens kept", "steps", "CPU seconds", "Pass@1, %", "Pass@8, %"], lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2, help="seeds per row (default: 2)")
    parser.add_argument("--processes", type=int, default=2, help="runs at the same time (default: 2)")
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "q-tuning", help="where the runs are kept")
    args = parser.parse_args()
    seeds = range(FIRST_SEED, FIRST_SEED + args.seeds)
    args.folder.mkdir(parents=True, exist_ok=True)
    records = [measure("start", seed, args.folder) for seed in seeds]  # creates the base models that the rows share
    with ThreadPoolExecutor(args.processes) as pool:
        records += pool.map(lambda run: measure(*run, args.folder), [(name, seed) for seed in seeds for name in ROWS])
    origin = machine()
    text = (
        f"{args.seeds} seeds (the values in brackets), 256 validation problems x 8 samples, code at "
        f"{origin['revision']}, on {origin['cpu']}:\n\n{table(records)}\n"
    )
    write_between_marks(RESEARCH / "beyond-tables.md", "q-tuning", text)
    print(text)


if __name__ == "__main__":
    main()
