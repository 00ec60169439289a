"""Impossible values and combinations of options: each is rejected by name, the valid neighbors are accepted."""

import re

import pytest

from d3s.common import UserError
from d3s.config.checks import mismatch_problem, require_defaults
from d3s.config.fields import MOST
from d3s.config.load import load_config
from tests.helpers.configs import flat, rejection

# Overrides, separated by two spaces => a part of the message. First one value for each way to say what is expected.
IMPOSSIBLE = f"""\
rollout.temperature=0.001 => rollout.temperature: got 0.001, expected a number >= 0.01
schedule.n_init=1 => schedule.n_init: got 1, expected a number >= 2 or null
schedule.n_init=all => schedule.n_init: got 'all', expected an integer or null
optim.learning_rate=.inf => optim.learning_rate: got inf, expected a finite number
optim.learning_rate=true => optim.learning_rate: got True, expected a number
optim.learning_rate=1_0 => optim.learning_rate: got '1_0', expected a number
rollout.stop=[""] => rollout.stop.0: got '', expected text that is not empty
selector.cross_share=half => selector.cross_share: got 'half', expected a number
loss.kl_estimator=k1 => loss.kl_estimator: got 'k1', expected 'k2' or 'k3'
rollout.engine=vlm => did you mean 'vllm'?
eval.k=[0] => eval.k.0: got 0, expected a number >= 1
rollout.sleep=1 => rollout.sleep: got 1, expected true or false
train.steps=3.0 => train.steps: got 3.0, expected an integer
rollout.max_num_seqs={MOST + 1} => expected a number <= {MOST}
train.output_dir=null => train.output_dir: got None, expected a path
rollout.stop=[a, b, c, d, e] => expected at most 4 items
reward.functions=[] => reward.functions: got [], expected at least 1 item
reward.functions=[[a:b]] => reward.functions.0: got ['a:b'], expected module:function or [module:function, weight]
reward.functions=[[a:b, true]] => reward.functions.0: got ['a:b', True], expected module:function or
reward.functions=[[a:b, {"9" * 400}]] => reward.functions.0: got ['a:b', 999
reward.functions=[[a:b, .inf]] => reward.functions.0: got ['a:b', inf], expected module:function or
data.chat_template_kwargs={{a: [1]}} => expected {{name: value, ...}} with text, numbers, true, false or null
data.chat_template_kwargs={{a: .nan}} => expected {{name: value, ...}} with text, numbers, true, false or null
train.output_dir="a\\0b" => train.output_dir: got 'a\\x00b', expected Unicode text without a zero byte
eval.data=["\\ud800"] => eval.data: got '\\ud800', expected Unicode text
data.template=chat  data.chat_template_kwargs={{a: "\\0"}} => data.chat_template_kwargs: got '\\x00', expected
model.compile=true  train.deterministic=true => model.compile: requires train.deterministic: false
data.template=base  data.system_prompt='' => data.system_prompt: requires data.template: chat
eval.stop_at=0.5 => eval.stop_at: requires eval.data and eval.every above 0
eval.keep_best=true  eval.data=[gsm8k] => eval.keep_best: requires eval.data and eval.every above 0
eval.stop_at=50  eval.data=[gsm8k]  eval.every=1 => eval.stop_at: got 50, expected a share of at most 1
eval.k=[1, 16] => eval.k: got 16, expected at most eval.n = 8
schedule.n_final=33 => schedule.n_final: got 33, expected 2 to rollout.num_generations = 32
rollout.num_generations=4 => schedule.n_init: got 8, expected 2 to rollout.num_generations = 4, or null for all; sched
optim.num_minibatches=33  schedule.n_init=4  schedule.n_final=2 => at most the 32 rollouts kept
optim.warmup_steps=100 => optim.warmup_steps: got 100, expected less than train.steps = 100
train.profile_steps=[3, 101] => train.profile_steps: got 101, expected at most train.steps = 100
selector.normalize=after => selector.normalize: 'after' requires selector.cross_share: 0
selector.cross_share=0.5  selector.rollouts=random => selector.cross_share: got 0.5, expected 0 or 1 with selector.r
reward.functions=['length:'] => reward.functions: got 'length:', expected 'verify', 'boxed', module:function
reward.functions=[a:b, [a:b, 2]] => reward.functions: got 'a:b' 2 times, expected it once
eval.reward=score => eval.reward: got 'score', expected 'verify', 'boxed', module:function
loss.overlong_filtering=true  rollout.max_completion_length=1 => loss.overlong_filtering: drops every response
loss.engine_correction=truncate  loss.old_logprobs=engine => loss.engine_correction: requires loss.old_logprobs: actor
loss.kind=cispo  loss.epsilon_high=0.28 => loss.epsilon_high: got 0.28, expected the upper bound
rollout.servers=[http://one:8000] => rollout.servers: requires selector.entropy_source: actor
rollout.servers=[one:8000] => rollout.servers: got 'one:8000', expected http://HOST:PORT
rollout.servers=[http://a:1/v1] => rollout.servers: got 'http://a:1/v1', expected http://HOST:PORT
rollout.servers=[http://a:1, http://a:1] => duplicate address
rollout.servers=[http://a:1]  rollout.tensor_parallel_size=2 => rollout.tensor_parallel_size: got 2, expected 1
rollout.servers=[http://a:1]  rollout.engine=transformers => rollout.servers: requires rollout.engine: vllm
rollout.servers=[http://a:1]  rollout.seeds=engine => rollout.servers: requires rollout.seeds: request
rollout.tensor_parallel_size=2  rollout.engine=transformers => rollout.tensor_parallel_size: requires rollout.engine
"""
AT_THE_LIMIT = """\
schedule.n_init=2  schedule.n_final=2  schedule.k_final=1  optim.num_minibatches=32
optim.warmup_steps=99  optim.num_minibatches=128
schedule.n_init=16  schedule.n_final=8  schedule.n_shape=constant
schedule.n_init=null  schedule.n_final=2  schedule.k_init=0.5  optim.num_minibatches=32
eval.k=[1, 8]  eval.n=8
selector.normalize=after  selector.cross_share=0
eval.stop_at=50  eval.data=[gsm8k]  eval.every=1  eval.reward=a:b
loss.kind=cispo  loss.epsilon_high=1
rollout.servers=[http://a:1]  selector.entropy_source=actor
rollout.seeds=engine  rollout.tensor_parallel_size=2
reward.functions=[a:b, [c:d, -2]]  data.template=chat  data.chat_template_kwargs={a: x, b: 1, c: 0.5, d: false}
"""


