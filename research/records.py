"""The raw data of the results: one line of a CSV file for every run, from which every table and picture is made.

    docs/data/runs.csv      written by `make ablation`, read by research/results.py

A cell of the file with several values separates them by spaces: one value per evaluation (`steps` to `right`), or one
per interval between two evaluations (the columns of LOGGED).
"""

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np

from benchmarks.harness import ROOT
from d3s.evaluation.estimators import pass_at_k
from d3s.report.runs import Run

DOCS, RESEARCH = ROOT / "docs", ROOT / "research"
DATA = DOCS / "data" / "runs.csv"
BEYOND_DATA = DATA.with_name("beyond.csv")  # of the sections of beyond.py, in the same format
SAMPLES = 8  # responses to each problem in an evaluation
LOGGED = {  # column -> metrics whose sum is logged in a step; the mean over the steps of an interval
    "reward": ("reward/accuracy",),
    "grad_norm": ("grad_norm",),
    "entropy": ("policy/entropy",),
    "clipped": ("policy/clip_low", "policy/clip_high"),
    "approx_kl": ("policy/approx_kl",),
    "usefulness": ("selection/usefulness",),
    "effective_groups": ("selection/effective_groups",),
    "zero_std_groups": ("reward/zero_std_groups",),
    "variance": ("advantage/var_selected",),
    "length": ("completion/length",),
    "generate_seconds": ("time/generate",),
    "update_seconds": ("time/update",),
}
PEAKS = {"grad_norm_peak": "grad_norm"}  # column -> metric; the largest value of an interval


