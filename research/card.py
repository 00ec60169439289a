"""D3S, GRPO and random tokens on SmolLM2-135M-Instruct, within minutes of one GPU, by the transformers engine.

    python -m d3s.real runs/base/smollm2-135m-instruct
    python -m research.card search --steps 24
    python -m research.card test --steps 40 --rate 1e-5
    python -m research.card alone --steps 8 --rate 1e-5
    python -m research.card tables

The task is that of `make demo-real` after its warm-up, in the recorded runs (docs/data/h200) that of commit d2bc5ed; 32
problems x 8 responses a step. `search` trains each method at each learning rate on one seed, judged on validation
problems; `test` trains each method at one rate on three new seeds, judged on test problems. Their runs share the card,
nine at a time, so their seconds are those of a shared card; `alone` trains one after another. Each adds rows to
steps.csv and evaluations.csv, from which `tables` is written.
"""

import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness import ROOT, markdown
from d3s.common import exit_code

# Random tokens have the N and K of D3S, so that the two differ in the choice of tokens alone.
GROWING = ("schedule.n_init=2", "schedule.n_final=8", "schedule.k_init=0.05", "schedule.k_final=0.2")
METHODS = {
    "GRPO": ("configs/method/grpo.yaml",),
    "D3S": GROWING,
    "D3S, random tokens": (*GROWING, "selector.tokens=random"),
}
RATES = (1e-5, 2e-5, 4e-5)
SEARCH_SEED, SEEDS = 1000, (1, 2, 3)
COMMON = (
    "rollout.engine=transformers",
    "rollout.max_num_seqs=512",
    "train.prompts_per_step=32",
    "optim.lr_schedule=constant",
    "eval.limit=128",
    "tracker.samples_every=0",
    "reward.workers=1",
)
SHARED = "train.max_tokens_per_microbatch=2048"  # so that nine runs fit
SOURCES = {"steps.csv": "metrics.jsonl", "evaluations.csv": "eval.jsonl"}
COLUMNS = {
    "steps.csv": {
        "seconds": "time/step",
        "generate": "time/generate",
        "update": "time/update",
        "reward": "reward/mean",
        "entropy": "policy/entropy",
        "distinct": "completion/distinct",
        "length": "completion/length",
        "tokens_trained": "tokens_trained",
        "flops_share": "selection/flops_share",
    },
    "evaluations.csv": {"pass@1": "pass@1", "pass@8": "pass@8"},
}
MEASURED = ROOT / "docs" / "data" / "h200"  # the runs of docs/results.md
KEYS = ["part", "method", "rate", "seed", "step"]


@dataclass(frozen=True)
class Run:
    """One training: its part of the experiment, method, learning rate and seed."""

    part: str
    method: str
    rate: float
    seed: int

    def folder(self, output: Path) -> Path:
        """Its run directory."""
        method = self.method.replace(", ", "-").replace(" ", "-").lower()
        return output / f"{self.part}-{method}-{self.rate:g}-{self.seed}"

    def arguments(self, output: Path, steps: int) -> list[str]:
        """Configurations and overrides of train.py, with five evaluations unless the run is timed alone."""
        split = {"search": "validation", "test": "test"}.get(self.part)
        shared = [SHARED, f"eval.split={split}", f"eval.every={max(1, steps // 4)}"] if split else ["eval.data=[]"]
        own = [f"optim.learning_rate={self.rate:g}", f"train.seed={self.seed}", f"train.steps={steps}"]
        paths = [f"model.name={output}/warmup/model", f"train.output_dir={self.folder(output)}"]
        return ["configs/smollm2.yaml", *METHODS[self.method], *COMMON, *shared, *own, *paths]

    def start(self, output: Path, steps: int) -> subprocess.Popen:
        """Start train.py."""
        command = [sys.executable, "train.py", "--config", *self.arguments(output, steps)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        with open(f"{self.folder(output)}.log", "w") as log:
            return subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, env=environment)