@pytest.mark.parametrize("line", IMPOSSIBLE.splitlines())
def test_impossible_options_are_rejected(line):
    overrides, _, message = line.partition(" => ")
    clauses = rejection(*overrides.split("  "))
    assert message in clauses
    assert re.match(r"\w+\.\w+", clauses)[0] in flat(load_config([]))  # the first word is an option


@pytest.mark.parametrize("overrides", AT_THE_LIMIT.splitlines())
def test_combination_at_the_limit_is_accepted(overrides):
    load_config([], overrides.split("  "))


def test_options_that_a_program_does_not_read_are_refused():
    config = load_config([], ["sft.held_out=0.3", "train.steps=7", "optim.warmup_steps=0"])
    require_defaults(config, "a.py", "optim", "data", "train.seed", "sft.prune")
    with pytest.raises(UserError, match=r"^sft.held_out: not read by a.py; remove it$"):
        require_defaults(config, "a.py", "sft")
    with pytest.raises(UserError, match=r"^train.steps, sft.held_out: not read by a.py; remove them$"):
        require_defaults(config, "a.py", "train.steps", "sft")


def test_bfloat16_without_correction_is_a_warning():
    half = "model.dtype=bfloat16"
    for options in ([], [half, "loss.engine_correction=truncate"], [half, "loss.old_logprobs=engine"]):
        assert mismatch_problem(load_config([], options)) is None
    problem = mismatch_problem(load_config([], [half]))
    assert problem.startswith("loss.engine_correction: got none with model.dtype: bfloat16")
