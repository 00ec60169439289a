"""Levels, differences and marked page sections of the learning experiments."""

from collections.abc import Sequence
from pathlib import Path

from benchmarks.harness import ROOT
from d3s.evaluate.intervals import Estimate
from research.runs import Runs, scores
from research.statistics import interval, subtract

DOCS, RESEARCH = ROOT / "docs", ROOT / "research"

Rows = Sequence[tuple[str, Runs]]


def show(estimate: Estimate, signed: bool = False, scale: float = 100, digits: int = 1) -> str:
    """Format a value with its 95 % interval, by default in percent."""
    ends = [end for end in (estimate.low, estimate.high) if end is not None]
    value, *interval = [f"{scale * x:{'+' if signed else ''}.{digits}f}" for x in (estimate.value, *ends)]
    return f"{value} ({' to '.join(interval)})" if interval else value


def level(runs: Runs, k: int) -> Estimate:
    """Pass@k of the last evaluations."""
    return interval(scores(runs, k))


def difference(runs: Runs, reference: Runs, k: int) -> Estimate:
    """Difference of Pass@k in the last evaluations, paired by base model, seed and problem."""
    return interval(subtract(scores(runs, k), scores(reference, k)))


def write_between_marks(path: Path, name: str, text: str) -> None:
    """Replace the text between <!-- NAME --> and <!-- /NAME --> in a Markdown file."""
    begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
    before, _, rest = path.read_text().partition(begin)
    path.write_text(before + begin + text + end + rest.partition(end)[2])