def append_rows(path: Path, columns: Iterable[str], rows: Iterable[Sequence]) -> None:
    """Append rows to a CSV file, in a new one after the names of the columns."""
    with open(path, "a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if file.tell() == 0:
            writer.writerow(columns)
        writer.writerows(rows)


def read_rows(path: Path, texts: Iterable[str]) -> list[dict]:
    """The rows of a CSV file, none if it is missing; all columns but `texts` are numbers."""
    if not path.exists():
        return []
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    return [{key: value if key in texts else float(value) for key, value in row.items()} for row in rows]


@dataclass(frozen=True)
class Record:
    """One run. Arrays have one entry for each of its E evaluations; the first is before training."""

    part: str  # "sweep": evaluated on validation problems; "compare": on test problems
    row: str
    base: str  # name of the base model, which names the task
    seed: int
    arguments: str  # configuration files and overrides at `revision`, joined by spaces; see jobs.py
    revision: str
    cpu: str
    steps: np.ndarray  # [E]
    generated: np.ndarray  # [E] sampled tokens so far
    trained: np.ndarray  # [E] trained tokens so far
    forwarded: np.ndarray  # [E] tokens run through the layers in updates so far
    seconds: np.ndarray  # [E] CPU seconds of the training steps so far, generation, rewards and weight sync included
    right: np.ndarray  # [E, problems] right answers of SAMPLES
    logged: dict[str, np.ndarray] = field(default_factory=dict)  # [E - 1] of each column of LOGGED and PEAKS
    # [E] nats per token; NaN where it was not measured, which is all but the last for most rows
    kl_to_base: np.ndarray = field(default_factory=lambda: np.array([]))
    norm_follows_variance: float = float("nan")  # see norm_variance_correlation

    @property
    def identity(self) -> tuple[str, str, str, int, str]:
        """What Job.identity() is for the job of this record."""
        return self.part, self.row, self.base, self.seed, searched(self.arguments.split())

    def scores(self, k: int) -> np.ndarray:
        """Pass@k of every problem in every evaluation, [E, problems]."""
        return TABLES[k][self.right]

    def levels(self, k: int) -> np.ndarray:
        """Pass@k of every evaluation, [E]."""
        return self.scores(k).mean(1)


TABLES = {k: np.array([pass_at_k(SAMPLES, right, k) for right in range(SAMPLES + 1)]) for k in (1, 2, 4, 8)}
CURVES = ("steps", "generated", "trained", "forwarded", "seconds", "kl_to_base")
TEXTS = ("part", "row", "base", "seed", "arguments", "revision", "cpu")
NUMBERS = ("norm_follows_variance",)
COLUMNS = (*TEXTS, *NUMBERS, *CURVES, *LOGGED, *PEAKS, "right")


def searched(arguments: Iterable[str]) -> str:
    """Those of the arguments that a search sets: the learning rate, and the clips of a sequence ratio."""
    return " ".join(a for a in arguments if a.startswith(("optim.learning_rate=", "loss.epsilon")))


def record_run(run: Run, kl_to_base: dict[int, float], **texts: str | int) -> Record:
    """The record of a finished run.

    Args:
        kl_to_base: KL divergences from the base model by step, see kl_to_base.py.
        texts: the fields of TEXTS.
    """
    steps = np.array([evaluation["step"] for evaluation in run.evaluations])
    lines = [
        {key: line[key] for key in line if key != "grad_norm" or line["optimizer_steps"]}  # no update, no norm
        for line in sorted(run.metrics, key=lambda line: line["step"])
    ]
    curves = {
        "generated": _so_far(lines, "selection/tokens_total", steps),
        "trained": _so_far(lines, "selection/tokens", steps),
        "forwarded": _so_far(lines, "selection/tokens_forwarded", steps),
        "seconds": _so_far(lines, "time/cpu", steps),
    }
    intervals = [lines[start:end] for start, end in pairwise(steps)]
    logged = {
        column: np.array(
            [_mean([sum(line[k] for k in keys) for line in part if keys[0] in line]) for part in intervals]
        )
        for column, keys in LOGGED.items()
    }
    peaks = {
        column: np.array([max((line[key] for line in part if key in line), default=np.nan) for part in intervals])
        for column, key in PEAKS.items()
    }
    return Record(
        **texts,
        steps=steps,
        **curves,
        kl_to_base=np.array([kl_to_base.get(step, np.nan) for step in steps.tolist()]),
        right=np.array([evaluation["right"] for evaluation in run.evaluations]),
        logged=logged | peaks,
        norm_follows_variance=norm_variance_correlation(lines),
    )


def norm_variance_correlation(lines: Sequence[dict]) -> float:
    """Spearman correlation of the changes of gradient norm and Var(A) of the kept rollouts from step to step.

    Both drift over training; their changes are free of that. NaN if one of them never changes.
    """
    pairs = [(line["grad_norm"], line["advantage/var_selected"]) for line in lines if "grad_norm" in line]
    changes = np.diff(np.array(pairs), axis=0)
    if len(changes) < 3 or not changes.any(0).all():
        return float("nan")
    ranks = [_ranks(column) for column in changes.T]
    return float(np.corrcoef(ranks)[0, 1])


def _ranks(values: np.ndarray) -> np.ndarray:
    """Ranks of values [N]; equal values share the mean of their ranks."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (counts.cumsum() - (counts - 1) / 2)[places]


def write(path: Path, records: Iterable[Record]) -> None:
    """Write all records, sorted, so that equal records make equal files."""
    path.parent.mkdir(parents=True, exist_ok=True)
    order = sorted(records, key=lambda record: record.identity)
    temporary = path.with_suffix(".tmp")
    with temporary.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(map(_cells, order))
    temporary.replace(path)


def read(path: Path = DATA) -> list[Record]:
    """Read all records of a file; none if it does not exist."""
    if not path.exists():
        return []
    csv.field_size_limit(2**24)
    with path.open(newline="") as file:
        return [_parse(line) for line in csv.DictReader(file)]


def _cells(record: Record) -> dict[str, str]:
    texts = {name: str(getattr(record, name)) for name in TEXTS}
    numbers = {name: f"{getattr(record, name):.4g}" for name in NUMBERS}
    curves = {name: " ".join(f"{x:.6g}" for x in getattr(record, name)) for name in CURVES}
    logged = {name: " ".join(f"{x:.4g}" for x in record.logged[name]) for name in (*LOGGED, *PEAKS)}
    right = {"right": " ".join("".join(map(str, counts)) for counts in record.right.tolist())}
    return texts | numbers | curves | logged | right


def _parse(cells: dict[str, str]) -> Record:
    return Record(
        **{name: cells[name] for name in TEXTS if name != "seed"},
        seed=int(cells["seed"]),
        **{name: float(cells[name]) for name in NUMBERS},
        **{name: np.array(cells[name].split(), float) for name in CURVES},
        logged={name: np.array(cells[name].split(), float) for name in (*LOGGED, *PEAKS)},
        right=np.array([[int(digit) for digit in counts] for counts in cells["right"].split()]),
    )


def _so_far(lines: Sequence[dict], key: str, steps: np.ndarray) -> np.ndarray:
    return np.concatenate([[0.0], np.cumsum([line[key] for line in lines])])[steps]


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else float("nan")
