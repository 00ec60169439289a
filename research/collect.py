"""Collect runs on several benchmarks: one CSV line per run and benchmark, and Markdown tables that compare the rows.

    python -m research.collect RUN [RUN ...] --output results.csv

RUN is a run directory or a directory of runs. Runs that differ only in the seed form a row, the first one named is the
reference. Besides its own files a run directory may hold `final/`, the --output of eval.py on its model, and
`provenance.txt` with the commit and the machine. Intervals of a benchmark cover new seeds and new problems, those of a
mean over benchmarks new seeds only. Differences are paired by seed and problem.
"""

import argparse
import csv
import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np

from benchmarks.harness import markdown
from d3s.common import UserError, exit_code
from d3s.evaluation.estimators import parse_ks, pass_at_k
from d3s.evaluation.intervals import Estimate, student_interval
from d3s.report.runs import Run, group_runs, load_runs
from research.statistics import interval, show

TEXTS = ("model", "row", "seed", "benchmark", "part", "n", "settings", "provenance")
CURVES = {"generated": "selection/tokens_total", "trained": "selection/tokens", "seconds": "time/step"}  # sums of steps
TABLES = (("training", "steps"), ("training", "seconds"), ("final", "steps"))  # part, axis of equal budgets


@dataclass(frozen=True)
class Curve:
    """The evaluations of one run on one benchmark."""

    model: str
    row: str
    seed: int
    benchmark: str
    part: str  # "training": eval.jsonl; "final": one evaluation, final/summary.json
    n: int  # samples per problem
    settings: str  # config.yaml as JSON
    provenance: str  # provenance.txt
    spent: dict[str, np.ndarray]  # [E] for steps, and for each of CURVES in the training steps so far
    right: np.ndarray  # [E, problems] right answers of n

    def scores(self, k: int) -> np.ndarray:
        """Pass@k of every problem in every evaluation, [E, problems]."""
        return np.array([pass_at_k(self.n, right, k) for right in range(self.n + 1)])[self.right]

    def at(self, k: int, axis: str, budget: float) -> np.ndarray:
        """Pass@k of every problem at a budget of `axis`, linear between two evaluations, [problems]."""
        return np.array([np.interp(budget, self.spent[axis], problem) for problem in self.scores(k).T])


def read_curves(paths: Sequence[Path]) -> list[Curve]:
    """Read all runs, in rows. Raises UserError if there is none, or none with an evaluation."""
    runs = [(run, group.name) for group in group_runs(load_runs(paths)) for run in group.runs]
    if not (curves := [curve for run, name in runs for curve in _curves(run, name)]):
        raise UserError(f"{paths[0]}: no run has an evaluation; set eval.data")
    return curves


def _curves(run: Run, row: str) -> list[Curve]:
    lines = sorted(run.metrics, key=lambda line: line["step"])
    totals = {name: np.cumsum([0.0, *(line[key] for line in lines)]) for name, key in CURVES.items()}
    files = [run.path / "final" / "summary.json", run.path / "provenance.txt"]
    summary, provenance = (file.read_text() if file.exists() else "" for file in files)
    finals = json.loads(summary)["results"] if summary else []
    parts: dict[tuple[str, str], list[dict]] = {}
    for record in [*run.evaluations, *(final | {"part": "final", "step": len(lines)} for final in finals)]:
        parts.setdefault((record["data"], record.get("part", "training")), []).append(record)
    curves = []
    for names, records in parts.items():
        steps, right = (np.array([record[key] for record in records]) for key in ("step", "right"))
        spent = {"steps": steps} | {name: total[steps] for name, total in totals.items()}
        texts = (run.config["model"]["name"], row, run.seed, *names, int(records[0]["n"]))
        curves.append(Curve(*texts, json.dumps(run.config), " ".join(provenance.split()), spent, right))
    return curves


