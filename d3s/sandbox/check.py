"""Run the solution that comes with each problem of a data set, and list the problems whose own solution fails.

    python -m d3s.sandbox.check FILE [--timeout-s 5] [--memory-mb 512] [--workers 2]

No program can pass the tests of such a problem: remove it, as it would score 0 whatever a model writes. The exit code
is 1 if there is one.
"""

import argparse
import json
import sys
from collections.abc import Sequence

from d3s.common import UserError, exit_code, printable
from d3s.data.code import CODE_REWARD, own_solution
from d3s.data.problems import Problem, load_problems
from d3s.sandbox import Sandbox


def failures(problems: Sequence[Problem], sandbox: Sandbox) -> list[str]:
    """One line for each problem whose own solution does not pass all tests. Raises UserError if none has a solution."""
    runs = []
    for problem in problems:
        if (program := own_solution(problem.row)) is not None:
            runs.append((problem.id, sandbox.submit(program, json.loads(problem.answer))))
    if not runs:
        raise UserError("no problem has a solution of its own; expected the column 'canonical_solution' or 'code'")
    reports = [(name, run.result()) for name, run in runs]
    return [
        f"{name}: {sum(report.passed)} of {len(report.passed)} tests pass"
        + (f" ({report.state})" if report.state != "ok" else "")
        for name, report in reports
        if not all(report.passed)
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse `arguments`, by default those of the process, and print the list. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m d3s.sandbox.check", description=__doc__.splitlines()[0])
    parser.add_argument("data", help="FILE, humaneval=FILE, mbpp=FILE or a hub data set")
    parser.add_argument("--split", default="test", help="split of a hub data set (default: test)")
    parser.add_argument("--timeout-s", type=float, default=5.0, help="time limit of a program in seconds (default: 5)")
    parser.add_argument("--memory-mb", type=int, default=512, help="memory limit of a program in MB (default: 512)")
    parser.add_argument("--workers", type=int, default=2, help="programs that run at the same time (default: 2)")
    options = parser.parse_args(arguments)
    problems = load_problems(options.data, split=options.split)
    if problems[0].reward != CODE_REWARD:
        raise UserError(f"{options.data}: got problems without tests, expected the columns of HumanEval or MBPP")
    sandbox = Sandbox(options.workers, options.timeout_s, options.memory_mb)
    try:
        lines = failures(problems, sandbox)
    finally:
        sandbox.close()
    for line in lines:
        print(printable(line))
    print(f"{len(problems)} problems, {len(lines)} of them with a solution of their own that fails")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(exit_code(main))
