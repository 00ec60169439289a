"""Trials of a user's own rules: which functions and classes are refused, and in which words."""

import math
import random
import re

import pytest

from d3s.common import UserError
from d3s.config.checks import RULES
from d3s.config.load import load_config
from d3s.plan.trials import EXAMPLES, TRIALS, attempt_rules
from tests.helpers import own_rules
from tests.helpers.own_rules import Restless, Rotation

OWN, COVERAGE = "tests.helpers.own_rules", "schedule.follow=d3s.methods.coverage:Coverage"


@pytest.mark.parametrize(
    ("option", "value", "problem"),
    [
        ("loss.kind", "grop", "got 'grop', expected 'grpo', 'gspo', 'cispo', module:function or {rule: NAME, option"),
        ("loss.kind", "{rule: grop}", "did you mean 'grpo'?"),
        ("loss.kind", "{rule: grpo, width: 2}", "grpo has no option 'width'; expected no options"),
        ("loss.kind", "{kind: grpo}", "expected a name, module:function or {rule: NAME, option: value}"),
        ("loss.kind", "{rule: grpo, epsilon: {a: 1}}", "expected {name: value, ...} with text, numbers, true, false"),
        ("loss.kind", "no_such_module:f", "expected module:function (ModuleNotFoundError"),
        ("loss.kind", f"{OWN}:absent", "expected module:function (AttributeError"),
        ("loss.kind", f"{OWN}:misspelled", "needs 'logprob', which is no argument of this rule and has no default"),
        ("loss.kind", f"{{rule: {OWN}:surrogate, width: 2}}", "has no option 'width'; expected one of epsilon"),
        ("loss.kind", f"{{rule: {OWN}:surrogate, advantages: 2}}", "has no option 'advantages'; expected one of epsi"),
        ("loss.kind", f"{OWN}:no_statistics", "returned Tensor, expected (loss, statistics by name)"),
        ("loss.kind", f"{OWN}:no_gradient", "returned a loss without a gradient"),
        ("loss.kind", f"{OWN}:per_token", "returned as the loss a tensor [6], expected []"),
        ("loss.kind", f"{OWN}:bad_statistic", "returned the statistic 'name', expected a tensor"),
        ("loss.kind", f"{OWN}:nan_loss", "returned NaN or infinity for finite arguments"),
        ("loss.kind", f"{OWN}:raises", "raised KeyError: 'missing' (own_rules.py, line "),
        ("loss.engine_correction", f"{OWN}:bare_weights", "returned Tensor, expected (weights, metrics by name)"),
        ("loss.engine_correction", f"{OWN}:text_as_metric", "returned {'share': 'half'}, expected finite numbers"),
        ("selector.rollouts", f"{OWN}:integer_mask", "returned a tensor of torch.int64, expected torch.bool"),
        ("selector.rollouts", f"{OWN}:too_many", "returned rollouts that are not eligible"),
        ("selector.rollouts", f"{OWN}:one_group", "returned a tensor [4], expected [2, 4]"),
        ("selector.tokens", f"{OWN}:nan_priorities", "returned NaN or infinity as a priority"),
        ("selector.tokens", f"{OWN}:double_weights", "returned a tensor of torch.float64, expected torch.float32"),
        ("selector.tokens", f"{OWN}:half_priorities", "returned a tensor of torch.bfloat16, expected torch.float32 or"),
        ("selector.tokens", f"{OWN}:of_rollouts", "returned a tensor [2], expected [8]; priorities are float [T]"),
        ("schedule.n_shape", f"{OWN}:beyond", "returned 1.1 at progress 0.55, expected a number from 0 to 1"),
        ("schedule.k_shape", f"{OWN}:text", "returned 'half' at progress 0, expected a number"),
        ("schedule.k_shape", f"{OWN}:later", "is an async function, expected a plain function"),
    ],
)
def test_wrong_rules_are_refused(option, value, problem):
    with pytest.raises(UserError) as error:
        attempt_rules(load_config([], [f"{option}={value}"]))
    assert str(error.value).startswith(f"{option}: ") and problem in str(error.value)


ORDER, FOLLOW = "data.order", "schedule.follow"


