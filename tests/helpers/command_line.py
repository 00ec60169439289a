"""Run the repository's command lines under each launcher, and read the files they write."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from tests.helpers.warm_python import ROOT, Fork, environment, start_fork

TORCHRUN = str(Path(sys.executable).with_name("torchrun"))
ACCELERATE = [sys.executable, "-m", "accelerate.commands.launch"]  # `accelerate launch` without its other commands
LAUNCHERS = {
    "single": [sys.executable],
    "ddp": [TORCHRUN, "--standalone", "--nproc_per_node", "2"],
    "zero3": [
        *ACCELERATE, "--num_cpu_threads_per_process", "1", "--config_file", "configs/accelerate/zero3_cpu.yaml",
    ],
}  # fmt: skip
LAUNCHERS["one zero3 rank"] = [*LAUNCHERS["zero3"], "--num_processes", "1"]


def start(arguments: list[str], launcher: str = "single", python: str = "warm") -> subprocess.Popen | Fork:
    """Start train.py or another script in a new session and capture its output.

    Args:
        python: "warm" for a fork of helpers/warm_python.py, which saves the imports; "new" for the command line itself.
    """
    command = [*LAUNCHERS[launcher], *arguments]
    if python == "warm":
        return start_fork(command)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(command, cwd=ROOT, env=environment(), start_new_session=True, **pipes)


def start_nodes(arguments: list[str]) -> list[Fork]:
    """Start a command line under two launchers, as on two nodes, with one DDP rank each."""
    launcher = [TORCHRUN, "--nnodes", "2", "--nproc_per_node", "1", "--master_addr", "127.0.0.1"]
    launcher += ["--master_port", str(free_port()), "--node_rank"]
    return [start_fork([*launcher, str(node), *arguments]) for node in (0, 1)]


def free_port() -> int:
    """A port of this machine that no program uses."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def finish(process: subprocess.Popen | Fork, timeout: float = 240) -> tuple[int, str]:
    """Wait for the end. Return exit code and output; kill what is left of the process group."""
    try:
        output, _ = process.communicate(timeout=timeout)
    finally:
        kill_group(process)
    return process.returncode, output


def run(arguments: list[str], launcher: str = "single", timeout: float = 240, python: str = "warm") -> tuple[int, str]:
    """Run a command line (see `start`). Return exit code and output."""
    return finish(start(arguments, launcher, python), timeout)


def complete(arguments: list[str], launcher: str = "single", timeout: float = 240, python: str = "warm") -> str:
    """Run a command line, which must end with exit code 0. Return its output."""
    code, output = run(arguments, launcher, timeout, python)
    assert code == 0, output
    return output


def kill_group(process: subprocess.Popen | Fork) -> None:
    """Send SIGKILL to the process and everything it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def wait_for(condition, process: subprocess.Popen | Fork, timeout: float = 120) -> None:
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
