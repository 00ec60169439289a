"""Problems whose answer is a program: rows in the formats of HumanEval, MBPP and APPS become a text and tests.

A test is Python that calls what the program defines, or {"input": …, "output": …} of a program that reads standard
input; the gold answer of a problem is the JSON list of its tests, all of one kind.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from d3s.common import UserError
from d3s.data.rows import require_text
from d3s.sandbox.vacuous import vacuous

CODE_REWARD = "d3s.programs.code_reward:CodeReward"
HUMANEVAL = {"prompt", "entry_point", "test"}  # Chen et al., arXiv 2107.03374
# MBPP, Austin et al., arXiv 2108.07732, section 3: the prompt of the paper without its [BEGIN], which asks for [DONE].
MBPP_PROMPT = (
    "You are an expert Python programmer, and here is your task: {text} Your code should pass these tests:\n\n{tests}\n"
)


# Standard input and output: APPS, arXiv 2105.09938; CodeContests, arXiv 2203.07814; lists of {"input": …, "output": …}.
SCRIPT_TESTS = ("input_output", "tests", "public_tests", "private_tests", "generated_tests")
SCRIPT_TEXTS = ("question", "problem", "description", "prompt")
SCRIPT_PROMPT = "{text}\n\nWrite a Python program that reads from standard input and writes to standard output.\n"


def is_code(row: Mapping[str, Any]) -> bool:
    """Whether a row has the columns of HumanEval, MBPP or APPS."""
    functions = row.keys() >= HUMANEVAL or ("test_list" in row and ("text" in row or "prompt" in row))
    return functions or not (row.keys().isdisjoint(SCRIPT_TESTS) or row.keys().isdisjoint(SCRIPT_TEXTS))


def read_code_problem(row: Mapping[str, Any], location: str) -> tuple[str, str]:
    """The text of a problem and its tests, as JSON.

    HumanEval's text is the prompt, which the response completes, and its single test is the whole `check`, after what
    the prompt defines before the function. MBPP's text shows the tests, of which there is one for each assert; its
    setup code runs before the first of them.

    Raises: UserError with the location if a column is not what the format says, or a test says nothing of a program.
    """
    if row.keys() >= HUMANEVAL:
        text, name, test = (require_text(row[column], column, location) for column in ("prompt", "entry_point", "test"))
        if not name.isidentifier():
            raise UserError(f"{location}: field 'entry_point': got {name!r:.60}, expected the name of a function")
        setup, test = before_entry(text, name), f"{test}\ncheck({name})"
        _require_checks("test", setup, [test], location)
        return text, json.dumps([setup + test])
    if "test_list" not in row:
        column = next(column for column in SCRIPT_TEXTS if column in row)
        text = require_text(row[column], column, location)
        return SCRIPT_PROMPT.format(text=text.strip()), json.dumps(_script_tests(row, location))
    column = "text" if "text" in row else "prompt"
    text = require_text(row[column], column, location)
    tests = _texts(row, "test_list", location)
    if not tests:
        raise UserError(f"{location}: field 'test_list': got no test, expected at least one")
    setup = row.get("test_setup_code")
    setup = [] if setup in (None, "") else [require_text(setup, "test_setup_code", location)]
    setup += filter(None, _texts(row, "test_imports", location))
    _require_checks("test_list", "\n".join(setup), tests, location)
    first = "\n".join([*setup, tests[0]])
    return MBPP_PROMPT.format(text=text.strip(), tests="\n".join(tests)), json.dumps([first, *tests[1:]])


def _require_checks(column: str, setup: str, tests: list[str], location: str) -> None:
    """Refuse a test that every program passes, or none."""
    for index, line, reason in vacuous([setup, *tests]):
        if index:
            raise UserError(f"{location}: field {column!r}: test {index}, line {line}: {reason}")


def before_entry(prompt: str, name: str) -> str:
    """What stands before a function in a prompt: imports and helper functions, which the tests may use too."""
    definition = re.search(rf"^(?:async )?def {re.escape(name)}\b", prompt, re.MULTILINE)
    return prompt[: definition.start()] if definition else ""


def _script_tests(row: Mapping[str, Any], location: str) -> list[dict[str, str]]:
    """The tests in the columns of SCRIPT_TESTS: lists of inputs and of outputs, or a list of pairs."""
    tests = []
    for column in (column for column in SCRIPT_TESTS if row.get(column)):
        value = _from_json(row[column])
        if isinstance(value, dict) and value.get("fn_name"):
            problem = f"got tests of the function {value['fn_name']!r:.60}, expected those of standard input"
            raise UserError(f"{location}: field {column!r}: {problem}; remove the row, or set data.bad_rows: skip")
        if isinstance(value, dict):
            inputs, outputs = (value.get(f"{name}s", value.get(name)) for name in ("input", "output"))
            lists = isinstance(inputs, list) and isinstance(outputs, list) and len(inputs) == len(outputs)
            value = [{"input": i, "output": o} for i, o in zip(inputs, outputs)] if lists else None
        if not isinstance(value, list) or not all(isinstance(test, dict) for test in value):
            raise UserError(f"{location}: field {column!r}: got {row[column]!r:.60}, expected inputs and outputs")
        for test in value:
            texts = {name: _lines(test.get(name)) for name in ("input", "output")}
            if None in texts.values():
                raise UserError(f"{location}: field {column!r}: got {test!r:.60}, expected texts as input and output")
            tests.append(texts)
    if not tests:
        raise UserError(f"{location}: got no test, expected at least one in {', '.join(SCRIPT_TESTS)}")
    return tests


def _lines(value: Any) -> str | None:
    """A text, or a list of its lines."""
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        return "\n".join(value)
    return value if isinstance(value, str) else None


def _from_json(value: Any) -> Any:
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return None


def read_tests(answer: str) -> list[str] | list[dict[str, str]]:
    """The tests in a gold answer. Raises UserError if it is no JSON list of tests of one kind, at least one."""
    tests = _from_json(answer)
    kinds = {_test_kind(test) for test in tests} if isinstance(tests, list) else set()
    if len(kinds) != 1 or kinds == {None}:
        expected = "expected a JSON list of tests; see docs/rewards.md#code"
        raise UserError(f"CodeReward: got the answer {answer!r:.60}, {expected}")
    return tests


def _test_kind(test: Any) -> type | None:
    pair = isinstance(test, dict) and isinstance(test.get("input"), str) and isinstance(test.get("output"), str)
    return type(test) if pair or isinstance(test, str) else None


def own_solution(row: Mapping[str, Any]) -> str | None:
    """The program that comes with a problem: HumanEval's canonical_solution, a completion, MBPP's code, or the first of
    APPS's solutions.
    """
    if isinstance(row.get("canonical_solution"), str):
        return str(row.get("prompt") or "") + row["canonical_solution"]
    solutions = _from_json(row.get("solutions"))
    if isinstance(solutions, list) and solutions and isinstance(solutions[0], str):
        return solutions[0]
    return row["code"] if isinstance(row.get("code"), str) else None


def _texts(row: Mapping[str, Any], column: str, location: str) -> list[str]:
    """A list of texts; a CSV file holds it as JSON."""
    value = _from_json(row.get(column) or [])
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise UserError(f"{location}: field {column!r}: got {row[column]!r:.60}, expected a list of texts")
    return value
