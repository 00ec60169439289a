"""What reacts to training: the order of problems, what moves N, K and the share, and the best evaluation."""

from collections.abc import Mapping, Sequence

from d3s.checkpoint import Part
from d3s.config.schema import Config
from d3s.data.order import build_order
from d3s.data.problems import Problem
from d3s.evaluate.best_evaluation import BestEvaluation
from d3s.evaluate.results import EvalResult
from d3s.schedule import build_follow, planned_at


class Controllers:
    """The rules of data.order and schedule.follow, and the best evaluation, with the states that checkpoints keep.

    They observe metrics that are equal on all ranks, so every rank decides alike.
    """

    def __init__(self, config: Config, problems: Sequence[Problem]) -> None:
        self.config = config
        self.order, self.follow = build_order(config, problems), build_follow(config)
        self.best = BestEvaluation(config)
        rules = {"data.order": self.order, "schedule.follow": self.follow}
        self.parts: dict[str, Part] = {  # those with a state
            f"{option} {rule.name}": rule for option, rule in rules.items() if rule.has("state_dict")
        }
        if self.best.used:
            self.parts["best"] = self.best

    def schedule(self, step: int) -> tuple[int, float]:
        """N and K of `step` (0-based), which n_of and k_of of schedule.follow may still change."""
        return self.follow.at(step=step) or planned_at(self.config, step)

    def observe(self, metrics: Mapping[str, float]) -> tuple[dict[str, float], dict[str, str]]:
        """Follow a finished step. Returns: metrics of the rules; the reason of each change."""
        reason = self.follow.observe(metrics=metrics)
        return (self.order.metrics() or {}) | (self.follow.metrics() or {}), self._reasons(reason)

    def observe_eval(self, results: Sequence[EvalResult], step: int) -> dict[str, str]:
        """Follow the evaluation after `step`, of each benchmark. Returns: the reason of each change."""
        accuracies = [right / result.n for result in results for right in result.right]
        reasons = self._reasons(self.follow.observe_eval(accuracies=accuracies) if accuracies else None)
        if self.best.used and (reached := self.best.observe_eval(results, step)):
            reasons["stop_at"] = reached
        return reasons

    def _reasons(self, reason: str | None) -> dict[str, str]:
        return {"schedule.follow": f"schedule.follow: {self.follow.name}: {reason}"} if reason else {}
