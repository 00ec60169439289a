"""Run one stage in a child process with a time limit, and tell how it ended."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.gpu_check.rows import Row
from benchmarks.harness import ENVIRONMENT, ROOT

LEAST_SHARE = 1 / 3  # of its limit: with less time left, a stage is not started


@dataclass(frozen=True)
class Stage:
    """A part of the check that runs by itself."""

    name: str
    target: str  # MODULE:FUNCTION, see child.py
    limit: float  # seconds; what a stage needs on an H100, with a reserve of about 2
    every_card: bool = False  # otherwise the first one alone


@dataclass
class Outcome:
    """How a stage ended."""

    name: str
    status: str  # held, did not hold, failed, not run, no time left
    reason: str = ""
    seconds: float = 0.0
    rows: list[Row] = field(default_factory=list)

    @property
    def broken(self) -> bool:
        """Whether the check must end with exit code 1."""
        return self.status in ("did not hold", "failed")


def run_stage(stage: Stage, device: str, remaining: float, folder: Path) -> Outcome:
    """Run a stage with at most `remaining` seconds; its rows and its log are kept in `folder`."""
    if remaining < stage.limit * LEAST_SHARE:
        return Outcome(stage.name, "no time left")
    granted = min(stage.limit, remaining)
    path, log = folder / f"{stage.name}.jsonl", folder / f"{stage.name}.log"
    path.unlink(missing_ok=True)
    started = time.monotonic()
    module = ["benchmarks.gpu_check.child", stage.target, device, f"{granted:.0f}", str(path)]
    code = _run(module, granted, log, stage.every_card)
    seconds = round(time.monotonic() - started, 1)
    rows, missing = _read(path)
    broken = [row.what for row in rows if not row.held]
    if code is None and granted < stage.limit and not broken:
        return Outcome(stage.name, "no time left", f"stopped after {granted:.0f} s", seconds, rows)
    if code is None:
        return Outcome(stage.name, "failed", f"did not end within {granted:.0f} s; log: {log}", seconds, rows)
    if code:
        reason = f"killed by signal {-code}" if code < 0 else last_line(log)
        return Outcome(stage.name, "failed", f"{reason}; log: {log}", seconds, rows)
    if broken:
        return Outcome(stage.name, "did not hold", "; ".join(broken), seconds, rows)
    if missing:
        return Outcome(stage.name, "not run", f"{missing} is not installed", seconds, rows)
    if not rows:
        return Outcome(stage.name, "failed", f"measured nothing; log: {log}", seconds)
    return Outcome(stage.name, "held", "", seconds, rows)


def _run(module: list[str], seconds: float, log: Path, every_card: bool) -> int | None:
    """The exit code of `python -m MODULE …`, None after a timeout. No process that it started is left."""
    environment = os.environ | ENVIRONMENT
    if not every_card:
        environment["CUDA_VISIBLE_DEVICES"] = os.environ.get("CUDA_VISIBLE_DEVICES", "0").partition(",")[0]
    with log.open("w") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", *module],
            cwd=ROOT,
            env=environment,
            stdout=stream,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _read(path: Path) -> tuple[list[Row], str]:
    """The complete rows of a stage, and the library that it misses, if any."""
    rows, missing = [], ""
    for line in path.read_text().splitlines() if path.exists() else []:
        with suppress(ValueError):  # the last line of a killed process
            record = json.loads(line)
            if "missing" in record:
                missing = record["missing"]
            else:
                rows.append(Row(**record))
    return rows, missing


def last_line(log: Path) -> str:
    """The last line of a log that is not empty, which after a traceback is the exception."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][:300] if lines else "no output"
