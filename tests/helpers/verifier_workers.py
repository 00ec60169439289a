"""Find the worker processes of a verifier or the servers of a sandbox, and keep a worker busy."""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

VERIFIER = b"d3s.verifier.worker"
STUCK = r"\int_0^1\int_0^1\int_0^1 \sin(xyz)^{\cos(x+y)} dx dy dz"  # takes longer than any time limit of the tests


def parent_of(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def children(parent: int, program: bytes) -> set[int]:
    """Return the process ids of the children of one process that run this program."""
    found = set()
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if program in (entry / "cmdline").read_bytes() and parent_of(int(entry.name)) == parent:
                found.add(int(entry.name))
    return found


def worker_ids(parent: int | None = None) -> set[int]:
    """Return the process ids of the verifier workers of one process, by default of this one."""
    servers = children(parent or os.getpid(), VERIFIER)
    return {worker for server in servers for worker in children(server, VERIFIER)}


def server_ids(parent: int | None = None) -> set[int]:
    """Return the process ids of the fork servers of a sandbox."""
    return children(parent or os.getpid(), b"zygote.py")


def is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def eventually(condition: Callable[[], bool], seconds: float) -> bool:
    """Wait until a condition holds, at most `seconds`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return condition()
