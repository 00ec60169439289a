"""Stages of the GPU check that end in every way (benchmarks/gpu_check/runner.py)."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.gpu_check.rows import Row, at_most


def holds(device: str, seconds: float) -> Iterator[Row]:
    yield Row("device", f"a {device} for tests")
    yield at_most("error", 0.5, 1.0)


def exceeds(device: str, seconds: float) -> Iterator[Row]:
    yield at_most("small error", 0.5, 1.0)
    yield at_most("large error", 2.0, 1.0)


def raises(device: str, seconds: float) -> Iterator[Row]:
    yield at_most("error", 0.5, 1.0)
    raise ValueError("wrong shape")


def hangs(device: str, seconds: float) -> Iterator[Row]:
    """Wait with a process of its own, whose number is in the row."""
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield Row("sleeper", str(sleeper.pid))
    time.sleep(600)


def is_killed(device: str, seconds: float) -> Iterator[Row]:
    yield at_most("error", 0.5, 1.0)
    os.kill(os.getpid(), signal.SIGKILL)


def lacks_a_library(device: str, seconds: float) -> Iterator[Row]:
    yield at_most("error", 0.5, 1.0)
    import no_such_library.part

    yield Row("never", str(no_such_library.part))


def lacks_a_part(device: str, seconds: float) -> Iterator[Row]:
    """An installed library that is broken."""
    import json.no_such_part

    yield Row("never", str(json.no_such_part))


def measures_nothing(device: str, seconds: float) -> Iterator[Row]:
    yield from ()


def is_running(pid: int) -> bool:
    """Whether a process exists and has not ended."""
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
