"""The command line `python -m d3s.verifier`, in this process and as a process of its own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from d3s.common import UserError
from d3s.verifier.__main__ import main

ROOT = Path(__file__).resolve().parents[2]
ROWS = [
    {"response": r"\boxed{1/2}", "answer": "0.5"},
    {"prediction": r"\boxed{3}", "gold": "4"},
    {"prediction": "2", "gold": "2"},
    {"response": "2", "gold": "2"},
]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "answers.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in ROWS) + "\n\n", encoding="utf-8")
    return path


def cells(printed: str) -> list[list[str]]:
    """The rows of the printed tables."""
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in printed.splitlines() if line.startswith("│")]


def test_tables_list_wrong_rows_and_counts(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([str(file), "--workers", "1"])
    *wrong, summary = cells(capsys.readouterr().out)
    assert wrong == [["2", "wrong", "3", "4"], ["4", "wrong", "(none)", "2"]]
    assert summary[:7] == ["4", "2", "2", "1", "0", "0", "0"]


def test_control_characters_are_made_visible(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hostile = {"response": "\\boxed{\x1b[31m5}", "answer": "\x1b]0;title\x07\ud800"}
    file = tmp_path / "hostile.jsonl"
    file.write_text(json.dumps(hostile), encoding="utf-8")
    main([str(file), "--workers", "1"])
    printed = capsys.readouterr().out
    assert "␛[31m5" in printed and not {"\x1b", "\x07"} & set(printed)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xff", "cannot be read as UTF-8 text"),
        (b'{"response": "x"}\n', "line 1: expected an object"),
        (b'{"response": "x", "answer": "y"}\n[1]\n', "line 2: expected an object"),
        (None, "no such file"),
    ],
)
def test_bad_files_are_named(content: bytes | None, message: str, tmp_path: Path) -> None:
    file = tmp_path / "bad.jsonl"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UserError, match=message) as raised:
        main([str(file)])
    assert str(raised.value).startswith(str(file))


def test_process_exit_codes(file: Path, tmp_path: Path) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "d3s.verifier", *arguments]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)

    done = run(str(file), "--workers", "1")
    assert (done.returncode, done.stderr) == (0, "") and "answers/s" in done.stdout
    failed = run(str(tmp_path / "missing.jsonl"))
    assert failed.returncode == 2 and failed.stdout == ""
    assert failed.stderr.startswith("error: ") and failed.stderr.count("\n") == 1
