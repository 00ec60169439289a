"""What the learning experiments share: cells, runs that start again where they were cut, and budgets.

A cell is a configuration over configs/tiny.yaml and configs/ablation.yaml; with a seed it is a run of train.py in a
process of its own, one thread each, kept in a folder that is named by the settings themselves: a changed setting is
another run, an unchanged one is read. Seconds are CPU seconds of a run's training steps (its one process has one
thread, so on an idle core they are wall seconds); evaluations, checkpoints and the start are not in them.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import chain, pairwise
from pathlib import Path

import numpy as np

from benchmarks.harness import ENVIRONMENT, ROOT
from d3s.config.load import load_config
from d3s.evaluate.estimators import pass_at_k
from d3s.report.runs import Run, load_runs

SHARED = ("configs/tiny.yaml", "configs/ablation.yaml")
AXES = ("step", "tokens", "seconds")

Runs = Sequence[Sequence[Run]]  # of one configuration: [base models][seeds]


@dataclass(frozen=True)
class Cell:
    """One configuration, to be run with several seeds."""

    name: str
    words: tuple[str, ...]  # YAML files, then section.key=value overrides

    def also(self, *words: str) -> "Cell":
        """The same with further files or overrides."""
        return replace(self, words=self.words + words)

    def called(self, name: str) -> "Cell":
        """The same by another name."""
        return replace(self, name=name)

    def command(self) -> list[str]:
        """Arguments of train.py but for the seed and the directory."""
        files, overrides = [[w for w in self.words if ("=" in w) is given] for given in (False, True)]
        return ["--config", *SHARED, *files, *overrides]

    def folder(self, root: Path) -> Path:
        """Where its runs are kept."""
        words = self.command()[1:]
        config = load_config([w for w in words if "=" not in w], [w for w in words if "=" in w])
        settings = config.model_dump_json(exclude={"train": {"seed", "output_dir"}}, exclude_defaults=True)
        plain = re.sub(r"[^A-Za-z0-9]+", "-", self.name)
        return root / f"{plain}-{sha256(settings.encode()).hexdigest()[:8]}"


def train(cell: Cell, seed: int, root: Path) -> Path:
    """Runs, or goes on with, or finds done, one run; its directory. Raises: RuntimeError with the end of its log."""
    folder = cell.folder(root) / f"seed{seed}"
    if (folder / "model" / "config.json").exists():
        return folder
    command = [sys.executable, "train.py", *cell.command(), f"train.seed={seed}", f"train.output_dir={folder}"]
    folder.parent.mkdir(parents=True, exist_ok=True)
    log = folder.with_suffix(".log")
    with log.open("a") as out:
        done = subprocess.run(
            [*command, "--resume", "auto"], cwd=ROOT, env=os.environ | ENVIRONMENT, stdout=out, stderr=out
        )
    if done.returncode:
        raise RuntimeError(f"{folder} ended with {done.returncode}:\n{log.read_text()[-2000:]}")
    return folder


def train_all(runs: Sequence[tuple[Cell, int]], root: Path, processes: int) -> dict[tuple[Cell, int], Run]:
    """All the runs, as many at once as asked for, in this order; what was run before is not run again."""
    from rich.progress import MofNCompleteColumn, Progress, TimeElapsedColumn

    with Progress(*Progress.get_default_columns()[:2], MofNCompleteColumn(), TimeElapsedColumn()) as progress:
        task = progress.add_task("runs", total=len(runs))

        def one(run: tuple[Cell, int]) -> Run:
            folder = train(*run, root)
            progress.advance(task)
            return load_runs([folder])[0]

        with ThreadPoolExecutor(processes) as pool:
            futures = [pool.submit(one, run) for run in runs]
            try:
                return {run: future.result() for run, future in zip(runs, futures)}
            except BaseException:  # what has not begun need not begin
                pool.shutdown(wait=False, cancel_futures=True)
                raise


def curve(run: Run, metric: str, axis: str) -> tuple[np.ndarray, np.ndarray]:
    """A metric of the evaluations against steps, trained tokens or CPU seconds of the steps so far."""
    steps, values = run.curve(f"eval/{run.benchmarks[0]}/{metric}")
    key = {"step": None, "tokens": "selection/tokens", "seconds": "time/cpu"}[axis]
    each = [line[key] if key else 1 for line in sorted(run.metrics, key=lambda line: line["step"])]
    return np.concatenate([[0.0], np.cumsum(each)])[steps.astype(int)], values


def final(run: Run, metric: str) -> float:
    """A metric of the last evaluation."""
    return float(curve(run, metric, "step")[1][-1])


def mean_over_steps(runs: Runs, *keys: str) -> float:
    """The mean of a metric, or of the sum of several, over runs and the steps that have it (an update)."""
    lines = [line for run in chain(*runs) for line in run.metrics if keys[0] in line]
    return float(np.mean([sum(line[key] for key in keys) for line in lines]))


def seconds(runs: Runs) -> float:
    """CPU seconds of the training steps, the mean over runs."""
    return float(np.mean([curve(run, "pass@1", "seconds")[0][-1] for run in chain(*runs)]))


def scores(runs: Runs, k: int) -> np.ndarray:
    """Pass@k of every problem of the last evaluation, [bases, seeds, problems]."""
    return np.array([[_scores(run.evaluations[-1], k) for run in seeds] for seeds in runs])


def _scores(evaluation: dict, k: int) -> list[float]:
    return [pass_at_k(evaluation["n"], right, k) for right in evaluation["right"]]


def crossing(run: Run, target: float, axis: str) -> float | None:
    """Where Pass@1 first reaches `target`, interpolated between evaluations; None: nowhere."""
    for (a, low), (b, high) in pairwise(zip(*curve(run, "pass@1", axis))):
        if low < target <= high:
            return float(a + (target - low) / (high - low) * (b - a))
    return None


def record(runs: dict[tuple[Cell, int], Run]) -> list[dict]:
    """What the tables were made of, for a JSON file."""
    return [
        {"cell": cell.name, "words": cell.words, "seed": seed, "evaluations": run.evaluations}
        | {axis: curve(run, "pass@1", axis)[0].tolist() for axis in AXES}
        for (cell, seed), run in runs.items()
    ]


def save(path: Path, content: dict) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1, default=str))
