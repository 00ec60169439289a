"""Compare two files of samples problem by problem, with a confidence interval of the difference.

python -m d3s.evaluation.compare A.jsonl B.jsonl [--k 1,8]
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from d3s.common import UserError, exit_code
from d3s.evaluation.estimators import parse_ks
from d3s.evaluation.files import read_samples
from d3s.evaluation.intervals import Estimate, paired_interval, problem_interval
from d3s.evaluation.results import metric_values


def compare(a: Path, b: Path, ks: Sequence[int]) -> tuple[list[int], dict[str, tuple[Estimate, Estimate, Estimate]]]:
    """Compare the samples of two files on the problems that both contain.

    The difference is taken problem by problem, so its interval does not include the variation of difficulty between
    problems. If the files have different numbers of samples, only the first m of each vote, with m the smaller number:
    `maj@m`. `avg` and `pass@k` use all samples of each file.

    Returns: the numbers of problems that both have, that A has and that B has; estimates (A, B, B - A) of each metric.
    Raises: UserError for a file that cannot be read, without a common problem, or for a k greater than m.
    """
    first, second = read_samples(a), read_samples(b)
    common = [key for key in first if key in second]
    if not common:
        raise UserError(f"{a} and {b}: no common problem; expected two evaluations of the same data")
    n = min(len(first[common[0]]), len(second[common[0]]))
    if max(ks) > n:
        raise UserError(f"--k: got pass@{max(ks)}, expected at most the {n} samples per problem that both files have")
    metrics = [metric_values([groups[key] for key in common], ks, voters=n) for groups in (first, second)]
    for values in metrics:
        values |= {"avg": values.pop("avg@n"), f"maj@{n}": values.pop("maj@n")}
    pairs = {name: (old, metrics[1][name]) for name, old in metrics[0].items()}
    intervals = {n: (problem_interval(a), problem_interval(b), paired_interval(b - a)) for n, (a, b) in pairs.items()}
    return [len(keys) for keys in (common, first, second)], intervals


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line. Raises UserError as `compare`."""
    parser = argparse.ArgumentParser("python -m d3s.evaluation.compare", description="Compare two files of samples.")
    parser.add_argument("files", nargs=2, type=Path, metavar="FILE.jsonl", help="samples written by eval.py: A, then B")
    parser.add_argument("--k", type=parse_ks, default=(1,), help="values of k for Pass@k, as in 1,8 (default: 1)")
    options = parser.parse_args(arguments)
    (common, *sizes), rows = compare(*options.files, options.k)
    title = f"{common} common problems (A has {sizes[0]}, B {sizes[1]}), 95 % confidence intervals"
    table = Table("metric", "A", "B", "B - A", title=title)
    for name, estimates in rows.items():
        table.add_row(name, *(_cell(e, sign) for e, sign in zip(estimates, ("", "", "+"), strict=True)))
    Console().print(table)


def _cell(e: Estimate, sign: str) -> str:
    interval = "" if e.low is None else f" [{100 * e.low:{sign}.1f}, {100 * e.high:{sign}.1f}]"
    return f"{100 * e.value:{sign}.1f}{interval}"


if __name__ == "__main__":
    sys.exit(exit_code(main))
