"""Child processes of a test, for what must survive a kill or end by a signal; programs in a new Python."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.helpers.warm_python import ROOT


def run_python(code: str, *arguments: str, cwd: Path = ROOT, timeout: float = 120, **options) -> str:
    """What a program prints; it must end with exit code 0."""
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, cwd=cwd, timeout=timeout, capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def in_child(action: Callable[[Callable[[], object]], None]) -> tuple[int, int]:
    """Run `action(ready)` in a child process. Return its id, and a pipe that is readable once it has called ready()."""
    reader, writer = os.pipe()
    if child := os.fork():
        os.close(writer)
        return child, reader
    try:
        os.dup2(writer, 2)
        action(lambda: os.write(writer, b"ready\n"))
    finally:
        os._exit(99)
