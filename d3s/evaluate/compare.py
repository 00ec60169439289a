"""Compare two files of samples: python -m d3s.evaluate.compare A.jsonl B.jsonl [--k 1,8]"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from d3s.common import UserError
from d3s.evaluate.estimators import parse_ks
from d3s.evaluate.files import read_samples
from d3s.evaluate.intervals import Estimate, bootstrap_interval
from d3s.evaluate.sampling import metric_values


def compare(a: Path, b: Path, ks: Sequence[int]) -> tuple[int, dict[str, tuple[Estimate, Estimate, Estimate]]]:
    """The number of problems that two files of samples share; A, B and B - A of each metric on those problems.

    The difference is taken problem by problem, so its interval is free of how hard the problems are. With n samples in
    one file and fewer in the other, as many vote in both: `maj@m` for the smaller number m; `avg` is of all samples of
    each. Raises UserError for a file that cannot be read, none in common, or a k greater than m.
    """
    left, right = read_samples(a), read_samples(b)
    common = [key for key in left if key in right]
    if not common:
        raise UserError(f"{a} and {b} have no problem in common")
    n = min(len(left[common[0]]), len(right[common[0]]))
    if max(ks) > n:
        raise UserError(f"pass@{max(ks)} needs {max(ks)} samples per problem, these files have {n}")
    first, second = (metric_values([groups[key] for key in common], ks, voters=n) for groups in (left, right))
    for values in (first, second):
        values |= {"avg": values.pop("avg@n"), f"maj@{n}": values.pop("maj@n")}
    difference = {name: second[name] - first[name] for name in first}
    estimates = [bootstrap_interval(values) for values in (first, second, difference)]
    return len(common), {name: tuple(e[name] for e in estimates) for name in first}


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line of the comparison."""
    parser = argparse.ArgumentParser(prog="python -m d3s.evaluate.compare", description="Compare two files of samples.")
    parser.add_argument("files", nargs=2, type=Path, metavar="FILE.jsonl", help="samples that eval.py wrote: A, then B")
    parser.add_argument("--k", type=parse_ks, default=(1,), help="the k of Pass@k, such as 1,8")
    options = parser.parse_args(arguments)
    try:
        problems, rows = compare(*options.files, options.k)
    except UserError as error:
        sys.exit(_fail(error))
    table = Table("metric", "A", "B", "B - A", title=f"{problems} common problems, 95 % confidence intervals")
    for name, estimates in rows.items():
        signs = ("", "", "+")
        cells = (
            f"{100 * e.value:{s}.1f} [{100 * e.low:{s}.1f}, {100 * e.high:{s}.1f}]" for e, s in zip(estimates, signs)
        )
        table.add_row(name, *cells)
    Console().print(table)


def _fail(error: UserError) -> int:
    print(f"error: {error}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    main()
