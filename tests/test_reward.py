"""User reward functions and the terms of a reward, against given values; every refusal message."""

import sys
import threading
import time

import numpy as np
import pytest
import torch

from d3s import reward as reward_module
from d3s.common import UserError
from d3s.config.schema import RewardConfig
from d3s.reward import RewardFunction, format_reward, load_function, overlong_penalty

HERE = f"{__name__}:"
RETURNED: list = []  # the value that `returns` returns


# --- reward functions of a user ---------------------------------------------------------------------------------------


def returns(response, answer):
    return RETURNED[0]


def raises(response, answer):
    raise ValueError("no\x1b[31m reward\nfor this")


def exits(response, answer):
    sys.exit(3)


def three_arguments(response, answer, row):
    return 1.0


def slow(response, answer, _never=threading.Event()):  # noqa: B008 (the event is never set)
    _never.wait(0.2)
    return 1


class Unprintable:
    def __repr__(self):
        raise RuntimeError


def reward(name: str) -> float:
    """The reward by this function of a long response that contains an escape sequence."""
    reward_function = RewardFunction(RewardConfig(function=HERE + name), 100)
    try:
        return reward_function.submit("the\x1b[2J response " + "x" * 500, "7", 10, "what is 3+4?")()[0]
    finally:
        reward_function.close()


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
        (-1e12, -1e12),
    ],
)
def test_numbers_of_all_types_become_floats(value, expected):
    RETURNED[:] = [value]
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
        -1e300,
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
def test_other_return_values_are_refused(value):
    """The message names the function, the problem, the answer and the response, in printable characters."""
    RETURNED[:] = [value]
    with pytest.raises(UserError) as refused:
        reward("returns")
    message = str(refused.value)
    parts = (f"{HERE}returns", "returned", '"what is 3+4?"', 'answer "7"', "the␛[2J response", "finite")
    assert all(part in message for part in parts), message
    assert len(message) < 500 and message.isprintable()
    assert f'response "{("the␛[2J response " + "x" * 500)[:59]}…"' in message  # 60 characters


@pytest.mark.parametrize(
    ("name", "reason"),
    [("raises", "raised ValueError: no␛[31m reward for this on problem"), ("exits", "raised SystemExit: 3")],
)
def test_errors_in_reward_functions_are_named(name, reason):
    with pytest.raises(UserError) as refused:
        reward(name)
    assert reason in str(refused.value) and '"what is 3+4?"' in str(refused.value)
    with pytest.raises(UserError, match="raised"):  # in evaluations too
        RewardFunction(RewardConfig(function=HERE + name), 100).accuracy("r", "a")


def test_other_signatures_are_refused_at_load():
    message = r"three_arguments has the signature \(response, answer, row\), expected \(response, answer\)"
    with pytest.raises(UserError, match=message):
        load_function(HERE + "three_arguments")
    assert load_function("builtins:print") is print  # its signature accepts any arguments
    assert load_function("builtins:max") is max  # it has no signature


@pytest.mark.parametrize("name", ["json.dumps", "json:decoder", "json:absent", "no_such_module:reward"])
def test_names_of_no_function_are_refused(name):
    with pytest.raises(UserError, match=f"reward.function: got '{name}', expected module:function"):
        load_function(name)


def test_other_callables_are_refused_at_load(tmp_path, monkeypatch):
    source = (
        "async def waits(r, a): pass\nasync def streams(r, a): yield 1.0\ndef yields(r, a): yield 1.0\n"
        "class Made:\n    def __init__(self, r, a): pass\n"
    )
    kinds = {"waits": "an async function", "streams": "an async generator", "yields": "a generator", "Made": "a class"}
    (tmp_path / "odd_reward.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    for name, kind in kinds.items():
        with pytest.raises(UserError, match=f"odd_reward:{name} is {kind}, expected a plain function"):
            load_function(f"odd_reward:{name}")


def test_modules_that_exit_are_refused_at_load(tmp_path, monkeypatch):
    (tmp_path / "broken_reward.py").write_text("import sys; sys.exit(4)")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match=r"module:function \(SystemExit: 4\)"):
        load_function("broken_reward:reward")


def test_slow_functions_are_named_while_they_run(monkeypatch, capsys):
    """Each warning comes after twice the time of the one before, and none after the function has returned."""
    monkeypatch.setattr(reward_module, "SLOW_S", 0.02)
    assert reward("slow") == 1.0
    time.sleep(0.05)
    warnings = capsys.readouterr().err.splitlines()
    time.sleep(0.3)
    assert not capsys.readouterr().err
    assert warnings and all(f"{HERE}slow has not returned for" in line for line in warnings)
    assert '"what is 3+4?"' in warnings[0] and len(warnings) <= 4


# --- verifier ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("extraction", "verdict"), [("strict", 0.0), ("lenient", 1.0)])
def test_verifier_options_and_counts_are_passed_on(extraction, verdict):
    """Lenient extraction reads an answer without a box."""
    reward_function = RewardFunction(RewardConfig(extraction=extraction, workers=1), 100)
    assert reward_function.submit("The answer is 5.", "5", 8)() == (verdict, verdict)
    stats = reward_function.take_stats()
    assert (stats["decided"], stats["no_answer"]) == (1, 1 - verdict)
    assert not any(reward_function.take_stats().values())
    reward_function.close()


# --- terms of the reward ----------------------------------------------------------------------------------------------


def test_format_reward_needs_one_box_after_thinking():
    assert format_reward(r"so \boxed{5}") == 1.0
    assert [format_reward(t) for t in ("5", r"\boxed{}", r"\boxed{5} or \boxed{6}", r"\boxed{5}</think>")] == [0.0] * 4


@pytest.mark.parametrize(
    ("fraction", "length", "tokens"), [(0.2, 64, 13), (0.2, 1024, 205), (1, 12, 12), (0.001, 100, 1), (0.33, 12, 4)]
)
def test_overlong_buffer_is_a_fraction_of_the_limit(fraction, length, tokens):
    RETURNED[:] = [1.0]
    config = RewardConfig(function=HERE + "returns", overlong_buffer=fraction, overlong_penalty=0.5)
    reward_function = RewardFunction(config, length)
    for n in range(length + 1):
        reward, verdict = reward_function.submit("r", "a", n)()
        assert reward == pytest.approx(verdict - 0.5 * max(0, n - (length - tokens)) / tokens)
    reward_function.close()


def test_overlong_penalty_follows_dapos_formula():
    assert [overlong_penalty(n, 100, 20) for n in (0, 80, 85, 90, 100, 300)] == [0.0, 0.0, -0.25, -0.5, -1.0, -1.0]
    with pytest.raises(UserError):
        overlong_penalty(5, 100, 0)
    with pytest.raises(UserError):
        overlong_penalty(5, 100, 101)
    assert overlong_penalty(25, 100, 100) == -0.25  # the buffer may be all of the limit


@pytest.mark.parametrize(("response", "has_format"), [(r"so \boxed{5}", True), ("5", False)])
@pytest.mark.parametrize(("length", "penalty"), [(70, 0.0), (90, -0.5), (100, -1.0)])
def test_reward_adds_terms_to_the_verdict(response, has_format, length, penalty):
    RETURNED[:] = [0.25]
    settings = {"function": HERE + "returns", "format_weight": 0.3, "overlong_buffer": 0.2, "overlong_penalty": 0.8}
    reward_function = RewardFunction(RewardConfig(**settings), 100)
    reward, verdict = reward_function.submit(response, "5", length)()
    reward_function.close()
    assert verdict == 0.25 and reward == pytest.approx(0.25 + 0.3 * has_format + 0.8 * penalty)
