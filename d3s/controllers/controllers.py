"""The controllers of a run: what they decide for a step, and the states that its checkpoints keep."""

from collections.abc import Mapping, Sequence

from d3s.checkpoint import Part
from d3s.config.schema import Config
from d3s.controllers.adaptive_schedule import AdaptiveSchedule
from d3s.controllers.best_evaluation import BestEvaluation
from d3s.controllers.cross_share import CrossShare
from d3s.controllers.prompt_sampler import PosteriorSampler, build_sampler
from d3s.data.problems import Problem
from d3s.evaluate.results import EvalResult


class Controllers:
    """The order of the problems, the schedule of N and K, the share across the batch, and the best evaluation.

    Those that react to training observe metrics that are equal on all ranks, so every rank decides alike.
    """

    def __init__(self, config: Config, problems: Sequence[Problem]) -> None:
        self.prompts = build_sampler(config, problems)
        self.schedule = AdaptiveSchedule(config)
        self.share = CrossShare(config.train.prompts_per_step)
        self.best = BestEvaluation(config)
        self._static_share = config.selector.cross_share
        self.parts: dict[str, Part] = {}  # those with a state
        if isinstance(self.prompts, PosteriorSampler):
            self.parts["prompt_sampler"] = self.prompts
        if self.schedule.follows_evaluations:
            self.parts["schedule"] = self.schedule
        if self._static_share == "auto":
            self.parts["cross_share"] = self.share
        if self.best.used:
            self.parts["best"] = self.best

    @property
    def cross_share(self) -> float:
        """The fraction of N selected across the batch in the next step."""
        return self.share.share if self._static_share == "auto" else self._static_share

    def observe(self, metrics: Mapping[str, float]) -> tuple[dict[str, float], dict[str, str]]:
        """Follow a finished step. Returns: what the controllers were in it, as metrics; the reason of each change."""
        observed, reasons = self.prompts.metrics(), {}
        if "schedule" in self.parts:
            observed["schedule/progress"] = self.schedule.progress
        if "cross_share" in self.parts:
            before, reason = self.share.share, self.share.observe(metrics)
            observed |= {"selection/cross_share": before, "control/deviation": self.share.deviation}
            observed["control/change"] = (self.share.share > before) - (self.share.share < before)
            if reason:
                reasons["cross_share"] = reason
        return observed, reasons

    def observe_eval(self, results: Sequence[EvalResult], step: int) -> dict[str, str]:
        """Follow the evaluation after `step`, of each benchmark. Returns: the reason of each change."""
        reasons = {"schedule": self.schedule.observe_eval([right / r.n for r in results for right in r.right])}
        if self.best.used:
            reasons["stop_at"] = self.best.observe_eval(results, step)
        return {name: reason for name, reason in reasons.items() if reason}
