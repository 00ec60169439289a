"""The worker processes of the verifier, and the server that imports sympy once and forks them.

Run by d3s/verifier/pool.py as `python -m d3s.verifier.worker FUNCTION`, with its control socket as stdin. It calls the
function without arguments, which loads what that needs, and sends READY. Then each b"start MEMORY_MB TIMEOUT_S" with
one socket is answered by the id of a new worker that serves it, and b"end ID" kills that worker. The server ends, and
its workers with it, when the control socket is closed.

A worker reads requests, writes replies, and may be killed at any moment. A request is one JSON line of the arguments of
FUNCTION, `[gold, answer]` of `compare`. A reply is the line that it returns, "unparsed" if it raises, or "memory".

In addition to the parent's deadline, each answer has a kernel timer whose default action ends the process, so that a
worker stuck in C code ends even after its parent has died. An idle process checks whether its parent is still alive.
"""

import contextlib
import gc
import json
import os
import pkgutil
import resource
import select
import signal
import socket
import sys
from collections.abc import Callable

from d3s.verifier.pool import READY

IDLE_CHECK_S = 2.0
GRACE_S = 2.0  # seconds by which the kernel timer follows the parent's deadline


def main() -> None:
    parent = os.getppid()
    control = socket.socket(fileno=os.dup(0))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # a caller's SIG_IGN is inherited, and waitpid would fail
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    function = pkgutil.resolve_name(sys.argv[1])
    function()
    null_device = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null_device, stream)
    gc.collect()
    gc.freeze()  # else the first collection in a worker copies every page
    control.send(READY)
    workers: set[int] = set()
    while True:
        if not select.select([control], [], [], IDLE_CHECK_S)[0]:
            if os.getppid() != parent:
                break
            continue
        message, links, *_ = socket.recv_fds(control, 100, 1)
        if not message:
            break
        numbers = message.split()[1:]
        if links:
            worker = os.fork()
            if not worker:
                control.close()
                _work(function, socket.socket(fileno=links[0]), int(numbers[0]), float(numbers[1]))
            os.close(links[0])
            workers.add(worker)
            control.send(str(worker).encode())
        elif (worker := int(numbers[0])) in workers:  # not one of an earlier server, whose number may be in use again
            _end(worker)
            workers.remove(worker)
    for worker in workers:
        _end(worker)


def _end(worker: int) -> None:
    """Kill a worker. Its number is not used again before waitpid."""
    os.kill(worker, signal.SIGKILL)
    os.waitpid(worker, 0)


def _work(function: Callable[..., str], link: socket.socket, memory_mb: int, timeout_s: float) -> None:
    """Answer the requests of one worker. Never returns."""
    with contextlib.suppress(BaseException):
        parent = os.getppid()
        resource.setrlimit(resource.RLIMIT_AS, (memory_mb << 20, memory_mb << 20))
        requests = link.makefile("rb")
        reply = ""
        while reply != "memory" and (line := _next_line(requests, parent)):
            request = json.loads(line)
            signal.setitimer(signal.ITIMER_REAL, timeout_s + GRACE_S)
            reply = _reply(function, request)
            signal.setitimer(signal.ITIMER_REAL, 0)
            link.sendall(reply.encode() + b"\n")
    os._exit(0)


def _reply(function: Callable[..., str], request: list) -> str:
    try:
        return function(*request)
    except MemoryError:
        return "memory"
    except Exception:  # UnreadableError or RecursionError; sympy may raise anything
        return "unparsed"


def compare(gold: str = "", answer: str = "") -> str:
    """Whether two answers are equal or unequal formulas; without them load what that takes."""
    from d3s.verifier.equivalence import equivalent
    from d3s.verifier.symbolic import equal_formulas, warm_up

    if not gold:
        warm_up()
    return "equal" if equivalent(gold, answer, equal_formulas) else "unequal"


def _next_line(requests, parent: int) -> bytes:
    """Wait for the next request; b"" when the parent closed the link or has ended."""
    while not select.select([requests], [], [], IDLE_CHECK_S)[0]:
        if os.getppid() != parent:
            return b""
    return requests.readline()


if __name__ == "__main__":
    main()
