"""From rows to runs: the configuration of every run, its training, and the search of learning rates.

A run is one of train.py in a process of its own with one thread, over configs/tiny.yaml and configs/ablation.yaml. Its
directory is named after its arguments: a finished run is read and not repeated.
"""

import multiprocessing
import os
import re
import runpy
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any

from benchmarks.harness import ENVIRONMENT, ROOT
from d3s.common import NOTHING_TRAINED
from d3s.config.load import load_config
from d3s.config.schema import Config
from d3s.tiny import WARMUP, ensure_base, parse_name
from research import fresh_problems, padded_base
from research.records import SAMPLES, Record, searched
from research.row import BASES, COMMON, TEACHER, Row
from research.rows import BY_NAME, HALF_WARMUP

BASE_FILES = ("configs/tiny.yaml", "configs/ablation.yaml")
SWEEP_SEED = 1000  # the compared seeds are below
SEEDS_PER_BASE = 10  # no two base models of a row share a seed, so their runs are independent
RATES, RATE_FACTOR = (5e-5, 1e-4, 2e-4), 2
CLIPS, CLIP_FACTOR = (0.01, 0.03, 0.09), 3  # GSPO's 3e-4 and 4e-4 are for thousands of tokens, not for 35
CLIPPED = 0.2  # largest share of clipped tokens that a chosen setting may have
CLOSE, CLOSE_RUNS = 0.02, 3  # two best rates that differ by less than this get as many runs on each task
# every run is a fork of a process that has imported the trainer, which takes as long as twenty steps
TEACHING = threading.Lock()
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["d3s.trainer", "deepspeed", "transformers.models.qwen2.modeling_qwen2"])


@dataclass(frozen=True)
class Setting:
    """What is searched for a row: the learning rate, and the lower clip of a sequence ratio."""

    rate: float
    clip: float | None = None

    def overrides(self) -> tuple[str, ...]:
        """As overrides of the configuration; the upper clip is 4/3 of the lower one, as in GSPO's paper."""
        clips = (
            () if self.clip is None else (f"loss.epsilon={self.clip:g}", f"loss.epsilon_high={self.clip * 4 / 3:.4g}")
        )
        return (f"optim.learning_rate={self.rate:g}", *clips)


@dataclass(frozen=True)
class Job:
    """One run to train."""

    part: str  # see Record
    row: Row
    base: str
    seed: int
    setting: Setting

    def arguments(self) -> tuple[str, ...]:
        """Files and overrides over BASE_FILES; creates the base model and the problems if they are missing."""
        task, _ = parse_name(plain_name(self.base))
        files = () if task == "precedence" else (f"configs/{task}.yaml",)
        steps = (self.part == "sweep" and self.row.search_steps) or self.row.steps
        common = (f"model.name={model_of(self.base)}", f"train.steps={steps}", f"eval.n={SAMPLES}")
        arguments = (*files, *COMMON, *self.row.arguments, *self.setting.overrides(), *common)
        if self.part == "sweep":
            return *arguments, "eval.split=validation", "eval.limit=256"
        problems = ("eval.split=validation",) if self.part == "try" else fresh_problems.overrides(task)
        return *arguments, *problems, f"eval.limit={self.row.problems}", f"eval.every={self.row.every}"

    def identity(self) -> tuple[str, str, str, int, str]:
        """Part, row, base, seed and searched setting, as Record.identity of this run."""
        return self.part, self.row.name, self.base, self.seed, searched(self.setting.overrides())


Known = Mapping[tuple[str, str, str, int, str], Record]  # by Job.identity()


