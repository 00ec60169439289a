"""One worker process of the verifier: reads pairs, writes verdicts, may be killed at any moment.

Run by d3s/verifier/pool.py as `python -m d3s.verifier.worker MEMORY_MB TIMEOUT_S`. A request is one JSON line
`[gold, answer]`. A reply is one line: "equal", "unequal", "unparsed" (one side cannot be parsed as a formula) or
"memory". The first line is "ready".

In addition to the parent's deadline, each answer has a kernel timer whose default action ends the process, so that a
worker stuck in C code ends even after its parent has died. An idle worker checks whether its parent is still alive.
"""

import json
import os
import resource
import select
import signal
import sys

READY = "ready"
IDLE_CHECK_S = 2.0
GRACE_S = 2.0  # seconds by which the kernel timer follows the parent's deadline


def main() -> None:
    parent = os.getppid()
    memory_mb, timeout_s = int(sys.argv[1]), float(sys.argv[2])
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    resource.setrlimit(resource.RLIMIT_AS, (memory_mb << 20, memory_mb << 20))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)

    from d3s.verifier.latex import UnreadableError
    from d3s.verifier.symbolic import equal_formulas, warm_up

    warm_up()
    null_device = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null_device, 1)  # output of a library must not look like a reply
    os.dup2(null_device, 2)
    _send(replies, READY)
    requests = sys.stdin.buffer
    while line := _next_line(requests, parent):
        gold, answer = json.loads(line)
        signal.setitimer(signal.ITIMER_REAL, timeout_s + GRACE_S)
        reply = _decide(gold, answer, equal_formulas, UnreadableError)
        signal.setitimer(signal.ITIMER_REAL, 0)
        _send(replies, reply)
        if reply == "memory":
            return


def _decide(gold: str, answer: str, formulas, unreadable: type[Exception]) -> str:
    from d3s.verifier.equivalence import equivalent

    try:
        return "equal" if equivalent(gold, answer, formulas) else "unequal"
    except MemoryError:
        return "memory"
    except (unreadable, RecursionError):
        return "unparsed"
    except Exception:  # sympy may raise anything; the parent counts it
        return "unparsed"


def _next_line(requests, parent: int) -> bytes:
    """Wait for the next request; b"" when the parent closed the pipe or has ended."""
    while not select.select([requests], [], [], IDLE_CHECK_S)[0]:
        if os.getppid() != parent:
            return b""
    return requests.readline()


def _send(replies, text: str) -> None:
    replies.write(text + "\n")
    replies.flush()


if __name__ == "__main__":
    main()
