"""Run the solution that comes with each problem of a data set, and list the problems whose own solution fails.

    python -m d3s.programs.check FILE [--timeout-s 5] [--memory-mb 512] [--workers 2]

Such a problem would score 0 whatever a model writes: remove it. That its tests need more than plain values (state
refused, see docs/rewards.md#the-sandbox) is reported with the line of the test. The exit code is 1 if a problem fails.
"""

import argparse
import sys
from collections.abc import Sequence
from contextlib import closing

from d3s.common import UserError, exit_code, printable
from d3s.data.code import CODE_REWARD, own_solution, read_tests
from d3s.data.problems import Problem, load_problems
from d3s.sandbox import Sandbox, TestReport


def failures(problems: Sequence[Problem], sandbox: Sandbox) -> dict[str, TestReport]:
    """Reports by name of the problems whose own solution does not pass all tests. UserError if none has a solution."""
    programs = [(problem, own_solution(problem.row)) for problem in problems]
    runs = [(p.id, sandbox.submit(program, read_tests(p.answer))) for p, program in programs if program is not None]
    if not runs:
        raise UserError("no problem has a solution of its own; expected canonical_solution, code or solutions")
    reports = [(name, run.result()) for name, run in runs]
    return {name: report for name, report in reports if not all(report.passed)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse `arguments`, by default those of the process, and print the list. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m d3s.programs.check", description=__doc__.splitlines()[0])
    parser.add_argument("data", help="FILE, humaneval=FILE, mbpp=FILE or a hub data set")
    parser.add_argument("--split", default="test", help="split of a hub data set (default: test)")
    parser.add_argument("--timeout-s", type=float, default=5.0, help="time limit of a program in seconds (default: 5)")
    parser.add_argument("--memory-mb", type=int, default=512, help="memory limit of a program in MB (default: 512)")
    parser.add_argument("--workers", type=int, default=2, help="programs that run at the same time (default: 2)")
    options = parser.parse_args(arguments)
    for name, least in (("timeout_s", 0.1), ("memory_mb", 64), ("workers", 1)):
        if not least <= getattr(options, name) < 1e9:
            option = f"--{name.replace('_', '-')}"
            raise UserError(f"{option}: got {getattr(options, name):g}, expected a number of at least {least}")
    problems = load_problems(options.data, split=options.split)
    if problems[0].reward != CODE_REWARD:
        raise UserError(f"{options.data}: got problems without tests, expected the columns of HumanEval, MBPP or APPS")
    with closing(Sandbox(options.workers, options.timeout_s, options.memory_mb)) as sandbox:
        failed = failures(problems, sandbox)
    for name, report in failed.items():
        state = "" if report.state == "ok" else f" ({report.state})"
        reason = f": {report.reason}" if report.reason else ""
        print(printable(f"{name}: {sum(report.passed)} of {len(report.passed)} tests pass{state}{reason}"))
    refused = sum(report.needs_more for report in failed.values())
    print(f"{len(problems)} problems, {len(failed)} of them with a solution of their own that fails", end="")
    print(f", {refused} as their tests need more than plain values" if refused else "")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(exit_code(main))
