"""The rules that react to training: the order of problems, and what moves N, K and the share."""

from collections.abc import Callable, Mapping, Sequence

import torch

from d3s.config.schema import Config
from d3s.data.order import build_order
from d3s.data.problems import Problem
from d3s.packing import Batch
from d3s.rules import stateful
from d3s.schedule import FOLLOW_RULES, follow_arguments, planned_curve, schedule_bounds, training_progress
from d3s.selector import Selection


class Controllers:
    """The rules of data.order and schedule.follow, with the states that checkpoints keep.

    They observe metrics that are equal on all ranks, so every rank decides alike.
    """

    def __init__(self, config: Config, problems: Sequence[Problem]) -> None:
        self.steps, self.curve, self.share = config.train.steps, planned_curve(config), config.selector.cross_share
        self.order = build_order(config, problems)
        self.follow = FOLLOW_RULES.build(config.schedule.follow, **follow_arguments(config))
        self.parts = stateful(self.order, self.follow)
        bounds = schedule_bounds(config)
        self.highest_n = bounds[0][1]
        self.moves_n, self.moves_k = (low < high for low, high in bounds)

    def schedule(self, step: int) -> tuple[int, float]:
        """N and K of `step` (0-based), which n_of and k_of of schedule.follow may still change."""
        return self.follow.at(step=step) or self.curve(training_progress(step, self.steps))

    def cross_share(self) -> float:
        """The share of N selected across the batch in the next step."""
        share = self.follow.cross_share()
        return self.share if share is None else share

    def n_of(self, planned: int, choose: Callable[..., Selection], generator: torch.Generator) -> int:
        """N of a step: what schedule.follow decides by the rewards, otherwise `planned`.

        choose: (N, generator) -> what N would select; the generator itself remains as it is.
        """
        if not (self.moves_n and self.follow.has("n_of")):
            return planned
        advantages = choose(self.highest_n, generator.clone_state()).advantages
        return self.follow.n_of(advantages=advantages, choose=lambda n: choose(n, generator.clone_state()).kept)

    def k_of(self, planned: float, batch: Batch) -> float:
        """K of a step: what schedule.follow decides by the tokens of the kept rollouts, otherwise `planned`."""
        if not (self.moves_k and self.follow.has("k_of")):
            return planned
        trainable = batch.trainable
        return self.follow.k_of(advantages=batch.advantages[trainable], entropies=batch.entropies[trainable])

    def observe(self, metrics: Mapping[str, float]) -> str | None:
        """Follow a finished step. Returns: the reason of a change."""
        return self._reason(self.follow.observe(metrics=metrics))

    def observe_eval(self, accuracies: Sequence[float]) -> str | None:
        """Follow an evaluation by the share of right samples of each problem. Returns: the reason of a change."""
        return self._reason(self.follow.observe_eval(accuracies=accuracies) if accuracies else None)

    def _reason(self, reason: str | None) -> str | None:
        return reason and f"schedule.follow: {self.follow.name}: {reason}"

    def metrics(self) -> dict[str, float]:
        """What the rules report of a finished step."""
        return (self.order.metrics() or {}) | (self.follow.metrics() or {})
