"""The rules that react to training: the order of problems, and what moves N, K and the share."""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from d3s.config.schema import Config
from d3s.data.order import build_order
from d3s.data.problems import Problem
from d3s.packing import Batch
from d3s.rules import RuleObject
from d3s.schedule import build_follow, planned_curve, schedule_bounds, training_progress


class Controllers:
    """The rules of data.order and schedule.follow, with the states that checkpoints keep.

    They observe metrics that are equal on all ranks, so every rank decides alike.
    """

    def __init__(self, config: Config, problems: Sequence[Problem]) -> None:
        self.steps, self.curve = config.train.steps, planned_curve(config)
        self.order, self.follow = build_order(config, problems), build_follow(config)
        bounds = schedule_bounds(config)
        self.highest_n = bounds[0][1]
        self.moves_n, self.moves_k = (low < high for low, high in bounds)
        rules = {"data.order": self.order, "schedule.follow": self.follow}
        self.parts: dict[str, RuleObject] = {  # those with a state
            f"{option} {rule.name}": rule for option, rule in rules.items() if rule.has("state_dict")
        }

    def schedule(self, step: int) -> tuple[int, float]:
        """N and K of `step` (0-based), which n_of and k_of of schedule.follow may still change."""
        return self.follow.at(step=step) or self.curve(training_progress(step, self.steps))

    def n_of(self, planned: int, choose: Callable[..., tuple[Tensor, Tensor]], generator: torch.Generator) -> int:
        """N of a step: what schedule.follow decides by the rewards, otherwise `planned`.

        choose: (N, generator) -> advantages and kept rollouts; the generator itself remains as it is.
        """
        if not (self.moves_n and self.follow.has("n_of")):
            return planned
        advantages, _ = choose(self.highest_n, generator.clone_state())
        return self.follow.n_of(advantages=advantages, choose=lambda n: choose(n, generator.clone_state())[1])

    def k_of(self, planned: float, batch: Batch) -> float:
        """K of a step: what schedule.follow decides by the tokens of the kept rollouts, otherwise `planned`."""
        if not (self.moves_k and self.follow.has("k_of")):
            return planned
        candidates = batch.trainable_tokens()
        return self.follow.k_of(advantages=batch.advantages[candidates], entropies=batch.entropies[candidates])

    def observe(self, metrics: Mapping[str, float]) -> tuple[dict[str, float], dict[str, str]]:
        """Follow a finished step. Returns: metrics of the rules; the reason of each change."""
        reason = self.follow.observe(metrics=metrics)
        return (self.order.metrics() or {}) | (self.follow.metrics() or {}), self._reasons(reason)

    def observe_eval(self, accuracies: Sequence[float]) -> dict[str, str]:
        """Follow an evaluation by the share of right samples of each problem. Returns: the reason of each change."""
        return self._reasons(self.follow.observe_eval(accuracies=accuracies) if accuracies else None)

    def _reasons(self, reason: str | None) -> dict[str, str]:
        return {"schedule.follow": f"schedule.follow: {self.follow.name}: {reason}"} if reason else {}
