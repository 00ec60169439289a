"""The shape of a step as what is searched: responses, mini-batches, passes and the learning rate, at equal CPU seconds.

    python -m research.step_shapes              (measures what the shapes cost: docs/data/shape_costs.csv, 10 minutes)
    python -m research.ablation --shapes        (about 200 runs of 40 seconds: docs/data/shapes.csv)

GRPO and D3S (N = 2, K = 20 %) with groups of 4, on validation problems. Each method climbs from START: every neighbor
of its best point gets a run on each task, until none is better; then from ORDINARY, if that is better still. A neighbor
differs by a factor of two in one number, or in responses and mini-batches together. The FINALISTS best points then get
runs on a second base model of each task, and the best of them is the shape of the method. A run has as many steps as
take the CPU seconds of D3S's 60 steps.
"""

import csv
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from benchmarks.harness import ROOT, markdown
from d3s.tracking.throughput import cpu_seconds
from research.jobs import FORKS, Job, Known, Search, Setting
from research.records import DATA
from research.row import GRPO, TASK_BASES, TASKS, Row, fixed, shape
from research.rows import BY_NAME, D3S_SMALL, GRPO_BEST
from research.step_costs import COSTS, REFERENCE, SEED, read_costs, trainer_of

SHAPES_DATA, SHAPE_COSTS = DATA.with_name("shapes.csv"), DATA.with_name("shape_costs.csv")
METHODS = {"GRPO": (GRPO,), "D3S": fixed(2, 0.2)}
MEASURED = {"GRPO": GRPO_BEST, "D3S": D3S_SMALL}  # rows of ORDINARY, whose steps have a measured cost
FINALISTS = 4
TIMED_RESPONSES, TIMED_BATCHES, TIMED_PASSES, ROUNDS = (128, 256, 512, 1024), (2, 16), (1, 2), 4
COST_COLUMNS = ("method", "task", "responses", "minibatches", "passes", "seconds")


@dataclass(frozen=True)
class Point:
    """A shape of a step and its learning rate."""

    responses: int
    minibatches: int
    passes: int
    rate: float

    def neighbors(self) -> Iterator["Point"]:
        """Points a factor of two away."""
        for factor in (2, 0.5):
            responses, minibatches = int(self.responses * factor), int(self.minibatches * factor)
            changes = {"responses": responses}, {"minibatches": minibatches}, {"passes": int(self.passes * factor)}
            both = {"responses": responses, "minibatches": minibatches}
            for change in (*changes, {"rate": self.rate * factor}, both):
                if all(change.values()):
                    yield replace(self, **change)


ORDINARY = Point(128, 2, 1, 1e-4)
START = Point(256, 8, 1, 2e-4)


def row_of(method: str, point: Point, task: str, costs: dict) -> Row:
    """The runs of a method at a point on the base models of a task."""
    return Row(
        f"{method}, {point.responses} responses, {point.minibatches} mini-batches, {point.passes} passes",
        arguments_of(method, point),
        steps=steps_of(method, point, task, costs),
        search_bases=tuple(base for base in TASK_BASES if base.startswith(task)),
    )


def arguments_of(method: str, point: Point) -> tuple[str, ...]:
    """A point but for its rate, as arguments of a run."""
    return (
        *METHODS[method],
        *shape(point.responses, 4),
        f"optim.num_minibatches={point.minibatches}",
        f"optim.num_iterations={point.passes}",
        f"optim.warmup_steps={max(640 // point.responses, 1)}",
    )


def steps_of(method: str, point: Point, task: str, costs: dict) -> int:
    """Steps that take the CPU seconds of D3S's 60 steps.

    Those of the ordinary shape, whose whole runs were timed (step_costs.py), times the ratio of both shapes' costs.
    """
    timed, row, steps = read_costs(COSTS), BY_NAME[MEASURED[method]], BY_NAME[REFERENCE].steps
    budget = timed.seconds(REFERENCE, task, np.array([steps]))[0]
    grid = np.arange(row.steps + 1)
    ordinary = np.interp(budget, timed.seconds(row.name, task, grid), grid)
    ratio = cost_of(method, ORDINARY, task, costs) / cost_of(method, point, task, costs)
    return max(1, round(float(ordinary * ratio)))


# --- what a step costs -----------------------------------------------------------------------------------------------


def cost_of(method: str, point: Point, task: str, costs: dict) -> float:
    """CPU seconds of a step: linear in the mini-batches, and in the responses beyond those that were timed."""
    responses = min(max(point.responses, TIMED_RESPONSES[0]), TIMED_RESPONSES[-1])
    low, high = (costs[method, task, responses, batches, min(point.passes, 2)] for batches in TIMED_BATCHES)
    if point.passes > 2:
        single = [costs[method, task, responses, batches, 1] for batches in TIMED_BATCHES]
        low, high = (two + (point.passes - 2) * (two - one) for one, two in zip(single, (low, high)))
    few, many = TIMED_BATCHES
    return (low + (high - low) * (point.minibatches - few) / (many - few)) * point.responses / responses


def read_shape_costs(path: Path = SHAPE_COSTS) -> dict[tuple[str, str, int, int, int], float]:
    """CPU seconds of a step by method, task, responses, mini-batches and passes."""
    with path.open(newline="") as file:
        lines = list(csv.DictReader(file))
    return {
        (line["method"], line["task"], *(int(line[name]) for name in COST_COLUMNS[2:5])): float(line["seconds"])
        for line in lines
    }


