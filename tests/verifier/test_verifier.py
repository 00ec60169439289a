"""The Verifier in threads and under a launcher: order, counts, cache, light imports; its command line."""

import json
import os
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from d3s.common import UserError
from d3s.verifier.__main__ import main
from d3s.verifier.verifier import COUNTS, QUICK_LENGTH, Verifier
from tests.helpers.warm_python import ROOT


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


def test_close_waits_for_boxes_of_one_statement() -> None:
    with Verifier(workers=1) as verifier:
        futures = [verifier.submit(rf"\boxed{{\sqrt{{25}}}} or \boxed{{\sqrt{{{n}}}}}", "5") for n in (25, 36)]
    assert [future.result(0) for future in futures] == [1.0, 0.0]


def test_long_pairs_go_to_a_worker(jobs: list) -> None:
    Verifier().submit(rf"\boxed{{{'7' * QUICK_LENGTH}}}", "7")
    assert len(jobs) == 1


def test_wrong_arguments_are_named() -> None:
    for arguments, message in (
        ({"extraction": "loose"}, "extraction: got 'loose', expected 'strict' or 'lenient'"),
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


ROWS = [
    {"response": r"\boxed{1/2}", "answer": "0.5"}, {"prediction": r"\boxed{3}", "gold": "4"},
    {"prediction": "2", "gold": "2"}, {"response": "2", "gold": "2"},
    {"response": "\\boxed{\x1b[31m5}", "answer": "\x1b]0;title\x07\ud800"},
]  # fmt: skip


def cells(printed: str) -> list[list[str]]:
    """The rows of the printed tables."""
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in printed.splitlines() if line.startswith("│")]


def test_tables_list_wrong_rows_and_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Control characters are made visible."""
    file = tmp_path / "answers.jsonl"
    file.write_text("\n".join(json.dumps(row) for row in ROWS) + "\n\n", encoding="utf-8")
    main([str(file), "--workers", "1"])
    printed = capsys.readouterr().out
    *wrong, (number, verdict, extracted, _), summary = cells(printed)
    assert wrong == [["2", "wrong", "3", "4"], ["4", "wrong", "(none)", "2"]]
    assert (number, verdict, extracted) == ("5", "wrong", "␛[31m5") and not {"\x1b", "\x07"} & set(printed)
    assert summary[:7] == ["5", "2", "3", "1", "0", "0", "0"] and "answers/s" in printed


BAD = {
    b"\xff": "bad.jsonl: cannot be read as UTF-8 text", None: "bad.jsonl: no such file", b"\n": "no responses found",
    b'{"response": "x", "answer": "y"}\n{"response": "x"}\n': "bad.jsonl line 2: expected an object",
}  # fmt: skip


@pytest.mark.parametrize("content", BAD)
def test_bad_files_are_named(content: bytes | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "bad.jsonl").write_bytes(content)
    with pytest.raises(UserError, match=BAD[content]):
        main([str(tmp_path / "bad.jsonl")])
