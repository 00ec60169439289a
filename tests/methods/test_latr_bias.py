"""The expected gradient of tree rollouts on toy policies, by enumeration of all outcomes: how biased it is."""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from statistics import fmean

import pytest
import torch
from torch import Tensor

from d3s.advantage import center_only
from d3s.config.load import load_config
from d3s.methods.latr import LATR, Branch, Tree
from d3s.rollout.engine import Progress, Rollout
from d3s.rollout.prefixes import prefix_advantages

TOKENS, LENGTH = 3, 2
RULE = LATR(load_config([]), lookahead=0)
STATES = [(), *((token,) for token in range(TOKENS))]
Policy = dict[tuple[int, ...], Tensor]  # logits of the next token


def outcomes(sample: Callable[[Callable[[int], int]], Tensor]) -> Iterator[Tensor]:
    """What `sample` returns under every sequence of choices; it asks choose(n) for a number below n."""
    script: list[int] = []
    while True:
        made: list[tuple[int, int]] = []

        def choose(options: int) -> int:
            made.append((script[len(made)] if len(made) < len(script) else 0, options))  # noqa: B023
            return made[-1][0]  # noqa: B023

        yield sample(choose)
        while made and made[-1][0] == made[-1][1] - 1:
            made.pop()
        if not made:
            return
        script = [choice for choice, _ in made]
        script[-1] += 1


def expected_gradient(policy: Policy, rewards: Tensor, of_tree: int, plain: int) -> Tensor:
    """The expectation over a group of sum_t A_t grad log pi(y_t), A_i = R_i - mean, [states, tokens]."""
    probabilities = {state: logits.softmax(0) for state, logits in policy.items()}
    logprobs = {state: logits.log_softmax(0) for state, logits in policy.items()}
    likeliest = {state: sorted(enumerate(of.tolist()), key=lambda pair: -pair[1])[:2] for state, of in logprobs.items()}

    def sample(choose: Callable[[int], int]) -> Tensor:
        probability = 1.0

        def draw(ids: list[int]) -> tuple[int, float]:
            nonlocal probability
            token = choose(TOKENS)
            logprob = logprobs[tuple(ids)][token].item()
            probability *= math.exp(logprob)
            return token, logprob

        group = [Rollout(0, [], [], [], [], True, i) for i in range(of_tree + plain)]
        for rollout in group[of_tree:]:
            while len(rollout.response_ids) < LENGTH:
                rollout.response_ids.append(draw(rollout.response_ids)[0])
        if of_tree:
            tree = Tree(RULE, {i: group[i] for i in range(of_tree)}, LENGTH, [], Counter())
            growing: list[Branch] = list(tree.branches)
            while growing:
                for branch in growing:
                    ids = branch.rollout.response_ids
                    token, logprob = draw(ids)
                    reason = "length" if len(ids) + 1 == LENGTH else None
                    branch.extend(Progress(0, [token], [logprob], [likeliest[tuple(ids)]], reason))
                started, _, finished = tree.advance()
                growing = [branch for branch in growing if not branch.ended] + started
                for branch in finished:
                    group[branch.slot] = branch.rollout
        table = torch.tensor([[rewards[tuple(r.response_ids)].item() for r in group]])
        values = prefix_advantages(group, center_only(table)[0])
        gradient = torch.zeros(len(STATES), TOKENS)
        for rollout, of_tokens in zip(group, values):
            for position in set(range(LENGTH)) - set(rollout.untrainable):
                state = tuple(rollout.response_ids[:position])
                of_state = gradient[STATES.index(state)]
                of_state -= of_tokens[position] * probabilities[state]
                of_state[rollout.response_ids[position]] += of_tokens[position]
        return probability * gradient

    return sum(outcomes(sample))


def exact_gradient(policy: Policy, rewards: Tensor) -> Tensor:
    """The gradient of the expected reward, by autograd."""
    logits = torch.stack([policy[state] for state in STATES]).requires_grad_()
    first, second = logits[0].softmax(0), logits[1:].softmax(1)
    (gradient,) = torch.autograd.grad((first[:, None] * second * rewards).sum(), logits)
    return gradient


def random_case(seed: int) -> tuple[Policy, Tensor]:
    """A policy whose first token branches, and 0/1 rewards with a signal."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        policy = {state: torch.randn(TOKENS, generator=generator) for state in STATES}
        rewards = (torch.rand(TOKENS, TOKENS, generator=generator) < 0.4).float()
        first, second, _ = policy[()].softmax(0).sort(descending=True).values.tolist()
        if second > 0.15 and first - second < 0.25 and 0 < rewards.sum() < TOKENS**2:
            return policy, rewards


def cosine(a: Tensor, b: Tensor) -> float:
    return torch.nn.functional.cosine_similarity(a.flatten(), b.flatten(), 0).item()


CASES = [random_case(seed) for seed in range(40)]


def test_independent_responses_are_unbiased():
    """With the group's mean as baseline the expectation is G - 1 times the gradient."""
    for (policy, rewards), size in zip(CASES, (2, 2, 2, 3)):
        expected = (size - 1) * exact_gradient(policy, rewards)
        torch.testing.assert_close(expected_gradient(policy, rewards, 0, size), expected, rtol=0, atol=1e-6)


def test_bias_of_trees_is_as_documented():
    """The angle to the gradient where all of a group is a tree, and two of three."""
    full = [cosine(expected_gradient(*case, 2, 0), exact_gradient(*case)) for case in CASES]
    mixed = [cosine(expected_gradient(*case, 2, 1), exact_gradient(*case)) for case in CASES[:8]]
    assert (fmean(full), min(full)) == pytest.approx((0.974, 0.898), abs=1e-3)
    assert (fmean(mixed), min(mixed)) == pytest.approx((0.990, 0.969), abs=1e-3)
