"""The best evaluation of a run, whose model eval.keep_best keeps, and the end by eval.stop_at."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from d3s.common import scored_by
from d3s.config.schema import Config
from d3s.data.problems import name_sources
from d3s.evaluation.results import EvalResult

RECORD = "evaluation.json"  # in the exported model
# Of a mean over problems, which can differ between orders of the same values and between machines of one run.
ROUNDING = 1e-9


class BestEvaluation:
    """Follows avg@n of the first benchmark over the evaluations of a run. Of equal values the first is the best.

    The evaluations are equal on all ranks, so every rank decides alike.
    """

    def __init__(self, config: Config) -> None:
        self._settings = config.eval
        self._data = next(iter(name_sources(config.eval.data)), "")
        self.used = config.eval.keep_best or config.eval.stop_at is not None
        # the best and the last evaluation: step, data, value, n, problems and reward
        self.evaluation: dict[str, Any] | None = None
        self.last: dict[str, Any] | None = None
        self.improved = False  # whether the last one is the best one

    def observe_eval(self, results: Sequence[EvalResult], step: int) -> str | None:
        """Follow the evaluation after `step`. Returns: why training ends, if it does."""
        result = next(result for result in results if result.data == self._data)
        best, measured = self.evaluation, {"n": result.n, "problems": result.problems, "reward": result.reward}
        self.last = {"step": step, "data": self._data, "value": result.estimates["avg@n"].value} | measured
        comparable = best is not None and all(best.get(key) == self.last[key] for key in ("data", *measured))
        self.improved = not comparable or self.last["value"] > best["value"] + ROUNDING
        if self.improved:
            self.evaluation = self.last
        return f"{self._reached()}; training ends" if self.reached else None

    @property
    def reached(self) -> bool:
        """Whether the last evaluation has reached eval.stop_at."""
        target = self._settings.stop_at
        return target is not None and self.last is not None and self.last["value"] >= target - ROUNDING

    def problem(self) -> str | None:
        """Why a resumed run takes no step, if it takes none."""
        remedy = "this run takes no step; raise eval.stop_at, or set it to null, to train further"
        return f"{self._reached()}; {remedy}" if self.reached else None

    def _reached(self) -> str:
        last = self.last
        value = f"avg@n of {last['data']}{scored_by(last)} is {last['value']:.4g} after step {last['step']}"
        return f"eval.stop_at: {value}, at least {self._settings.stop_at:g}"

    def forget_unless_kept(self, kept: Mapping[str, Any] | None) -> None:
        """Forget the best evaluation unless best/ still holds its model (`kept`, see read_record).

        The model was lost, or is of a step after the checkpoint from which the run resumes: the next one is exported.
        """
        if self._settings.keep_best and kept != self.evaluation:
            self.evaluation = None

    def state_dict(self) -> dict:
        """The state as plain values."""
        return {"evaluation": self.evaluation, "last": self.last}

    def load_state_dict(self, state: Mapping) -> None:
        """Restore what state_dict returned, unless eval.data begins with another benchmark now."""
        if state["last"] is not None and state["last"]["data"] == self._data:
            self.evaluation, self.last = state["evaluation"], state["last"]


def read_record(model: Path) -> dict[str, Any] | None:
    """The evaluation of an exported model, None without one."""
    try:
        return json.loads((model / RECORD).read_text())
    except (OSError, ValueError):
        return None
