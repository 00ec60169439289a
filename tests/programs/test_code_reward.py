"""The reward of programs in the real sandbox, against scores worked out by hand."""

import json
from concurrent.futures import Future

import pytest

from d3s.data.code import read_code_problem
from d3s.programs.code_reward import CodeReward, ExpressionReward, calibrated
from d3s.sandbox import TestReport
from tests.sandbox.programs import fenced

DOUBLE = json.dumps(["assert double(3) == 6", "assert double(0) == 0", "assert double('a') == 'aa'"])
# Its prompt ends in the function to write, after one that the tests use too.
ROW = {
    "prompt": 'import math\n\ndef twice(x):\n    return 2 * x\n\ndef half(x):\n    """Undo twice."""\n',
    "entry_point": "half",
    "test": "def check(candidate):\n    assert candidate(twice(3)) == 3 and candidate(twice(8)) == 8\n",
}
CHECK = read_code_problem(ROW, "")[1]
SUMS = json.dumps([{"input": "1 2\n", "output": "3\n"}, {"input": "5 7", "output": "12"}])


@pytest.fixture(scope="module")
def reward():
    reward = CodeReward(timeout_s=2.0)
    yield reward
    reward.close()


def result(reward, response, answer=DOUBLE, row=None):
    return reward.submit(response, answer, row).result(timeout=60)


TASKS = {"double": (DOUBLE, None), "half": (CHECK, ROW), "sum": (SUMS, None)}


@pytest.mark.parametrize(
    ("task", "response", "rate"),
    [
        ("double", "def double(x):\n    return x + x", 1.0),
        ("double", fenced("def double(x):\n    return 2 * x\n", "") + fenced("6\n", ""), 1.0),  # the tests choose
        ("double", "", 0.0),
        ("half", "    return math.floor(x / 2)\n\nprint(half(9)", 1.0),  # cut before the next statement at the margin
        ("half", fenced("def half(x):\n    return math.floor(twice(x) / 4)"), 1.0),  # after the prompt's import
        ("half", "    return x\n\ntwice = lambda x: x\n", 0.0),  # helper functions of a prompt are the tests'
        ("half", fenced("def twice(x):\n    return x\n\ndef half(x):\n    return x"), 0.0),
        ("sum", fenced("a, b = map(int, input().split())\nprint(a + b)\n"), 1.0),
        ("sum", fenced("if __name__ == '__main__':\n    print(sum(map(int, open(0).read().split())), ' ')\n"), 1.0),
        ("sum", fenced("import sys\nprint(int(sys.stdin.buffer.readline().split()[0]) + 2)\n"), 0.5),
        ("sum", fenced("import sys\nsys.stdout = None\n"), 0.0),
        ("sum", fenced("class Same(str):\n    __eq__ = lambda *a: True\nprint(Same('4'))\n"), 0.0),
    ],
)
def test_programs_are_scored_by_their_tests(reward, task, response, rate):
    scored = result(reward, response, *TASKS[task])
    assert scored.parts["pass_rate"] == rate and scored.total == float(rate == 1.0)


def test_states_are_counted_per_response(reward):
    reward.take_stats()
    programs = ["def double(x):\n    while True: pass"] * 2 + ["import os; os._exit(0)", "def double(x: pass"]
    scored = [reward.submit(program, DOUBLE) for program in programs]
    assert [s.result(timeout=60).total for s in scored] == [0.0] * 4
    assert reward.take_stats() == {"timeouts": 2, "out_of_memory": 0, "crashes": 2, "refused": 0}
    assert set(reward.take_stats().values()) == {0}


def test_refused_problem_is_named_once(reward, capsys):
    tests = json.dumps(["\nassert double(1) != double(2)"])
    hostile = "class V:\n def __ne__(self, o): raise ValueError('\\x1b[2J')\ndef double(x): return V()"
    for program in ("class V: pass\ndef double(x): return V()", hostile):
        assert result(reward, program, tests, {"task_id": "MBPP/7"}).total == 0.0
    warnings = capsys.readouterr().err
    assert warnings.count("warning: problem MBPP/7: test 1, line 2: __ne__ of an object of the program") == 1
    assert "\x1b" not in warnings
    assert "python -m d3s.programs.check" in warnings and reward.take_stats()["refused"] == 2


class CountingSandbox:
    """Passes every test at once but for `outcomes` by program, and remembers the programs that it was given."""

    def __init__(self, *limits):
        self.limits, self.programs, self.outcomes = limits, [], {}

    def submit(self, program, tests):
        self.programs.append(program)
        done = Future()
        done.set_result(TestReport(self.outcomes.get(program.strip(), [True] * len(tests)), "ok"))
        return done

    def close(self):
        self.programs.append("closed")


@pytest.fixture
def counting(monkeypatch):
    made = []
    make = lambda *limits: made.append(CountingSandbox(*limits)) or made[-1]  # noqa: E731
    monkeypatch.setattr("d3s.programs.code_reward.Sandbox", make)
    return made


def test_equal_programs_run_once(counting):
    reward = CodeReward(workers=3, timeout_s=1.5, memory_mb=300)
    for response in ("a = 1", "a = 1", fenced("a = 1\n", ""), fenced("a = 1\n")):
        assert reward.submit(response, DOUBLE).result().total == 1.0
    reward.submit("a = 1", CHECK)
    reward.close()
    assert counting[0].limits == (3, 1.5, 300)
    assert counting[0].programs == ["a = 1", "a = 1\n", "a = 1", "closed"]


def test_oldest_unused_report_leaves_the_cache(counting, monkeypatch):
    monkeypatch.setattr("d3s.programs.code_reward.CACHED_REPORTS", 2)
    reward = CodeReward()
    for response in ("a", "b", "a", "c", "a", "b"):
        reward.submit(response, DOUBLE)
    assert counting[0].programs == ["a", "b", "c", "b"]


SCORED = {"x": [False] * 3, "double = int": [True, True, False], "double = abs": [True] * 3}


@pytest.mark.parametrize(("kind", "expected"), [("all", 0.0), ("rate", 2 / 3), ("calibrated", 1 / 3)])
def test_score_option_sets_the_total(kind, expected, counting):
    reward = CodeReward(score=kind)
    counting[0].outcomes = SCORED
    assert result(reward, "double = int").total == pytest.approx(expected)
    assert result(reward, "double = abs").total == 1.0
    scores = reward.score_group(list(SCORED), DOUBLE, {})
    assert scores == (calibrated(list(SCORED.values())) if kind == "calibrated" else None)


def test_calibrated_scores_by_hand():
    """Of 3 programs 2 pass the first test and 1 the second: weights 1 - 3/5 and 1 - 2/5."""
    assert calibrated([[True, False], [True, True], [False, False]]) == pytest.approx([0.5 * 0.4 / 1.0, 1.0, 0.0])


def test_expression_is_the_body_of_f():
    tests = json.dumps([f"assert f({a}, {b}) == {a + b}" for a in range(3) for b in range(3)])
    expressions = ExpressionReward(workers=1, timeout_s=2.0)
    for response in ("a+b", "a+b\n", "a-b", "a+b+0+0+0+0+0", "a if b else a", "a+", ""):
        assert result(expressions, response, tests).total == float(response == "a+b"), response
    expressions.close()
