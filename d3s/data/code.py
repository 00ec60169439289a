"""Problems whose answer is a program: rows in the formats of HumanEval and MBPP become a text and tests.

A test is Python that calls what the program defines; the gold answer of a problem is the JSON list of its tests.
"""

import json
from collections.abc import Mapping
from typing import Any

from d3s.common import UserError

CODE_REWARD = "d3s.sandbox.code_reward:CodeReward"
HUMANEVAL = {"prompt", "entry_point", "test"}  # Chen et al., arXiv 2107.03374
# MBPP, Austin et al., arXiv 2108.07732, section 3: the prompt of the paper without its [BEGIN], which asks for [DONE].
MBPP_PROMPT = (
    "You are an expert Python programmer, and here is your task: {text} Your code should pass these tests:\n\n{tests}\n"
)


def is_code(row: Mapping[str, Any]) -> bool:
    """Whether a row has the columns of HumanEval or MBPP."""
    return row.keys() >= HUMANEVAL or ("test_list" in row and ("text" in row or "prompt" in row))


def read_code_problem(row: Mapping[str, Any], location: str) -> tuple[str, str]:
    """The text of a problem and its tests, as JSON.

    HumanEval's text is the prompt, which the response completes, and its single test is the whole `check`. MBPP's text
    shows the tests, of which there is one for each assert; its setup code runs before the first of them.

    Raises: UserError with the location if a column is not what the format says.
    """
    if row.keys() >= HUMANEVAL:
        text, name, test = (_text(row, column, location) for column in ("prompt", "entry_point", "test"))
        if not name.isidentifier():
            raise UserError(f"{location}: field 'entry_point': got {name!r:.60}, expected the name of a function")
        return text, json.dumps([f"{test}\ncheck({name})"])
    text = _text(row, "text" if "text" in row else "prompt", location)
    tests = _texts(row, "test_list", location)
    if not tests:
        raise UserError(f"{location}: field 'test_list': got no test, expected at least one")
    setup = [_text(row, "test_setup_code", location, ""), *_texts(row, "test_imports", location)]
    first = "\n".join([*filter(None, setup), tests[0]])
    return MBPP_PROMPT.format(text=text.strip(), tests="\n".join(tests)), json.dumps([first, *tests[1:]])


def read_tests(answer: str) -> list[str]:
    """The tests in a gold answer. Raises UserError if it is no JSON list of at least one text."""
    try:
        tests = json.loads(answer)
    except ValueError:
        tests = None
    if not (isinstance(tests, list) and tests and all(isinstance(test, str) for test in tests)):
        raise UserError(
            f"CodeReward: got the answer {answer!r:.60}, expected a JSON list of tests; see docs/rewards.md"
        )
    return tests


def own_solution(row: Mapping[str, Any]) -> str | None:
    """The program that comes with a problem: HumanEval's canonical_solution, a completion, or MBPP's code."""
    if isinstance(row.get("canonical_solution"), str):
        return str(row.get("prompt") or "") + row["canonical_solution"]
    return row["code"] if isinstance(row.get("code"), str) else None


def _text(row: Mapping[str, Any], column: str, location: str, default: str | None = None) -> str:
    value = row.get(column)
    if value is None and default is not None:
        return default
    if not isinstance(value, str) or (default is None and not value.strip()):
        raise UserError(f"{location}: field {column!r}: got {value!r:.60}, expected text")
    return value


def _texts(row: Mapping[str, Any], column: str, location: str) -> list[str]:
    """A list of texts; a CSV file holds it as JSON."""
    value = row.get(column) or []
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            value = None
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise UserError(f"{location}: field {column!r}: got {row[column]!r:.60}, expected a list of texts")
    return value
