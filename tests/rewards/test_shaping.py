"""The built-in shaper, against responses whose first wrong step is known."""

import pytest

from d3s.rewards.shaping import spare_reachable


@pytest.mark.parametrize(
    ("problem", "response", "prefix"),
    [
        ("3+6*3=", r"6*3=18;3+18=22 \boxed{22}", "6*3=18;"),  # the second step is wrong
        ("3+6*3=", r"3+6=9;9*3=27 \boxed{27}", ""),  # the first one
        ("3+6*3=", r"6*3=18;3+18=21 \boxed{22}", ""),  # no step, but the answer: nothing rules it out before the end
        ("2+3*4-1=", r"3*4=12;2+12-1;2+12=15;15-1=14 \boxed{14}", "3*4=12;2+12-1;"),
        ("2,3,5->13:", r"2*5=10;10-3=7 \boxed{(2*5)-3}", "2*5=10;"),
    ],
)
def test_steps_before_the_first_wrong_one_are_spared(problem, response, prefix):
    expected = [(0, len(prefix), 0.0)] if prefix else []
    assert spare_reachable(problem, response, "?", -1.5) == expected
    assert response.startswith(prefix)


def test_right_answers_keep_their_advantage():
    assert spare_reachable("3+6*3=", r"3+6=9;9*3=27 \boxed{21}", "21", 0.5) == []
