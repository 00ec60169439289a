"""BCPG-NSA's weights against equations 6 and 7 of the paper, character by character and by the gradient."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from d3s.config.schema import Config
from d3s.loss import Clip, denominators, grpo_loss
from d3s.methods.bcpg_nsa import consensus_shaper, reachable_steps, split_steps, synthetic, true_steps
from d3s.rewards.token_advantages import Shaper

RESPONSES = st.lists(st.text("ab1 ", max_size=4), max_size=6).map("\n".join)


@given(RESPONSES)
def test_steps_are_the_lines(response):
    steps = split_steps(response)
    texts = [response[start:end].strip("\n") for start, end in steps]
    assert texts == [line for line in response.split("\n") if line]
    joined = "".join(response[start:end] for start, end in steps)
    assert joined == (response.lstrip("\n") if texts else "")


@given(RESPONSES, st.data(), st.floats(-1, 1), st.floats(-3, 3))
def test_weights_match_equation_7(response, data, beta, advantage):
    """The advantage of every character, with judges that say anything."""
    lines = split_steps(response)
    said = [[data.draw(st.booleans()) for _ in lines] for _ in range(2)]
    judges = [lambda problem, text, steps, of_judge=of_judge: of_judge for of_judge in said]
    spans = consensus_shaper(*judges, beta)("p", response, "a", advantage)
    got = [advantage] * len(response)
    for start, end, value in spans:
        got[start:end] = [value] * (end - start)
    for i in range(len(response)):
        agreed = any(start <= i < end and said[0][k] and said[1][k] for k, (start, end) in enumerate(lines))
        assert got[i] == (beta * advantage if agreed and advantage < 0 else advantage)


def test_gradient_matches_equation_6():
    """Without its constraint, of one group whose tokens' log-probabilities are parameters."""
    generator = torch.Generator().manual_seed(0)
    lengths, rewards, beta = [3, 5, 4], torch.tensor([0.0, 1.0, 0.0]), 0.5
    ids = torch.repeat_interleave(torch.arange(3), torch.tensor(lengths))
    correct = (torch.rand(12, generator=generator) < 0.5) & (rewards[ids] == 0)
    weights = torch.where(correct, beta, 1.0)
    logprobs = torch.randn(12, generator=generator).requires_grad_()
    objective = 0.0
    for i, length in enumerate(lengths):
        of_response = ids == i
        terms = weights[of_response] * (rewards[i] - rewards.mean()) * logprobs[of_response]
        objective = objective + terms.sum() / length / 3
    [expected] = torch.autograd.grad(objective, logprobs)
    counts = torch.tensor(lengths)
    divisors = denominators("sequence", counts, counts, 100)[ids]
    advantages = weights * (rewards - rewards.mean())[ids]
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


def test_shaper_is_an_option():
    shaper = Shaper(Config(reward={"shaper": "d3s.methods.bcpg_nsa:synthetic"}).reward.shaper)
    assert shaper.spans("3+6*3=", r"6*3=18;3+18=22 \boxed{22}", "21", -1.0) == ((0, 7, -0.5),)
