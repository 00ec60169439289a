"""The rule for synthetic problems against enumerated responses, whose last number says whether they are right."""

import random
import re

import pytest

from d3s.data.synthetic import OPERATIONS, TASKS, countdown_reward
from d3s.methods.step_shaper import spare_reachable, unreachable

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


@pytest.mark.parametrize("task", ["precedence", "countdown"])
def test_demonstrations_are_hopeless_if_wrong(task):
    """Their arithmetic is right: a right one is never hopeless, a wrong one is after its last step."""
    generator, rights = random.Random(0), 0
    for problem, answer, _ in TASKS[task].draw("train", 200, 0):
        text = TASKS[task].demonstrate(generator, problem)
        right = f"{{{answer}}}" in text if task == "precedence" else countdown_reward(text, answer) == 1
        rights += right
        assert unreachable(problem, text) != right
        if right:
            assert not any(unreachable(problem, text[:i]) for i in range(len(text)))
    assert 50 < rights < 150


@pytest.mark.parametrize(
    ("problem", "text", "hopeless"),
    [
        (PRECEDENCE, "3+6=9", False), (PRECEDENCE, "3+6=9;", True),  # not yet complete, and complete
        (PRECEDENCE, "6*3=18;", False), (PRECEDENCE, "6*3=19;", True), (PRECEDENCE, "6*4=24;", True),  # no such pair
        (PRECEDENCE, "let me see; 6*3=18 ", False), (PRECEDENCE, r"6*3=18;3+18=21 \boxed{21} ", False),
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
