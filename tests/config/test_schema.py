"""Limits, types and defaults of options, against values stated here and the paper's schedule."""

import pytest

from d3s.config.load import load_config
from d3s.config.schema import Config
from d3s.schedule import schedule_at
from tests.helpers.configs import rejection

# one value for each way in which messages say what is expected
REFUSED = """\
rollout.temperature=0.001 => rollout.temperature: got 0.001, expected a number >= 0.01
schedule.n_init=1 => schedule.n_init: got 1, expected a number >= 2 or null
schedule.n_init=all => schedule.n_init: got 'all', expected an integer or null
schedule.k_final=nan => schedule.k_final: got 'nan', expected a finite number
optim.learning_rate=.inf => optim.learning_rate: got inf, expected a finite number
optim.learning_rate=true => optim.learning_rate: got True, expected a number
selector.cross_share=half => selector.cross_share: got 'half', expected a number
loss.kl_estimator=k1 => loss.kl_estimator: got 'k1', expected 'k2' or 'k3'
rollout.engine=vlm => did you mean 'vllm'?
eval.k=[0] => eval.k.0: got 0, expected a number >= 1
eval.k=1 => eval.k: got 1, expected a list
rollout.sleep=maybe => rollout.sleep: got 'maybe', expected true or false
train.steps=1:30 => train.steps: got '1:30', expected an integer
train.output_dir=null => train.output_dir: got None, expected a path
model.name=[1] => model.name: got [1], expected text
rollout.stop=[''] => rollout.stop.0: got ''
rollout.stop=[a, b, c, d, e] => expected at most 4 items
reward.functions=[] => reward.functions: got [], expected at least 1 item
"""


@pytest.mark.parametrize("line", REFUSED.splitlines())
def test_invalid_value_is_rejected(line):
    override, _, message = line.partition(" => ")
    assert message in rejection(override)


def test_numbers_of_thousands_of_digits_are_rejected():
    assert "expected a number < 2147483648" in rejection(f"train.seed={'9' * 4000}")


def test_every_option_has_a_sentence():
    for section, field in Config.model_fields.items():
        for name, option in field.annotation.model_fields.items():
            assert option.description and option.description.rstrip().endswith("."), f"{section}.{name}"


def test_default_schedule_is_that_of_the_paper():
    assert schedule_at(Config(), 0) == (8, 0.05)
    assert schedule_at(load_config([]), Config().train.steps - 1) == (32, pytest.approx(0.20))
