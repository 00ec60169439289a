r"""Score final answers in mathematics as right or wrong, without trusting the response.

    verify(r"... so \boxed{\frac12}", "0.5")          -> True
    with Verifier(workers=2) as verifier:
        verifier.score(responses, answers)            -> [1.0, 0.0, ...]

d3s/verifier/extraction.py defines what counts as the answer, d3s/verifier/equivalence.py what counts as equal; see
docs/rewards.md#the-verifier. `python -m d3s.verifier FILE.jsonl` scores a file.
"""

import os
import threading
from collections import Counter, OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future, wait

from d3s.common import UserError
from d3s.verifier.equivalence import equivalent
from d3s.verifier.extraction import Extraction, extract
from d3s.verifier.pool import FormulaPool
from d3s.verifier.verdict import Verdict, all_of

COUNTS = ("decided", "timeouts", "crashes", "parse_failures", "no_answer")
FAILURES = {"timeout": "timeouts", "crash": "crashes", "unparsed": "parse_failures"}  # outcome of a worker -> count
QUICK_LENGTH = 200  # characters of gold answer and answer together; longer pairs go to a worker, which can be killed
KEPT_JOBS = 8_192  # comparisons, so that equal answers of a group are compared once


class Verifier:
    """Score responses against gold answers. Formulas are compared in worker processes that can be killed.

    Args:
        workers: number of processes for the comparisons that the cheap layers leave open.
        timeout_s: wall-clock limit of one comparison, after which the worker is killed and the response scores 0.
        memory_mb: address space of one worker in MiB.
        extraction: "strict" (boxes only, for training) or "lenient".
    """

    def __init__(
        self, workers: int = 2, timeout_s: float = 5.0, memory_mb: int = 1024, extraction: Extraction = "strict"
    ) -> None:
        if extraction not in ("strict", "lenient"):
            raise UserError(f"extraction: got {extraction!r}, expected 'strict' or 'lenient'")
        for name, value, allowed, expected in (
            ("workers", workers, workers >= 1, "at least 1"),
            ("timeout_s", timeout_s, timeout_s > 0, "more than 0"),
            ("memory_mb", memory_mb, memory_mb >= 256, "at least 256"),
        ):
            if not allowed:
                raise UserError(f"{name}: got {value}, expected {expected}")
        self._extraction: Extraction = extraction
        self._pool = FormulaPool(workers, timeout_s, memory_mb)
        self._lock = threading.Lock()
        self._stats: Counter[str] = Counter()
        self._jobs: OrderedDict[tuple[str, str], Future[str]] = OrderedDict()
        self._unfinished: set[Future[float]] = set()

    def submit(self, response: str, answer: str) -> Future[float]:
        """Start scoring one response: a Future of 1.0 or 0.0 that never raises. Returns immediately."""
        result: Future[float] = Future()
        try:
            texts = extract(response, self._extraction)
            verdicts = [compare_quickly(answer, text) for text in texts or ()]
        except Exception:  # must not end a run; the fuzz tests show that nothing raises here
            self._count("parse_failures")
            return self._finish(result, False)
        if texts is None:
            self._count("no_answer")
            return self._finish(result, False)
        verdict = all_of(verdicts)  # all boxes of one statement must be right
        if verdict is not None:
            return self._finish(result, verdict)
        with self._lock:
            self._unfinished.add(result)
        self._compare(answer, [text for text, verdict in zip(texts, verdicts) if verdict is None], result)
        return result

    def score(self, responses: Sequence[str], answers: Sequence[str]) -> list[float]:
        """Score a batch of responses, in order."""
        if len(responses) != len(answers):
            raise UserError(f"score: got {len(responses)} responses and {len(answers)} answers, expected equal numbers")
        futures = [self.submit(response, answer) for response, answer in zip(responses, answers)]
        return [future.result() for future in futures]

    def take_stats(self) -> dict[str, int]:
        """Return the counts since the last call: decided, timeouts, crashes, parse_failures, no_answer."""
        with self._lock:
            taken, self._stats = self._stats, Counter()
        return {name: taken[name] for name in COUNTS}

    def close(self) -> None:
        """Wait for the submitted responses and end the workers."""
        with self._lock:
            unfinished = set(self._unfinished)
        wait(unfinished)
        self._pool.close()

    def __enter__(self) -> "Verifier":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _compare(self, answer: str, texts: list[str], result: Future[float]) -> None:
        """Have a worker compare the first text, and the next one of the same statement once the first is right."""
        key = (answer, texts[0])
        with self._lock:
            job = self._jobs.get(key)
            is_new = job is None
            if is_new:
                job = self._jobs[key] = self._pool.submit(*key)
                if len(self._jobs) > KEPT_JOBS:
                    self._jobs.popitem(last=False)
        if is_new:  # outside of the lock: a finished job calls back immediately, in this thread
            job.add_done_callback(lambda done: self._forget_failure(key, done.result()))

        def settle(done: Future[str]) -> None:  # counted per response, so that the counts do not depend on the cache
            outcome = done.result()
            if outcome in FAILURES:
                self._count(FAILURES[outcome])
            if outcome == "equal" and len(texts) > 1:
                self._compare(answer, texts[1:], result)
            else:
                self._finish(result, outcome == "equal")

        job.add_done_callback(settle)

    def _forget_failure(self, key: tuple[str, str], outcome: str) -> None:
        """A timeout or a crash is no verdict: the pair is compared again next time."""
        if outcome in ("timeout", "crash"):
            with self._lock:
                self._jobs.pop(key, None)

    def _count(self, name: str) -> None:
        with self._lock:
            self._stats[name] += 1

    def _finish(self, result: Future[float], right: bool) -> Future[float]:
        self._count("decided")
        result.set_result(1.0 if right else 0.0)
        with self._lock:
            self._unfinished.discard(result)
        return result


def compare_quickly(answer: str, text: str) -> Verdict:
    """Compare by the cheap layers alone; None for a long pair, as their time grows with a power of the length."""
    return equivalent(answer, text) if len(answer) + len(text) <= QUICK_LENGTH else None


def verify(response: str, answer: str, extraction: Extraction = "strict") -> bool:
    """Is the final answer of `response` equal to `answer`? Never raises on any text and never hangs.

    Formulas are compared in one shared worker process, started on first use, with the default limits of `Verifier`.
    """
    return _shared(extraction).submit(response, answer).result() == 1.0


_shared_verifiers: dict[tuple[int, str], Verifier] = {}
_shared_lock = threading.Lock()


def _shared(extraction: Extraction) -> Verifier:
    """Return the verifier of this process and extraction; a forked process needs threads of its own."""
    key = (os.getpid(), extraction)
    with _shared_lock:
        if key not in _shared_verifiers:
            _shared_verifiers[key] = Verifier(workers=1, extraction=extraction)
        return _shared_verifiers[key]
