"""What a rule of rollout.strategy may return, with an engine whose responses are two tokens."""

from dataclasses import replace

import pytest

from d3s.common import UserError
from d3s.config.load import load_config
from d3s.plan.trials import attempt_rules
from d3s.rollout.engine import Rollout, SamplingParams
from d3s.rollout.strategy import STRATEGY_RULES

HERE = f"{__name__}:"
LATR = "d3s.methods.latr:LATR"
CARRY = "d3s.methods.carry_over:CarryOver"
ENGINE = "rollout.engine=vllm", "loss.old_logprobs=engine"


class Engine:
    def generate(self, prompts, n, params, seeds, *, entropies, on_finished=None):
        return [
            Rollout(i, p, [5, 6], [-0.1, -0.2], [0.3, 0.4], True, j) for i, p in enumerate(prompts) for j in range(n)
        ]


class Changed:
    """Changes the second rollout, or what is returned."""

    def __init__(self, field="", value=None):
        self.field, self.value = field, value

    def generate(self, engine, prompts, n, params, seeds, entropies):
        rollouts = engine.generate(prompts, n, params, seeds, entropies=entropies)
        if not self.field:
            return rollouts[: self.value]
        values = {"tokens": [5, 6, 7], "text": ["a", "b"], "short": [0.5], "nan": [0.5, float("nan")], "long": [1] * 9}
        rollouts[1] = replace(rollouts[1], **{self.field: values.get(self.value, self.value)})
        return rollouts


def generate(rule):
    strategy = STRATEGY_RULES.build(rule, config=load_config([]))
    params = SamplingParams(max_tokens=8)
    return strategy.generate(
        engine=Engine(), prompts=[[1], [2]], problems=[0, 1], count=2, n=2, params=params, seeds=[0] * 4,
        entropies=True, step=0, on_finished=lambda rollout: None,
    )  # fmt: skip


def test_right_rollouts_pass():
    assert generate({"rule": HERE + "Changed"}) == generate("plain")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"value": 3}, "returned 3 rollouts, expected 2 to each of 2 prompts by prompt_index, then by sample"),
        ({"field": "sample", "value": 0}, "returned 4 rollouts, expected 2 to each of 2 prompts"),
        ({"field": "response_ids", "value": "text"}, "returned 2 tokens for prompt 0, sample 1, expected 1 to 8 token"),
        ({"field": "response_ids", "value": "long"}, "returned 9 tokens for prompt 0, sample 1, expected 1 to 8 token"),
        ({"field": "response_ids", "value": "tokens"}, "returned 2 logprobs for prompt 0, sample 1, expected 3"),
        ({"field": "entropies", "value": "short"}, "returned 1 entropies for prompt 0, sample 1, expected 2"),
        ({"field": "logprobs", "value": "nan"}, "returned logprobs for prompt 0, sample 1 that are no numbers"),
    ],
)
def test_wrong_rollouts_are_one_sentence(options, problem):
    with pytest.raises(UserError) as error:
        generate({"rule": HERE + "Changed", **options})
    assert str(error.value).startswith("rollout.strategy: ") and problem in str(error.value)


@pytest.mark.parametrize(
    ("overrides", "problem"),
    [
        (["rollout.strategy=tree"], "got 'tree', expected 'plain', module:"),
        (["rollout.strategy=tests.helpers.own_rules:pooled"], "tests.helpers.own_rules:pooled is no class"),
        (["rollout.strategy=tests.helpers.models:Path"], "has no method generate"),
        ([f"rollout.strategy={{rule: {LATR}, width: 2}}"], "has no option 'width'; expected one of share, steps,"),
        ([f"rollout.strategy={{rule: {LATR}, share: 2}}"], "share must be a number from 0 to 1, not 2"),
        ([f"rollout.strategy={{rule: {LATR}, steps: -1}}"], "steps must be an integer of at least 0, not -1"),
        ([f"rollout.strategy={LATR}", "rollout.stop=[end]"], "requires rollout.stop: []"),
        ([f"rollout.strategy={LATR}", "rollout.engine=transformers"], "requires rollout.engine: vllm without"),
        ([f"rollout.strategy={LATR}", "rollout.seeds=engine"], "requires rollout.seeds: request"),
        ([f"rollout.strategy={LATR}", "reward.shaper=a:b"], "requires reward.shaper: null"),
        ([f"rollout.strategy={CARRY}", "rollout.engine=vllm"], "requires loss.old_logprobs: engine"),
        ([f"rollout.strategy={CARRY}", "rollout.engine=transformers"], "requires rollout.engine: vllm without"),
        ([f"rollout.strategy={CARRY}", *ENGINE, "rollout.stop=[end]"], "requires rollout.stop: []"),
        ([f"rollout.strategy={{rule: {CARRY}, extra: 2}}", *ENGINE], "extra must be a number from 0 to 1, not 2"),
        ([f"rollout.strategy={{rule: {CARRY}, max_age: 0}}", *ENGINE], "an integer of at least 1, not 0"),
    ],
)
def test_wrong_strategies_are_refused_before_a_run(overrides, problem):
    with pytest.raises(UserError) as error:
        attempt_rules(load_config([], overrides))
    assert "rollout.strategy: " in str(error.value) and problem in str(error.value)
