"""eval.py in this process; evaluation results with scripted values, without an engine."""

import io
from pathlib import Path

from rich.console import Console

from d3s.commands.eval import parse_arguments
from d3s.commands.evaluate import main
from d3s.evaluation.intervals import Estimate
from d3s.evaluation.results import EvalResult


def call_eval(*arguments: object) -> tuple[Path, str]:
    """eval.py in this process, which saves the imports: the folder of its output, and what it prints."""
    output = io.StringIO()
    folder = main(parse_arguments([str(argument) for argument in arguments]), Console(file=output))
    return folder, output.getvalue()


def scripted_result(data: str, value: float, problems: int = 10) -> EvalResult:
    """A result with this Pass@1, which is also its avg@n; its majority vote runs against it."""
    estimates = {"pass@1": Estimate(value, 0.0, 1.0), "avg@n": Estimate(value), "maj@n": Estimate(1 - value)}
    return EvalResult(data, 4, problems, estimates, 5.0, 0.0, 0.0, 0.0, right=[round(4 * value)] * problems)
