"""Run the repository's command lines under each launcher, and read the files they write."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LAUNCHERS = {
    "single": [sys.executable],
    "ddp": [str(Path(sys.executable).with_name("torchrun")), "--standalone", "--nproc_per_node", "2"],
    "zero3": [
        sys.executable, "-m", "accelerate.commands.launch", "--num_cpu_threads_per_process", "1",
        "--config_file", "configs/accelerate/zero3_cpu.yaml",
    ],  # `accelerate launch`, without importing its other commands
}  # fmt: skip
LAUNCHERS["one zero3 rank"] = [*LAUNCHERS["zero3"], "--num_processes", "1"]


def environment() -> dict[str, str]:
    """Environment variables: one thread per process, no network, no variables of another launch."""
    launched = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_PORT", "ACCELERATE_USE_CPU")
    clean = {k: v for k, v in os.environ.items() if k not in launched}
    return clean | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "DS_ACCELERATOR": "cpu"}


def start(arguments: list[str], launcher: str = "single") -> subprocess.Popen:
    """Start train.py or another script in a new session and capture its output."""
    return subprocess.Popen(
        [*LAUNCHERS[launcher], *arguments],
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def finish(process: subprocess.Popen, timeout: float = 240) -> tuple[int, str]:
    """Wait for the end. Return exit code and output; kill what is left of the process group."""
    try:
        output, _ = process.communicate(timeout=timeout)
    finally:
        kill_group(process)
    return process.returncode, output


def run(arguments: list[str], launcher: str = "single", timeout: float = 240) -> tuple[int, str]:
    """Run a command line. Return exit code and output."""
    return finish(start(arguments, launcher), timeout)


def kill_group(process: subprocess.Popen) -> None:
    """Send SIGKILL to the process and everything it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def wait_for(condition, process: subprocess.Popen, timeout: float = 120) -> None:
    """Wait until `condition()` holds. Fail with the output if the process ends first or the time is up."""
    deadline = time.monotonic() + timeout
    while not condition():
        if process.poll() is not None or time.monotonic() > deadline:
            raise AssertionError(f"condition not met; exit code {process.poll()}\n{finish(process, 10)[1]}")
        time.sleep(0.02)


def lines(path: Path) -> list[dict]:
    """Complete lines of a JSON-lines file; [] if there is none."""
    if not path.exists():
        return []
    complete, _, _torn = path.read_text(encoding="utf-8").rpartition("\n")
    return [json.loads(line) for line in complete.split("\n")] if complete else []


def timeless(records: list[dict]) -> list[dict]:
    """Records without measurements of time and memory."""
    noisy = ("time/", "throughput/", "memory/", "wall_time", "seconds")
    return [{k: v for k, v in record.items() if not k.startswith(noisy)} for record in records]
