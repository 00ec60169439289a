"""Configurations and runs of the learning experiments: resumable training, curves and budgets.

A `Cell` is a configuration over configs/tiny.yaml and configs/ablation.yaml. A cell with a seed is one run of train.py
in a process of its own with one thread. The run's directory is named after the resolved settings: a changed setting is
a new run, a finished run is read and not repeated. Seconds are CPU seconds of a run's training steps (with one process
of one thread on an idle core they equal wall seconds); evaluation, checkpoints and startup are excluded.
"""

import argparse
import json
import multiprocessing
import os
import re
import runpy
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import ENVIRONMENT, ROOT, machine
from d3s.config.load import load_config
from d3s.evaluate.estimators import pass_at_k
from d3s.report.runs import Run, load_runs
from research.statistics import Scores

BASE_FILES = ("configs/tiny.yaml", "configs/ablation.yaml")
AXES = ("step", "tokens", "seconds")
# every run is a fork of a process that has imported the trainer, which takes as long as twenty steps
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["d3s.trainer", "deepspeed", "transformers.models.qwen2.modeling_qwen2"])

Runs = Sequence[Sequence[Run]]  # of one configuration: [base models][seeds]


@dataclass(frozen=True)
class Cell:
    """One configuration, to be run with several seeds.

    Example: `Cell("random tokens", ("configs/method/d3s.yaml", "selector.tokens=random"))`
    """

    name: str
    arguments: tuple[str, ...]  # YAML files and section.key=value overrides

    def extended(self, *arguments: str) -> "Cell":
        """The same cell with further files or overrides."""
        return replace(self, arguments=self.arguments + arguments)

    def sources(self) -> tuple[list[str], list[str]]:
        """Configuration files and overrides, in the order in which they are merged."""
        files = [argument for argument in self.arguments if "=" not in argument]
        return [*BASE_FILES, *files], [argument for argument in self.arguments if "=" in argument]

    def key(self) -> str:
        """A hash of the resolved settings."""
        files, overrides = self.sources()
        return _cached_hash(tuple(files), tuple(overrides))

    def folder(self, root: Path) -> Path:
        """Directory of the cell's runs, named after the cell and the hash of its resolved settings."""
        plain_name = re.sub(r"[^A-Za-z0-9]+", "-", self.name)
        return root / f"{plain_name}-{self.key()}"


@lru_cache(None)
def _cached_hash(files: tuple[str, ...], overrides: tuple[str, ...]) -> str:
    config = load_config(list(files), list(overrides))
    settings = config.model_dump_json(exclude={"train": {"seed", "output_dir"}}, exclude_defaults=True)
    # a shape that N and K share was one option: finished runs keep their directory
    settings = re.sub(r'"n_shape":"(\w+)","k_shape":"\1"', r'"shape":"\1"', settings)
    return sha256(settings.encode()).hexdigest()[:8]


def train(cell: Cell, seed: int, root: Path) -> Path:
    """Run or resume one training run unless it is finished, and return its directory.

    Raises:
        RuntimeError: train.py failed; the message has the end of its log
    """
    folder = cell.folder(root) / f"seed{seed}"
    if (folder / "model" / "config.json").exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    if not (root / "machine.json").exists():
        save(root / "machine.json", machine())
    files, overrides = cell.sources()
    command = ["train.py", "--config", *files, *overrides]
    command += [f"train.seed={seed}", f"train.output_dir={folder}", "--resume", "auto"]
    log = folder.with_suffix(".log")
    code = in_fork(_run_script, command, log)
    if code:
        raise RuntimeError(f"{folder}: train.py ended with exit code {code}:\n{log.read_text()[-2000:]}")
    return folder


def in_fork(function: Callable, *arguments: Any) -> int:
    """Call a function in a process of its own, one that has already imported the trainer; the exit code."""
    process = FORKS.Process(target=_call, args=(function, *arguments))
    process.start()
    process.join()
    return process.exitcode


