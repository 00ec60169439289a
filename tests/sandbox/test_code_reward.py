"""The reward of programs in the real sandbox, against scores worked out by hand."""

import json
import random
from concurrent.futures import Future

import pytest

from d3s.config.schema import RewardConfig
from d3s.data.code import read_code_problem
from d3s.sandbox import TestReport
from d3s.sandbox.code_reward import CodeReward, ExpressionReward, calibrated

HUMANEVAL = {
    "task_id": "HumanEval/0",
    "prompt": 'import math\n\ndef root(x):\n    """The root."""\n',
    "entry_point": "root",
    "problem": "The root of a number.",
}
CHECK = json.dumps(["def check(candidate):\n    assert candidate(9) == 3\ncheck(root)"])
DOUBLE = json.dumps(["assert double(3) == 6", "assert double(0) == 0", "assert double('a') == 'aa'"])


@pytest.fixture(scope="module")
def reward():
    reward = CodeReward(RewardConfig(timeout_s=2.0))
    yield reward
    reward.close()


def result(reward, response, answer=DOUBLE, row=None):
    return reward.submit(response, answer, row).result(timeout=60)


WRONG_AFTER = "```python\ndef double(x):\n    return x * 2\n```\nWrong:\n```py\ndef double(x):\n    return x\n```"


def test_last_block_is_the_program(reward):
    for response, right in (("def double(x):\n    return x + x", 1.0), (WRONG_AFTER, 0.0), ("", 0.0)):
        assert result(reward, response).total == right


@pytest.mark.parametrize(
    ("response", "right"),
    [
        ("    return math.sqrt(x)\n\nprint(root(9)", True),  # cut before the next statement at the margin
        ("    return x\n", False),
        ("```python\ndef root(x):\n    return x ** 0.5\n```", True),
        ("def root(x):\n    return math.sqrt(x)\n", True),  # with what the prompt has before its function
    ],
)
def test_completions_continue_the_prompt(reward, response, right):
    assert result(reward, response, CHECK, HUMANEVAL).total == float(right)


def test_tested_names_choose_the_block(reward):
    """The answer's tests name what a program defines, in MBPP's format as in HumanEval's."""
    response = "```\ndef double(x):\n    return 2 * x\n```\nOutput:\n```\n6\n```\n"
    assert "def double" in reward.program(response, {}, DOUBLE) and "6" not in reward.program(response, {}, DOUBLE)


CYCLIC = {
    "prompt": 'def twice(x):\n    """Twice."""\n    return 2 * x\n\n\ndef half(x):\n    """Undo twice."""\n',
    "entry_point": "half",
    "test": "def check(candidate):\n    assert candidate(twice(3)) == 3 and candidate(twice(8)) == 8\n",
}


@pytest.mark.parametrize(
    ("response", "right"),
    [
        ("    return twice(x) // 4\n", True),
        ("```python\ndef half(x):\n    return twice(x) // 4\n```", True),
        ("    return x\n\ntwice = lambda x: x\n", False),
        ("```python\ndef twice(x):\n    return x\n\ndef half(x):\n    return x\n```", False),
    ],
)
def test_helper_functions_of_a_prompt_are_the_tests(reward, response, right):
    _, answer = read_code_problem(CYCLIC, "")
    assert result(reward, response, answer, CYCLIC).total == float(right)


SUMS = json.dumps([{"input": "1 2\n", "output": "3\n"}, {"input": "5 7", "output": "12"}])


@pytest.mark.parametrize(
    ("response", "rate"),
    [
        ("```python\na, b = map(int, input().split())\nprint(a + b)\n```", 1.0),
        ("```python\nimport sys\nprint(sum(map(int, sys.stdin.read().split())), end='')\n```\n```\n3\n```", 1.0),
        ("```python\nif __name__ == '__main__':\n    print(sum(map(int, open(0).read().split())), ' ')\n```", 1.0),
        ("```python\nimport sys\nx = sys.stdin.buffer.readline().split()\nprint(int(x[0]) + 2)\nsys.exit(0)\n```", 0.5),
        ("```python\nprint(3)\nraise SystemExit(1)\n```", 0.0),
        ("```python\nimport sys\nsys.stdout = None\n```", 0.0),
        ("```python\nclass Same(str):\n    __eq__ = lambda *a: True\nprint(Same('4'))\n```", 0.0),
    ],
)
def test_scripts_are_scored_by_their_output(reward, response, rate):
    scored = result(reward, response, SUMS)
    assert scored.parts["pass_rate"] == rate and scored.total == float(rate == 1.0)


