"""Command line of the reports: python -m d3s.report RUN [RUN ...]"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from d3s.common import UserError, exit_code
from d3s.report.report import write_report
from d3s.report.runs import AXES


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse `arguments`, by default those of the process, and write the report."""
    parser = argparse.ArgumentParser(
        prog="python -m d3s.report", description="Compare runs, or summarize a single one, as a page and pictures."
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="a run directory, or a directory of runs")
    parser.add_argument(
        "--output",
        type=Path,
        metavar="DIR",
        help="output directory (default: the run directory; of several runs `report` next to the first)",
    )
    parser.add_argument("--title", help="title of the page (default: the names of the groups)")
    parser.add_argument(
        "--by", default=",".join(AXES), metavar="AXES", help="x axes of the curves (default: step,tokens,time)"
    )
    options = parser.parse_args(arguments)
    axes = list(dict.fromkeys(options.by.split(",")))
    if unknown := [axis for axis in axes if axis not in AXES]:
        raise UserError(f"--by: got {unknown[0]!r}, expected {', '.join(AXES)}, joined by commas")
    print(write_report(options.runs, options.output, options.title, axes))


if __name__ == "__main__":
    sys.exit(exit_code(main))