def _call(function: Callable, *arguments: Any) -> None:
    import torch

    os.environ.update(ENVIRONMENT)
    torch.set_num_threads(1)
    os.chdir(ROOT)
    function(*arguments)


def _run_script(command: Sequence[str], log: Path) -> None:
    """Run a script as `python SCRIPT ...` would; its output is added to `log`."""
    with log.open("a") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    sys.argv = list(command)
    runpy.run_path(command[0], run_name="__main__")


def train_all(runs: Sequence[tuple[Cell, int]], root: Path, processes: int) -> dict[tuple[Cell, int], Run]:
    """Train all (cell, seed) pairs in this order, `processes` at a time, and load them. Skip finished runs."""
    from rich.progress import MofNCompleteColumn, Progress, TimeElapsedColumn

    with Progress(*Progress.get_default_columns()[:2], MofNCompleteColumn(), TimeElapsedColumn()) as progress:
        task = progress.add_task("runs", total=len(runs))

        def train_and_load(run: tuple[Cell, int]) -> Run:
            folder = train(*run, root)
            progress.advance(task)
            return load_runs([folder])[0]

        with ThreadPoolExecutor(processes) as pool:
            futures = [pool.submit(train_and_load, run) for run in runs]
            try:
                return {run: future.result() for run, future in zip(runs, futures)}
            except BaseException:  # do not start the remaining runs
                pool.shutdown(wait=False, cancel_futures=True)
                raise


def provenance(root: Path) -> dict:
    """Machine and commit of the runs below `root`, as recorded with the first of them; else of the current process."""
    path = root / "machine.json"
    return json.loads(path.read_text()) if path.exists() else machine()


def argument_parser(description: str, folder: str) -> argparse.ArgumentParser:
    """The command-line arguments that all learning experiments share; `folder` of runs/ has the runs."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="runs at a time (default: all cores)")
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / folder, help=f"default: runs/{folder}")
    return parser


def curve(run: Run, metric: str, axis: str) -> tuple[np.ndarray, np.ndarray]:
    """A metric of the evaluations, against steps, trained tokens or CPU seconds of the steps so far."""
    steps, values = run.curve(f"eval/{run.benchmarks[0]}/{metric}")
    key = {"step": None, "tokens": "selection/tokens", "seconds": "time/cpu"}[axis]
    increments = [line[key] if key else 1 for line in sorted(run.metrics, key=lambda line: line["step"])]
    return np.concatenate([[0.0], np.cumsum(increments)])[steps.astype(int)], values


def mean_over_steps(runs: Runs, *keys: str) -> float:
    """The mean of a metric, or of the sum of several, over all runs and the steps that logged it."""
    lines = [line for run in chain(*runs) for line in run.metrics if keys[0] in line]
    return float(np.mean([sum(line[key] for key in keys) for line in lines]))


def seconds(runs: Runs) -> float:
    """CPU seconds of the training steps, mean over runs."""
    return float(np.mean([curve(run, "pass@1", "seconds")[0][-1] for run in chain(*runs)]))


def scores(runs: Runs, k: int) -> Scores:
    """Pass@k of every problem in the last evaluation, by base model: its benchmark, "@" and its number."""
    return {
        f"{seeds[0].benchmarks[0]}@{i}": np.array([_problem_scores(run.evaluations[-1], k) for run in seeds])
        for i, seeds in enumerate(runs)
    }


def _problem_scores(evaluation: dict, k: int) -> list[float]:
    return [pass_at_k(evaluation["n"], right, k) for right in evaluation["right"]]


def record(runs: dict[tuple[Cell, int], Run]) -> list[dict]:
    """The data behind the tables, for a JSON file."""
    return [
        {"cell": cell.name, "arguments": cell.arguments, "seed": seed, "evaluations": run.evaluations}
        | {axis: curve(run, "pass@1", axis)[0].tolist() for axis in AXES}
        for (cell, seed), run in runs.items()
    ]


def save(path: Path, content: dict) -> None:
    """Write an indented JSON file, creating its directory."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1, default=str))
