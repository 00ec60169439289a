"""The worker pool with stuck, stopped, killed, oversized and missing workers, by the process table."""

import os
import signal
import sys
import time
import warnings
from pathlib import Path

import pytest

from d3s.verifier.pool import FormulaPool
from d3s.verifier.verifier import Verifier
from tests.helpers.verifier_workers import STUCK, worker_ids

LIMIT_S = 1.0


def test_stuck_worker_is_killed_and_replaced() -> None:
    earlier = worker_ids()  # of verify(), from other tests
    with Verifier(workers=1, timeout_s=LIMIT_S) as verifier:
        verifier.score([r"\boxed{\sqrt{4}}"], ["2"])
        before = worker_ids() - earlier
        start = time.monotonic()
        stuck = verifier.submit(rf"\boxed{{{STUCK}}}", "5")
        after = verifier.submit(r"\boxed{\sqrt{16}}", "4")
        assert stuck.result() == 0.0
        assert LIMIT_S * 0.99 <= time.monotonic() - start < LIMIT_S + 1.0
        assert after.result() == 1.0
        assert verifier.take_stats()["timeouts"] == 1
        assert before and not before & worker_ids()


def test_stopped_is_a_timeout_and_killed_a_crash() -> None:
    earlier = worker_ids()
    with Verifier(workers=1, timeout_s=LIMIT_S) as verifier:
        for number, count in ((signal.SIGSTOP, "timeouts"), (signal.SIGKILL, "crashes")):
            warm_up, response = rf"\boxed{{\sqrt{{4}}+{count[0]}-{count[0]}}}", rf"\boxed{{\sqrt{{{number**2}}}}}"
            assert verifier.score([warm_up], ["2"]) == [1.0]
            (worker,) = worker_ids() - earlier
            os.kill(worker, number)
            assert verifier.score([response], [str(int(number))]) == [0.0]
            assert verifier.take_stats()[count] == 1
            assert verifier.score([response], [str(int(number))]) == [1.0]  # compared again


def test_memory_of_a_worker_is_bounded() -> None:
    earlier = worker_ids()
    pool = FormulaPool(workers=1, timeout_s=20.0, memory_mb=256)
    try:
        hungry = r"\gcd(9^{9^{9}}, 3) + \gcd(8^{9^{9}}, 3) + \gcd(7^{9^{9}}, 3)"
        future = pool.submit("5", hungry)
        peak = 0
        while not future.done():
            for worker in worker_ids() - earlier:
                try:
                    status = Path(f"/proc/{worker}/status").read_text()
                except OSError:
                    continue
                peak = max([peak, *(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))])
            time.sleep(0.02)
        assert future.result() in ("crash", "timeout", "unparsed")
        assert 0 < peak < 256 * 1024  # kB
        assert pool.submit("2", r"\sqrt{4}").result() == "equal"
    finally:
        pool.close()


@pytest.mark.parametrize("exists", [True, False])
def test_worker_that_cannot_start_is_a_warning(exists: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "python"
    if exists:
        python.write_text("#!/bin/sh\necho broken installation >&2\nexit 1\n")
        python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        pool = FormulaPool(workers=1, timeout_s=LIMIT_S, memory_mb=1024)
        assert [pool.submit("2", rf"\sqrt{{{n}}}").result() for n in (4, 5)] == ["crash", "crash"]
        pool.close()
    assert any(("broken installation" if exists else "python") in str(warning.message) for warning in caught)


def test_close_finishes_the_queue_and_ends_workers() -> None:
    earlier = worker_ids()
    pool = FormulaPool(workers=2, timeout_s=20.0, memory_mb=1024)
    outcomes = [pool.submit(str(number), rf"\sqrt{{{number**2}}}") for number in range(2, 8)]
    pool.close()
    assert [outcome.result(0) for outcome in outcomes] == ["equal"] * 6
    assert worker_ids() <= earlier
    with pytest.raises(RuntimeError, match="closed"):
        pool.submit("2", "2")
