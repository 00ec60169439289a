"""A pool of worker processes that compare formulas, each with a deadline enforced from outside.

One thread of the calling process serves each worker: it sends a request, waits until the deadline, then kills the
worker and starts a new one. This works from any thread without signals, and a worker that is stuck in C code or out of
memory costs one answer. Workers are forks of one child process (`python -m d3s.verifier.worker`), which starts with the
first formula and serves all pools. It imports sympy, and neither the caller's main module nor torch nor anything else
of the training environment. Pools with another function than the comparison have a child process of their own.
"""

import contextlib
import functools
import json
import os
import queue
import select
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from concurrent.futures import Future
from pathlib import Path
from typing import Any

READY = b"ready"  # what the server sends first
START_LIMIT_S = 60.0  # seconds in which the server must import sympy, on a busy machine
FORMULAS = "d3s.verifier.worker:compare"
ANSWERS_PER_WORKER = 5_000  # then it is replaced, so that its memory cannot grow without limit


class FormulaPool:
    """Compare formulas in `workers` processes behind one queue.

    Args:
        timeout_s: wall-clock limit of one comparison in seconds; start-up does not count.
        memory_mb: address space of one worker in MiB.
        function: `module:function` that answers a request, JSON values, by one line of text.
    """

    def __init__(self, workers: int, timeout_s: float, memory_mb: int, function: str = FORMULAS) -> None:
        self._timeout_s, self._memory_mb, self._function = timeout_s, memory_mb, function
        self._jobs: queue.SimpleQueue[tuple[tuple[Any, ...], Future[str]] | None] = queue.SimpleQueue()
        self._closed = False
        self._threads = [
            threading.Thread(target=self._serve, name=f"verifier-{i}", daemon=True) for i in range(workers)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, *request: Any) -> Future[str]:
        """Compare two raw answers. The Future never raises: "equal", "unequal", "unparsed", "timeout" or "crash"."""
        if self._closed:
            raise RuntimeError("this verifier is closed")
        outcome: Future[str] = Future()
        self._jobs.put((request, outcome))
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
        worker = None
        while (job := self._jobs.get()) is not None:
            request, outcome = job
            result = "crash"
            try:
                worker = worker or Worker(self._memory_mb, self._timeout_s, self._function)
                result = worker.ask(*request, timeout_s=self._timeout_s)
            except Exception as error:  # a broken installation or a lack of processes; all such answers are crashes
                warnings.warn(f"a verifier worker failed: {error}", stacklevel=2)
            outcome.set_result(result)
            if worker and (worker.answered >= ANSWERS_PER_WORKER or result in ("timeout", "crash")):
                worker.stop()
                worker = None
        if worker:
            worker.stop()


class Server:
    """The process that forks the workers, started when the first one is asked for, and again should it end."""

    def __init__(self, function: str = FORMULAS) -> None:
        self._lock, self._function = threading.Lock(), function
        self._process: subprocess.Popen | None = None

    def start(self, link: socket.socket, memory_mb: int, timeout_s: float) -> int:
        """Fork a worker that serves `link`; its process id. Raises OSError or RuntimeError if there is none."""
        request = f"start {memory_mb} {timeout_s}".encode()
        with self._lock:
            for _ in range(2):  # once more if the server has ended
                if self._process is None:
                    self._launch()
                with contextlib.suppress(OSError, ValueError):
                    socket.send_fds(self._control, [request], [link.fileno()])
                    return int(self._control.recv(20))
                self.stop()
            raise RuntimeError("the server of the workers ends at once")

    def end(self, worker: int) -> None:
        """Kill a worker, unless the server has ended, and its workers with it."""
        with self._lock, contextlib.suppress(OSError):
            if self._process:
                self._control.send(b"end %d" % worker)

    def _launch(self) -> None:
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("LD_PRELOAD", "PYTHONSTARTUP"))}
        root = str(Path(__file__).resolve().parents[2])
        environment |= {"PYTHONPATH": root, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONHASHSEED": "0"}
        self._control, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with tempfile.TemporaryFile() as errors:
            with other:
                command = [sys.executable, "-m", "d3s.verifier.worker", self._function]
                self._process = subprocess.Popen(
                    command, stdin=other, stdout=subprocess.DEVNULL, stderr=errors, env=environment,
                    start_new_session=True,  # Ctrl-C reaches the trainer alone, which then closes the pool
                )  # fmt: skip
            ready = select.select([self._control], [], [], START_LIMIT_S)[0] and self._control.recv(20)
            if ready != READY:
                self.stop()
                errors.seek(0)
                tail = errors.read().decode(errors="replace").strip()[-500:]
                raise RuntimeError(f"it did not start: {tail or 'no message'}")

    def stop(self) -> None:
        """End the process, and its workers with it."""
        if self._process:
            self._control.close()
            try:
                self._process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None


@functools.cache
def _server(process: int, function: str) -> Server:
    """The server of this process; a forked one needs its own. It ends with the process."""
    return Server(function)


class Worker:
    """One worker process and the link to it, used by one thread."""

    def __init__(self, memory_mb: int, timeout_s: float, function: str = FORMULAS) -> None:
        self.answered = 0
        self._buffer = b""
        self.server = _server(os.getpid(), function)
        self.link, other = socket.socketpair()
        try:
            with other:
                self.id = self.server.start(other, memory_mb, timeout_s)
        except (OSError, RuntimeError):
            self.link.close()
            raise

    def ask(self, *request: Any, timeout_s: float) -> str:
        """Return the worker's reply, "timeout" at the deadline, or "crash" when it died. After these two, stop it."""
        self.link.settimeout(timeout_s)  # of a stopped worker the buffer may be full
        try:
            self.link.sendall(json.dumps(request).encode() + b"\n")
        except OSError:
            return "crash"
        reply = self._read_line(timeout_s)
        self.answered += 1
        if reply is None:
            return "timeout"
        return "crash" if reply in ("", "memory") else reply  # "" where the link closed

    def _read_line(self, timeout_s: float) -> str | None:
        """Read one line; "" at the end of the link, None at the deadline."""
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._buffer:
            if not select.select([self.link], [], [], max(0.0, deadline - time.monotonic()))[0]:
                return None
            with contextlib.suppress(ConnectionResetError):
                if chunk := self.link.recv(1 << 16):
                    self._buffer += chunk
                    continue
            return ""
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode(errors="replace")

    def stop(self) -> None:
        """Kill the process."""
        self.server.end(self.id)
        self.link.close()
