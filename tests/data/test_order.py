"""The built-in order of problems, through its rule, against the seeded permutations."""

import torch

from d3s.config.load import load_config
from d3s.data.order import build_order
from d3s.data.problems import Problem, ProblemOrder


def test_default_is_the_shuffled_order():
    """What is learned changes nothing, and there is no state."""
    order, taken = build_order(load_config([], []), [Problem("0", "problem", "1", "test")] * 7), []
    for position in range(0, 21, 3):
        taken += order.take(count=3, position=position)
        order.learn(problems=taken[-3:], verdicts=torch.ones(3, 4), rewards=torch.ones(3, 4))
    assert taken == ProblemOrder(7, 0).take(0, 21) and order.metrics() is None and not order.has("state_dict")
    assert all(sorted(taken[start : start + 7]) == list(range(7)) for start in (0, 7, 14))
