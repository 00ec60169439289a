"""Run programs against tests: run_tests for one, Sandbox for many at once."""

import atexit
import os
import queue
import threading
import time
import warnings
from collections.abc import Sequence
from concurrent.futures import Future

from d3s.sandbox.servers import ServerError, ServerPair, Test, TestReport

ATTEMPTS = 2  # a server may have been killed from outside while it was idle
_idle: list[ServerPair] = []  # servers that no call uses


def run_tests(program: str, tests: Sequence[Test], *, timeout_s: float = 5.0, memory_mb: int = 512) -> TestReport:
    """Define a program in a confined process and run tests against it from another one.

    Args:
        program: Python source. `__name__` is "__main__" for scripts only.
        tests: Python statements that use the names the program defines, run in order, in one namespace of their own; or
            {"input": …, "output": …}, standard input and expected output of the program as a script. Not both.
        timeout_s: wall-clock limit in seconds of the whole call; starting the servers, once, does not count.
        memory_mb: address space of each of the two processes in MiB, about 40 of which the interpreter needs.
    Raises: UserError where programs cannot be confined (no Linux, no seccomp).
    """
    pair, report = _run(_take(), program, tests, timeout_s, memory_mb)
    if pair is not None:
        _idle.append(pair)
    return report


def _take() -> ServerPair | None:
    try:
        return _idle.pop()  # atomic, so that calls from several threads need no lock
    except IndexError:
        return None


def _run(
    pair: ServerPair | None, program: str, tests: Sequence[Test], timeout_s: float, memory_mb: int
) -> tuple[ServerPair | None, TestReport]:
    """Run one program. Returns the servers to use next, started or replaced where needed, and the report."""
    for _ in range(ATTEMPTS):
        pair = pair or ServerPair()
        started = time.monotonic()
        try:
            return pair, pair.run(program, tests, timeout_s, memory_mb)
        except ServerError as error:
            failure = error
            pair.close()
            pair = None
            timeout_s = max(0.0, timeout_s - (time.monotonic() - started))
        except BaseException:  # a signal handler that raised, no descriptors left: the servers may be amid a program
            pair.close()
            raise
    warnings.warn(f"the sandbox failed: {failure}", stacklevel=3)
    return None, TestReport([False] * len(tests), "crash")


def _forget_servers() -> None:
    for pair in _idle:
        pair.forget()
    _idle.clear()


def _close_servers() -> None:
    while (pair := _take()) is not None:
        pair.close()


os.register_at_fork(after_in_child=_forget_servers)
atexit.register(_close_servers)


class Sandbox:
    """Worker threads with one pair of fork servers each.

    Args:
        workers: programs that run at once.
        timeout_s, memory_mb: limits of each program, as of run_tests.
    """

    def __init__(self, workers: int, timeout_s: float, memory_mb: int) -> None:
        self._limits = timeout_s, memory_mb
        self._jobs: queue.SimpleQueue[tuple[str, Sequence[Test], Future[TestReport]] | None] = queue.SimpleQueue()
        self._closed = False
        pairs = [ServerPair() for _ in range(workers)]  # here, so that a system without seccomp is refused here
        self._threads = [threading.Thread(target=self._serve, args=(pair,), daemon=True) for pair in pairs]
        for thread in self._threads:
            thread.start()

    def submit(self, program: str, tests: Sequence[Test]) -> Future[TestReport]:
        """Run a program; see run_tests. The time limit starts when a worker takes it."""
        if self._closed:
            raise RuntimeError("this sandbox is closed")
        outcome: Future[TestReport] = Future()
        self._jobs.put((program, tests, outcome))
        return outcome

    def close(self) -> None:
        """Finish what was submitted, then end the servers."""
        if not self._closed:
            self._closed = True
            for _ in self._threads:
                self._jobs.put(None)
            for thread in self._threads:
                thread.join()

    def _serve(self, pair: ServerPair | None) -> None:
        while (job := self._jobs.get()) is not None:
            program, tests, outcome = job
            try:
                pair, report = _run(pair, program, tests, *self._limits)
                outcome.set_result(report)
            except Exception as error:
                pair = None
                outcome.set_exception(error)
        if pair is not None:
            pair.close()
