"""From records to comparable scores: rows at equal steps, equal generated tokens and equal CPU seconds.

The budget of a base model is what D3S's 60 steps take there, with the padded vocabulary 95 % of what GRPO's 30 steps
take, as other rows end before that by the costs measured last. A row's score is read from its curve at the budget. A
row whose N or K follows the share of steps done counts at its end only, and is compared if the end is within TOLERANCE
of the budget.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from d3s.evaluation.intervals import Estimate
from research.claims import HEAVY
from research.jobs import SEEDS_PER_BASE
from research.records import Record
from research.row import Row
from research.rows import BY_NAME, GRPO_BEST
from research.statistics import SLACK, Component, Scores, curve_at, interval, score_at, subtract, task_of
from research.step_costs import Costs

TOLERANCE = 0.05
HEAVY_SHARE = 0.95
END = "end"  # instead of an axis: the last evaluation of every run
POOR = "poor base: D3S"


class NotComparable(Exception):
    """A row has no score at a budget; the message says why, in a few words for a cell of a table."""


class Results:
    """The runs on test problems, by row and base model."""

    def __init__(self, records: Sequence[Record], costs: Costs) -> None:
        """Take the planned runs; their seconds become those of `costs`, where the row was measured."""
        self.costs = costs
        self.runs: dict[str, dict[str, list[Record]]] = {}
        for record in sorted(records, key=lambda r: r.seed):
            if record.part == "compare" and record.row in BY_NAME and is_planned(record):
                seconds = costs.seconds(record.row, record.base, record.steps)
                timed = record if seconds is None else replace(record, seconds=seconds)
                self.runs.setdefault(record.row, {}).setdefault(record.base, []).append(timed)

    def of(self, row: str, zeros_computed: bool = False) -> dict[str, list[Record]]:
        """The runs of a row by base model; with `zeros_computed` at the seconds that they take with A = 0."""
        if row not in self.runs:
            raise NotComparable("no runs")
        if not zeros_computed:
            return self.runs[row]
        seconds = {base: self.costs.seconds(row, base, runs[0].steps, True) for base, runs in self.runs[row].items()}
        if any(spent is None for spent in seconds.values()):
            raise NotComparable("not timed")
        return {base: [replace(run, seconds=seconds[base]) for run in runs] for base, runs in self.runs[row].items()}

    def measured(self, rows: Iterable[Row]) -> list[str]:
        """The names of those rows that have runs."""
        return [row.name for row in rows if row.name in self.runs]

    def all_runs(self, row: str) -> list[Record]:
        """The runs of a row on all base models."""
        return [run for runs in self.runs[row].values() for run in runs]

    def at_end(self, row: str, k: int = 1) -> Estimate:
        """Pass@k at the end of the runs, whatever they cost."""
        return interval(self.scores(row, END, k))

    def budget(self, row: str, base: str, axis: str) -> float:
        """The budget at which a row is compared on a base model.

        Raises: NotComparable if the row that sets the budget has no runs there.
        """
        heavy = row.startswith(HEAVY)
        reference = HEAVY + GRPO_BEST if heavy else POOR if row.startswith("poor base") else "D3S"
        if axis == "steps":
            return float(BY_NAME[reference].steps)
        if base not in self.runs.get(reference, {}):
            raise NotComparable(f"no runs of {reference}")
        share = HEAVY_SHARE if heavy else 1.0
        return share * float(np.mean([getattr(run, axis)[-1] for run in self.runs[reference][base]]))

    def scores(
        self, row: str, axis: str, k: int = 1, zeros_computed: bool = False, task: str = "", share: float = 1.0
    ) -> Scores:
        """Pass@k of every run and problem at the budget, or at END, on the base models whose names begin with `task`.

        Args:
            share: of the budget, where the row has no schedule.

        Raises: NotComparable without runs, if a curve does not reach the budget, or a schedule does not end there.
        """
        runs_of = {base: runs for base, runs in self.of(row, zeros_computed).items() if base.startswith(task)}
        if not runs_of:
            raise NotComparable("no runs")
        return {base: self._at_budget(row, base, runs, axis, k, share) for base, runs in runs_of.items()}

    def _at_budget(self, row: str, base: str, runs: list[Record], axis: str, k: int, share: float) -> np.ndarray:
        if axis == END:
            return np.stack([run.scores(k)[-1] for run in runs])
        budget = self.budget(row, base, axis)
        end = float(np.mean([getattr(run, axis)[-1] for run in runs]))
        if BY_NAME[row].scheduled:
            if abs(end / budget - 1) > TOLERANCE:
                raise NotComparable(f"{end / budget - 1:+.0%} {axis}")
            return np.stack([run.scores(k)[-1] for run in runs])
        if end < budget * (1 - SLACK):
            raise NotComparable(f"ends at {end / budget:.0%} of the {axis}")
        ends = [float(getattr(run, axis)[-1]) for run in runs]
        limits = [share * min(budget, end) for end in ends]  # a run that was faster than the mean ends before
        return np.stack([score_at(run, axis, limit, k) for run, limit in zip(runs, limits)])

    def pair(
        self, row: str, reference: str, axis: str, k: int = 1, zeros_computed: bool = False, task: str = ""
    ) -> tuple[Scores, Scores]:
        """The scores of a row and of its reference on the base models and seeds that both have, in the same order.

        The warm-up of a base model ends with other weights on another CPU. So of one base model are runs that answer
        alike before training.

        Args:
            zeros_computed: of the reference.

        Raises: NotComparable.
        """
        scores = self.scores(row, axis, k, task=task), self.scores(reference, axis, k, zeros_computed, task)
        runs = self.of(row), self.of(reference)
        paired: tuple[Scores, Scores] = {}, {}
        for base in sorted(scores[0].keys() & scores[1].keys()):
            starts = [[(run.seed, run.right[0].tobytes()) for run in side[base]] for side in runs]
            if common := sorted(set(starts[0]) & set(starts[1])):
                for side, values, of_side in zip(paired, scores, starts):
                    side[base] = values[base][[of_side.index(start) for start in common]]
        if not paired[0]:
            raise NotComparable("no common seeds of equal weights")
        return paired

    def difference(self, *arguments, **options) -> Scores:
        """Differences of the row's scores to those of the reference; see `pair` for arguments and errors."""
        return subtract(*self.pair(*arguments, **options))

    # A relative error e of a row's cost moves its score at the budget T by d = score(T) - score((1 - e) T). The base
    # models of a task share the measured cost, so Var(mean) = sum over rows and tasks of (sum of d over these / B)^2.
    def cost_error(
        self, row: str, reference: str, axis: str, k: int = 1, zeros_computed: bool = False, task: str = ""
    ) -> Component:
        """What the error of the measured costs adds to the variance of the mean of `difference`."""
        moved: dict[tuple[str, str], float] = {}
        if axis == "seconds":
            bases = self.pair(row, reference, axis, k, zeros_computed, task)[0]
            for name, zeros in ((row, False), (reference, zeros_computed)):
                full = self.scores(name, axis, k, zeros, task)
                for base in bases:
                    share = 1 - self.costs.error(name, base, zeros)
                    less = self.scores(name, axis, k, zeros, base, share)[base]
                    key = name, task_of(base)
                    moved[key] = moved.get(key, 0.0) + float((full[base] - less).mean()) / len(bases)
        return sum(d**2 for d in moved.values()), self.costs.freedom or math.inf

    def gap(self, *arguments, **options) -> Estimate:
        """Mean and interval of `difference`, for its arguments, with the error of the costs."""
        return interval(self.difference(*arguments, **options), self.cost_error(*arguments, **options))

    def steps_at(self, row: str, zeros_computed: bool = False) -> float:
        """Steps within the budget of seconds, mean over runs and base models."""
        means = []
        for base, runs in self.of(row, zeros_computed).items():
            budget = self.budget(row, base, "seconds")
            limits = [min(budget, float(run.seconds[-1])) for run in runs]
            means.append(np.mean([curve_at(run, run.steps, "seconds", limit) for run, limit in zip(runs, limits)]))
        return float(np.mean(means))


def is_planned(record: Record) -> bool:
    """Whether a run has one of the seeds that its row is to have; others check the results and do not enter them."""
    row = BY_NAME[record.row]
    if record.base not in row.bases:
        return False
    first = row.first_seed + SEEDS_PER_BASE * row.bases.index(record.base)
    return first <= record.seed < first + row.seeds
