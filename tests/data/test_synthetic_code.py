"""The synthetic task `code`, against Python's own evaluation of every program."""

import itertools
import json
import random
import re

import pytest

from d3s.data.synthetic import TASKS
from d3s.data.synthetic_code import (
    EXAMPLES,
    LARGEST_ARGUMENT,
    all_programs,
    demonstrate_code,
    hidden_functions,
)

WIDE = list(itertools.product(range(15), repeat=2))


def python_function(program):
    return eval(f"lambda a, b: {program}")  # a program of d3s/data/synthetic_code.py, see below


def examples_of(text):
    assert re.fullmatch(r"(\d,\d>-?\d+;){2}\d,\d>-?\d+:", text)
    return [tuple(map(int, re.findall(r"-?\d+", example))) for example in text[:-1].split(";")]


def passes(program, tests):
    names = {"f": python_function(program)}
    for test in json.loads(tests):
        assert re.fullmatch(r"assert f\(\d+, \d+\) == -?\d+", test)
        try:
            exec(test, names)
        except AssertionError:
            return False
    return True


@pytest.fixture(scope="module")
def problems():
    return TASKS["code"].draw("train", 300, 0)


def test_hidden_functions_are_all_and_distinct():
    values = {tuple(python_function(p)(a, b) for a, b in WIDE) for p in hidden_functions()}
    assert len(values) == len(hidden_functions())
    assert values == {tuple(python_function(p)(a, b) for a, b in WIDE) for p in all_programs()}


def test_problems_have_one_solution(problems):
    """Exactly the programs that equal one function everywhere agree with the examples, and they pass the tests."""
    for text, tests, level in problems[:60]:
        examples = examples_of(text)
        assert len({(a, b) for a, b, _ in examples}) == EXAMPLES
        assert all(0 <= x <= LARGEST_ARGUMENT for a, b, _ in examples for x in (a, b))
        agreeing = [p for p in all_programs() if all(python_function(p)(a, b) == v for a, b, v in examples)]
        assert len({tuple(python_function(p)(a, b) for a, b in WIDE) for p in agreeing}) == 1
        assert all(passes(p, tests) for p in agreeing)
        assert level in ("2-operands", "3-operands")


def test_tests_cover_examples_and_further_pairs(problems):
    for text, tests, _ in problems:
        for a, b, value in examples_of(text):
            assert f"assert f({a}, {b}) == {value}" in json.loads(tests)
        assert sum(int(n) > LARGEST_ARGUMENT for n in re.findall(r"f\(\d+, (\d+)\)", tests)) >= 3


def test_demonstrations_agree_with_most_examples(problems, monkeypatch):
    """The best of all programs is right; a single random one hardly ever is."""
    monkeypatch.setattr("d3s.data.synthetic_code.PROGRAM_TRIES", 1)
    rng = random.Random(0)
    assert sum(passes(demonstrate_code(rng, text), tests) for text, tests, _ in problems) / len(problems) < 0.08
    monkeypatch.setattr("d3s.data.synthetic_code.PROGRAM_TRIES", 4000)
    assert all(passes(demonstrate_code(rng, text), tests) for text, tests, _ in problems[:30])
