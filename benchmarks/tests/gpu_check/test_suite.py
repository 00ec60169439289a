"""The stage `tests`: its files and its counts; without a GPU every test is skipped."""

from types import SimpleNamespace

import pytest

from benchmarks.gpu_check import suite
from benchmarks.tests.stages import not_held


def test_marked_files_are_those_with_gpu_tests():
    names = {path.name for path in suite.marked_files()}
    assert {"test_policy.py", "test_actor.py"} <= names and "test_packing.py" not in names


@pytest.fixture
def run_by_hand(monkeypatch):
    """run_by_hand(code, *outcomes) judges a run of pytest with this exit code and one test for each outcome."""

    def run(code: int, *outcomes: str, device: str = "cuda") -> list[str]:
        def main(arguments, plugins):
            assert arguments[:2] == ["-m", "gpu"]
            for outcome in outcomes:
                report = SimpleNamespace(when="call", outcome=outcome, failed=outcome == "failed", nodeid="test_x")
                plugins[0].pytest_runtest_logreport(report)
            return code

        monkeypatch.setattr(pytest, "main", main)
        return not_held(suite.run(device, 60))

    return run


def test_failed_and_absent_tests_are_noticed(run_by_hand):
    assert run_by_hand(0, "passed", "skipped") == []
    assert run_by_hand(1, "passed", "failed") == ["exit code of pytest", "failed tests"]
    assert run_by_hand(4) == ["exit code of pytest", "tests that ran"]
    assert run_by_hand(0, "skipped") == ["tests that ran"]
    assert run_by_hand(0, "skipped", device="cpu") == []
