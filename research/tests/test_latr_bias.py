"""The expected gradient of tree rollouts on toy policies, by enumeration of all outcomes: how biased it is."""

import math
from collections import Counter
from statistics import fmean

import pytest
import torch

from d3s.advantage import center_only
from d3s.config.load import load_config
from d3s.methods.latr import LATR, Tree, TreeRollout, prefix_advantages
from d3s.rollout.engine import Progress

TOKENS, LENGTH = 3, 2
RULE = LATR(load_config([]), lookahead=0)
STATES = [(), *((token,) for token in range(TOKENS))]  # a policy has logits of the next token for each


def outcomes(sample):
    """What `sample` returns under every sequence of choices; it asks choose() for one of the tokens."""
    scripts = [[]]
    while scripts:
        script = scripts.pop()
        given = iter(script)

        def choose(script=script, given=given):
            if (token := next(given, None)) is not None:
                return token
            scripts.extend([*script, other] for other in range(1, TOKENS))
            script.append(0)
            return 0

        yield sample(choose)


def expected_gradient(policy, rewards, sizes):
    """The expectation of sum_t A_t grad log pi(y_t), A_i = R_i - mean, [states, tokens], of a group of several trees.

    A tree of one response is plain.
    """
    logprobs = {state: logits.log_softmax(0) for state, logits in policy.items()}
    likeliest = {state: sorted(enumerate(of.tolist()), key=lambda pair: -pair[1])[:2] for state, of in logprobs.items()}

    def sample(choose):
        probability, group = 1.0, []
        for size in sizes:
            empty = {i: TreeRollout(0, [], [], [], [], True, i) for i in range(len(group), len(group) + size)}
            tree = Tree(RULE, empty, LENGTH, [], Counter())
            while tree.growing:
                for branch in tree.growing:
                    state, token = tuple(branch.rollout.response_ids), choose()
                    logprob = logprobs[state][token].item()
                    probability *= math.exp(logprob)
                    reason = "length" if len(state) + 1 == LENGTH else None
                    branch.extend(Progress(0, [token], [logprob], [likeliest[state]], reason))
                group += [branch.rollout for branch in tree.advance()[2]]
        table = torch.tensor([[rewards[tuple(r.response_ids)].item() for r in group]])
        gradient = torch.zeros(len(STATES), TOKENS)
        for rollout, (values, trainable) in zip(group, prefix_advantages(group, center_only(table)[0][0])):
            for position in trainable.nonzero()[:, 0].tolist():
                state = tuple(rollout.response_ids[:position])
                of_state = gradient[STATES.index(state)]
                of_state -= values[position] * logprobs[state].exp()
                of_state[rollout.response_ids[position]] += values[position]
        return probability * gradient

    return sum(outcomes(sample))


def exact_gradient(policy, rewards):
    """The gradient of the expected reward, by autograd."""
    logits = torch.stack([policy[state] for state in STATES]).requires_grad_()
    first, second = logits[0].softmax(0), logits[1:].softmax(1)
    return torch.autograd.grad((first[:, None] * second * rewards).sum(), logits)[0]


def random_case(seed):
    """A policy whose first token branches, and 0/1 rewards with a signal."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        policy = {state: torch.randn(TOKENS, generator=generator) for state in STATES}
        rewards = (torch.rand(TOKENS, TOKENS, generator=generator) < 0.4).float()
        first, second, _ = policy[()].softmax(0).sort(descending=True).values.tolist()
        if second > 0.15 and first - second < 0.25 and 0 < rewards.sum() < TOKENS**2:
            return policy, rewards


def test_independent_responses_are_unbiased():
    """With the group's mean as baseline the expectation is G - 1 times the gradient."""
    for seed, size in enumerate((2, 3)):
        case = random_case(seed)
        expected = expected_gradient(*case, [1] * size)
        torch.testing.assert_close(expected, (size - 1) * exact_gradient(*case), rtol=0, atol=1e-6)


@pytest.mark.parametrize(("sizes", "cases", "mean", "least"), [([2], 40, 0.974, 0.898), ([2, 1], 8, 0.990, 0.969)])
def test_bias_of_trees_is_as_documented(sizes, cases, mean, least):
    """The cosine to the gradient where all of a group is a tree, and two of three responses."""
    cosines = []
    for case in map(random_case, range(cases)):
        gradients = expected_gradient(*case, sizes), exact_gradient(*case)
        cosines.append(torch.nn.functional.cosine_similarity(*map(torch.flatten, gradients), 0).item())
    assert (fmean(cosines), min(cosines)) == pytest.approx((mean, least), abs=1e-3)
