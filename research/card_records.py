"""CSV files of the runs on one card: the columns, the estimated seconds, and which searched run was the best."""

import csv
import json
import math
from pathlib import Path

import numpy as np

from research.card_rows import CORES, MODELS, PARTS
from research.card_tasks import SHOWN, unseen
from research.records import SAMPLES, append_rows, read_rows

# Seconds of a step on two cores with vLLM = COST . (1, generated tokens, FLOPs of the update), of parts that begin with
# a name. docs/data/card/cores.csv has the measured steps: arguments of rows with rollout.engine=vllm and train.steps=6,
# commit 9da4925; those of Gemma that nothing disturbed. Its COST is a fit to the first six, whose FLOPs lack attention.
COST = {"": (6.5, 1.5e-3, 6.3e-12), "gemma": (9.0, 4.7e-3, 9.3e-12)}
SOURCES = {"steps.csv": "metrics.jsonl", "evaluations.csv": "eval.jsonl", "warnings.csv": "warnings.jsonl"}
COLUMNS = {
    "steps.csv": {
        "seconds": "time/step",
        "generate": "time/generate",
        "update": "time/update",
        "reward": "reward/mean",
        "entropy": "policy/entropy",
        "approx_kl": "policy/approx_kl",
        "distinct": "completion/distinct",
        "length": "completion/length",
        "tokens_generated": "tokens_generated",
        "tokens_trained": "tokens_trained",
        "flops": "selection/flops",
        "flops_share": "selection/flops_share",
    },
    "evaluations.csv": {"pass@1": "pass@1", "pass@8": "pass@8", "mean_length": "mean_length", "right": "right"},
    "warnings.csv": {"key": "key"},
}
KEYS = ["part", "row", "rate", "seed", "step"]


def on_cores(part: str) -> bool:
    """Whether all runs of a part are of CPU cores: `seconds` are then CPU seconds, which other work leaves alone."""
    return part in CORES


def record(key: tuple[str, ...], folder: Path, output: Path) -> None:
    """Append the records of a finished run, whose directory is `folder`, to the CSV files."""
    for name, columns in COLUMNS.items():
        if "seconds" in columns and on_cores(key[0]):
            columns = columns | {"seconds": "time/cpu"}
        source, path = folder / SOURCES[name], output / name
        lines = map(json.loads, source.read_text().splitlines() if source.exists() else ())
        rows = [[*key, line["step"], *(written(line.get(key, math.nan)) for key in columns.values())] for line in lines]
        append_rows(path, (*KEYS, *columns), rows)


def written(value: float | list[int] | str) -> str:
    """The cell of a value; those of a list, the right answers of each problem, are digits."""
    if isinstance(value, list):
        return "".join(map(str, value))
    return value if isinstance(value, str) else f"{value:.5g}"


def read(output: Path, name: str, part: str) -> list[dict]:
    """Rows of one part, with numbers as numbers, but for those of `right`.

    Tests are of the problems that the warm-up did not show. A search keeps all of its problems, by which it chose.
    """
    rows = [row for row in read_rows(output / name, texts=("part", "row", "right", "key")) if row["part"] == part]
    if name == "evaluations.csv" and (model := MODELS.get(part)) in SHOWN and PARTS[part][2] == "test":
        for row in rows:
            right = "".join(row["right"][i] for i in unseen(model, len(row["right"])))
            row |= {"right": right, "pass@1": sum(map(int, right)) / (SAMPLES * len(right))}
            row["pass@8"] = 1 - right.count("0") / len(right)
    return rows


def finished(output: Path) -> set[tuple[str, ...]]:
    """The keys of the runs that are in the CSV files."""
    if not (output / "steps.csv").exists():
        return set()
    with open(output / "steps.csv", newline="") as file:
        return {tuple(row[:4]) for row in csv.reader(file)}


def curve(output: Path, part: str) -> dict[tuple[str, float, float], list[tuple[float, float, dict]]]:
    """Of each run (row, rate, seed) its evaluations as (step, seconds of two cores before it, the row)."""
    spent: dict[tuple, float] = {}
    generated: dict[tuple, float] = {}
    base, per_token, per_flop = COST["gemma" if part.startswith("gemma") else ""]
    for row in read(output, "steps.csv", part):
        run, step = (row["row"], row["rate"], row["seed"]), row["step"]
        tokens = row["tokens_generated"] - generated.get(run, 0.0)
        generated[run] = row["tokens_generated"]
        cost = row["seconds"] / 2 if on_cores(part) else base + per_token * tokens + per_flop * row["flops"]
        spent[(*run, step)] = spent.get((*run, step - 1), 0.0) + cost
    curves: dict[tuple[str, float, float], list[tuple[float, float, dict]]] = {}
    for row in read(output, "evaluations.csv", part):
        run = row["row"], row["rate"], row["seed"]
        curves.setdefault(run, []).append((row["step"], spent.get((*run, row["step"]), 0.0), row))
    return curves


def scores(output: Path, family: str, part: str) -> dict[tuple[str, float, float], float]:
    """Of each searched run of a family the mean Pass@1 at the whole and at two thirds of a budget.

    `part` is that of the search. The budget, in estimated seconds of two cores, is all that the cheapest of the
    family's runs spent.
    """
    curves = {run: points for run, points in curve(output, part).items() if run[0].startswith(family)}
    budget = min(points[-1][1] for points in curves.values())

    def score(points: list) -> float:
        spent, levels = zip(*((seconds, row["pass@1"]) for _, seconds, row in points), strict=True)
        return float(np.interp([budget * 2 / 3, budget], spent, levels).mean())

    return {run: score(points) for run, points in curves.items()}


def choose(output: Path, family: str, part: str) -> tuple[str, float]:
    """Row and rate of the best run of a family in a search, `part`."""
    found = scores(output, family, part)
    return max(found, key=found.__getitem__)[:2]


def best_rate(output: Path, row: str, part: str) -> float:
    """The rate of a row with the highest last Pass@1 in a search, `part`."""
    last = {run[1]: points[-1][2]["pass@1"] for run, points in curve(output, part).items() if run[0] == row}
    return max(last, key=last.__getitem__)
