r"""Rewards for final answers in mathematics: right or wrong, decided without trusting the response.

    verify(r"... so \boxed{\frac12}", "0.5")          -> True
    with Verifier(workers=2) as verifier:
        verifier.score(responses, answers)            -> [1.0, 0.0, ...]

What counts as the answer: d3s/verifier/extraction.py. What counts as equal: d3s/verifier/equivalence.py. Both are
described in docs/verifier.md. `python -m d3s.verifier FILE.jsonl` scores a file of {"response" or "prediction",
"answer" or "gold"} lines.
"""

import os
import threading
from collections import Counter, OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future

from d3s.common import UserError
from d3s.verifier.equivalence import all_of, equivalent
from d3s.verifier.extraction import Extraction, extract
from d3s.verifier.pool import FormulaPool

COUNTS = ("decided", "timeouts", "crashes", "parse_failures", "no_answer")
REMEMBERED = 8_192  # verdicts kept, so that equal answers of a group are decided once


class Verifier:
    """Scores responses against gold answers; formulas are compared in worker processes that can be killed.

    Args:
        workers: processes for the comparisons that spelling and numbers do not settle.
        timeout_s: wall-clock limit of one comparison; past it the worker is killed and the response scores 0.
        memory_mb: address space of one worker.
        extraction: "strict" (boxes only, for training) or "lenient".
    """

    def __init__(
        self, workers: int = 2, timeout_s: float = 5.0, memory_mb: int = 1024, extraction: Extraction = "strict"
    ) -> None:
        if extraction not in ("strict", "lenient"):
            raise UserError(f"extraction is {extraction!r}; allowed are 'strict' and 'lenient'.")
        if workers < 1 or timeout_s <= 0 or memory_mb < 256:
            raise UserError("A Verifier needs workers >= 1, timeout_s > 0 and memory_mb >= 256.")
        self._extraction: Extraction = extraction
        self._pool = FormulaPool(workers, timeout_s, memory_mb)
        self._lock = threading.Lock()
        self._stats: Counter[str] = Counter()
        self._known: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._under_way: dict[tuple[str, str], Future[str]] = {}

    def submit(self, response: str, answer: str) -> Future[float]:
        """1.0 or 0.0 for one response; the Future never raises. Returns at once, also while the main thread
        generates."""
        result: Future[float] = Future()
        try:
            found = extract(response, self._extraction)
            verdicts = [equivalent(answer, text) for text in found.texts] if found else []
        except Exception:  # never the end of a run; the tests look for what could raise here
            self._count("parse_failures")
            return self._finish(result, False)
        if found is None:
            self._count("no_answer")
            return self._finish(result, False)
        verdict = all_of(verdicts)  # boxes that were stated together must all be right
        if verdict is not None:
            return self._finish(result, verdict)
        self._compare(answer, [text for text, known in zip(found.texts, verdicts) if known is None], result)
        return result

    def score(self, responses: Sequence[str], answers: Sequence[str]) -> list[float]:
        """Rewards of a batch, in its order."""
        if len(responses) != len(answers):
            raise UserError(f"score() got {len(responses)} responses but {len(answers)} answers.")
        futures = [self.submit(response, answer) for response, answer in zip(responses, answers)]
        return [future.result() for future in futures]

    def take_stats(self) -> dict[str, int]:
        """Counts since the last call: decided, timeouts, crashes, parse_failures, no_answer."""
        with self._lock:
            taken, self._stats = self._stats, Counter()
        return {name: taken[name] for name in COUNTS}

    def close(self) -> None:
        """Wait for what was submitted and end the workers."""
        self._pool.close()

    def __enter__(self) -> "Verifier":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _compare(self, answer: str, texts: list[str], result: Future[float]) -> None:
        """Ask the workers about the first text; go on to the next, where boxes were stated together, once it is
        right."""
        key = (answer, texts[0])
        with self._lock:
            known = self._known.get(key)
            job = self._under_way.get(key)
            new = known is None and job is None
            if new:
                job = self._under_way[key] = self._pool.submit(*key)
        if new:  # outside of the lock: a job that is done already calls back at once, in this thread
            job.add_done_callback(lambda done: self._remember(key, done.result()))

        def settle(outcome: str) -> None:  # counted per response, so that counts do not depend on what is remembered
            self._count_outcome(outcome)
            if outcome == "equal" and len(texts) > 1:
                self._compare(answer, texts[1:], result)
            else:
                self._finish(result, outcome == "equal")

        if known is not None:
            settle(known)
        else:
            assert job is not None
            job.add_done_callback(lambda done: settle(done.result()))

    def _remember(self, key: tuple[str, str], outcome: str) -> None:
        """Keep a verdict; a time-out or a crash is not one, the pair may fare better next time."""
        with self._lock:
            self._under_way.pop(key, None)
            if outcome in ("equal", "unequal", "unparsed"):
                self._known[key] = outcome
                if len(self._known) > REMEMBERED:
                    self._known.popitem(last=False)

    def _count_outcome(self, outcome: str) -> None:
        name = {"timeout": "timeouts", "crash": "crashes", "unparsed": "parse_failures"}.get(outcome)
        if name:
            self._count(name)

    def _count(self, name: str) -> None:
        with self._lock:
            self._stats[name] += 1

    def _finish(self, result: Future[float], right: bool) -> Future[float]:
        self._count("decided")
        result.set_result(1.0 if right else 0.0)
        return result


def verify(response: str, answer: str, extraction: Extraction = "strict") -> bool:
    """Is the final answer of `response` equal to `answer`? Never raises on any text, and never hangs: formulas are
    compared
    in one shared worker process, started on first use, with the default limits of `Verifier`."""
    return _shared(extraction).submit(response, answer).result() == 1.0


_shared_verifiers: dict[tuple[int, str], Verifier] = {}
_shared_lock = threading.Lock()


def _shared(extraction: Extraction) -> Verifier:
    """One verifier per process (a fork needs its own threads) and extraction."""
    key = (os.getpid(), extraction)
    with _shared_lock:
        if key not in _shared_verifiers:
            _shared_verifiers[key] = Verifier(workers=1, extraction=extraction)
        return _shared_verifiers[key]


# ----------------------------------------------------------------------------------------- optional parts of the reward


# --------------------------------------------------------------------------------------------------------- command line
