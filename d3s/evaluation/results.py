"""Metrics of a data set with confidence intervals, and the table that shows them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich import box
from rich.markup import escape
from rich.table import Table

from d3s.common import scored_by
from d3s.evaluation.estimators import majority, pass_at_k
from d3s.evaluation.files import Sample
from d3s.evaluation.intervals import Estimate, problem_interval


@dataclass(frozen=True)
class EvalResult:
    """Metrics of one data set. `estimates` has pass@k for each k, avg@n and maj@n."""

    data: str
    n: int
    problems: int
    estimates: dict[str, Estimate]
    mean_length: float  # tokens per response
    truncated: float  # share of responses cut at max_tokens
    no_answer: float  # share of responses without an extracted answer
    unclosed_thought: float  # share of responses that end inside a thought
    right: list[int]  # number of correct samples of each problem, in order
    reward: str = ""  # `module:function` that scored the responses

    def record(self) -> dict[str, Any]:
        """One flat record, with each metric under its name and its interval under `NAME_ci`."""
        record: dict[str, Any] = {"data": self.data, "n": self.n, "problems": self.problems}
        for name, e in self.estimates.items():
            record |= {name: e.value, f"{name}_ci": [e.low, e.high]}
        record |= {"reward": self.reward} if self.reward else {}
        record |= {"mean_length": self.mean_length, "truncated": self.truncated, "no_answer": self.no_answer}
        return record | {"unclosed_thought": self.unclosed_thought, "right": self.right}


def summarize(groups: Sequence[Sequence[Sample]], data: str, ks: Sequence[int], reward: str = "") -> EvalResult:
    """Compute the metrics of samples [problems][n]. Raises ValueError for a k greater than n."""
    samples = [s for group in groups for s in group]
    return EvalResult(
        data=data,
        n=len(groups[0]),
        problems=len(groups),
        estimates={name: problem_interval(values) for name, values in metric_values(groups, ks).items()},
        mean_length=sum(s.tokens for s in samples) / len(samples),
        truncated=sum(not s.finished for s in samples) / len(samples),
        no_answer=sum(s.extracted is None for s in samples) / len(samples),
        unclosed_thought=sum(s.unclosed_thought for s in samples) / len(samples),
        right=[sum(s.score >= 1 for s in group) for group in groups],
        reward=reward,
    )


def metric_values(
    groups: Sequence[Sequence[Sample]], ks: Sequence[int], voters: int | None = None
) -> dict[str, np.ndarray]:
    """The value of every metric for every problem: `pass@k` for each k, `avg@n` and `maj@n`, each [problems].

    Args:
        groups: samples [problems][n]; one is correct if its score is at least 1.
        ks: each from 1 to n, else ValueError.
        voters: only the first `voters` samples of a problem vote, by default all.
    """
    scores = np.array([[s.score for s in group] for group in groups])
    n, correct = scores.shape[1], (scores >= 1).sum(1)
    values = {f"pass@{k}": np.array([pass_at_k(n, c, k) for c in range(n + 1)])[correct] for k in ks}
    winners = [majority([s.extracted for s in group[:voters]]) for group in groups]
    voted = [w is not None and scores[p, w] >= 1 for p, w in enumerate(winners)]
    return values | {"avg@n": scores.mean(1), "maj@n": np.array(voted, dtype=float)}


def results_table(results: Sequence[EvalResult]) -> Table:
    """A row per data set, percentages above their 95 % intervals; the caption warns of a likely wrong setup."""
    columns = ("data", *results[0].estimates, "length", "cut")
    table = Table(*columns, box=box.SIMPLE, padding=(0, 1), title="% and 95 % confidence interval over problems")
    for r in results:
        metrics = (f"{100 * e.value:.1f}\n{100 * e.low:.1f}-{100 * e.high:.1f}" for e in r.estimates.values())
        name = f"{r.data}{scored_by(r.record())}\n{r.problems} x {r.n}"
        table.add_row(escape(name), *metrics, f"{r.mean_length:.1f}", f"{100 * r.truncated:.1f} %")
    table.caption = escape("\n".join(warning for r in results for warning in _warnings(r)))
    return table


def _warnings(r: EvalResult) -> list[str]:
    remedy = "check --template, or try --extraction lenient"
    unanswered = [f"{r.data}: no answer in {r.no_answer:.0%} of the responses; {remedy}"] * (r.no_answer > 0.5)
    cut = [f"{r.data}: {r.truncated:.0%} of the responses were cut; raise --max-tokens"] * (r.truncated > 0.5)
    share = f"{r.data}: {r.unclosed_thought:.0%} of the responses end inside a thought; raise --max-tokens"
    return unanswered + cut + [share] * (r.unclosed_thought > 0.5)