SCORED = {"x": [False] * 3, "double = int": [True, True, False], "double = abs": [True] * 3}


@pytest.mark.parametrize(("kind", "expected"), [("all", 0.0), ("rate", 2 / 3), ("calibrated", 1 / 3)])
def test_code_score_sets_the_total(kind, expected, counting):
    reward = CodeReward(RewardConfig(code_score=kind))
    counting[0].outcomes = SCORED
    assert result(reward, "double = int").total == pytest.approx(expected)
    assert result(reward, "double = abs").total == 1.0
    scores = reward.score_group(list(SCORED), DOUBLE, {})
    assert scores == (calibrated(list(SCORED.values())) if kind == "calibrated" else None)


def test_calibrated_scores_by_hand_and_in_any_order():
    """Of 3 programs 2 pass the first test and 1 the second: weights 1 - 3/5 and 1 - 2/5."""
    group = [[True, False], [True, True], [False, False]]
    assert calibrated(group) == pytest.approx([0.5 * 0.4 / 1.0, 1.0, 0.0])
    rng = random.Random(0)
    group = [[rng.random() < 0.5 for _ in range(4)] for _ in range(8)]
    order = rng.sample(range(8), 8)
    assert calibrated([group[i] for i in order]) == pytest.approx([calibrated(group)[i] for i in order])


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
    monkeypatch.setattr(
        "d3s.sandbox.code_reward.Sandbox", lambda *limits: made.append(CountingSandbox(*limits)) or made[-1]
    )
    return made


def test_equal_programs_run_once(counting):
    reward = CodeReward(RewardConfig(workers=3, timeout_s=1.5, memory_mb=300))
    for response in ("a = 1", "a = 1", "```\na = 1\n```", "```python\na = 1\n```"):
        assert reward.submit(response, DOUBLE).result().total == 1.0
    reward.submit("a = 1", CHECK)
    reward.close()
    (sandbox,) = counting
    assert sandbox.limits == (3, 1.5, 300)
    assert sandbox.programs == ["a = 1", "a = 1\n", "a = 1", "closed"]


def test_oldest_unused_report_leaves_the_cache(counting, monkeypatch):
    monkeypatch.setattr("d3s.sandbox.code_reward.CACHED_REPORTS", 2)
    reward = CodeReward()
    for response in ("a", "b", "a", "c", "a", "b"):
        reward.submit(response, DOUBLE)
    assert counting[0].programs == ["a", "b", "c", "b"]


def test_states_are_counted_per_response(reward):
    reward.take_stats()
    loop = "def double(x):\n    while True: pass"
    scored = [
        reward.submit(program, DOUBLE) for program in (loop, loop, "import os; os._exit(0)", "def double(x: pass")
    ]
    assert [s.result(timeout=60).total for s in scored] == [0.0] * 4
    assert reward.take_stats() == {"timeouts": 2, "out_of_memory": 0, "crashes": 2, "refused": 0}
    assert set(reward.take_stats().values()) == {0}


def test_refused_problem_is_named_once(reward, capsys):
    tests = json.dumps(["\nassert double(1) != double(2)"])
    row = {"task_id": "MBPP/7"}
    for program in ("class V: pass\ndef double(x): return V()", "class U: pass\ndef double(x): return U()"):
        assert result(reward, program, tests, row).total == 0.0
    warnings = capsys.readouterr().err
    assert (
        warnings.count("warning: problem MBPP/7: test 1, line 2: __ne__ of an object of the program") == 1
        and "python -m d3s.sandbox.check" in warnings
    )
    assert reward.take_stats()["refused"] == 2


# --- expressions ----------------------------------------------------------------------------------

SUM = json.dumps([f"assert f({a}, {b}) == {a + b}" for a in range(3) for b in range(3)])


@pytest.fixture(scope="module")
def expressions():
    reward = ExpressionReward(RewardConfig(workers=1, timeout_s=2.0))
    yield reward
    reward.close()


@pytest.mark.parametrize(
    ("response", "right"),
    [("a+b", True)] + [(text, False) for text in ("a+b ", "a+b\n", "a-b", "a+b+0+0+0+0+0", "a if b else a", "a+", "")],
)
def test_expression_is_the_body_of_f(response, right, expressions):
    assert result(expressions, response, SUM).total == float(right)