def write_csv(path: Path, curves: Sequence[Curve], ks: Sequence[int]) -> None:
    """One line per curve. Values of evaluations are separated by spaces, those of problems in `right` by semicolons."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*TEXTS, "steps", *CURVES, *(f"pass@{k}" for k in ks), "right"])
        for curve in curves:
            values = [*curve.spent.values(), *(curve.scores(k).mean(1) for k in ks)]
            cells = [" ".join(f"{x:.6g}" for x in column) for column in values]
            right = " ".join(";".join(map(str, counts)) for counts in curve.right.tolist())
            writer.writerow([*(getattr(curve, name) for name in TEXTS), *cells, right])


def estimate(runs: Sequence[dict[str, np.ndarray]]) -> Estimate:
    """Mean over runs, benchmarks and problems of each run's {benchmark: [problems]}, with its 95 % interval."""
    scores = {name: np.array([run[name] for run in runs]) for name in runs[0]}
    means = np.mean([values.mean(1) for values in scores.values()], axis=0)  # of each run
    return interval(scores) if len(scores) == 1 else student_interval(means)


def table(curves: Sequence[Curve], ks: Sequence[int], axis: str) -> str:
    """Pass@k of the rows at the largest budget of `axis` that all curves reach, against the first row, as Markdown."""
    ends = [curve.spent[axis][-1] for curve in curves]
    budget, most = min(ends), max(ends)
    reached = f"{budget:,.0f} to {most:,.0f}" if curves[0].part == "final" and most > budget else f"{budget:,.0f}"
    header, lines = ["row", "seeds"], {curve.row: [curve.row, ""] for curve in curves}
    for k in ks:
        rows: dict[str, dict[int, dict[str, np.ndarray]]] = {}  # row -> seed -> benchmark
        for curve in curves:
            rows.setdefault(curve.row, {}).setdefault(curve.seed, {})[curve.benchmark] = curve.at(k, axis, budget)
        (first, reference), *_ = rows.items()
        header += [f"Pass@{k}", f"over {first}"]
        for row, seeds in rows.items():
            shared = [seed for seed in seeds if seed in reference and row != first]
            gaps = [{name: x - reference[seed][name] for name, x in seeds[seed].items()} for seed in shared]
            lines[row][1] = str(len(seeds))
            lines[row] += [show(estimate(list(seeds.values()))), show(estimate(gaps), True) if gaps else "–"]
    return f"At {reached} {axis}, in %:\n\n{markdown(header, list(lines.values()))}\n"


def report(curves: Sequence[Curve], ks: Sequence[int]) -> str:
    """Tables of every model and benchmark, and of the mean over benchmarks of runs that have all, as Markdown."""
    sections = []
    for model, (part, axis) in product(dict.fromkeys(curve.model for curve in curves), TABLES):
        chosen = [curve for curve in curves if (curve.model, curve.part) == (model, part)]
        benchmarks: dict[str, list[Curve]] = {}
        for curve in chosen:
            benchmarks.setdefault(curve.benchmark, []).append(curve)
        counts, count = Counter((curve.row, curve.seed) for curve in chosen), len(benchmarks)
        if count > 1 and count in counts.values():
            whole = [curve for curve in chosen if counts[curve.row, curve.seed] == count]
            benchmarks[f"mean of {count} benchmarks"] = whole
        for name, group in benchmarks.items():
            equal = "after its own" if part == "final" else "equal"
            sections.append(f"## {model}: {name}, {part}, {equal} {axis}\n\n{table(group, ks, axis)}")
    return "\n".join(sections)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line. Raises UserError as `read_curves`."""
    parser = argparse.ArgumentParser(prog="python -m research.collect", description="Compare finished runs.")
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="a run directory, or a directory of runs")
    parser.add_argument("--output", type=Path, default="results.csv", help="CSV file (default: results.csv)")
    parser.add_argument("--k", type=parse_ks, default=(1, 8), help="values of k for Pass@k (default: 1,8)")
    options = parser.parse_args(arguments)
    curves = read_curves(options.runs)
    if max(options.k) > (fewest := min(curve.n for curve in curves)):
        raise UserError(f"--k: got pass@{max(options.k)}, expected at most {fewest}, the samples of each evaluation")
    write_csv(options.output, curves, options.k)
    print(report(curves, options.k))


if __name__ == "__main__":
    sys.exit(exit_code(main))
