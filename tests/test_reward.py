"""The user's own reward functions: what they may return, and the sentence for everything else."""

import sys
import threading
import time

import numpy as np
import pytest
import torch

from d3s import reward as scoring
from d3s.common import UserError
from d3s.config.schema import RewardConfig
from d3s.reward import RewardFunction, format_reward, load_function, overlong_penalty

HERE = f"{__name__}:"
RESULT: list = []  # what `returns` returns


def returns(response, answer):
    return RESULT[0]


def raises(response, answer):
    raise ValueError("no\x1b[31m reward\nfor this")


def exits(response, answer):
    sys.exit(3)


def three(response, answer, row):
    return 1.0


def rests(response, answer, _awake=threading.Event()):  # noqa: B008 (the event is never set)
    _awake.wait(0.5)
    return 1


class Unprintable:
    def __repr__(self):
        raise RuntimeError


def reward(name: str) -> float:
    scorer = RewardFunction(RewardConfig(function=HERE + name), 100)
    try:
        return scorer.submit("the\x1b[2J response " + "x" * 500, "7", 10, "what is 3+4?")()[0]
    finally:
        scorer.close()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (True, 1),
        (2, 2),
        (-0.5, -0.5),
        (np.float32(0.25), 0.25),
        (np.array(3), 3),
        (torch.tensor(0.5), 0.5),
        (1e12, 1e12),
    ],
)
def test_numbers_of_every_kind_are_rewards(value, expected):
    RESULT[:] = [value]
    result = reward("returns")
    assert type(result) is float and result == expected


@pytest.mark.parametrize(
    "value",
    [
        None,
        "1.0",
        float("nan"),
        float("inf"),
        1e300,
        10**400,
        10**5000,
        1j,
        [1.0],
        np.ones(1),
        torch.ones(2),
        Unprintable(),
    ],
    ids=lambda value: type(value).__name__,
)
def test_anything_else_is_refused_with_function_problem_answer_and_response(value):
    RESULT[:] = [value]
    with pytest.raises(UserError) as refused:
        reward("returns")
    message = str(refused.value)
    for part in (
        f"reward.function {HERE}returns returned",
        '"what is 3+4?"',
        'answer "7"',
        "the␛[2J response",
        "finite",
    ):
        assert part in message
    assert len(message) < 500 and message.isprintable()


@pytest.mark.parametrize(
    ("name", "said"),
    [("raises", "raised ValueError: no␛[31m reward for this on problem"), ("exits", "raised SystemExit: 3")],
)
def test_a_function_that_raises_or_exits_is_one_sentence(name, said):
    with pytest.raises(UserError) as refused:
        reward(name)
    assert said in str(refused.value) and '"what is 3+4?"' in str(refused.value)
    with pytest.raises(UserError, match="raised"):  # evaluations too
        RewardFunction(RewardConfig(function=HERE + name), 100).accuracy("r", "a")


def test_a_function_of_three_arguments_or_a_broken_module_is_refused_at_once(tmp_path, monkeypatch):
    with pytest.raises(
        UserError, match=r"three has the signature \(response, answer, row\), expected \(response, answer\)"
    ):
        load_function(HERE + "three")
    kinds = "async def waits(r, a): pass", "def yields(r, a): yield 1.0", "def __init__(self, r, a): pass"
    (tmp_path / "odd_reward.py").write_text("{}\n{}\nclass Made:\n    {}\n".format(*kinds))
    monkeypatch.syspath_prepend(tmp_path)
    for name, kind in (("waits", "an async function"), ("yields", "a generator"), ("Made", "a class")):
        with pytest.raises(UserError, match=f"odd_reward:{name} is {kind}, expected a plain function"):
            load_function(f"odd_reward:{name}")
    (tmp_path / "broken_reward.py").write_text("import sys; sys.exit(4)")
    with pytest.raises(UserError, match=r"must name a function as module:function \(SystemExit: 4\)"):
        load_function("broken_reward:reward")
    assert load_function("builtins:print") is print  # whose signature takes anything


def test_a_slow_function_is_named_while_it_runs(monkeypatch, capsys):
    monkeypatch.setattr(scoring, "SLOW_S", 0.05)
    assert reward("rests") == 1.0
    time.sleep(0.1)
    lines = capsys.readouterr().err.splitlines()
    assert lines and all(f"{HERE}rests has not returned for" in line for line in lines)
    assert '"what is 3+4?"' in lines[0] and len(lines) <= 4  # each time twice as late


def test_format_reward_needs_one_box_after_thinking():
    assert format_reward(r"so \boxed{5}") == 1.0
    assert [format_reward(t) for t in ("5", r"\boxed{}", r"\boxed{5} or \boxed{6}", r"\boxed{5}</think>")] == [0.0] * 4


def test_overlong_penalty_is_dapos_formula():
    assert [overlong_penalty(n, 100, 20) for n in (0, 80, 85, 90, 100, 300)] == [0.0, 0.0, -0.25, -0.5, -1.0, -1.0]
    with pytest.raises(UserError):
        overlong_penalty(5, 100, 0)
