"""The order of problems, as a function and through its rule, against permutations."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from d3s.config.load import load_config
from d3s.data.order import build_order
from d3s.data.problems import Problem, problem_order


@given(st.integers(1, 40), st.integers(0, 2**31), st.lists(st.integers(0, 25), max_size=12))
def test_order_is_a_function_of_position(size, seed, counts):
    position, taken = 0, []
    for count in counts:
        taken += problem_order(size, seed, position, count)
        position += count
    assert taken == problem_order(size, seed, 0, position)
    for epoch in range(position // size):
        assert sorted(taken[epoch * size : (epoch + 1) * size]) == list(range(size))


def test_order_differs_by_epoch_and_seed():
    first, second = problem_order(100, 0, 0, 100), problem_order(100, 0, 100, 100)
    assert second != first != problem_order(100, 1, 0, 100) and first != list(range(100))


def test_default_rule_is_the_shuffled_order():
    """What is learned changes nothing, and there is no state."""
    order, taken = build_order(load_config([], []), [Problem("0", "problem", "1", "test")] * 7), []
    for position in range(0, 21, 3):
        taken += order.take(count=3, position=position)
        order.learn(problems=taken[-3:], verdicts=torch.ones(3, 4), rewards=torch.ones(3, 4))
    assert taken == problem_order(7, 0, 0, 21) and order.metrics() is None and not order.has("state_dict")