def sources(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Configuration files and overrides, in the order in which they are merged."""
    files = [argument for argument in arguments if "=" not in argument]
    return [*BASE_FILES, *files], [argument for argument in arguments if "=" in argument]


def config_of(arguments: Sequence[str]) -> Config:
    """The resolved configuration; files are those of the repository."""
    files, overrides = sources(arguments)
    return load_config([ROOT / file for file in files], overrides)


def plain_name(base: str) -> str:
    """The built-in base model that a base model is made from."""
    return BASES[0] if base == HALF_WARMUP else base.removesuffix(padded_base.SUFFIX)


@lru_cache(None)
def model_of(base: str) -> str:
    """What model.name is for a base model, which is created if missing."""
    if base == HALF_WARMUP:
        return str(ensure_base(plain_name(base), steps=WARMUP["steps"] // 2))
    if base.endswith(padded_base.SUFFIX):
        return str(padded_base.ensure(base))
    ensure_base(base)
    return base


# --- training --------------------------------------------------------------------------------------------------------


def folder_of(job: Job, root: Path) -> Path:
    """The directory of a run: its part, its row and a hash of its arguments, its seed."""
    name, key = re.sub(r"[^A-Za-z0-9]+", "-", job.row.name), sha256(" ".join(job.arguments()).encode()).hexdigest()
    return root / job.part / f"{name}-{key[:8]}" / f"seed{job.seed}"


def train(job: Job, root: Path) -> Path:
    """Run or resume a training run unless it is finished, and return its directory.

    Raises:
        RuntimeError: train.py failed; the message has the end of its log
    """
    folder = folder_of(job, root)
    if (folder / "model" / "config.json").exists():
        return folder
    if any(TEACHER in argument for argument in job.row.arguments):
        with TEACHING:
            train_teacher()
    files, overrides = sources(job.arguments())
    _train(files, [*overrides, f"train.seed={job.seed}"], folder)
    return folder


def train_teacher() -> None:
    """Train the model that distillation learns from, unless it is there: the built-in default, for 100 steps."""
    if not (ROOT / TEACHER / "config.json").exists():
        own = ["train.seed=77", "train.steps=100", "rollout.engine=transformers", "eval.every=0"]
        _train(list(BASE_FILES[:1]), own, (ROOT / TEACHER).parent)


def _train(files: Sequence[str], overrides: Sequence[str], folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    command = ["train.py", "--config", *files, *overrides, f"train.output_dir={folder}", "--resume", "auto"]
    log = folder.with_suffix(".log")
    if (code := in_fork(_run_script, command, log)) not in (0, NOTHING_TRAINED):
        raise RuntimeError(f"{folder}: train.py ended with exit code {code}:\n{log.read_text()[-2000:]}")


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


# --- the search ------------------------------------------------------------------------------------------------------


def frontier(scores: Mapping[float, float], start: tuple[float, ...], factor: float) -> list[float]:
    """Values to try next: those of `start`, then one beyond the end at which the best score lies; [] if none."""
    if missing := [value for value in start if value not in scores]:
        return missing
    if len(set(scores.values())) == 1:
        return []  # such as settings that all clip too much
    best = max(sorted(scores), key=scores.__getitem__)  # the smallest of equal ones, whatever was tried first
    if best == min(scores):
        return [best / factor]
    return [best * factor] if best == max(scores) else []


class Search:
    """The search of one row: its scores so far, and what to run next.

    The clip is searched first, then the rate; the two best rates get further runs if they are CLOSE.
    """

    def __init__(self, row: Row, known: Known) -> None:
        self.row, self.known = row, known

    def jobs(self, setting: Setting, runs: int | None = None) -> list[Job]:
        """The runs that score a setting: `searches` on each task, or as many as given."""
        return [
            Job("sweep", self.row, base, SWEEP_SEED + SEEDS_PER_BASE * i + run, setting)
            for i, base in enumerate(self.row.search_bases)
            for run in range(runs or self.row.searches)
        ]

    def score(self, setting: Setting, runs: int | None = None) -> float | None:
        """Mean Pass@1 on validation problems after the last step; None if a run is missing.

        A setting that clips more than CLIPPED of the tokens scores 0.
        """
        records = [self.known.get(job.identity()) for job in self.jobs(setting, runs)]
        if any(record is None for record in records):
            return None
        clipped = max(float(record.logged["clipped"].max()) for record in records)
        return 0.0 if clipped > CLIPPED else sum(record.levels(1)[-1] for record in records) / len(records)

    def wanted(self) -> list[Job]:
        """Runs to try next, some of which may exist; [] when the search has ended.

        Both searches then have their best value inside the tried range.
        """
        if self.row.clips and (clips := frontier(self.clips(), CLIPS, CLIP_FACTOR)):
            return [job for clip in clips for job in self.jobs(Setting(RATES[1], clip))]
        clip = self.best_clip()
        if rates := frontier(self.rates(), RATES, RATE_FACTOR):
            return [job for rate in rates for job in self.jobs(Setting(rate, clip))]
        missing = [rate for rate in self.close_rates() if self.score(Setting(rate, clip), CLOSE_RUNS) is None]
        if missing:
            return [job for rate in missing for job in self.jobs(Setting(rate, clip), CLOSE_RUNS)]
        beyond = frontier(self.final_rates(), RATES, RATE_FACTOR)
        return [job for rate in beyond for job in self.jobs(Setting(rate, clip))]

    def clips(self) -> dict[float, float]:
        """Scores by clip at the middle rate."""
        return self._walk(CLIPS, CLIP_FACTOR, lambda clip: Setting(RATES[1], clip))

    def rates(self) -> dict[float, float]:
        """Scores by learning rate at the best clip."""
        clip = self.best_clip()
        return self._walk(RATES, RATE_FACTOR, lambda rate: Setting(rate, clip))

    def best_clip(self) -> float | None:
        """The clip of the best score; None for a row without a clip to search."""
        clips = self.clips() if self.row.clips else {}
        return max(clips, key=clips.__getitem__) if clips else None

    def close_rates(self) -> list[float]:
        """The best two rates, if their scores are CLOSE; else none."""
        rates = self.rates()
        best = sorted(rates, key=rates.__getitem__, reverse=True)[:2]
        return best if len(best) == 2 and rates[best[0]] - rates[best[1]] < CLOSE else []

    def final_rates(self) -> dict[float, float]:
        """Scores by learning rate, of close ones with all their runs; {} before the first score.

        The search goes on where these put the best rate at an end.
        """
        clip, scores = self.best_clip(), self.rates()
        again = {rate: self.score(Setting(rate, clip), CLOSE_RUNS) for rate in self.close_rates()}
        if not again or None in again.values():
            return scores
        return self._walk(RATES, RATE_FACTOR, lambda rate: Setting(rate, clip), scores | again)

    def chosen(self) -> Setting:
        """The best setting so far, of close ones that with more runs. Raises ValueError before the first score."""
        scores = self.final_rates()
        if not scores:
            raise ValueError(f"{self.row.name}: no run on validation problems yet")
        worse = self.rates().keys() - self.close_rates() if self.close_rates() else set()
        return Setting(max(scores.keys() - worse, key=lambda rate: (scores[rate], -rate)), self.best_clip())

    def jobs_so_far(self) -> list[Job]:
        """The runs that the scores so far are made of."""
        clips = [Setting(RATES[1], clip) for clip in self.clips()] if self.row.clips else []
        clip, close = self.best_clip(), self.close_rates()
        jobs = [job for setting in clips for job in self.jobs(setting)]
        for rate in self.final_rates():
            jobs += self.jobs(Setting(rate, clip), max(self.row.searches, CLOSE_RUNS) if rate in close else None)
        return list(dict.fromkeys(jobs))

    def _walk(
        self,
        start: tuple[float, ...],
        factor: float,
        setting: Callable[[float], Setting],
        scores: Mapping[float, float] = MappingProxyType({}),
    ) -> dict[float, float]:
        """The given scores, and those of `start` and of what the search tried beyond its ends, by value."""
        scores = dict(scores)
        while values := frontier(scores, start, factor):
            found = {value: score for value in values if (score := self.score(setting(value))) is not None}
            scores |= found
            if len(found) < len(values):
                break
        return dict(sorted(scores.items()))


def searched_row(row: Row) -> Row:
    """The row whose search gives this row its setting."""
    return row if row.rate_of is None else BY_NAME[row.rate_of]


def setting_of(row: Row, known: Known) -> Setting:
    """The setting of a row: its own, or the one that its search chose. Raises ValueError before the first score."""
    return Setting(row.rate) if row.rate else Search(searched_row(row), known).chosen()


def compared_jobs(row: Row, known: Known) -> list[Job]:
    """The runs of a row on test problems, by seed and then by base model, at its setting."""
    setting = setting_of(row, known)
    return [
        Job("compare", row, base, row.first_seed + SEEDS_PER_BASE * i + seed, setting)
        for seed in range(row.seeds)
        for i, base in enumerate(row.bases)
    ]
