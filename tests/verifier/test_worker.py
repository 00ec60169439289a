"""The server and its workers: replies, limits and their end, by the process table."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from d3s.verifier.pool import Server, Worker
from tests.helpers.verifier_workers import STUCK, VERIFIER, children, eventually, is_alive, worker_ids

ROOT = Path(__file__).resolve().parents[2]
REPLIES = {
    (r"2\sqrt2", r"\sqrt{8}"): "equal", (r"2\sqrt2", r"\sqrt{9}"): "unequal", ("5", "1+@"): "unparsed",
    ("x^2-1", "(x-1)(x+1)"): "equal", ("1", "9^{9^{9^9}}"): "unparsed", ("x", r"\text{é\n}"): "unparsed",
    ("4", r"\sqrt{16}"): "equal",
}  # fmt: skip


def test_worker_replies_until_its_link_closes_or_on_request() -> None:
    workers = [Worker(memory_mb=1024, timeout_s=20.0) for _ in range(3)]
    assert {request: workers[2].ask(*request, 20.0) for request in REPLIES} == REPLIES
    assert worker_ids() >= {worker.id for worker in workers}
    workers[0].link.close()
    stranger = subprocess.Popen(["sleep", "60"])
    workers[2].server.end(stranger.pid)
    workers[1].stop()
    assert eventually(lambda: not any(is_alive(worker.id) for worker in workers[:2]), 10.0)
    assert workers[2].ask("4", r"\sqrt{16}", 20.0) == "equal" and stranger.poll() is None
    stranger.kill()
    stranger.wait()
    workers[2].stop()


def test_kernel_timer_ends_a_stuck_worker() -> None:
    """Nobody kills it here: the timer fires 2 s after the limit."""
    worker = Worker(memory_mb=1024, timeout_s=0.2)
    start = time.monotonic()
    assert worker.ask("5", STUCK, 20.0) == "crash"
    assert 2.0 <= time.monotonic() - start < 6.0 and eventually(lambda: not is_alive(worker.id), 5.0)
    worker.stop()


def test_stopped_server_ends_its_workers() -> None:
    server = Server()
    link, other = socket.socketpair()
    with link, other:
        worker = server.start(other, memory_mb=1024, timeout_s=20.0)
        server.stop()
        assert not is_alive(worker)


ORPHANS = rf"""
import os, time
from d3s.verifier.verifier import Verifier
verifiers = [Verifier(workers=1, timeout_s=2.0) for _ in range(2)]
for verifier in verifiers:
    verifier.score([r"\boxed{{\sqrt{{4}}}}"], ["2"])
verifiers[0].submit(r"\boxed{{{STUCK}}}", "5")
if os.fork():
    print("up", flush=True)
time.sleep(60)
"""


def test_workers_end_with_a_killed_parent() -> None:
    """Busy and idle ones, although another process still has the other end of every socket."""
    parent = subprocess.Popen([sys.executable, "-c", ORPHANS], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    with parent.stdout:
        assert parent.stdout.readline() == "up\n"
    (fork,) = children(parent.pid, b"verifiers = [")
    workers = worker_ids(parent.pid)
    servers = children(parent.pid, VERIFIER) - {fork}
    parent.kill()
    parent.wait()
    try:
        assert (len(workers), len(servers)) == (2, 1)
        assert eventually(lambda: not any(is_alive(process) for process in workers | servers), 10.0)
    finally:
        os.kill(fork, signal.SIGKILL)
