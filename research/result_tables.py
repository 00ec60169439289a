"""The tables of rows in research/results-tables.md, each from the records alone."""

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.harness import markdown
from d3s.evaluation.intervals import Estimate, student_interval
from research.claims import CLAIMS, HEAVY, PAPER_SHAPE, Claim
from research.comparisons import NotComparable, Results
from research.jobs import Known, Search
from research.records import Record
from research.row import TASKS, Row
from research.rows import AGAIN, ALL, D3S_SMALL, GRPO_BEST, HEAVY_ROWS, ROWS, SECOND_RATE
from research.statistics import (
    NO_COSTS,
    Component,
    Scores,
    detectable,
    holm,
    interval,
    p_value,
    probability_of_improvement,
    show,
    subtract,
)

EQUAL = {"steps": "equal steps", "generated": "equal generated tokens", "seconds": "equal seconds"}
REFERENCES = (GRPO_BEST, PAPER_SHAPE)
TASK_NAMES = tuple(task.removeprefix("tiny:") for task in TASKS)


def cell(measure: Callable[..., Scores | Estimate], *arguments, signed: bool = False, **options) -> str:
    """What a function returns as a cell of a table, scores by their interval, or why there is nothing."""
    try:
        found = measure(*arguments, **options)
        return show(found if isinstance(found, Estimate) else interval(found), signed)
    except NotComparable as reason:
        return str(reason)


def escaped(text: str) -> str:
    """A row's name as a cell."""
    return text.replace("|", "\\|")


# --- claims ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Verdict:
    """What the runs say of a claim."""

    claim: Claim
    holds: str  # yes, no, undecided, or why there is no answer
    scores: tuple[Scores, Scores] | None = None  # of the row and of its reference, paired
    costs: Component = NO_COSTS  # what the error of the measured seconds adds to the variance
    p: float = float("nan")  # adjusted, of a difference of 0

    @property
    def gap(self) -> Estimate:
        """The row's mean score minus that of its reference."""
        return interval(subtract(*self.scores), self.costs)

    @property
    def seen(self) -> float:
        """The difference that as many runs would find."""
        return detectable(subtract(*self.scores), costs=self.costs)


def verdicts(results: Results) -> list[Verdict]:
    """Every claim: yes or no where Holm's adjusted p-value is below 5 %."""
    found = [_measured(results, claim) for claim in CLAIMS]
    adjusted = holm([float("nan") if v.scores is None else p_value(subtract(*v.scores), v.costs) for v in found])
    return [
        verdict if verdict.scores is None else replace(verdict, p=p, holds=answer(verdict.gap, p))
        for verdict, p in zip(found, adjusted)
    ]


def _measured(results: Results, claim: Claim) -> Verdict:
    pair = (claim.row, claim.reference, claim.axis, claim.k, claim.zeros_computed, claim.task or "")
    try:
        return Verdict(claim, "", results.pair(*pair), results.cost_error(*pair))
    except NotComparable as reason:
        return Verdict(claim, str(reason))


def answer(gap: Estimate, p: float) -> str:
    """Whether a difference is above 0, below 0 or not told apart from 0 at 5 %, by its adjusted p-value."""
    if not p < 0.05:
        return "undecided"
    return "yes" if gap.value > 0 else "no"


def claims_table(results: Results) -> str:
    """The registered claims: difference, p-value, probability of improvement, and what could have been seen."""
    lines = []
    for verdict in verdicts(results):
        claim = verdict.claim
        compared = escaped(f"{claim.row} over {claim.reference}") + ", its zeros computed" * claim.zeros_computed
        start = [escaped(claim.text), compared, f"{EQUAL[claim.axis]}, Pass@{claim.k}"]
        if verdict.scores is None:
            lines.append([*start, "–", "–", "–", "–", "–", verdict.holds])
            continue
        runs, seen = sum(map(len, verdict.scores[0].values())), f"{100 * verdict.seen:.1f}"
        better = f"{100 * probability_of_improvement(*verdict.scores):.0f}"
        lines.append([*start, f"{runs}", show(verdict.gap, True), f"{verdict.p:.3f}", better, seen, verdict.holds])
    header = ["claim", "compared", "at", "runs", "points", "p (Holm)", "P(better), %", "could see", "holds"]
    return markdown(header, lines)


# --- rows ------------------------------------------------------------------------------------------------------------


def steps_cell(results: Results, row: str, zeros_computed: bool = False) -> str:
    """The steps that a row makes in the budget of seconds."""
    try:
        return f"{results.steps_at(row, zeros_computed):.0f}"
    except NotComparable as reason:
        return str(reason)


