"""What a rule of rollout.strategy may return, with an engine whose responses are two tokens."""

from dataclasses import replace

import pytest

from d3s.common import UserError
from d3s.config.load import load_config
from d3s.rollout.engine import Rollout, SamplingParams
from d3s.rollout.strategy import STRATEGY_RULES


class Engine:
    def generate(self, prompts, n, params, seeds, *, entropies, on_finished=None):
        places = [(i, j) for i in range(len(prompts)) for j in range(n)]
        return [Rollout(i, prompts[i], [5, 6], [-0.1, -0.2], [0.3, 0.4], True, j) for i, j in places]


class Changed:
    """Changes the second rollout, or leaves some out."""

    def __init__(self, config, count=None, **changes):
        self.count, self.changes = count, changes

    def generate(self, engine, prompts, n, params, seeds, entropies):
        first, second, *others = engine.generate(prompts, n, params, seeds, entropies=entropies)
        return [first, replace(second, **self.changes), *others][: self.count]


def generate(rule):
    strategy = STRATEGY_RULES.build(rule, config=load_config([]))
    return strategy.generate(
        engine=Engine(), prompts=[[1], [2]], problems=[0, 1], count=2, n=2, params=SamplingParams(max_tokens=8),
        seeds=[0] * 4, entropies=True, step=0, on_finished=lambda rollout: None,
    )  # fmt: skip


def test_right_rollouts_pass():
    assert generate({"rule": f"{__name__}:Changed"}) == generate("plain")


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"count": 3}, "returned 3 rollouts, expected 2 to each of 2 prompts by prompt_index, then by sample"),
        ({"sample": 0}, "returned 4 rollouts, expected 2 to each of 2 prompts"),
        ({"response_ids": ["a", "b"]}, "returned 2 tokens for prompt 0, sample 1, expected 1 to 8 token ids"),
        ({"response_ids": [1] * 9}, "returned 9 tokens for prompt 0, sample 1, expected 1 to 8 token ids"),
        ({"response_ids": [5, 6, 7]}, "returned 2 logprobs for prompt 0, sample 1, expected 3"),
        ({"entropies": [0.5]}, "returned 1 entropies for prompt 0, sample 1, expected 2"),
        ({"logprobs": [0.5, float("nan")]}, "returned logprobs for prompt 0, sample 1 that are no numbers"),
    ],
)
def test_wrong_rollouts_are_one_sentence(changes, problem):
    with pytest.raises(UserError, match=f"^rollout.strategy: .*{problem}"):
        generate({"rule": f"{__name__}:Changed", **changes})
