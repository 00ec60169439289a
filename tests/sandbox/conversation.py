"""Two sides of a conversation in one process."""

import socket
import threading

from d3s.sandbox.solver import Solver
from d3s.sandbox.tester import Tester


def connect(program: str, *tests: str) -> tuple[Tester, bytes]:
    """A tester with a solver in another thread, and the verdict on the program's definition."""
    ours, theirs = socket.socketpair()

    def solve() -> None:
        with theirs:
            Solver(theirs.fileno(), program).serve()

    threading.Thread(target=solve, daemon=True).start()
    tester = Tester(ours.detach())
    return tester, tester.define(tests)
