"""N and K of each step: by the step (schedule.follow: none), or by evaluations (plateau, gap).

With schedule.follow: coverage, the step's own rewards and entropies decide, see d3s/downsampling.py.
"""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev

from d3s.common import UserError
from d3s.config.schema import Config
from d3s.downsampling import curve_at, schedule_at

ADVANCE = 0.25  # of the schedule per decision
DECAY = 0.9  # of the moving average of the training accuracy
GAP_ERRORS = 2  # standard errors of the held-out accuracy that the gap must exceed


class AdaptiveSchedule:
    """The schedule of a run. With plateau and gap, evaluations move a progress that replaces that of the steps.

    The progress starts at 0 and never falls. Both rules need several evaluations and enough problems to tell a change
    of the accuracy; on data of which no problem is seen twice, the gap has nothing to find.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.progress = 0.0  # of plateau and gap
        self.best: list[float] = []  # plateau: accuracy of each problem in the best evaluation
        self.wait = 0  # plateau: evaluations since then
        self.trained: float | None = None  # gap: moving average of the training accuracy
        self.gap: float | None = None  # gap: training accuracy - held-out accuracy in the last evaluation

    @property
    def follows_evaluations(self) -> bool:
        """Whether evaluations decide."""
        return self.config.schedule.follow in ("plateau", "gap")

    def problem(self) -> str | None:
        """Why the schedule cannot move, if it cannot."""
        settings = self.config.eval
        if not self.follows_evaluations or (settings.data and settings.every):
            return None
        return (
            f"schedule.follow: {self.config.schedule.follow!r} needs evaluations during training, but eval.data is "
            f"{settings.data} and eval.every {settings.every}; N and K stay at their first values"
        )

    def at(self, step: int) -> tuple[int, float]:
        """N and K at `step` (0-based); with schedule.follow: coverage, their upper bounds."""
        return curve_at(self.config, self.progress) if self.follows_evaluations else schedule_at(self.config, step)

    def observe(self, metrics: Mapping[str, float]) -> None:
        """Average the training accuracy of one step."""
        accuracy = metrics["reward/accuracy"]
        self.trained = accuracy if self.trained is None else DECAY * self.trained + (1 - DECAY) * accuracy

    def observe_eval(self, accuracies: Sequence[float]) -> str | None:
        """Decide after an evaluation of the same problems as before, in the same order.

        Args:
            accuracies: share of right samples of each problem.

        Returns: the reason, if the schedule advances.
        """
        if not (accuracies and self.follows_evaluations):
            return None
        reason = self._plateau(list(accuracies)) if self.config.schedule.follow == "plateau" else self._gap(accuracies)
        if reason is None or self.progress == 1:
            return None
        before, self.progress = self.progress, min(1.0, self.progress + ADVANCE)
        return f"schedule.follow: progress {before:g} to {self.progress:g}; {reason}"

    # p <- p + 1/4 when `patience` evaluations in a row have not exceeded the best by one standard error of the paired
    # difference over problems      our own rule; D3S (arXiv 2509.22115) leaves schedules that follow the training open
    def _plateau(self, accuracies: list[float]) -> str | None:
        differences = [now - best for now, best in zip(accuracies, self.best)]
        same_problems = len(accuracies) == len(self.best)  # after a resumption with other eval.data they are not
        if not same_problems or fmean(differences) > standard_error(differences):
            self.best, self.wait = accuracies, 0
            return None
        self.wait += 1
        if self.wait < self.config.schedule.patience:
            return None
        self.wait = 0
        return f"{self.config.schedule.patience} evaluations did not exceed the best one, {fmean(self.best):.1%}"

    # p <- p + 1/4 when EMA(training accuracy) - held-out Pass@1 > 2 standard errors and has grown     our own rule
    def _gap(self, accuracies: Sequence[float]) -> str | None:
        if self.trained is None:  # the evaluation before the first step
            return None
        before, self.gap = self.gap, self.trained - fmean(accuracies)
        if before is None or self.gap <= before or self.gap <= GAP_ERRORS * standard_error(accuracies):
            return None
        return f"the training accuracy exceeds the held-out one by {self.gap:.1%}, before by {before:.1%}"

    def state_dict(self) -> dict:
        """The state as plain values."""
        return {name: value for name, value in vars(self).items() if name != "config"}

    def load_state_dict(self, state: Mapping) -> None:
        """Restore what state_dict returned. Raises: UserError for another part's state."""
        if state.keys() != self.state_dict().keys():
            raise UserError(f"schedule: got the state {sorted(state)}, expected {sorted(self.state_dict())}")
        vars(self).update(state)


def standard_error(values: Sequence[float]) -> float:
    """Standard error of the mean; 0 for a single value."""
    return stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0
