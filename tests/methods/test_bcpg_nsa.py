"""BCPG-NSA's weights against equations 6 and 7 of the paper, character by character and by the gradient."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from d3s.loss import Clip, denominators, grpo_loss
from d3s.methods.bcpg_nsa import consensus_shaper, reachable_steps, split_steps, synthetic, true_steps

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


def test_gradient_matches_equation_6():
    """Without its constraint, of one group whose tokens' log-probabilities are parameters."""
    generator = torch.Generator().manual_seed(0)
    lengths, rewards, beta = torch.tensor([3, 5, 4]), torch.tensor([0.0, 1.0, 0.0]), 0.5
    ids = torch.arange(3).repeat_interleave(lengths)
    correct = (torch.rand(12, generator=generator) < 0.5) & (rewards[ids] == 0)
    weights = torch.where(correct, beta, 1.0)
    logprobs = torch.randn(12, generator=generator).requires_grad_()
    advantages = weights * (rewards - rewards.mean())[ids]
    [expected] = torch.autograd.grad(sum((advantages * logprobs)[ids == i].mean() / 3 for i in range(3)), logprobs)
    divisors = denominators("sequence", lengths, lengths, 100)[ids]
    loss, _ = grpo_loss(logprobs, logprobs.detach(), advantages, Clip(0.2), divisors)
    [got] = torch.autograd.grad(-loss, logprobs)
    torch.testing.assert_close(got, expected)


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
