"""The Verifier in threads and under a launcher: order, counts, cache, light imports."""

import os
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from d3s.common import UserError
from d3s.verifier.verifier import COUNTS, QUICK_LENGTH, Verifier

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, Future[str]]]:
    """What verifiers submit to a pool whose outcomes the test sets itself."""
    submitted: list[tuple[str, str, Future[str]]] = []

    def submit(gold: str, answer: str) -> Future[str]:
        submitted.append((gold, answer, Future()))
        return submitted[-1][2]

    monkeypatch.setattr("d3s.verifier.verifier.FormulaPool", lambda *_: SimpleNamespace(submit=submit))
    return submitted


def test_equal_pairs_are_compared_once(jobs: list) -> None:
    verifier = Verifier()
    first = [verifier.submit(r"\boxed{\sqrt{8}}", r"2\sqrt2") for _ in range(3)]
    assert [job[:2] for job in jobs] == [(r"2\sqrt2", r"\sqrt{8}")]
    jobs[0][2].set_result("equal")
    later = verifier.submit(r"\boxed{\sqrt{8}}", r"2\sqrt2")
    assert [future.result(0) for future in (*first, later)] == [1.0] * 4 and len(jobs) == 1


def test_failures_score_zero_and_are_counted(jobs: list) -> None:
    counts = {"timeout": "timeouts", "crash": "crashes", "unparsed": "parse_failures", "unequal": None}
    for outcome, count in counts.items():
        jobs.clear()
        verifier = Verifier()
        future = verifier.submit(r"\boxed{x+x}", "2x")
        jobs[0][2].set_result(outcome)
        assert future.result(0) == 0.0
        assert verifier.take_stats() == {name: int(name in ("decided", count)) for name in COUNTS}
        verifier.submit(r"\boxed{x+x}", "2x")
        assert len(jobs) == 1 + (outcome in ("timeout", "crash"))  # these are no verdict


def test_joined_boxes_are_compared_in_turn(jobs: list) -> None:
    future = Verifier().submit(r"\boxed{x+x}, so \boxed{3x-x}", "2x")
    assert len(jobs) == 1
    jobs[0][2].set_result("equal")
    assert not future.done() and len(jobs) == 2
    jobs[1][2].set_result("unequal")
    assert future.result(0) == 0.0


def test_long_pairs_go_to_a_worker(jobs: list) -> None:
    Verifier().submit(rf"\boxed{{{'7' * QUICK_LENGTH}}}", "7")
    assert len(jobs) == 1


def test_wrong_arguments_are_named() -> None:
    for arguments, message in (
        ({"extraction": "loose"}, "extraction: got 'loose', expected 'strict' or 'lenient'"),
        ({"workers": 0}, "workers: got 0, expected at least 1"),
        ({"timeout_s": 0.0}, "timeout_s: got 0.0, expected more than 0"),
        ({"memory_mb": 255}, "memory_mb: got 255, expected at least 256"),
    ):  # fmt: skip
        with pytest.raises(UserError, match=f"^{message}$"):
            Verifier(**arguments)


def test_order_and_counts_of_many_threads() -> None:
    answers = [*map(str, range(2, 14)), "5", "5", "5"]
    responses = [rf"\boxed{{\sqrt{{{n**2 if n % 3 else n}}}}}" for n in range(2, 14)]
    responses += ["no box", r"\boxed{3", r"\boxed{1+@}"]
    expected = [*(1.0 if n % 3 else 0.0 for n in range(2, 14)), 0.0, 0.0, 0.0]
    with Verifier(workers=2) as verifier, ThreadPoolExecutor(6) as threads:
        results = threads.map(verifier.score, [responses] * 6, [answers] * 6)
        assert list(results) == [expected] * 6
        counts = {"decided": 15, "no_answer": 2, "parse_failures": 1, "timeouts": 0, "crashes": 0}
        assert verifier.take_stats() == {name: 6 * count for name, count in counts.items()}
        assert set(verifier.take_stats().values()) == {0}


SCRIPT = """
import sys
from d3s.verifier.verifier import Verifier
with Verifier(workers=1) as verifier:  # without a guard: workers must not run the caller's main module again
    print(verifier.score([r"\\boxed{\\sqrt{25}}", "no"], ["5", "5"]))
heavy = ("torch", "vllm", "sympy", "antlr4", "d3s.verifier.worker", "d3s.verifier.symbolic")
print([name for name in heavy if name in sys.modules])
"""


def test_unguarded_main_under_a_launcher_stays_light(tmp_path: Path) -> None:
    script = tmp_path / "train_like.py"
    script.write_text(SCRIPT)
    launcher = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511"}
    environment = os.environ | launcher | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(script)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert done.stdout == "[1.0, 0.0]\n[]\n", done.stderr