def train(runs: Sequence[Run], output: Path, steps: int) -> None:
    """Train the runs at the same time, and append their records to the CSV files."""
    output.mkdir(parents=True, exist_ok=True)
    if not (output / "warmup" / "model").exists():
        command = [sys.executable, "train_sft.py", "--config", "configs/sft_smollm2.yaml"]
        subprocess.run([*command, f"train.output_dir={output}/warmup"], cwd=ROOT, check=True)
    for run, process in [(run, run.start(output, steps)) for run in runs]:
        print(f"{run}: exit code {process.wait()}", flush=True)
    for name, columns in COLUMNS.items():
        new = not (output / name).exists()
        with open(output / name, "a", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            if new:
                writer.writerow([*KEYS, *columns])
            for run in runs:
                for text in (run.folder(output) / SOURCES[name]).read_text().splitlines():
                    line = json.loads(text)
                    values = [f"{line[key]:.5g}" for key in columns.values()]
                    writer.writerow([run.part, run.method, f"{run.rate:g}", run.seed, line["step"], *values])


def read(output: Path, name: str, part: str) -> list[dict]:
    """Rows of one part, with numbers as numbers."""
    with open(output / name, newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["part"] == part]
    return [{key: value if key in KEYS[:2] else float(value) for key, value in row.items()} for row in rows]


def learning_table(output: Path, part: str, k: int) -> str:
    """Pass@k by step: the mean over seeds, in brackets the lowest and the highest one."""
    rows = read(output, "evaluations.csv", part)
    steps = sorted({row["step"] for row in rows})
    cells = []
    for method, rate in dict.fromkeys((row["method"], row["rate"]) for row in rows):
        line = [f"{method}, {rate:g}" if part == "search" else method]
        for step in steps:
            own = [row for row in rows if (row["method"], row["rate"], row["step"]) == (method, rate, step)]
            values = [100 * row[f"pass@{k}"] for row in own]
            spread = f" ({min(values):.1f}-{max(values):.1f})" if len(values) > 1 else ""
            line.append(f"{statistics.mean(values):.1f}{spread}" if values else "")
        cells.append(line)
    return markdown([f"Pass@{k}, {part}", *(f"step {step:.0f}" for step in steps)], cells)


def summary_table(output: Path, part: str) -> str:
    """The means over seeds for the README: Pass@1 a quarter through and at the end, Pass@8 at the end, tokens."""
    evaluated, steps = read(output, "evaluations.csv", part), read(output, "steps.csv", part)
    _, early, *_, last = sorted({row["step"] for row in evaluated})

    def mean(rows: list[dict], method: str, step: float, column: str) -> float:
        return statistics.mean(row[column] for row in rows if (row["method"], row["step"]) == (method, step))

    cells = []
    for method in dict.fromkeys(row["method"] for row in evaluated):
        levels = [mean(evaluated, method, *at) for at in ((early, "pass@1"), (last, "pass@1"), (last, "pass@8"))]
        tokens = mean(steps, method, last, "tokens_trained")
        cells.append([method, *(f"{100 * level:.1f}" for level in levels), f"{tokens:,.0f}"])
    names = [
        f"Pass@1 after {early:.0f} steps, %",
        f"after {last:.0f}, %",
        f"Pass@8 after {last:.0f}, %",
        "tokens trained",
    ]
    return markdown(["SmolLM2-135M, word problems", *names], cells)


def step_table(output: Path, part: str) -> str:
    """Medians over the steps of all seeds but the first, which loads kernels; the state at the end."""
    rows = [row for row in read(output, "steps.csv", part) if row["step"] > 1]
    cells = []
    for method, rate in dict.fromkeys((row["method"], row["rate"]) for row in rows):
        own = [row for row in rows if (row["method"], row["rate"]) == (method, rate)]
        last = [row for row in own if row["step"] == max(row["step"] for row in own)]
        medians = [statistics.median(row[name] for row in own) for name in ("seconds", "generate", "update")]
        ends = [statistics.mean(row[name] for row in last) for name in ("entropy", "distinct", "tokens_trained")]
        share = statistics.mean(row["flops_share"] for row in own)
        line = [*(f"{value:.2f}" for value in (*medians, *ends[:2])), f"{ends[2]:,.0f}", f"{share:.0%}"]
        cells.append([method, f"{rate:g}", *line])
    names = ["rate", "s a step", "generate", "update", "entropy at the end", "distinct", "tokens trained", "FLOPs"]
    return markdown([part, *names], cells)


def curves(output: Path, part: str, k: int) -> dict[tuple[str, float], list[tuple[float, float]]]:
    """(seconds of all steps before, Pass@k) of each evaluation, by method and seed."""
    clock: dict[tuple, float] = {}
    for row in read(output, "steps.csv", part):
        run = row["method"], row["rate"], row["seed"]
        clock[(*run, row["step"])] = clock.get((*run, row["step"] - 1), 0.0) + row["seconds"]
    points: dict[tuple[str, float], list[tuple[float, float]]] = {}
    for row in read(output, "evaluations.csv", part):
        seconds = clock.get((row["method"], row["rate"], row["seed"], row["step"]), 0.0)
        points.setdefault((row["method"], row["seed"]), []).append((seconds, row[f"pass@{k}"]))
    return points


def draw(output: Path, part: str, path: Path) -> None:
    """Draw Pass@1 and Pass@8 against seconds, a line for each seed."""
    import matplotlib
    from matplotlib.figure import Figure

    from d3s.report.theme import MUTED, SERIES, style

    with matplotlib.rc_context(style()):
        figure = Figure(figsize=(9, 3.4), dpi=160, facecolor="white")
        for ax, k in zip(figure.subplots(1, 2), (1, 8), strict=True):
            for (method, _), points in curves(output, part, k).items():
                color = SERIES[list(METHODS).index(method)]
                seconds, values = zip(*points, strict=True)
                label = method if method not in ax.get_legend_handles_labels()[1] else None
                ax.plot(seconds, [100 * value for value in values], "o-", color=color, markersize=3, label=label)
            ax.set_title(f"Pass@{k}, %", loc="left", fontsize=10, fontweight="bold")
            ax.set_xlabel("seconds of training", color=MUTED)
        ax.legend(frameon=False)
        figure.tight_layout()
        figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=["search", "test", "alone", "tables"])
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--rate", type=float, default=1e-5, help="learning rate of all methods in test and alone")
    parser.add_argument("--output", type=Path, default=Path("runs/card"))
    args = parser.parse_args()
    output = args.output.absolute()
    if args.part == "search":
        train([Run("search", method, rate, SEARCH_SEED) for method in METHODS for rate in RATES], output, args.steps)
    elif args.part == "test":
        train([Run("test", method, args.rate, seed) for seed in SEEDS for method in METHODS], output, args.steps)
    elif args.part == "alone":
        for method in METHODS:
            train([Run("alone", method, args.rate, SEARCH_SEED)], output, args.steps)
    else:
        parts = list(dict.fromkeys(row.split(",")[0] for row in (output / "steps.csv").read_text().splitlines()[1:]))
        learned = [learning_table(output, part, k) for part in parts if part != "alone" for k in (1, 8)]
        print("\n\n".join([*learned, *(step_table(output, part) for part in parts)]))


if __name__ == "__main__":
    sys.exit(exit_code(main))
