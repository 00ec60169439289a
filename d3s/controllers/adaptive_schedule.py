"""N and K of each step: by the step (schedule.follow: none), or by evaluations (plateau).

With schedule.follow: coverage, the step's own rewards and entropies decide, see d3s/downsampling.py.
"""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev

from d3s.common import UserError
from d3s.config.schema import Config
from d3s.downsampling import curve_at, schedule_at

ADVANCE = 0.25  # of the schedule per decision


class AdaptiveSchedule:
    """The schedule of a run. With plateau, evaluations move a progress that replaces that of the steps.

    The progress starts at 0 and never falls. It takes several evaluations of enough problems to tell a change of the
    accuracy.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.progress = 0.0  # of plateau
        self.best: list[float] = []  # plateau: accuracy of each problem in the best evaluation
        self.wait = 0  # plateau: evaluations since then

    @property
    def follows_evaluations(self) -> bool:
        """Whether evaluations decide."""
        return self.config.schedule.follow == "plateau"

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

    def observe_eval(self, accuracies: Sequence[float]) -> str | None:
        """Decide after an evaluation of the same problems as before, in the same order.

        Args:
            accuracies: share of right samples of each problem.

        Returns: the reason, if the schedule advances.
        """
        if not (accuracies and self.follows_evaluations):
            return None
        reason = self._plateau(list(accuracies))
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
