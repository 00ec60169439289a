"""The check of data sets, on files with solutions that pass and fail, and tests that need more than plain values."""

import pytest

from d3s.common import UserError
from d3s.programs.check import main
from tests.helpers.code_files import HUMANEVAL, MBPP
from tests.helpers.data_files import write_rows


def test_solutions_that_pass_are_counted(tmp_path, capsys):
    path = write_rows(tmp_path / "x.jsonl", [HUMANEVAL])
    assert main([f"humaneval={path}", "--workers", "1"]) == 0
    assert capsys.readouterr().out == "1 problems, 0 of them with a solution of their own that fails\n"


def test_problems_with_failing_solutions_are_listed(tmp_path, capsys):
    """A wrong solution, one that never ends, and a test that needs more than plain values, with its line."""
    rows = [
        MBPP,
        MBPP | {"task_id": 3, "code": "def double(x):\n    return 2 * max(x, 1)"},
        MBPP | {"task_id": 4, "code": "def double(x):\n    while True: pass"},
        MBPP | {"task_id": 5, "code": "class V: pass", "test_list": ["v = V()\nassert v == V()"]},
        {"question": "Double.", "tests": [{"input": "2", "output": "4"}], "solutions": ["print(2 * int(input()))"]},
        {"question": "Double.", "tests": [{"input": "2", "output": "4"}], "solutions": ["print(input())"], "id": 7},
    ]
    path = write_rows(tmp_path / "x.jsonl", rows)
    assert main([path, "--timeout-s", "3", "--workers", "1"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "3: 1 of 2 tests pass: test 2, line 1: AssertionError",
        "4: 0 of 2 tests pass (timeout): test 1: not within 3 s",
        "5: 0 of 1 tests pass (refused): test 1, line 2: __eq__ of an object of the program, "
        "which a test can only hold, call and ask for attributes",
        "7: 0 of 1 tests pass: test 1: AssertionError: got '2\\n', expected '4'",
        "6 problems, 4 of them with a solution of their own that fails, 1 as their tests need more than plain values",
    ]


@pytest.mark.parametrize("option", ["--workers=0", "--timeout-s=nan", "--timeout-s=-1", "--memory-mb=-1"])
def test_impossible_limits_are_refused(option):
    with pytest.raises(UserError, match=f"^{option.partition('=')[0]}: got .*, expected a number of at least"):
        main(["missing.jsonl", option])


def test_data_without_tests_or_solutions_are_refused(tmp_path):
    sums = write_rows(tmp_path / "sums.jsonl", [{"problem": "1+1?", "answer": "2"}])
    with pytest.raises(UserError, match="expected the columns of HumanEval, MBPP or APPS"):
        main([sums])
    bare = write_rows(tmp_path / "bare.jsonl", [{key: MBPP[key] for key in ("text", "test_list")}])
    with pytest.raises(UserError, match="expected canonical_solution, code or solutions"):
        main([bare])