@pytest.mark.parametrize(
    ("option", "base", "methods", "problem"),
    [
        (ORDER, object, {}, "has no method take"),
        (ORDER, object, {"take": lambda self, count: random.sample(range(12), count)}, "random numbers need the seed"),
        (ORDER, object, {"take": lambda self: 0, "state_dict": dict}, "expected both or neither"),
        (ORDER, Rotation, {"__init__": lambda self, size: None}, "needs 'size', which is no argument of this rule"),
        (ORDER, Rotation, {"__init__": lambda self: 1 / 0}, "raised ZeroDivisionError: division by zero (test_trials"),
        (ORDER, Rotation, {"take": lambda self, number: 0}, "Wrong.take needs 'number', which is no argument"),
        (ORDER, Rotation, {"take": lambda self: {}["a"]}, "Wrong.take raised KeyError: 'a' (test_trials.py, line "),
        (ORDER, Rotation, {"take": lambda self, count: [0] * (count + 1)}, "expected a list of 4 integers"),
        (ORDER, Rotation, {"take": lambda self, count: [12] * count}, "returned the index 12, expected 0 to 11"),
        (ORDER, Rotation, {"learn": lambda self, outcomes: 0}, "Wrong.learn needs 'outcomes'"),
        (ORDER, Rotation, {"metrics": lambda self: {"a": math.nan}}, "expected finite numbers by name"),
        (ORDER, Rotation, {"state_dict": lambda self: [1]}, "Wrong.state_dict returned list, not dict"),
        (ORDER, Rotation, {"state_dict": lambda self: {"next": print}}, "returned what no checkpoint holds"),
        (ORDER, Rotation, {"load_state_dict": lambda self, state: None}, "restored from its state differs"),
        (FOLLOW, object, {"observe": lambda self: None}, "has no method at or n_of or k_of or cross_share"),
        (FOLLOW, Restless, {"at": lambda self: 8}, "Wrong.at returned 8, expected (N, K)"),
        (FOLLOW, Restless, {"at": lambda self: (33, 0.1)}, "returned 33 as N, expected an integer from 8 to 32"),
        (FOLLOW, Restless, {"at": lambda self: (8, 0.3)}, "returned 0.3 as K, expected a number from 0.05 to 0.2"),
        (FOLLOW, Restless, {"n_of": lambda self, choose: choose(8)}, "as N, expected an integer from 8 to 32"),
        (FOLLOW, Restless, {"k_of": lambda self: math.nan}, "returned nan as K, expected a number from 0.05 to 0.2"),
        (FOLLOW, Restless, {"cross_share": lambda self: 2}, "returned 2, expected a number from 0 to 1"),
        (FOLLOW, Restless, {"observe": lambda self: 3}, "returned 3, expected a text or None"),
    ],
)
def test_wrong_classes_are_refused(option, base, methods, problem, monkeypatch):
    monkeypatch.setattr(own_rules, "Wrong", type("Wrong", (base,), methods), raising=False)
    with pytest.raises(UserError) as error:
        attempt_rules(load_config([], [f"{option}={OWN}:Wrong"]))
    assert str(error.value).startswith(f"{option}: {OWN}:Wrong") and problem in str(error.value)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ([f"data.order={OWN}:line"], "line is no class"),
        ([f"data.order={{rule: {OWN}:Rotation, width: 2}}"], "has no option 'width'; expected one of stride"),
        (["data.order={rule: d3s.methods.vade:Vade, asked: 2}"], "uniform_share and decays must be from 0 to 1"),
        (["schedule.follow={rule: d3s.methods.plateau:Plateau, patience: 0}"], "patience must be an integer"),
        ([COVERAGE, "selector.normalize=after", "selector.cross_share=0"], "requires selector.normalize: before"),
        ([COVERAGE, "selector.tokens=entropy"], "requires selector.tokens: advantage_entropy"),
        ([COVERAGE, "schedule.n_shape=constant", "schedule.k_shape=constant"], "requires schedule ends that differ"),
        (["schedule.follow=d3s.methods.auto_share:AutoShare", "selector.rollouts=random"], "requires selector.norm"),
    ],
)
def test_classes_refuse_options(options, problem):
    with pytest.raises(UserError, match=f"^(data.order|schedule.follow): .*{re.escape(problem)}"):
        attempt_rules(load_config([], options))


def test_right_classes_are_accepted():
    attempt_rules(
        load_config([], [f"data.order={{rule: {OWN}:Rotation, stride: 5}}", f"schedule.follow={OWN}:Restless"])
    )


def test_every_option_has_a_trial():
    assert EXAMPLES.keys() | TRIALS.keys() == RULES.keys()