def rows_table(results: Results) -> str:
    """Every row at equal seconds, with its differences of Pass@1 to the best GRPO and to GRPO of the paper's shape."""
    lines = []
    for name in results.measured(ROWS):
        try:
            levels = [show(interval(results.scores(name, "seconds", k))) for k in (1, 8)]
        except NotComparable as reason:
            lines.append([escaped(name), f"{steps_cell(results, name)} ({reason})", *["–"] * (2 + len(REFERENCES))])
            continue
        gaps = [_gap(results, name, other, "seconds") for other in REFERENCES]
        lines.append([escaped(name), steps_cell(results, name), *levels, *gaps])
    return markdown(["", "steps", "Pass@1", "Pass@8", *(f"over {other}" for other in REFERENCES)], lines)


def axes_table(results: Results) -> str:
    """Differences of Pass@1 to both references at equal steps and at equal generated tokens."""
    columns = [(other, axis) for other in REFERENCES for axis in ("steps", "generated")]
    lines = [
        [escaped(name), *(_gap(results, name, other, axis) for other, axis in columns)]
        for name in results.measured(ROWS)
    ]
    return markdown(["", *(f"over {other}, {EQUAL[axis]}" for other, axis in columns)], lines)


def _gap(results: Results, row: str, reference: str, axis: str) -> str:
    return "–" if row == reference else cell(results.gap, row, reference, axis, signed=True)


def groups_table(results: Results) -> str:
    """GRPO by group size in the same seconds, with rollouts of A = 0 left out, and computed as other trainers do."""
    lines = []
    for name in results.measured(row for row in ROWS if re.fullmatch(r"GRPO, G = \d+", row.name)):
        for zeros in (False, True) if results.costs else (False,):
            label = f"{name}, {'every rollout computed' if zeros else 'A = 0 left out'}"
            levels = [cell(results.scores, name, "seconds", k, zeros) for k in (1, 8)]
            lines.append([label, steps_cell(results, name, zeros), *levels])
    return markdown(["", "steps", "Pass@1", "Pass@8"], lines)


def bases_table(results: Results) -> str:
    """Pass@1 on each base model at equal seconds, of every row that can be compared there."""
    found: dict[str, Scores] = {}
    for name in results.measured(ROWS):
        with suppress(NotComparable):
            found[name] = results.scores(name, "seconds")
    bases = sorted({base for scores in found.values() for base in scores})
    lines = [
        [escaped(name), *(show(interval({base: scores[base]})) if base in scores else "–" for base in bases)]
        for name, scores in found.items()
    ]
    return markdown(["", *bases], lines)


def heavy_table(results: Results) -> str:
    """The rows with the padded vocabulary at equal seconds, by task; differences on the base models of both rows."""
    lines = []
    for name in results.measured(HEAVY_ROWS):
        cells = []
        for task in TASKS:
            cells += [cell(results.scores, name, "seconds", k, task=task) for k in (1, 8)]
            pair = (name, HEAVY + GRPO_BEST, "seconds")
            cells.append("–" if name == pair[1] else cell(results.gap, *pair, signed=True, task=task))
        runs = f"{len(results.all_runs(name)) // 2}"
        lines.append([escaped(name.removeprefix(HEAVY)), runs, steps_cell(results, name), *cells])
    header = [f"{task}, {what}" for task in TASK_NAMES for what in ("Pass@1", "Pass@8", "over GRPO")]
    return markdown(["", "runs on each task", "steps", *header], lines)


SEEN = 5  # seeds on the first base model of each task, whose results were known when the other runs were planned
ADDED: dict[str, Callable[[bool, int], bool]] = {  # line -> whether it has this run on the first or second base model
    f"first base model, first {SEEN} seeds": lambda second, i: not second and i < SEEN,
    "first base model, further seeds": lambda second, i: not second and i >= SEEN,
    "second base model": lambda second, i: second,
    "all but the first line": lambda second, i: second or i >= SEEN,
}


def added_table(results: Results) -> str:
    """D3S over GRPO with the padded vocabulary, by what was known when the runs were planned."""
    lines = [[name] for name in ADDED]
    for task in TASKS:
        try:
            differences = results.difference(HEAVY + D3S_SMALL, HEAVY + GRPO_BEST, "seconds", task=task)
        except NotComparable:
            differences = {}
        for line, has in zip(lines, ADDED.values()):
            runs = {
                b: [run for i, run in enumerate(of_base) if has("@1" in b, i)] for b, of_base in differences.items()
            }
            scores = {base: np.stack(of_base) for base, of_base in runs.items() if of_base}
            line.append(show(interval(scores), True) if scores else "–")
    return markdown(["D3S over GRPO, points of Pass@1", *TASK_NAMES], lines)


# commits of the runs that were added when results of the others had been seen
LATER = ("141994f", "d903307", "7f05f2c")


