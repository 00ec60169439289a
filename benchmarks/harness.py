"""Shared parts of the benchmarks: alternating processes, meters, the machine, published tables.

A side is one implementation in a process of its own. It runs the same piece of work once per measurement and reports
its seconds and peak memory. Measurements of the sides alternate, in an order that rotates, so that other load on the
machine slows all of them alike. Nothing of d3s is imported here: TRL's process, which has an environment of its own,
loads only what TRL needs.
"""

import ctypes
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
RESULTS = ROOT / "runs" / "benchmarks"
TRL_PYTHON = ROOT / ".venv-trl" / "bin" / "python"
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "TRL_EXPERIMENTAL_SILENCE": "1",
    "PYTHONWARNINGS": "ignore",
}


# --- in the process of a side ----------------------------------------------------------------------------------------


def resident(field: str = "VmRSS") -> float:
    """Resident memory of this process in MB, now (VmRSS) or at its peak since the last Meter.start() (VmHWM)."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith(field)) / 1024


class Meter:
    """Wall seconds, CPU seconds and memory between start() and stop()."""

    def start(self) -> None:
        """Begin a measurement: reset the peak, and return free memory to the system, which would hide the next peak."""
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
        self._before = resident()
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def stop(self) -> dict[str, float]:
        """Usage since start(). `resident` is the memory in MB at start(), `peak` the largest increase above it."""
        wall, cpu = time.perf_counter() - self._wall, time.process_time() - self._cpu
        return {"wall": wall, "cpu": cpu, "peak": resident("VmHWM") - self._before, "resident": self._before}


def serve(work: Callable[[], dict | None]) -> None:
    """Call `work` for each line on standard input, and write its usage and what it returns to standard output."""
    channel = open_channel()
    meter = Meter()
    for _ in sys.stdin:
        meter.start()
        extra = work() or {}
        report(channel, meter.stop() | extra)
    os._exit(0)  # as train.py ends: gloo's threads can block a finished interpreter


def open_channel() -> TextIO:
    """Return standard output for reports, and redirect the output of libraries to standard error."""
    channel = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return channel


def report(channel: TextIO, record: dict) -> None:
    """Send one report to the parent process."""
    channel.write(json.dumps(record) + "\n")


# --- in the parent process -------------------------------------------------------------------------------------------


class Side:
    """The parent's handle of a side's process."""

    def __init__(
        self, module: list[str], log: Path, python: str = sys.executable, environment: dict[str, str] | None = None
    ) -> None:
        """Start `python -m MODULE ARGUMENTS`; standard error goes to the file `log`."""
        self._log = log
        self._process = subprocess.Popen(
            [python, "-m", *module],
            cwd=ROOT,
            env=os.environ | ENVIRONMENT | (environment or {}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log.open("w"),
            text=True,
        )

    def measure(self) -> dict:
        """Run the side's work once and return its report.

        Raises:
            RuntimeError: the process ended; the message has the end of its log
        """
        try:
            self._process.stdin.write("run\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # the process has ended; the empty line below shows it
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._log.stem}: the process ended during a run:\n{self._log.read_text()[-3000:]}")
        return json.loads(line)

    def close(self) -> None:
        """End the process."""
        self._process.stdin.close()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def alternate(sides: dict[str, Side], rounds: int, warmup: int = 1) -> dict[str, list[dict]]:
    """Measure every side `rounds` times, after `warmup` rounds that do not count, and close them.

    Example: with sides A, B and C the order is A B C, then B C A, then C A B.
    """
    reports: dict[str, list[dict]] = {name: [] for name in sides}
    names = list(sides)
    try:
        for number in range(warmup + rounds):
            first = number % len(names)
            for name in names[first:] + names[:first]:
                measurement = sides[name].measure()
                if number >= warmup:
                    reports[name].append(measurement)
    finally:
        for side in sides.values():
            side.close()
    return reports


# --- results ---------------------------------------------------------------------------------------------------------


def median(reports: list[dict], key: str) -> float:
    """The median of one entry over a side's reports."""
    return statistics.median(report[key] for report in reports)


def with_spread(reports: list[dict], key: str, digits: int = 3) -> str:
    """Median with smallest and largest value, as in "1.23 (1.20-1.41)"."""
    values = [report[key] for report in reports]
    low, middle, high = (f"{x:.{digits}f}" for x in (min(values), statistics.median(values), max(values)))
    return f"{middle} ({low}-{high})"


def machine() -> dict[str, str | int]:
    """The machine, its load and the commit, for the record of a measurement."""
    import torch

    cpuinfo = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    model = next((line.split(":")[1].strip() for line in cpuinfo.splitlines() if "model name" in line), "")
    return {
        "cpu": model or platform.machine(),
        "cores": os.cpu_count() or 1,
        "threads": int(os.environ.get("OMP_NUM_THREADS", ENVIRONMENT["OMP_NUM_THREADS"])),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
        "torch": torch.__version__,
        "load": round(os.getloadavg()[0], 1),
        "revision": revision(),
    }


def revision() -> str:
    """The current commit, with a + if files have changed since; empty outside a Git checkout."""
    try:
        command = ["git", "describe", "--always", "--dirty=+", "--match="]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def markdown(header: list[str], rows: list[list[str]]) -> str:
    """Format a Markdown table."""
    return "\n".join("| " + " | ".join(row) + " |" for row in [header, ["---"] * len(header), *rows])


def write_between_marks(path: Path, name: str, text: str) -> None:
    """Replace the text between <!-- NAME --> and <!-- /NAME --> in a Markdown file."""
    begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
    before, _, rest = path.read_text().partition(begin)
    path.write_text(before + begin + text + end + rest.partition(end)[2])


def publish(name: str, title: str, columns: list[str], rows: list[list[str]], record: dict, notes: str = "") -> None:
    """Print the table, and write it to RESULTS/NAME.md with `record` and the machine in NAME.json."""
    try:
        from rich.console import Console
        from rich.table import Table
    except ImportError:  # benchmarks/speed/gpu.py needs little more than torch
        print(title, *(" | ".join(row) for row in [columns, *rows]), notes, sep="\n")
    else:
        table = Table(*columns, title=title)
        for row in rows:
            table.add_row(*row)
        console = Console(width=None if sys.stdout.isatty() else 160)
        console.print(table)
        console.print(notes, highlight=False, markup=False)
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{name}.md").write_text("\n".join([f"**{title}**", "", markdown(columns, rows), "", notes, ""]))
    (RESULTS / f"{name}.json").write_text(json.dumps({"machine": machine()} | record, indent=1, default=str))
    print(f"written: {RESULTS / name}.md and .json")
