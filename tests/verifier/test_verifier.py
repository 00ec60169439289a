"""The Verifier in threads and under a launcher: order, counts, cache, light imports."""

import os
import subprocess
import sys
import threading
from concurrent.futures import Future
from pathlib import Path

import pytest

from d3s.common import UserError
from d3s.verifier.verifier import COUNTS, Verifier

ROOT = Path(__file__).resolve().parents[2]


class HandPool:
    """Stands in for FormulaPool: the test sets every outcome itself."""

    def __init__(self, *_: object) -> None:
        self.jobs: list[tuple[str, str, Future[str]]] = []

    def submit(self, gold: str, answer: str) -> Future[str]:
        outcome: Future[str] = Future()
        self.jobs.append((gold, answer, outcome))
        return outcome

    def close(self) -> None:
        pass


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> HandPool:
    """The pool of the verifier that the test makes."""
    made = HandPool()
    monkeypatch.setattr("d3s.verifier.verifier.FormulaPool", lambda *_: made)
    return made


def test_equal_pairs_are_compared_once(pool: HandPool) -> None:
    with Verifier() as verifier:
        first = [verifier.submit(r"\boxed{\sqrt{8}}", r"2\sqrt2") for _ in range(3)]
        assert [job[:2] for job in pool.jobs] == [(r"2\sqrt2", r"\sqrt{8}")]
        pool.jobs[0][2].set_result("equal")
        later = verifier.submit(r"\boxed{\sqrt{8}}", r"2\sqrt2")
        assert [future.result(0) for future in (*first, later)] == [1.0] * 4
        assert len(pool.jobs) == 1


@pytest.mark.parametrize(
    ("outcome", "count", "again"),
    [("timeout", "timeouts", 1), ("crash", "crashes", 1), ("unparsed", "parse_failures", 0), ("unequal", None, 0)],
)
def test_failures_score_zero_and_are_counted(pool: HandPool, outcome: str, count: str, again: int) -> None:
    with Verifier() as verifier:
        future = verifier.submit(r"\boxed{x+x}", "2x")
        pool.jobs[0][2].set_result(outcome)
        assert future.result(0) == 0.0
        assert verifier.take_stats() == {name: int(name in ("decided", count)) for name in COUNTS}
        verifier.submit(r"\boxed{x+x}", "2x")
        assert len(pool.jobs) == 1 + again


def test_joined_boxes_are_compared_in_turn(pool: HandPool) -> None:
    with Verifier() as verifier:
        future = verifier.submit(r"\boxed{x+x}, so \boxed{3x-x}", "2x")
        assert len(pool.jobs) == 1
        pool.jobs[0][2].set_result("equal")
        assert not future.done() and len(pool.jobs) == 2
        pool.jobs[1][2].set_result("unequal")
        assert future.result(0) == 0.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"extraction": "loose"}, "extraction: got 'loose', expected 'strict' or 'lenient'"),
        ({"workers": 0}, "workers: got 0, expected at least 1"),
        ({"timeout_s": 0.0}, "timeout_s: got 0.0, expected more than 0"),
        ({"memory_mb": 255}, "memory_mb: got 255, expected at least 256"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict, message: str) -> None:
    with pytest.raises(UserError) as raised:
        Verifier(**arguments)
    assert str(raised.value) == message


def test_import_is_light() -> None:
    heavy = ("torch", "vllm", "sympy", "antlr4", "d3s.verifier.worker", "d3s.verifier.symbolic")
    code = f"import sys, d3s.verifier.verifier; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_order_and_counts_of_many_threads() -> None:
    answers = [*map(str, range(2, 14)), "5", "5", "5"]
    responses = [rf"\boxed{{\sqrt{{{n**2 if n % 3 else n}}}}}" for n in range(2, 14)]
    responses += ["no box", r"\boxed{3", r"\boxed{1+@}"]
    expected = [*(1.0 if n % 3 else 0.0 for n in range(2, 14)), 0.0, 0.0, 0.0]
    results: list[list[float]] = []
    with Verifier(workers=2) as verifier:
        work = lambda: results.append(verifier.score(responses, answers))  # noqa: E731
        threads = [threading.Thread(target=work) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        counts = {"decided": 15, "no_answer": 2, "parse_failures": 1, "timeouts": 0, "crashes": 0}
        assert verifier.take_stats() == {name: 6 * count for name, count in counts.items()}
        assert set(verifier.take_stats().values()) == {0}
    assert results == [expected] * 6


SCRIPT = """
import os
from d3s.verifier.verifier import Verifier
def main():
    with Verifier(workers=1) as verifier:
        print(verifier.score([r"\\boxed{\\sqrt{25}}", "no"], ["5", "5"]), flush=True)
main()  # without a guard: workers must not run the caller's main module again
"""


def test_launcher_environment_and_unguarded_main(tmp_path: Path) -> None:
    script = tmp_path / "train_like.py"
    script.write_text(SCRIPT)
    launcher = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511"}
    environment = os.environ | launcher | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(script)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert done.stdout == "[1.0, 0.0]\n", done.stderr
