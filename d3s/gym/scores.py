"""What the reward `verify` is: the verifier, and for problems of reasoning-gym the scorer of their task."""

import re
from collections.abc import Mapping
from concurrent.futures import Future
from functools import cached_property
from typing import Any

from d3s.responses import after_thoughts
from d3s.verifier.extraction import Extraction, extract, extract_answer
from d3s.verifier.pool import FormulaPool
from d3s.verifier.verifier import FAILURES, Verifier

GYM = "reasoning-gym"  # the column of a problem that says how its task draws it
SERVE = "d3s.gym.worker:serve"
TEXT = re.compile(r"\\text\{([^{}]*)\}")
PACKAGE_MB = 256  # address space that reasoning-gym takes itself
DRAW_S = 30.0  # in which a worker draws the problem again, a second for the slowest tasks on an idle machine


def stated_answer(response: str, row: Mapping[str, Any], extraction: Extraction) -> str | None:
    """The final answer of a response to a problem; to one of reasoning-gym also the inside of the last `<answer>`."""
    return _gym_answer(response, extraction) if GYM in row else extract_answer(response, extraction)


def _gym_answer(response: str, extraction: Extraction) -> str | None:
    texts = extract(response, extraction) or ()
    answer = texts[0] if len(texts) == 1 else None  # two alternatives are none
    if answer is None and (said := after_thoughts(response)) is not None:
        answer, end, _ = said.rpartition("<answer>")[2].partition("</answer>")
        answer = answer if end and "<answer>" in said else None
    return TEXT.sub(r"\1", answer).strip() if answer else None


class Correctness(Verifier):
    """Score responses by the verifier, and those to problems of reasoning-gym by `score_answer` of their task.

    Both read what a model writes in worker processes with limits of time and memory.
    """

    def __init__(
        self, workers: int = 2, timeout_s: float = 5.0, memory_mb: int = 1024, extraction: Extraction = "strict"
    ) -> None:
        super().__init__(workers, timeout_s, memory_mb, extraction)
        self._limits = workers, timeout_s + DRAW_S, memory_mb + PACKAGE_MB

    def submit(self, response: str, answer: str, row: Mapping[str, Any] | None = None) -> Future[float]:
        """Start scoring one response: a Future that never raises. Returns immediately."""
        drawn = (row or {}).get(GYM)
        return self._submit_gym(response, drawn) if isinstance(drawn, list) else super().submit(response, answer)

    def _submit_gym(self, response: str, drawn: list) -> Future[float]:
        result: Future[float] = Future()
        text = _gym_answer(response, self._extraction)
        self._count("decided")
        if text is None:
            self._count("no_answer")
            result.set_result(0.0)
            return result

        def settle(done: Future[str]) -> None:
            reply = done.result()
            if reply in FAILURES:
                self._count(FAILURES[reply])
            result.set_result(0.0 if reply in FAILURES else float(reply))

        self._scorers.submit("score", text, *drawn).add_done_callback(settle)
        return result

    def close(self) -> None:
        """Wait for the submitted responses and end the workers."""
        super().close()
        if "_scorers" in vars(self):
            self._scorers.close()

    @cached_property
    def _scorers(self) -> FormulaPool:
        return FormulaPool(*self._limits, SERVE)
