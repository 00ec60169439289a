"""Prompt samplers: the shuffled order against epochs of ProblemOrder."""

import torch

from d3s.controllers.prompt_sampler import Shuffled
from d3s.data.problems import ProblemOrder


def test_shuffled_is_the_order_of_problems():
    """What is learned changes nothing."""
    sampler, order = Shuffled(7, seed=3), ProblemOrder(7, 3)
    taken = []
    for position in range(0, 21, 3):
        taken += sampler.take(3, position)
        sampler.learn(taken[-3:], torch.ones(3, 4), torch.ones(3, 4, dtype=torch.bool))
    assert taken == order.take(0, 21)
    assert all(sorted(taken[start : start + 7]) == list(range(7)) for start in (0, 7, 14))
