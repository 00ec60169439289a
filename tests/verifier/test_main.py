"""The command line `python -m d3s.verifier`, in this process."""

import json
from pathlib import Path

import pytest

from d3s.common import UserError
from d3s.verifier.__main__ import main

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
    b"\xff": "cannot be read as UTF-8 text", b'{"response": "x"}\n': "line 1: expected an object", None: "no such file",
    b'{"response": "x", "answer": "y"}\n[1]\n': "line 2: expected an object",
}  # fmt: skip


@pytest.mark.parametrize("content", BAD)
def test_bad_files_are_named(content: bytes | None, tmp_path: Path) -> None:
    file = tmp_path / "bad.jsonl"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UserError, match=BAD[content]) as raised:
        main([str(file)])
    assert str(raised.value).startswith(str(file))