def look_table(results: Results) -> str:
    """The claims that are answered now, by the runs that were known when further runs were planned, and by all."""
    first = [run for name in results.runs for run in results.all_runs(name) if run.revision not in LATER]
    lines = []
    for then, now in zip(verdicts(Results(first, results.costs)), verdicts(results), strict=True):
        if now.holds in ("yes", "no"):
            cells = [_known(then), _known(now)] if then.scores else [then.holds, _known(now)]
            lines.append([escaped(now.claim.text), *cells])
    return markdown(["claim", "runs that were known", "all runs"], lines)


def _known(verdict: Verdict) -> str:
    runs = sum(map(len, verdict.scores[0].values()))
    return f"{verdict.holds}: {show(verdict.gap, True)}, {runs} runs, p {verdict.p:.3f}"


CONTROLLED = (("", "CPPO, N = 2 of 4"), (HEAVY, GRPO_BEST))  # beginning of the names of D3S and of the rival, the rival


def controls_table(results: Results) -> str:
    """D3S over rivals whose best two learning rates were close, at the chosen one and at the other one."""
    lines = []
    for prefix, rival in CONTROLLED:
        for reference in (prefix + rival, f"{prefix}{rival}, {SECOND_RATE}"):
            pair = (prefix + D3S_SMALL, reference, "seconds")
            cells = [cell(results.gap, *pair, signed=True, task=task) for task in (*TASKS, "")]
            lines.append([reference, *cells])
    return markdown([f"{D3S_SMALL} over", *TASK_NAMES, "both"], lines)


def again_table(results: Results) -> str:
    """The claims on new seeds: at equal seconds on each task, and at equal generated tokens."""
    budgets = [*(("seconds", task) for task in (*TASKS, "")), ("generated", "")]
    lines = [
        [
            f"{claim.row.removeprefix(AGAIN)} over {claim.reference.removeprefix(AGAIN)}",
            *(cell(results.gap, claim.row, claim.reference, a, signed=True, task=task) for a, task in budgets),
        ]
        for claim in CLAIMS
        if claim.row.startswith(AGAIN)
    ]
    return markdown(["on new seeds", *TASK_NAMES, "both", EQUAL["generated"]], lines)


# --- what rows trained on --------------------------------------------------------------------------------------------

TRAINING = {  # column of the table -> column of the records, factor, digits
    "kept with A ≠ 0, %": ("usefulness", 100, 0),
    "groups without signal, %": ("zero_std_groups", 100, 0),
    "tokens clipped, %": ("clipped", 100, 1),
    "Var(A) of the kept": ("variance", 1, 2),
    "gradient norm": ("grad_norm", 1, 2),
    "entropy": ("entropy", 1, 3),
}


def mean_of(runs: Sequence[Record], column: str) -> float:
    """Mean of a logged column over runs and over the steps of each."""
    means = [np.average(run.logged[column], weights=np.diff(run.steps)) for run in runs]
    return float(np.nanmean(means))


def training_table(results: Results, names: Iterable[str], part: str = "") -> str:
    """What rows trained on, as means over all of their steps, and the KL divergence from the base model at the end.

    Labels leave out `part` where names begin with it.
    """
    lines = []
    for name in names:
        runs = results.all_runs(name)
        trained = sum(run.trained[-1] for run in runs) / sum(run.generated[-1] for run in runs)
        logged = [f"{factor * mean_of(runs, column):.{digits}f}" for column, factor, digits in TRAINING.values()]
        known = [run.norm_follows_variance for run in runs if not np.isnan(run.norm_follows_variance)]
        follows = show(student_interval(known), False, 1, 2) if known else "–"
        kl = show(student_interval([run.kl_to_base[-1] for run in runs]), False, 1, 3)
        lines.append([escaped(name.removeprefix(part)), f"{100 * trained:.1f}", *logged, follows, kl])
    return markdown(["", "tokens trained, %", *TRAINING, "norm follows Var(A)", "KL to the base"], lines)


def sweep_table(known: Known, rows: Iterable[Row] | None = None) -> str:
    """Pass@1 on validation problems by clip and by learning rate; the chosen values are bold."""
    lines = []
    for row in rows or ALL:
        search = Search(row, known)
        if row.rate_of is None and row.rate is None and (rates := search.final_rates()):
            chosen = search.chosen()
            clips = search.clips() if row.clips else {}
            lines.append([escaped(row.name), _tried(clips, chosen.clip) or "–", _tried(rates, chosen.rate)])
    return markdown(["", "lower clip: Pass@1", "learning rate: Pass@1"], lines)


def _tried(scores: dict[float, float], chosen: float | None) -> str:
    texts = {value: f"{value:.3g}: {f'{100 * score:.1f}' if score else 'clips'}" for value, score in scores.items()}
    return ", ".join(f"**{text}**" if value == chosen else text for value, text in texts.items())
