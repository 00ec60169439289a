"""Compare runs with other seeds, made to check the results, with the runs behind the tables.

    python -m research.ablation --row "GRPO, G = 4" --seeds 90 91 --data /tmp/runs.csv
    python -m research.reruns --data /tmp/runs.csv

The first command needs a copy of docs/data/runs.csv, which has the searched learning rate. The second one prints, for
every row and base model with further seeds, the mean of their last Pass@1 and where 95 % of such means should lie.
"""

import argparse
from collections.abc import Sequence
from math import sqrt
from pathlib import Path
from statistics import mean, stdev

from benchmarks.harness import markdown
from d3s.evaluate.intervals import t_quantile
from research.comparisons import is_planned
from research.records import DATA, Record, read
from research.rows import BY_NAME


# mean of m new runs - mean of n old ones ~ t(n - 1) s sqrt(1 / n + 1 / m), s the deviation of the old runs
def predicted(old: Sequence[float], new: int) -> tuple[float, float]:
    """Where the mean of `new` further runs lies with a probability of 95 %. Needs at least two old runs."""
    half = t_quantile(len(old) - 1) * stdev(old) * sqrt(1 / len(old) + 1 / new)
    return mean(old) - half, mean(old) + half


def lines(records: Sequence[Record]) -> list[list[str]]:
    """A line for every row and base model with further seeds."""
    found: dict[tuple[str, str], tuple[list[float], list[float]]] = {}
    for record in records:
        if record.part == "compare" and record.row in BY_NAME:
            planned, others = found.setdefault((record.row, record.base), ([], []))
            (planned if is_planned(record) else others).append(100 * float(record.levels(1)[-1]))
    table = []
    for (row, base), (old, new) in sorted(found.items()):
        if new and len(old) > 1:
            low, high = predicted(old, len(new))
            verdict = "inside" if low <= mean(new) <= high else "outside"
            counts = [f"{len(old)}", f"{mean(old):.1f}", f"{len(new)}", f"{mean(new):.1f}"]
            table.append([row, base, *counts, f"{low:.1f} to {high:.1f}", verdict])
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA, help="the records (default: docs/data/runs.csv)")
    header = ["row", "base model", "runs", "Pass@1", "further runs", "Pass@1", "expected", ""]
    print(markdown(header, lines(read(parser.parse_args().data))))


if __name__ == "__main__":
    main()
