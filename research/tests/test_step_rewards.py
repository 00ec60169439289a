"""Step rewards and the nulls of the shaper, against responses whose steps are known."""

import pytest

from research import step_rewards

PROBLEM = "3+6*3="
RIGHT, WRONG_PAIR, WRONG_FACT = (
    r"6*3=18;3+18=21 \boxed{21}",
    r"3+6=9;9*3=27 \boxed{27}",
    r"6*3=18;3+18=22 \boxed{22}",
)


@pytest.mark.parametrize(
    ("response", "total", "ends"), [(RIGHT, 1.4, [7, 15]), (WRONG_PAIR, 0, []), (WRONG_FACT, 0.2, [7])]
)
def test_reachable_steps_are_rewarded_where_they_end(response, total, ends):
    scored = step_rewards.reward_reachable_steps(response, "21", {"problem": PROBLEM})
    assert scored.total == pytest.approx(total) and [end for _, end, _ in scored.spans] == ends
    assert step_rewards.reward_reachable_total(response, "21", {"problem": PROBLEM}) == scored.total


def test_equations_are_checked_alone():
    """A wrong order of true equations is spared up to the answer."""
    assert step_rewards.spare_true_equations(PROBLEM, WRONG_FACT, "21", -1) == [(0, 7, 0.0)]
    assert step_rewards.spare_true_equations(PROBLEM, WRONG_PAIR, "21", -1) == [(0, len("3+6=9;9*3=27 "), 0.0)]
    assert step_rewards.spare_true_equations(PROBLEM, RIGHT, "21", 1) == []


def test_random_cuts_are_at_steps_and_fixed_by_the_text():
    cuts = {tuple(step_rewards.spare_random(str(i), WRONG_FACT, "21", -1)) for i in range(40)}
    assert cuts == {(), ((0, 7, 0.0),)}
    assert step_rewards.spare_random("1", WRONG_FACT, "21", -1) == step_rewards.spare_random("1", WRONG_FACT, "21", -2)


def test_spared_prefixes_can_be_rewarded():
    assert step_rewards.reward_prefix(PROBLEM, WRONG_FACT, "21", -2.0) == [(0, 7, pytest.approx(0.6))]


def test_random_rewards_are_fixed_by_the_text():
    """About half of the responses to any answer, right or wrong, and the same at every call."""
    texts = [f"{RIGHT} {i}" for i in range(400)]
    rewards = [step_rewards.random_reward(text, "21") for text in texts]
    assert rewards == [step_rewards.random_reward(text, "21") for text in texts] and set(rewards) == {0.0, 1.0}
    assert sum(rewards) / 400 == pytest.approx(0.5, abs=0.1)  # four deviations
    other = [step_rewards.random_reward(text, "22") for text in texts]
    assert sum(a == b for a, b in zip(rewards, other)) / 400 == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize(
    "response, answer, expected",
    [
        (RIGHT, "21", 1),
        (WRONG_PAIR, "21", 0),
        (r"2*5=10;10+3=13 \boxed{(2*5)+3}", "2,3,5->13", 1),
        (r"5*2=10;3+10=13 \boxed{3+(5*2)}", "2,3,5->13", 1),  # any expression of the numbers
        (r"2*5=10;10+3=13 \boxed{13}", "2,3,5->13", 0),
        (r"2+3=5;5+5=10 \boxed{(2+3)+5}", "2,3,5->13", 0),
    ],
)
def test_verified_rewards_either_task(response, answer, expected):
    assert step_rewards.verified(response, answer) == expected
