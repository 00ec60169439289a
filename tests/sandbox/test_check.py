"""The check of data sets, on files with solutions that pass, fail and cannot cross."""

import pytest

from d3s.common import UserError
from d3s.sandbox.check import main
from tests.helpers.code_files import HUMANEVAL, MBPP
from tests.helpers.data_files import write_rows


def test_solutions_that_pass_are_counted(tmp_path, capsys):
    for name, row in (("humaneval", HUMANEVAL), ("mbpp", MBPP)):
        path = write_rows(tmp_path / f"{name}.jsonl", [row, row])
        for source in (path, f"{name}={path}"):
            assert main([source, "--workers", "1"]) == 0
            assert capsys.readouterr().out == "2 problems, 0 of them with a solution of their own that fails\n"


def test_problems_with_failing_solutions_are_listed(tmp_path, capsys):
    """A wrong solution, one that never ends, and a test whose argument cannot cross the sandbox."""
    rows = [
        MBPP,
        MBPP | {"task_id": 3, "code": "def double(x):\n    return 2 * max(x, 1)"},
        MBPP | {"task_id": 4, "code": "def double(x):\n    while True: pass"},
        MBPP | {"task_id": 5, "test_list": ["x = []\nx.append(x)\nassert double(x) is x"]},
    ]
    path = write_rows(tmp_path / "x.jsonl", rows)
    assert main([path, "--timeout-s", "1", "--workers", "1"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "3: 1 of 2 tests pass",
        "4: 0 of 2 tests pass (timeout)",
        "5: 0 of 1 tests pass (refused)",
        "4 problems, 3 of them with a solution of their own that fails",
    ]


def test_data_without_tests_or_solutions_are_refused(tmp_path):
    sums = write_rows(tmp_path / "sums.jsonl", [{"problem": "1+1?", "answer": "2"}])
    with pytest.raises(UserError, match="expected the columns of HumanEval or MBPP"):
        main([sums])
    bare = write_rows(tmp_path / "bare.jsonl", [{key: MBPP[key] for key in ("text", "test_list")}])
    with pytest.raises(UserError, match="expected the column 'canonical_solution' or 'code'"):
        main([bare])
