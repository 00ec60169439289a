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
    {"response": "\\boxed{\x1b[31m5}", "answer": "\x1b]0;title\x07\ud800"},
]


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


def test_missing_file_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "d3s.verifier", str(tmp_path / "missing.jsonl")]
    failed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert failed.returncode == 2 and failed.stdout == ""
    assert failed.stderr.startswith("error: ") and failed.stderr.count("\n") == 1
