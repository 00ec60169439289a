"""How much sooner a row has the accuracy of another one: what papers report as a speed-up. No registered claim.

The level is the reference's Pass@1 at the budget; a speed-up s says that the row has it at budget / s. The interval has
every s at which the paired difference is not told apart from 0. Rows whose N or K follow the share of steps done are
read before their end, as the papers' curves are.
"""

import numpy as np

from benchmarks.harness import markdown
from d3s.evaluation.intervals import Estimate
from research.claims import PAPER_SHAPE
from research.comparisons import NotComparable, Results
from research.statistics import SLACK, p_value, score_at, spread

COMPARED = (  # row, reference, whether the reference computes rollouts with A = 0, what the papers report
    ("D3S", PAPER_SHAPE, True, "2.04x at 7B, 1.57x at 1.5B"),
    ("D3S", PAPER_SHAPE, False, "–"),
    ("D3S on GSPO", "GSPO", False, "5.51x at 7B"),
    ("PODS", PAPER_SHAPE, True, "–"),
    ("PODS", "GRPO, 8 problems x 4 responses", False, "1.7x (PODS)"),
)
FACTORS = np.geomspace(0.5, 8, 161).tolist()  # speed-ups that are tried, 1.75 % apart


def early_scores(
    results: Results, row: str, axis: str, factor: float, zeros_computed: bool = False
) -> dict[tuple[str, int], np.ndarray]:
    """Pass@1 at budget / factor of every problem, [problems], by base model and seed.

    Raises: NotComparable without runs, or if they end before that.
    """
    found = {}
    for base, runs in results.of(row, zeros_computed).items():
        budget = results.budget(row, base, axis) / factor
        for run in runs:
            end = float(getattr(run, axis)[-1])
            if end < budget * (1 - SLACK):
                raise NotComparable("ends before")
            found[base, run.seed] = score_at(run, axis, min(budget, end))
    return found


def speedup(results: Results, row: str, reference: str, axis: str, zeros_computed: bool = False) -> Estimate | None:
    """The largest factor at which the row is not below the reference; None if there is none.

    An end of the interval is None where the row's runs end, or the factors do, before it is found.

    Raises: NotComparable if the reference has no score at the budget, or the row no runs.
    """
    level, gaps = early_scores(results, reference, axis, 1.0, zeros_computed), {}
    results.of(row)
    for factor in FACTORS:
        try:
            ours = early_scores(results, row, axis, factor)
        except NotComparable:
            continue
        differences: dict[str, list[np.ndarray]] = {}
        for base, seed in sorted(ours.keys() & level.keys()):
            differences.setdefault(base, []).append(ours[base, seed] - level[base, seed])
        scores = {base: np.stack(values) for base, values in differences.items()}
        gaps[factor] = spread(scores).mean, p_value(scores) < 0.05
    reached = [factor for factor, (gap, _) in gaps.items() if gap >= 0]
    above = [factor for factor, (gap, told_apart) in gaps.items() if told_apart and gap > 0]
    below = [factor for factor, (gap, told_apart) in gaps.items() if told_apart and gap < 0]
    return Estimate(max(reached), max(above, default=None), min(below, default=None)) if reached else None


def speedup_table(results: Results) -> str:
    """Speed-ups in steps and in seconds beside those of the papers."""
    lines = []
    for row, reference, zeros, published in COMPARED:
        label = f"{row} to the Pass@1 of {reference}{', its zeros computed' * zeros}"
        lines.append(
            [label, published, *(_cell(results, row, reference, axis, zeros) for axis in ("steps", "seconds"))]
        )
    return markdown(["", "published", "in steps", "in seconds"], lines)


def _cell(results: Results, *compared) -> str:
    try:
        got = speedup(results, *compared)
    except NotComparable as reason:
        return str(reason)
    if got is None:
        return "not reached"
    low, high = ("…" if end is None else f"{end:.2f}" for end in (got.low, got.high))
    return f"{got.value:.2f}x ({low} to {high})"
