"""Evaluation results with scripted values, without an engine."""

from d3s.evaluation.intervals import Estimate
from d3s.evaluation.results import EvalResult


def scripted_result(data: str, value: float, problems: int = 10) -> EvalResult:
    """A result with this Pass@1, which is also its avg@n; its majority vote runs against it."""
    estimates = {"pass@1": Estimate(value, 0.0, 1.0), "avg@n": Estimate(value), "maj@n": Estimate(1 - value)}
    return EvalResult(data, 4, problems, estimates, 5.0, 0.0, 0.0, 0.0, right=[round(4 * value)] * problems)