def measure(task: str) -> list[tuple]:
    """Lines of COST_COLUMNS. All shapes take turns of equally many responses; the first turn does not count."""
    os.chdir(ROOT)
    torch.set_num_threads(1)
    keys = [(m, r, b, p) for m in METHODS for r in TIMED_RESPONSES for b in TIMED_BATCHES for p in TIMED_PASSES]
    seconds: dict[tuple, list[float]] = {key: [] for key in keys}
    with TemporaryDirectory() as folder:
        trainers = {}
        for i, (method, *numbers) in enumerate(keys):
            point = Point(*numbers, ORDINARY.rate)
            timed = Row(method, arguments_of(method, point), steps=ROUNDS * TIMED_RESPONSES[-1] // point.responses)
            job = Job("sweep", timed, task, SEED, Setting(point.rate))
            trainers[keys[i]] = trainer_of(job, Path(folder) / str(i), zeros=False)
        for _ in range(ROUNDS):
            for key, trainer in trainers.items():
                steps, started = TIMED_RESPONSES[-1] // key[1], cpu_seconds()
                for _ in range(steps):
                    trainer.advance()
                seconds[key].append((cpu_seconds() - started) / steps)
        for trainer in trainers.values():
            trainer.close()
    return [(key[0], task, *key[1:], f"{np.median(spent[1:]):.4g}") for key, spent in seconds.items()]


# --- the search ------------------------------------------------------------------------------------------------------


class Climb:
    """The search of one method: its scores so far, and what to run next."""

    def __init__(self, method: str, known: Known, costs: dict) -> None:
        self.method, self.known, self.costs = method, known, costs

    def score(self, point: Point, bases: int) -> float | None:
        """Mean Pass@1 on `bases` base models of each task: None if a run is missing, 0 if it clips too much."""
        scores = [Search(row, self.known).score(Setting(point.rate)) for row in self.rows(point, bases)]
        return None if None in scores else float(np.mean(scores)) if all(scores) else 0.0

    def wanted(self) -> list[Job]:
        """Runs to try next; [] when the search has ended."""
        missing = [point for point in self.tried() if self.score(point, 1) is None]
        bases = 1 if missing else 2
        missing = missing or [point for point in self.finalists() if self.score(point, 2) is None]
        jobs = [
            job
            for point in missing
            for row in self.rows(point, bases)
            for job in Search(row, self.known).jobs(Setting(point.rate))
        ]
        return [job for job in jobs if job.identity() not in self.known]

    def tried(self) -> list[Point]:
        """Points in the order of the climb, the last ones maybe without their runs."""
        tried: list[Point] = []
        for start in (START, ORDINARY):
            tried, best = list(dict.fromkeys([*tried, start])), None
            while None not in (scores := {point: self.score(point, 1) for point in tried}).values():
                if best == (best := max(tried, key=scores.__getitem__)):
                    break
                tried = list(dict.fromkeys([*tried, *best.neighbors()]))
        return tried

    def finalists(self) -> list[Point]:
        """The best points by their first runs."""
        return sorted(self.tried(), key=lambda point: self.score(point, 1) or 0, reverse=True)[:FINALISTS]

    def best(self) -> Point:
        """The finalist of the highest score over all base models."""
        return max(self.finalists(), key=lambda point: self.score(point, 2) or 0)

    def rows(self, point: Point, bases: int) -> list[Row]:
        """The runs at a point on `bases` base models of each task."""
        rows = [row_of(self.method, point, task, self.costs) for task in TASKS]
        return [replace(row, search_bases=row.search_bases[:bases]) for row in rows]


def shapes_section(known: Known) -> str:
    """The section of beyond-tables.md: Pass@1 of every point, the best ones on four base models; the best is bold."""
    costs, lines = read_shape_costs(), []
    for method in METHODS:
        climb = Climb(method, known, costs)
        best = climb.best()
        for point in sorted(climb.tried(), key=lambda point: climb.score(point, 1) or 0, reverse=True):
            setting, searches = Setting(point.rate), [Search(row, known) for row in climb.rows(point, 1)]
            scores = [search.score(setting) for search in searches]
            steps = (int(known[search.jobs(setting)[0].identity()].steps[-1]) for search in searches)
            name = f"{method}: {point.responses}, {point.minibatches}, {point.passes}, {point.rate:g}"
            cells = [f"**{name}**" if point == best else name, ", ".join(map(str, steps))]
            cells += [", ".join(map(_percent, scores)), _percent(climb.score(point, 1))]
            lines.append([*cells, "" if (mean := climb.score(point, 2)) is None else _percent(mean)])
    codes = ", ".join(sorted({record.revision for record in known.values()}))
    about = "Pass@1 in % on 256 validation problems x 8 samples after the CPU seconds that D3S's 60 steps took then"
    about += f", a run on each base model; code at {codes}."
    header = ["responses, mini-batches, passes, rate", "steps", " and ".join(TASKS), "mean", "mean, 4 base models"]
    return f"\n## The shape of a step\n\n{about}\n\n{markdown(header, lines)}\n"


def _percent(score: float | None) -> str:
    return "–" if score is None else f"{100 * score:.1f}" if score else "clips"


def main() -> None:
    os.chdir(ROOT)
    for task in TASKS:
        Job("sweep", BY_NAME[GRPO_BEST], task, SEED, Setting(ORDINARY.rate)).arguments()  # creates the base model
    with ProcessPoolExecutor(mp_context=FORKS, max_workers=len(TASKS)) as pool:
        lines = [line for lines in pool.map(measure, TASKS) for line in lines]
    with SHAPE_COSTS.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([COST_COLUMNS, *lines])
    print(f"wrote {SHAPE_COSTS}")


if __name__ == "__main__":
    main()
