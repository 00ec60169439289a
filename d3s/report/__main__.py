"""Command line of the reports: python -m d3s.report RUN [RUN ...]"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from d3s.common import UserError
from d3s.report.report import write_report
from d3s.report.runs import AXES


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. Returns the exit status: 2 for a user's mistake."""
    parser = argparse.ArgumentParser(prog="python -m d3s.report", description=__doc__.split("\n")[0])
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="a run directory, or a directory of runs")
    parser.add_argument(
        "--output", type=Path, metavar="DIR", help="default: the run itself, or `report` beside the runs"
    )
    parser.add_argument("--title", help="default: the names of the groups")
    parser.add_argument("--by", default=",".join(AXES), metavar="AXES", help="of step,tokens,time (default: all)")
    options = parser.parse_args(arguments)
    try:
        axes = list(dict.fromkeys(options.by.split(",")))
        if unknown := [axis for axis in axes if axis not in AXES]:
            raise UserError(f"--by has {unknown[0]!r}; allowed are {', '.join(AXES)}, joined by commas.")
        print(write_report(options.runs, options.output, options.title, axes))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
