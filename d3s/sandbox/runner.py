"""Run programs against tests: run_tests for one, Sandbox for many at once."""

import atexit
import os
import queue
import threading
import time
import warnings
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress

from d3s.sandbox.servers import ServerError, ServerPair, Test, TestReport

_idle: list[ServerPair] = []  # servers that no call uses


def run_tests(program: str, tests: Sequence[Test], *, timeout_s: float = 5.0, memory_mb: int = 512) -> TestReport:
    """Define a program in a confined process and run tests against it from another one.

    Args:
        program: Python source. `__name__` is "__main__" for scripts only.
        tests: Python statements that use the names the program defines, run in order, in one namespace of their own; or
            {"input": …, "output": …}, standard input and expected output of the program as a script. Not both.
        timeout_s: wall-clock limit in seconds of the whole call, of a script that of each test, all of which together
            may take ten times as long; starting the servers, once, does not count.
        memory_mb: address space of each of the two processes in MiB, about 40 of which the interpreter needs.
    Raises: UserError where programs cannot be confined (no Linux, no seccomp).
    """
    return _run(_idle, program, tests, timeout_s, memory_mb)


def _take(pairs: list[ServerPair]) -> ServerPair | None:
    try:
        return pairs.pop()  # atomic, so that several threads need no lock
    except IndexError:
        return None


def _run(idle: list[ServerPair], program: str, tests: Sequence[Test], timeout_s: float, memory_mb: int) -> TestReport:
    """Run one program on idle servers, or on new ones, which are idle afterwards."""
    for used in (_take(idle), None):  # idle servers may have been killed from outside
        pair = used or ServerPair()
        started = time.monotonic()
        try:
            report = pair.run(program, tests, timeout_s, memory_mb)
        except ServerError as error:
            failure = error
            pair.close()
            timeout_s = max(0.0, timeout_s - (time.monotonic() - started))
        except BaseException:  # a signal handler that raised, no descriptors left: the servers may be amid a program
            pair.close()
            raise
        else:
            idle.append(pair)
            return report
    warnings.warn(f"the sandbox failed: {failure}", stacklevel=3)
    return TestReport([False] * len(tests), "crash", f"the sandbox failed: {failure}")


def _close(pairs: list[ServerPair]) -> None:
    while (pair := _take(pairs)) is not None:
        pair.close()


def _forget_servers() -> None:
    for pair in _idle:
        pair.forget()
    _idle.clear()


os.register_at_fork(after_in_child=_forget_servers)
atexit.register(_close, _idle)


class Sandbox:
    """Worker threads and as many pairs of fork servers.

    Args:
        workers: programs that run at once.
        timeout_s, memory_mb: limits of each program, as of run_tests.
    """

    def __init__(self, workers: int, timeout_s: float, memory_mb: int) -> None:
        self._limits = timeout_s, memory_mb
        self._jobs: queue.SimpleQueue[tuple[str, Sequence[Test], Future[TestReport]] | None] = queue.SimpleQueue()
        self._closed = False
        self._idle = [ServerPair() for _ in range(workers)]  # here, so that a system without seccomp is refused here
        self._threads = [threading.Thread(target=self._serve, daemon=True) for _ in range(workers)]
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
        """Finish the programs that run, refuse those that wait, and end the servers."""
        if not self._closed:
            self._closed = True
            with suppress(queue.Empty):
                while True:
                    *_, outcome = self._jobs.get_nowait()
                    outcome.set_exception(RuntimeError("the sandbox was closed"))
            for _ in self._threads:
                self._jobs.put(None)
            for thread in self._threads:
                thread.join()
            _close(self._idle)

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            program, tests, outcome = job
            try:
                outcome.set_result(_run(self._idle, program, tests, *self._limits))
            except Exception as error:
                outcome.set_exception(error)
