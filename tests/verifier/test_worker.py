"""The worker process by its protocol on pipes, without the pool: replies, limits, its end."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.verifier_workers import STUCK, eventually, is_alive, worker_ids

ROOT = Path(__file__).resolve().parents[2]


class Worker:
    """A worker process with a client for its pipes."""

    def __init__(self, memory_mb: int, timeout_s: float) -> None:
        command = [sys.executable, "-m", "d3s.verifier.worker", str(memory_mb), str(timeout_s)]
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stdout.readline() == "ready\n"

    def ask(self, gold: str, answer: str) -> str:
        self.process.stdin.write(json.dumps([gold, answer]) + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().rstrip("\n")

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    made = Worker(memory_mb=1024, timeout_s=20.0)
    yield made
    made.end()


@pytest.mark.parametrize(
    ("gold", "answer", "reply"),
    [
        (r"2\sqrt2", r"\sqrt{8}", "equal"),
        (r"2\sqrt2", r"\sqrt{9}", "unequal"),
        ("x^2-1", "(x-1)(x+1)", "equal"),
        ("5", "1+@", "unparsed"),
        ("1", "9^{9^{9^9}}", "unparsed"),
        ("x", r"\text{é\n}", "unparsed"),
    ],
)
def test_worker_replies(worker: Worker, gold: str, answer: str, reply: str) -> None:
    assert worker.ask(gold, answer) == reply
    assert worker.ask("4", r"\sqrt{16}") == "equal"


def test_worker_ends_at_the_end_of_its_input(worker: Worker) -> None:
    output, errors = worker.process.communicate(timeout=30)
    assert (worker.process.returncode, output, errors) == (0, "", "")


def test_kernel_timer_ends_a_stuck_worker() -> None:
    """The parent does not kill it here: the timer fires 2 s after the limit."""
    worker = Worker(memory_mb=1024, timeout_s=0.2)
    start = time.monotonic()
    assert worker.ask("5", STUCK) == ""
    assert 2.0 <= time.monotonic() - start < 6.0
    assert worker.process.wait(timeout=5) == -14  # SIGALRM
    worker.end()


ORPHANS = rf"""
import subprocess, sys, time
from d3s.verifier.verifier import Verifier
subprocess.Popen([sys.executable, "-m", "d3s.verifier.worker", "1024", "5.0"])
verifier = Verifier(workers=1, timeout_s=2.0)
verifier.score([r"\boxed{{\sqrt{{4}}}}"], ["2"])
verifier.submit(r"\boxed{{{STUCK}}}", "5")
print("up", flush=True)
time.sleep(60)
"""


def test_workers_end_with_a_killed_parent() -> None:
    """A busy one, and an idle one whose input stays open, as this process holds its other end."""
    read_end, write_end = os.pipe()
    command = [sys.executable, "-c", ORPHANS]
    parent = subprocess.Popen(command, cwd=ROOT, stdin=read_end, stdout=subprocess.PIPE, text=True)
    try:
        assert {parent.stdout.readline(), parent.stdout.readline()} == {"ready\n", "up\n"}
        workers = worker_ids(parent.pid)
        assert len(workers) == 2
        parent.kill()
        parent.wait()
        assert eventually(lambda: not any(is_alive(worker) for worker in workers), 10.0)
    finally:
        parent.kill()
        parent.stdout.close()
        os.close(read_end)
        os.close(write_end)
