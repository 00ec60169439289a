"""Rows in the formats of HumanEval, MBPP and APPS, against problems written out by hand."""

import json

import pytest

from d3s.common import UserError
from d3s.data.code import before_entry, is_code, read_code_problem, read_tests
from tests.helpers.code_files import HUMANEVAL, MBPP

ADD = {"question": "Add."}


def test_humaneval_row_becomes_prompt_and_check():
    text, tests = read_code_problem(HUMANEVAL, "file line 1")
    assert text == HUMANEVAL["prompt"]
    (test,) = json.loads(tests)
    names = {"double": lambda x: 2 * x}
    exec(test, names)  # written by this test
    with pytest.raises(AssertionError):
        exec(test, {"double": lambda x: x})


def test_mbpp_row_shows_its_asserts_and_setup_runs_before_them():
    text, tests = read_code_problem(MBPP, "file line 1")
    assert text == (
        "You are an expert Python programmer, and here is your task: Write a function to double a number. "
        "Your code should pass these tests:\n\nassert double(3) == 6\nassert double(0) == 0\n"
    )
    assert json.loads(tests) == MBPP["test_list"]
    for setup in ({"test_setup_code": "import math"}, {"test_setup_code": None, "test_imports": ["import math"]}):
        row = MBPP | setup | {"test_list": ["assert double(2) > math.pi", "assert double(1) < math.e"]}
        text, tests = read_code_problem(row, "file line 1")
        assert json.loads(tests) == ["import math\nassert double(2) > math.pi", "assert double(1) < math.e"]
        assert "import math" not in text


def test_rows_of_other_formats_are_not_code():
    assert is_code(HUMANEVAL) and is_code(MBPP)
    assert not is_code({"problem": "1+1", "answer": "2"})
    assert not is_code({"prompt": "1+1", "test": "x"})
    assert not is_code({"test_list": []})


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (HUMANEVAL | {"test": 3}, "field 'test': got 3, expected text"),
        (HUMANEVAL | {"entry_point": "a b"}, "field 'entry_point': got 'a b', expected the name of a function"),
        (MBPP | {"test_list": []}, "field 'test_list': got no test, expected at least one"),
        (MBPP | {"test_list": "assert f()"}, "field 'test_list': got 'assert f()', expected a list of texts"),
        (
            MBPP | {"test_list": ["assert double(1) == 2", "x = 1\ndouble(x) == 2"]},
            "'test_list': test 2, line 2: a comp",
        ),
        (MBPP | {"test_list": ["def check(f):\n    assert f(1) == 2"]}, "'test_list': test 1, line 1: checks nothing"),
        (
            MBPP | {"test_setup_code": "x = 1", "test_list": ["\nassert x == 1"]},
            "test 1, line 2: asks the program noth",
        ),
        (HUMANEVAL | {"test": "def check(candidate):\n    candidate(1) == 2"}, "field 'test': test 1, line 2: a comp"),
        (HUMANEVAL | {"test": "def check(candidate):\n    pass"}, "field 'test': test 1, line 1: checks nothing"),
        (
            HUMANEVAL | {"test": "def check(candidate):\n    assert candidate(1 == 2"},
            "field 'test': test 1, line 2: no Py",
        ),
        (ADD | {"tests": []}, "got no test, expected at least one in input_output, tests,"),
        (ADD | {"tests": "x"}, "field 'tests': got 'x', expected inputs and outputs"),
        (ADD | {"tests": [1]}, "field 'tests': got [1], expected inputs and outputs"),
        (ADD | {"tests": [{"input": "1"}]}, "field 'tests': got {'input': '1'}, expected texts as input and output"),
        (ADD | {"tests": {"inputs": ["1"], "outputs": []}}, "field 'tests': got {'inputs': ['1'], 'outputs': []}, exp"),
        (
            ADD | {"input_output": {"fn_name": "add", "inputs": [[1]]}},
            "'input_output': got tests of the function 'add'",
        ),
    ],
)
def test_malformed_columns_are_refused(row, message):
    with pytest.raises(UserError) as caught:
        read_code_problem(row, "data.jsonl line 7")
    assert str(caught.value).startswith("data.jsonl line 7: ") and message in str(caught.value)


HELPER = 'import math\n\ndef twice(x):\n    return 2 * x\n\ndef double(x):\n    """Twice x."""\n'


def test_functions_before_entry_belong_to_the_tests():
    text, tests = read_code_problem(HUMANEVAL | {"prompt": HELPER}, "")
    (test,) = json.loads(tests)
    assert text == HELPER and test.startswith("import math\n\ndef twice(x):") and "def double" not in test
    assert before_entry(HELPER, "double") == HELPER[: HELPER.index("def double")] and before_entry(HELPER, "dou") == ""


PAIRS = [{"input": "1 2", "output": "3"}, {"input": "2\n2", "output": "4\n"}]
CODE_CONTESTS = {
    "public_tests": {"input": ["1 2"], "output": ["3"]},
    "private_tests": {"input": [], "output": []},
    "generated_tests": {"input": ["2\n2"], "output": ["4\n"]},
}


@pytest.mark.parametrize(
    "row",
    [
        {"question": "Add.", "input_output": json.dumps({"inputs": ["1 2", "2\n2"], "outputs": ["3", "4\n"]})},
        {"question": "Add.", "input_output": {"inputs": [["1 2"], ["2", "2"]], "outputs": ["3", ["4", ""]]}},
        {"description": "Add."} | CODE_CONTESTS,
        {"problem": "Add.", "tests": json.dumps(PAIRS)},
    ],
    ids=["APPS", "lists of lines", "CodeContests", "pairs"],
)
def test_rows_of_scripts_become_inputs_and_outputs(row):
    text, tests = read_code_problem(row, "")
    assert is_code(row) and json.loads(tests) == read_tests(tests) == PAIRS
    assert text.startswith("Add.\n\nWrite a Python program that reads from standard input")


def test_answers_without_tests_are_refused():
    for answer in ("18", "[]", '["a", {"input": "", "output": ""}]', '[{"input": ""}]', '["a", 1]', '{"a": 1}', "f()"):
        with pytest.raises(UserError, match=r"expected a JSON list of tests"):
            read_tests(answer)
