"""Find the worker processes of a verifier or the servers of a sandbox, and keep a worker busy."""

import os
import time
from collections.abc import Callable
from pathlib import Path

STUCK = r"\int_0^1\int_0^1\int_0^1 \sin(xyz)^{\cos(x+y)} dx dy dz"  # takes longer than any time limit of the tests


def worker_ids(parent: int | None = None, program: bytes = b"d3s.verifier.worker") -> set[int]:
    """Return the process ids of the verifier workers of one process, by default of this one; or of another program."""
    parent = os.getpid() if parent is None else parent
    workers = set()
    for entry in Path("/proc").iterdir():
        try:
            stat, command = (entry / "stat").read_text(), (entry / "cmdline").read_bytes()
        except (OSError, NotADirectoryError):
            continue
        if program in command and int(stat.rpartition(")")[2].split()[1]) == parent:
            workers.add(int(entry.name))
    return workers


def server_ids(parent: int | None = None) -> set[int]:
    """Return the process ids of the fork servers of a sandbox."""
    return worker_ids(parent, b"zygote.py")


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
