"""Two sides of a conversation in one process."""

import socket
import threading

from d3s.sandbox.solver import Solver
from d3s.sandbox.tester import DEFINED, Tester


def connect(program: str, *tests: str) -> Tester:
    """A tester with a solver in another thread, which has defined the program."""
    ours, theirs = socket.socketpair()

    def solve() -> None:
        with theirs:
            Solver(theirs.fileno(), program).serve()

    threading.Thread(target=solve, daemon=True).start()
    tester = Tester(ours.detach())
    assert tester.define(tests) == DEFINED
    return tester
