"""A pool of worker processes that compare formulas, each with a deadline enforced from outside.

One thread of the calling process serves each worker: it sends one pair, waits until the deadline, then kills the worker
and starts a new one. This works from any thread without signals, and a worker that is stuck in C code or out of memory
costs one answer. Workers are plain child processes (`python -m d3s.verifier.worker`): they import neither the caller's
main module nor torch nor anything else of the training environment.
"""

import contextlib
import json
import os
import queue
import select
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from concurrent.futures import Future
from pathlib import Path

START_LIMIT_S = 60.0  # seconds in which a worker must import sympy, on a busy machine
ANSWERS_PER_WORKER = 5_000  # then it is replaced, so that its memory cannot grow without limit


class FormulaPool:
    """Compare formulas in `workers` processes behind one queue.

    Args:
        timeout_s: wall-clock limit of one comparison in seconds; start-up does not count.
        memory_mb: address space of one worker in MiB.
    """

    def __init__(self, workers: int, timeout_s: float, memory_mb: int) -> None:
        self._timeout_s = timeout_s
        self._command = [sys.executable, "-m", "d3s.verifier.worker", str(memory_mb), str(timeout_s)]
        self._jobs: queue.SimpleQueue[tuple[str, str, Future[str]] | None] = queue.SimpleQueue()
        self._closed = False
        self._threads = [
            threading.Thread(target=self._serve, name=f"verifier-{i}", daemon=True) for i in range(workers)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, gold: str, answer: str) -> Future[str]:
        """Compare two raw answers. The Future never raises: "equal", "unequal", "unparsed", "timeout" or "crash"."""
        if self._closed:
            raise RuntimeError("this verifier is closed")
        outcome: Future[str] = Future()
        self._jobs.put((gold, answer, outcome))
        return outcome

    def close(self) -> None:
        """Finish the submitted comparisons, then end the workers."""
        if not self._closed:
            self._closed = True
            for _ in self._threads:
                self._jobs.put(None)
            for thread in self._threads:
                thread.join()

    def _serve(self) -> None:
        worker = self._start()  # now, so that the first answer does not wait for it
        while (job := self._jobs.get()) is not None:
            gold, answer, outcome = job
            worker = worker or self._start()
            try:
                result = worker.ask(gold, answer, self._timeout_s) if worker else "crash"
            except Exception as error:
                _warn(error)
                worker.alive, result = False, "crash"
            outcome.set_result(result)
            if worker and (worker.answered >= ANSWERS_PER_WORKER or not worker.alive):
                worker.stop()
                worker = self._start()
        if worker:
            worker.stop()

    def _start(self) -> "_Worker | None":
        try:
            return _Worker(self._command)
        except OSError as error:
            _warn(error)
            return None


def _warn(error: Exception) -> None:
    """Report a broken installation or a lack of processes, whose answers are all counted as crashes."""
    warnings.warn(f"a verifier worker failed: {error}", stacklevel=2)


class _Worker:
    """One process and its pipes, used by one thread."""

    def __init__(self, command: list[str]) -> None:
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("LD_PRELOAD", "PYTHONSTARTUP"))}
        root = str(Path(__file__).resolve().parents[2])
        environment |= {"PYTHONPATH": root, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONHASHSEED": "0"}
        self.answered = 0
        self.alive = True
        self._ready = False
        self._buffer = b""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed by stop)
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, env=environment,
            start_new_session=True,  # Ctrl-C in the terminal reaches the trainer alone, which then closes the pool
        )  # fmt: skip

    def ask(self, gold: str, answer: str, timeout_s: float) -> str:
        """Return the worker's verdict, "timeout" after killing it, or "crash" when it died. Start-up does not count."""
        if not self._ready:
            self._ready = self._read_line(START_LIMIT_S) == "ready"
            if not self._ready:
                self._errors.seek(0)
                tail = self._errors.read().decode(errors="replace").strip()[-500:]
                raise RuntimeError(f"it did not start: {tail or 'no message'}")
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps([gold, answer]).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            return self._lost("crash")
        reply = self._read_line(timeout_s)
        self.answered += 1
        if reply is None:
            return self._lost("timeout")
        if reply not in ("equal", "unequal", "unparsed"):
            return self._lost("crash")  # "memory", or the pipe closed
        return reply

    def _lost(self, outcome: str) -> str:
        self.alive = False
        self._process.kill()
        return outcome

    def _read_line(self, timeout_s: float) -> str | None:
        """Read one line; "" at the end of the pipe, None at the deadline."""
        assert self._process.stdout is not None
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                return None
            chunk = os.read(self._process.stdout.fileno(), 4096)
            if not chunk:
                return ""
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode(errors="replace")

    def stop(self) -> None:
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout, self._errors):
            if pipe:
                with contextlib.suppress(OSError):  # unsent bytes for a process that has ended
                    pipe.close()
        self._process.wait()
