"""The server and its workers by their protocol, without the pool: replies, limits, their end."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.verifier_workers import STUCK, VERIFIER, children, eventually, is_alive, worker_ids

ROOT = Path(__file__).resolve().parents[2]


class Server:
    """A server with a client for its control socket."""

    def __init__(self, memory_mb: int, timeout_s: float) -> None:
        command = [sys.executable, "-m", "d3s.verifier.worker"]
        self.limits = b"%d %g" % (memory_mb, timeout_s)
        self.control, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other:
            self.process = subprocess.Popen(command, cwd=ROOT, stdin=other, stdout=subprocess.PIPE)
        assert self.control.recv(20) == b"ready"

    def start(self) -> "Worker":
        link, other = socket.socketpair()
        with other:
            socket.send_fds(self.control, [b"start " + self.limits], [other.fileno()])
            return Worker(int(self.control.recv(20)), link)

    def end(self) -> None:
        self.control.close()
        assert self.process.communicate(timeout=30)[0] == b"" and self.process.returncode == 0


class Worker:
    """A worker process with a client for its link."""

    def __init__(self, process: int, link: socket.socket) -> None:
        self.id, self.link = process, link
        self.replies = link.makefile()

    def ask(self, gold: str, answer: str) -> str:
        self.link.sendall(json.dumps([gold, answer]).encode() + b"\n")
        return self.replies.readline().rstrip("\n")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    made = Server(memory_mb=1024, timeout_s=20.0)
    yield made
    made.end()


@pytest.fixture(scope="module")
def worker(server: Server) -> Worker:
    return server.start()


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


def test_worker_ends_with_its_link_and_on_request(server: Server) -> None:
    workers = [server.start() for _ in range(3)]
    assert children(server.process.pid, VERIFIER) >= {worker.id for worker in workers}
    workers[0].replies.close()
    workers[0].link.close()
    stranger = subprocess.Popen(["sleep", "60"])
    for process in (stranger.pid, workers[1].id):
        server.control.send(b"end %d" % process)
    assert eventually(lambda: not any(is_alive(worker.id) for worker in workers[:2]), 10.0)
    assert workers[2].ask("4", r"\sqrt{16}") == "equal" and stranger.poll() is None
    stranger.kill()
    stranger.wait()


def test_kernel_timer_ends_a_stuck_worker() -> None:
    """Nobody kills it here: the timer fires 2 s after the limit. The server ends what is left."""
    server = Server(memory_mb=1024, timeout_s=0.2)
    worker, other = server.start(), server.start()
    start = time.monotonic()
    assert worker.ask("5", STUCK) == ""
    assert 2.0 <= time.monotonic() - start < 6.0
    assert eventually(lambda: not is_alive(worker.id), 5.0) and is_alive(other.id)
    server.end()
    assert not is_alive(other.id)


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
    fork = 0
    try:
        assert parent.stdout.readline() == "up\n"
        (fork,) = children(parent.pid, b"verifiers = [")
        workers = worker_ids(parent.pid)
        servers = children(parent.pid, VERIFIER) - {fork}
        assert (len(workers), len(servers)) == (2, 1)
        parent.kill()
        parent.wait()
        assert eventually(lambda: not any(is_alive(process) for process in workers | servers), 10.0)
    finally:
        parent.kill()
        parent.stdout.close()
        if fork:
            os.kill(fork, 9)
