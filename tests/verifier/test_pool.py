"""The worker pool, its server and workers: replies, limits and their end, by the process table."""

import contextlib
import os
import resource
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest

from d3s.verifier.pool import FormulaPool, Server, Worker
from d3s.verifier.verifier import Verifier
from tests.helpers.verifier_workers import STUCK, VERIFIER, children, eventually, is_alive, parent_of, worker_ids
from tests.helpers.warm_python import ROOT

LIMIT_S = 1.0


def test_stuck_stopped_and_killed_workers_are_replaced() -> None:
    earlier = worker_ids()  # of verify(), from other tests
    with Verifier(workers=1, timeout_s=LIMIT_S) as verifier:
        verifier.score([r"\boxed{\sqrt{4}}"], ["2"])
        (worker,) = worker_ids() - earlier
        start = time.monotonic()
        stuck = verifier.submit(rf"\boxed{{{STUCK}}}", "5")
        after = verifier.submit(r"\boxed{\sqrt{16}}", "4")
        assert stuck.result() == 0.0
        assert LIMIT_S * 0.99 <= time.monotonic() - start < LIMIT_S + 1.0
        assert after.result() == 1.0 and verifier.take_stats()["timeouts"] == 1
        for number, count in ((signal.SIGSTOP, "timeouts"), (signal.SIGKILL, "crashes")):
            before, (worker,) = worker, worker_ids() - earlier
            assert worker != before
            os.kill(worker, number)
            response = rf"\boxed{{\sqrt{{{number**2}}}}}"
            assert verifier.score([response], [str(int(number))]) == [0.0]
            assert verifier.take_stats()[count] == 1
            assert verifier.score([response], [str(int(number))]) == [1.0]  # compared again
        (worker,) = worker_ids() - earlier
        os.kill(parent_of(worker), signal.SIGKILL)  # the server, which its workers follow
        assert eventually(lambda: not is_alive(worker), 10.0)
        assert [verifier.score([r"\boxed{\sqrt{49}}"], ["7"]) for _ in range(2)] == [[0.0], [1.0]]


def test_memory_is_bounded_and_close_finishes_the_queue() -> None:
    earlier = worker_ids()
    pool = FormulaPool(workers=1, timeout_s=20.0, memory_mb=256)
    hungry = pool.submit("5", r"\gcd(9^{9^{9}}, 3) + \gcd(8^{9^{9}}, 3) + \gcd(7^{9^{9}}, 3)")
    peak = 0
    while not hungry.done():
        for worker in worker_ids() - earlier:
            with contextlib.suppress(OSError):
                peak = max(peak, int(Path(f"/proc/{worker}/statm").read_text().split()[1]) * resource.getpagesize())
        time.sleep(0.02)
    outcomes = [pool.submit(str(number), rf"\sqrt{{{number**2}}}") for number in range(2, 5)]
    pool.close()
    assert hungry.result() in ("crash", "timeout", "unparsed") and 0 < peak < 256 << 20
    assert [outcome.result(0) for outcome in outcomes] == ["equal"] * 3
    assert eventually(lambda: worker_ids() <= earlier, 5.0)
    with pytest.raises(RuntimeError, match="closed"):
        pool.submit("2", "2")


@pytest.mark.parametrize("exists", [True, False])
def test_worker_that_cannot_start_is_a_warning(exists: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "python"
    if exists:
        python.write_text("#!/bin/sh\necho broken installation >&2\nexit 1\n")
        python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setattr("d3s.verifier.pool._server", lambda process, function: Server())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        pool = FormulaPool(workers=1, timeout_s=LIMIT_S, memory_mb=1024)
        assert [pool.submit("2", rf"\sqrt{{{n}}}").result() for n in (4, 5)] == ["crash", "crash"]
        pool.close()
    assert any(("broken installation" if exists else "python") in str(warning.message) for warning in caught)


REPLIES = {
    (r"2\sqrt2", r"\sqrt{8}"): "equal", (r"2\sqrt2", r"\sqrt{9}"): "unequal", ("5", "1+@"): "unparsed",
    ("x^2-1", "(x-1)(x+1)"): "equal", ("1", "9^{9^{9^9}}"): "unparsed", ("x", r"\text{é\n}"): "unparsed",
    ("4", r"\sqrt{16}"): "equal",
}  # fmt: skip


def test_worker_replies_until_its_link_closes_or_on_request() -> None:
    workers = [Worker(memory_mb=1024, timeout_s=20.0) for _ in range(3)]
    assert {request: workers[2].ask(*request, timeout_s=20.0) for request in REPLIES} == REPLIES
    assert worker_ids() >= {worker.id for worker in workers}
    workers[0].link.close()
    stranger = subprocess.Popen(["sleep", "60"])
    workers[2].server.end(stranger.pid)
    workers[1].stop()
    assert eventually(lambda: not any(is_alive(worker.id) for worker in workers[:2]), 10.0)
    assert workers[2].ask("4", r"\sqrt{16}", timeout_s=20.0) == "equal" and stranger.poll() is None
    stranger.kill()
    stranger.wait()
    workers[2].stop()


def test_kernel_timer_ends_a_stuck_worker() -> None:
    """Nobody kills it here: the timer fires 2 s after the limit."""
    worker = Worker(memory_mb=1024, timeout_s=0.2)
    start = time.monotonic()
    assert worker.ask("5", STUCK, timeout_s=20.0) == "crash"
    assert 2.0 <= time.monotonic() - start < 6.0 and eventually(lambda: not is_alive(worker.id), 5.0)
    worker.stop()


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
