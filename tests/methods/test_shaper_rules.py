"""Shapers of the shelf: BCPG-NSA against its equation 7, and the judge of synthetic steps against all continuations."""

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from d3s.data.synthetic import OPERATIONS, TASKS, countdown_reward
from d3s.methods.bcpg_nsa import consensus_shaper, reachable_steps, split_steps, synthetic, true_steps
from d3s.methods.step_shaper import spare_reachable, unreachable

RESPONSES = st.lists(st.text("ab1 ", max_size=4), max_size=6).map("\n".join)


@given(RESPONSES)
def test_steps_are_the_lines(response):
    pieces = [response[start:end] for start, end in split_steps(response)]
    assert [piece.strip("\n") for piece in pieces] == [line for line in response.split("\n") if line]
    assert "".join(pieces) == (response.lstrip("\n") if pieces else "")


@given(RESPONSES, st.data(), st.floats(-1, 1), st.floats(-3, 3))
def test_weights_match_equation_7(response, data, beta, advantage):
    """The advantage of every character, with judges that say anything."""
    lines = split_steps(response)
    first, second = ([data.draw(st.booleans()) for _ in lines] for _ in range(2))
    spans = consensus_shaper(lambda *_: first, lambda *_: second, beta)("p", response, "a", advantage)
    got = [advantage] * len(response)
    for start, end, value in spans:
        got[start:end] = [value] * (end - start)
    for i in range(len(response)):
        agreed = any(start <= i < end and a and b for (start, end), a, b in zip(lines, first, second))
        assert got[i] == (beta * advantage if agreed and advantage < 0 else advantage)


@pytest.mark.parametrize(
    ("problem", "response", "reachable", "true"),
    [
        ("3+6*3=", r"6*3=18;3+18=22 \boxed{22}", "100", "101"),  # the second equation is false
        ("3+6*3=", r"3+6=9;9*3=27 \boxed{27}", "000", "111"),  # true equations in the wrong order
        ("2+3*4-1=", r"3*4=12;2+12-1;2+12=15;15-1=14 \boxed{14}", "11000", "11011"),
    ],
)
def test_judges_of_synthetic_tasks(problem, response, reachable, true):
    steps = split_steps(response, "; ")
    one, other = reachable_steps(problem, response, steps), true_steps(problem, response, steps)
    assert one == [mark == "1" for mark in reachable] and other == [mark == "1" for mark in true]
    expected = [(*step, -0.25) for step, a, b in zip(steps, one, other, strict=True) if a and b]
    assert synthetic(problem, response, "?", -0.5) == expected


# --- steps of synthetic problems --------------------------------------------------------------------------------------

PRECEDENCE, COUNTDOWN = "3+6*3=", "2,3,5->13:"  # answers 21 and (2*5)+3


def every_response(numbers, signs):
    """The steps of all orders in which neighbors can be reduced, and the last number of each."""
    if not signs:
        yield "", numbers[0]
    for i, sign in enumerate(signs):
        value = OPERATIONS[sign](numbers[i], numbers[i + 1])
        rest = [*numbers[:i], value, *numbers[i + 2 :]], signs[:i] + signs[i + 1 :]
        for steps, last in every_response(*rest):
            yield f"{numbers[i]}{sign}{numbers[i + 1]}={value};{steps}", last


def test_precedence_matches_all_continuations():
    """The steps so far are hopeless if no enumerated response that begins with them ends in the answer."""
    checked = {True: 0, False: 0}
    for problem, answer, _ in TASKS["precedence"].draw("train", 30, 0):
        numbers, signs = [int(n) for n in re.findall(r"\d+", problem)], re.findall(r"[-+*]", problem)
        responses = list(every_response(numbers, signs))
        for steps, _ in responses:
            for cut in (m.end() for m in re.finditer(";", steps)):
                hopeless = all(last != int(answer) for text, last in responses if text.startswith(steps[:cut]))
                assert unreachable(problem, steps[:cut]) == hopeless
                checked[hopeless] += 1
    assert min(checked.values()) > 50


def test_countdown_demonstrations_are_hopeless_if_wrong():
    """Their arithmetic is right: a right one is never hopeless, a wrong one is after its last step."""
    generator, rights, task = random.Random(0), 0, TASKS["countdown"]
    for problem, answer, _ in task.draw("train", 200, 0):
        text = task.demonstrate(generator, problem)
        right = countdown_reward(text, answer) == 1
        rights += right
        assert unreachable(problem, text) != right
        if right:
            assert not any(unreachable(problem, text[:i]) for i in range(len(text)))
    assert 50 < rights < 150


@pytest.mark.parametrize(
    ("problem", "text", "hopeless"),
    [
        (PRECEDENCE, "3+6=9", False), (PRECEDENCE, "3+6=9;", True),  # not yet complete, and complete
        (PRECEDENCE, "let me see; 6*3=18 ", False), (PRECEDENCE, "6*3=19;", True), (PRECEDENCE, "6*4=24;", True),
        (PRECEDENCE, "3+18;", False), (PRECEDENCE, "3+19;", True),  # states as a response writes them
        (PRECEDENCE, "1+1+1+1+1+1+1+1+1+1+1+1+1;", True),  # longer than the problem, never enumerated
        (PRECEDENCE, "6*3=" + "9" * 5000 + ";", False),  # no step
        (PRECEDENCE, r"6*3=18;3+18=22 ", True), (COUNTDOWN, "2*5=10;", False), (COUNTDOWN, "3*5=15;15-2=13 ", False),
        (COUNTDOWN, "2*5=11;", False), (COUNTDOWN, "2*5=11;11+3=14 ", False),  # the boxed expression decides
        (COUNTDOWN, "2+5=7;", True), (COUNTDOWN, "2*6=12;", True),
    ],
)  # fmt: skip
def test_steps_by_hand(problem, text, hopeless):
    assert unreachable(problem, text) == hopeless


@pytest.mark.parametrize(
    ("problem", "response", "prefix"),
    [
        ("3+6*3=", r"3+6=9;9*3=27 \boxed{27}", ""),  # the first step is wrong
        ("3+6*3=", r"6*3=18;3+18=21 \boxed{22}", ""),  # no step, but the answer: nothing rules it out before the end
        ("2+3*4-1=", r"3*4=12;2+12-1;2+12=15;15-1=14 \boxed{14}", "3*4=12;2+12-1;"),
        ("2,3,5->13:", r"2*5=10;10-3=7 \boxed{(2*5)-3}", "2*5=10;"),
    ],
)
def test_steps_before_the_first_wrong_one_are_spared(problem, response, prefix):
    assert spare_reachable(problem, response, "?", -1.5) == [(0, len(prefix), 0.0)] * bool(prefix)
    assert response.startswith(prefix) and spare_reachable(problem, response, "?", 0.5) == []
