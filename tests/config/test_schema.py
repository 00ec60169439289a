"""Limits, types and defaults of options, against values stated here and the paper's schedule."""

import pytest

from d3s.config.load import load_config
from d3s.config.schema import Config
from d3s.downsampling import schedule_at
from tests.helpers.configs import rejection


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("rollout.temperature=0.001", "rollout.temperature: got 0.001, expected a number >= 0.01"),
        ("schedule.n_init=1", "schedule.n_init: got 1, expected a number >= 2 or null"),
        ("schedule.n_init=all", "schedule.n_init: got 'all', expected an integer or null"),
        ("schedule.k_init=0", "schedule.k_init: got 0, expected a number > 0"),
        ("schedule.k_final=1.01", "schedule.k_final: got 1.01, expected a number <= 1"),
        ("schedule.k_final=nan", "schedule.k_final: got 'nan', expected a finite number"),
        ("schedule.k_final=.nan", "schedule.k_final: got nan, expected a finite number"),
        ("rollout.num_generations=1", "rollout.num_generations: got 1, expected a number >= 2"),
        ("optim.learning_rate=-1e-6", "optim.learning_rate: got -1e-06, expected a number > 0"),
        ("optim.learning_rate=.inf", "optim.learning_rate: got inf, expected a finite number"),
        ("optim.learning_rate=fast", "optim.learning_rate: got 'fast', expected a number"),
        ("optim.learning_rate=[1]", "optim.learning_rate: got [1], expected a number"),
        ("optim.learning_rate=true", "optim.learning_rate: got True, expected a number"),
        ("selector.cross_share=2", "selector.cross_share: got 2, expected a number <= 1 or 'auto'"),
        ("selector.cross_share=half", "selector.cross_share: got 'half', expected a number or 'auto'"),
        ("selector.max_advantage=0", "selector.max_advantage: got 0, expected a number > 0 or null"),
        ("optim.betas=[0.9, false]", "optim.betas.1: got False, expected a number"),
        ("optim.betas=[0.9]", "optim.betas: got [0.9], expected a list of two numbers"),
        ("optim.betas=0.9", "optim.betas: got 0.9, expected a list of two numbers"),
        ("optim.betas=[0.9, 0.9, 0.9]", "optim.betas: got [0.9, 0.9, 0.9], expected at most 2 items"),
        (
            "loss.kind=grop",
            "loss.kind: got 'grop', expected 'grpo', 'gspo', 'cispo', module:function or {rule: NAME, option: value}; "
            "did you mean 'grpo'?",
        ),
        ("loss.kl_estimator=k1", "loss.kl_estimator: got 'k1', expected 'k2' or 'k3'"),
        ("schedule.n_shape=linaer", "did you mean 'linear'?"),
        ("rollout.engine=vlm", "did you mean 'vllm'?"),
        ("eval.k=[]", "eval.k: got [], expected at least 1 item"),
        ("eval.k=[0]", "eval.k.0: got 0, expected a number >= 1"),
        ("eval.k=1", "eval.k: got 1, expected a list"),
        ("loss.epsilon=1.5", "loss.epsilon: got 1.5, expected a number <= 1"),
        ("train.seed=-1", "train.seed: got -1, expected a number >= 0"),
        ("train.steps=0", "train.steps: got 0, expected a number >= 1"),
        ("train.steps=many", "train.steps: got 'many', expected an integer"),
        ("train.steps=true", "train.steps: got True, expected an integer"),
        ("train.steps=3.0", "train.steps: got 3.0, expected an integer"),
        ("train.steps='3'", "train.steps: got '3', expected an integer"),
        (
            "train.steps=999999999999999999999999",
            "train.steps: got 999999999999999999999999, expected a number <= 1000000",
        ),
        (f"train.seed={'9' * 4000}", "expected a number < 2147483648"),
        ("train.prompts_per_step=1000000001", "expected a number <= 1000000000"),
        ("train.collective_timeout_s=1e300", "collective_timeout_s: got 1e+300, expected a number <= 1000000"),
        ("rollout.sleep=1", "rollout.sleep: got 1, expected true or false"),
        ("rollout.sleep=maybe", "rollout.sleep: got 'maybe', expected true or false"),
        ('train.output_dir=""', "train.output_dir: got '', expected a path"),
        ("train.steps=1:30", "train.steps: got '1:30', expected an integer"),
        ("selector.cross_group=no", "selector.cross_group: got 'no', expected true or false"),
        ("train.output_dir=null", "train.output_dir: got None, expected a path"),
        ("model.name=[1]", "model.name: got [1], expected text"),
        ("rollout.stop=['']", "rollout.stop"),
        ("rollout.stop=[a, b, c, d, e]", "rollout.stop"),
    ],
)
def test_invalid_value_is_rejected(override, message):
    assert message in rejection(override)


def test_values_at_the_limits_are_accepted():
    load_config([], ["schedule.n_init=2", "schedule.n_final=2", "rollout.num_generations=2", "schedule.k_final=1"])
    config = load_config([], ["rollout.temperature=0.01", "train.seed=2147483647", "train.steps=1000000"])
    assert (config.rollout.temperature, config.train.seed, config.train.steps) == (0.01, 2**31 - 1, 10**6)
    assert load_config([], ["eval.temperature=0"]).eval.temperature == 0  # greedy


def test_every_option_has_a_sentence():
    for section, field in Config.model_fields.items():
        for name, option in field.annotation.model_fields.items():
            assert option.description and option.description.rstrip().endswith("."), f"{section}.{name}"


def test_default_schedule_is_that_of_the_paper():
    steps = Config().train.steps
    assert schedule_at(Config(), 0) == (8, 0.05)
    assert schedule_at(Config(), steps - 1) == (32, pytest.approx(0.20))
