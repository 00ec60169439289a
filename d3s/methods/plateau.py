"""Plateau: N and K move on when evaluations stop improving. Our own rule.

    schedule: {follow: {rule: "d3s.methods.plateau:Plateau", patience: 2}}     # configs/method/d3s_plateau.yaml

A rule of schedule.follow; D3S (arXiv 2509.22115) leaves open how N and K follow training. It takes several evaluations
of enough problems to tell a change of the accuracy. Worth using? Not measured, see docs/beyond.md.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

ADVANCE = 0.25  # of the schedule per decision


# p <- p + 1/4 when `patience` evaluations in a row have not exceeded the best by one standard error of the paired
# difference over problems
class Plateau:
    """N and K go a quarter of the schedule further after `patience` evaluations without progress."""

    def __init__(self, curve: Callable[[float], tuple[int, float]], patience: int = 2) -> None:
        if type(patience) is not int or patience < 1:
            raise ValueError(f"patience must be an integer of at least 1, not {patience}")
        self.curve, self.patience = curve, patience
        self.progress = 0.0  # of the schedule; it never falls
        self.best: list[float] = []  # accuracy of each problem in the best evaluation
        self.wait = 0  # evaluations since then

    def at(self) -> tuple[int, float]:
        """N and K at the present progress."""
        return self.curve(self.progress)

    def observe_eval(self, accuracies: Sequence[float]) -> str | None:
        """Compare with the best evaluation of the same problems, which are in the same order."""
        differences = [now - best for now, best in zip(accuracies, self.best)]
        same_problems = len(accuracies) == len(self.best)  # after a resumption with other eval.data they are not
        error = stdev(differences) / math.sqrt(len(differences)) if len(differences) > 1 else 0.0
        if not same_problems or fmean(differences) > error:
            self.best, self.wait = list(accuracies), 0
            return None
        self.wait += 1
        if self.wait < self.patience:
            return None
        self.wait, before = 0, self.progress
        if before == 1:
            return None
        self.progress = min(1.0, before + ADVANCE)
        missed = f"{self.patience} evaluations did not exceed the best one, {fmean(self.best):.1%}"
        return f"progress {before:g} to {self.progress:g}; {missed}"

    def metrics(self) -> dict[str, float]:
        """The progress."""
        return {"schedule/progress": self.progress}

    def state_dict(self) -> dict[str, Any]:
        """The state as plain values."""
        return {"progress": self.progress, "best": self.best, "wait": self.wait}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what state_dict returned."""
        self.progress, self.best, self.wait = state["progress"], state["best"], state["wait"]
