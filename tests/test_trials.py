"""Trials of a user's own rules: which functions and classes are refused, and in which words."""

import asyncio
import math
import random
import re
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import replace
from pkgutil import resolve_name

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from d3s.common import UserError
from d3s.config.checks import RULES, contract_of
from d3s.config.load import load_config
from d3s.data.dataset import read_problems
from d3s.groups import in_groups
from d3s.reward import RewardFunction
from d3s.trials import attempt_rewards, attempt_rules
from tests.helpers import own_rules
from tests.helpers.own_rules import Restless, Rotation

OWN = "tests.helpers.own_rules"
LOSS, CORRECTION, ROLLOUTS, TOKENS = "loss.kind", "loss.engine_correction", "selector.rollouts", "selector.tokens"
ORDER, FOLLOW, STRATEGY, LENGTH = "data.order", "schedule.follow", "rollout.strategy", "reward.length"
ADVANTAGES = "reward.advantages"


def own(base, **methods):
    """A class with these methods."""
    return type("Own", (base,), methods)


def changed(count=None, **values):
    """A strategy that changes the second rollout, which has two tokens, or leaves some out."""

    def generate(self, engine, prompts, problems, n, params, seeds, entropies):
        first, second, *others = engine.generate(prompts, n, params, seeds, entropies=entropies, problems=problems)
        return in_groups([first, replace(second, **values), *others][:count], n)

    return own(object, generate=generate)


def repeated(self, engine, prompts, problems, n, params, seeds, entropies):
    groups = in_groups(engine.generate(prompts, n, params, seeds, entropies=entropies, problems=problems), n)
    return [group[: n // 2] * 2 for group in groups]


def continued(self, engine, prompts, problems, n, params, seeds, on_finished):
    options = {"entropies": True, "problems": problems, "on_finished": on_finished}
    rollouts = engine.generate(prompts, n, params, seeds, **options)
    for r in rollouts:
        r.response_ids, r.logprobs, r.entropies = (2 * values for values in (r.response_ids, r.logprobs, r.entropies))
    return in_groups(rollouts, n)


def numbered(self, engine, prompts, n, params, seeds, entropies):
    return in_groups(engine.generate(prompts, n, params, seeds, entropies=entropies), n)


@pytest.mark.parametrize(
    ("option", "value", "problem"),
    [
        (LOSS, "grop", "got 'grop', expected 'grpo', 'gspo', 'cispo', module:function or {rule: NAME, option"),
        (LOSS, "{rule: grop}", "did you mean 'grpo'?"),
        (LOSS, "{kind: grpo}", "expected a name, module:function or {rule: NAME, option: value}"),
        (LOSS, "no_such_module:f", "expected module:function (ModuleNotFoundError"),
        (LOSS, lambda logprob: 0, "needs 'logprob' (did you mean 'logprobs'?), which is no argument of this rule"),
        (LOSS, f"{{rule: {OWN}:surrogate, width: 2}}", "has no option 'width'; expected one of clip"),
        (LOSS, f"{{rule: {OWN}:surrogate, advantages: 2}}", "has no option 'advantages'; expected one of clip"),
        (LOSS, lambda logprobs: logprobs.sum(), "returned Tensor, expected (loss, statistics by name)"),
        (LOSS, lambda logprobs: (logprobs.detach().sum(), {}), "returned a loss without a gradient"),
        (LOSS, lambda logprobs: (logprobs, {}), "returned as the loss a tensor [6], expected []"),
        (LOSS, lambda logprobs: (logprobs.sum(), {"name": 0.5}), "returned the statistic 'name', expected a tensor"),
        (LOSS, lambda logprobs: (logprobs.sum() * math.nan, {}), "returned NaN or infinity for finite arguments"),
        (LOSS, lambda logprobs: (logprobs.mean(), {}), "returned NaN or infinity for empty tensors"),
        (LOSS, lambda logprobs: (logprobs.sum(), {5: logprobs.sum()}), "returned the statistic 5, expected a tensor"),
        (
            LOSS,
            lambda logprobs: (logprobs.sum(), {"n": logprobs} if len(logprobs) else {}),
            "other statistics in some calls",
        ),
        (
            LOSS,
            lambda logprobs: (logprobs.sum() / max(1, len(logprobs)), {}),
            "depends on which sequences share a micro-batch;",
        ),
        (LOSS, lambda logprobs: (logprobs.sum(), {}), "that does not halve with twice the denominators;"),
        (
            LOSS,
            lambda logprobs, old_logprobs, denominator: (
                ((logprobs - old_logprobs).softmax(0) / denominator * logprobs).sum(),
                {},
            ),
            "depends on which sequences share a micro-batch;",
        ),
        (LOSS, lambda logprobs: F.pad(logprobs, "1"), "(test_trials.py, line "),  # raised within torch
        (TOKENS, lambda entropies: torch.nn.Parameter(entropies), "returned a tensor that requires a gradient"),
        (LOSS, lambda logprobs: {}["missing"], "raised KeyError: 'missing' (test_trials.py, line "),
        (CORRECTION, lambda log_ratios: log_ratios, "returned Tensor, expected (weights, metrics by name)"),
        (CORRECTION, lambda log_ratios: (log_ratios, {"share": "half"}), "returned {'share': 'half'}, expected finite"),
        (ROLLOUTS, lambda advantages: (advantages > 0).long(), "returned a tensor of torch.int64, expected torch.bool"),
        (ROLLOUTS, lambda advantages: advantages < 9, "returned rollouts that are not eligible"),
        (ROLLOUTS, lambda rewards: rewards[0] > 0, "returned a tensor [4], expected [2, 4]"),
        (TOKENS, f"{OWN}:nan_priorities", "returned NaN or infinity as a priority"),
        (TOKENS, lambda entropies: (entropies > 0, entropies.double()), "of torch.float64, expected torch.float32"),
        (TOKENS, lambda sequence_ids: torch.zeros(2), "returned a tensor [2], expected [8]; priorities are float [T]"),
        (ADVANTAGES, lambda rewards: rewards[0] > 0, "returned a tensor [128], expected [3, 128]"),
        (ADVANTAGES, lambda rewards: rewards * math.nan, "returned NaN or infinity as an advantage"),
        (ADVANTAGES, lambda rewards: (rewards, rewards.std(1)), "returned a tensor [3], expected [3, 1]"),
        ("schedule.n_shape", lambda progress: 2 * progress, "returned 1.1 at progress 0.55, expected a number from 0"),
        ("schedule.k_shape", lambda progress: "half", "returned 'half' at progress 0, expected a number"),
        ("schedule.k_shape", asyncio.sleep, "is an async function, expected a plain function"),
        (ORDER, f"{OWN}:line", "line is no class"),
        (ORDER, "{rule: d3s.methods.vade:Vade, asked: 2}", "uniform_share and decays must be from 0 to 1"),
        (ORDER, own(object), "has no method take"),
        (ORDER, own(object, take=lambda self, count: random.sample(range(12), count)), "and seed random numbers"),
        (ORDER, own(object, take=lambda self: 0, state_dict=dict), "expected both or neither"),
        (ORDER, own(Rotation, __init__=lambda self, size: None), "needs 'size', which is no argument of this rule"),
        (ORDER, own(Rotation, __init__=lambda self: 1 / 0), "raised ZeroDivisionError: division by zero (test_trials"),
        (ORDER, own(Rotation, take=lambda self, number: 0), ".take needs 'number', which is no argument"),
        (ORDER, own(Rotation, take=lambda self: {}["a"]), ".take raised KeyError: 'a' (test_trials.py, line "),
        (ORDER, own(Rotation, take=lambda self, count: [0] * (count + 1)), "expected a list of 4 integers"),
        (ORDER, own(Rotation, take=lambda self, count: [12] * count), "returned the index 12, expected 0 to 11"),
        (ORDER, own(Rotation, metrics=lambda self: {"a": math.nan}), "expected finite numbers by name"),
        (ORDER, own(Rotation, state_dict=lambda self: [1]), ".state_dict returned list, not dict"),
        (ORDER, own(Rotation, state_dict=lambda self: {"next": print}), "returned a value that torch.load(weights"),
        (ORDER, own(Rotation, load_state_dict=lambda self, state: None), "behaves differently after load_state_dict"),
        (FOLLOW, own(object, observe=lambda self: None), "has no method at or n_of or k_of or cross_share"),
        (FOLLOW, own(Restless, at=lambda self: 8), ".at returned 8, expected (N, K)"),
        (FOLLOW, own(Restless, at=lambda self: (33, 0.1)), "returned 33 as N, expected an integer from 8 to 32"),
        (FOLLOW, own(Restless, at=lambda self: (8, 0.3)), "returned 0.3 as K, expected a number from 0.05 to 0.2"),
        (FOLLOW, own(Restless, n_of=lambda self, choose: choose(8)), "as N, expected an integer from 8 to 32"),
        (FOLLOW, own(Restless, cross_share=lambda self: 2), "returned 2, expected a number from 0 to 1"),
        (FOLLOW, own(Restless, observe=lambda self: 3), "returned 3, expected a text or None"),
        (FOLLOW, "{rule: d3s.methods.plateau:Plateau, patience: 0}", "patience must be an integer"),
        (LENGTH, "{rule: overlong, buffer: 256}", "got buffer: 256, expected a number above 0, at most 1"),
        (LENGTH, "{rule: shorter, alpha: 1}", "got alpha: 1, expected a number >= 0, < 1"),
        (LENGTH, lambda lengths: [math.inf] * 4, "returned [inf, inf, inf, inf], expected a list of 4 finite numbers"),
        ("reward.shaper", "d3s.common:printable", "needs 'text', which is no argument"),
        (STRATEGY, own(object, generate=lambda self: 0), ".generate returned int, expected a list of 2 lists of 32"),
        (STRATEGY, changed(63), "returned groups of [32, 31] rollouts, expected 2 of 32"),
        (STRATEGY, changed(problem=1), "returned problem 1 in group 0, sample 1, expected problem 0 as in sample 0"),
        (STRATEGY, own(object, generate=repeated), "returned a Rollout twice, expected copies"),
        (STRATEGY, own(object, generate=continued), "another response than on_finished got in group 0, sample 0;"),
        (STRATEGY, own(object, generate=numbered), "returned a response to another prompt than that of problem 0"),
        (STRATEGY, own(changed(), token_advantages=lambda self, rollouts: [0]), "expected a list of 64 tuples (adv"),
        (STRATEGY, changed(response_ids=["a", "b"]), "the token 'a' in group 0, sample 1, expected an id"),
        (STRATEGY, changed(response_ids=[1] * 1025), "1025 tokens in group 0, sample 1, expected 1 to 1024 token ids"),
        (STRATEGY, changed(response_ids=[5, 6, 7]), "returned 2 logprobs in group 0, sample 1, expected 3"),
        (STRATEGY, changed(entropies=[0.5]), "returned 1 entropies in group 0, sample 1, expected 2"),
        (STRATEGY, changed(logprobs=[0.5, math.nan]), "returned nan in the logprobs in group 0, sample 1, expected"),
        (STRATEGY, own(changed(), problems_for=lambda self: 0), "returned 0, expected a number of problems"),
    ],
)
def test_wrong_rules_are_refused(option, value, problem, monkeypatch):
    if not isinstance(value, str):
        monkeypatch.setattr(own_rules, "wrong", value, raising=False)
        value = f"{OWN}:wrong"
    with pytest.raises(UserError) as error:
        attempt_rules(load_config([], [f"{option}={value}"]))
    assert str(error.value).startswith(f"{option}: ") and problem in str(error.value)


def test_losses_may_draw_random_numbers(monkeypatch):
    """Calls then differ, or happen to agree, which says nothing about micro-batches. Statistics are compared anyway."""
    value = f"{LOSS}={OWN}:random"
    for draw in (lambda: torch.rand(()) < 2, lambda: np.random.rand()):
        for stats in ({}, {"n": torch.ones(())}):

            def noisy(logprobs, draw=draw, stats=stats):
                return draw() * logprobs.sum() / max(1, len(logprobs)), stats if len(logprobs) else {}

            monkeypatch.setattr(own_rules, "random", noisy, raising=False)
            with pytest.raises(UserError, match="other statistics in some calls") if stats else nullcontext():
                attempt_rules(load_config([], [value]))


class InFlight:
    """A strategy of vLLM's requests whose state fits one step at a time."""

    asked = 0

    def generate(self, engine, prompts, seeds):
        self.asked += len(prompts)
        assert self.asked == len(prompts)
        with engine.sampling(seeds):
            self.asked = 0

    def state_dict(self):
        return {"asked": self.asked}

    def load_state_dict(self, state):
        self.asked = state["asked"]


class ByColumn(Rotation):
    """An order that reads a column of the data."""

    def __init__(self, problems):
        self.levels = [problem.row["level"] for problem in problems]


def taken(self, count):
    """A step of problems by a column that may be missing."""
    return [self.problems[0].row.get("level", 0)] * count


def test_rules_that_read_what_only_runs_have_are_accepted(monkeypatch):
    """vLLM's requests, and columns of the data."""
    late = own(object, __init__=lambda self, problems: setattr(self, "problems", problems), take=taken)
    for option, rule in ((STRATEGY, changed()), (STRATEGY, InFlight), (ORDER, ByColumn), (ORDER, late)):
        monkeypatch.setattr(own_rules, "right", rule, raising=False)
        attempt_rules(load_config([], [f"{option}={OWN}:right"]))
    attempt_rules(load_config([], ["rollout.strategy=d3s.methods.two_rounds:TwoRounds"]))
    attempt_rules(load_config(["configs/tiny.yaml", "configs/method/carry_over.yaml"], []))


def test_rules_may_read_the_problem_that_every_row_has(monkeypatch):
    """So that a fault after it is still found."""
    wrong = own(Rotation, __init__=lambda self, problems: 1 / (problems[0].row["answer"] != "1"))
    monkeypatch.setattr(own_rules, "wrong", wrong, raising=False)
    with pytest.raises(UserError, match="ZeroDivisionError"):
        attempt_rules(load_config([], [f"{ORDER}={OWN}:wrong"]))


OPTIONS = {"reward.functions": "reward.functions=[{}]", "eval.reward": "eval.reward={}"}


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (lambda response, answer: "1", "returned '1', expected a finite number"),
        (lambda row: row["missing"], "raised KeyError: 'missing' (test_trials.py, line "),
        (lambda responses: 1.0, "returned 1.0, expected a list of "),
        (lambda data_source, solution_str: 1.0, "needs 'data_source', which is no argument of this rule"),
        (lambda response: len(response) / 9, ""),
        (lambda responses: [1.0] * len(responses), ""),
    ],
)
def test_rewards_are_tried_on_the_first_problems(option, function, problem, monkeypatch):
    """With reward.errors: zero only those that fail every time are refused."""
    monkeypatch.setattr(own_rules, "reward", function, raising=False)
    options = [OPTIONS[option].format(f"{OWN}:reward"), "data.limit=3", "eval.data=[synthetic:precedence]"]
    for errors in ("stop", "zero"):
        config = load_config([], [*options, "eval.limit=2", f"reward.errors={errors}"])
        problems = read_problems(config)
        if not problem:
            attempt_rules(config)
            attempt_rewards(config, problems)
            continue
        with pytest.raises(UserError, match=f"^{option}: {OWN}:reward {re.escape(problem)}") as error:
            attempt_rules(config)
            attempt_rewards(config, problems)
        asked = problems.tests["precedence"] if option == "eval.reward" else problems.train
        named = (f'problem "{problem.problem}", answer "{problem.answer}"' in str(error.value) for problem in asked)
        assert any(named) or f"; write verl:{OWN}:reward" in str(error.value)


def test_rewards_that_fail_now_and_then_are_tried(monkeypatch):
    """Under reward.errors: zero; the trial leaves no counts."""
    monkeypatch.setattr(own_rules, "reward", lambda response: 1 / len(response), raising=False)
    monkeypatch.setattr(own_rules, "shaper", lambda response, advantage: [(0, len(response), 1.0)], raising=False)
    config = load_config([], [f"reward.functions=[{OWN}:reward]", "reward.errors=zero", "data.limit=1"])
    problems, reward_function = read_problems(config), RewardFunction(config.reward, 8)
    attempt_rewards(config, problems, reward_function)
    assert reward_function.take_stats() == {"failures": 0}
    reward_function.close()
    config.reward.shaper = f"{OWN}:shaper"
    with pytest.raises(UserError, match=r"^reward.shaper: .*:shaper returned the span \(0, 0, 1.0\), .* on problem "):
        attempt_rewards(config, problems)


class Counting:
    """A reward with a state."""

    calls, one = 0, 1

    def submit(self, response):
        self.calls += self.one
        future = Future()
        future.set_result(1.0)
        return future

    def close(self):
        pass

    def state_dict(self):
        return {"calls": self.calls}

    def load_state_dict(self, state):
        self.calls = state["calls"]


def test_trial_leaves_the_state_of_a_reward(monkeypatch):
    monkeypatch.setattr(own_rules, "reward", Counting, raising=False)
    config = load_config([], [f"reward.functions=[{OWN}:reward]", "data.limit=1"])
    reward_function = RewardFunction(config.reward, 8)
    (counting,) = reward_function.objects
    assert reward_function.submit("x", "y")().reward == 1 and counting.state_dict() == {"calls": 1}
    attempt_rewards(config, read_problems(config), reward_function)
    assert counting.state_dict() == {"calls": 1}
    monkeypatch.setattr(Counting, "one", np.float64(1))  # after a call the state is NumPy's
    with pytest.raises(UserError, match=f"^reward.functions: {OWN}:reward.state_dict returned a value that torch.load"):
        attempt_rewards(config, read_problems(config), reward_function)
    reward_function.close()


@pytest.mark.parametrize("option", RULES)
def test_contracts_are_what_the_schema_says(option):
    """Names that a configuration may give, and rules that are tried; rewards and engines need more for that."""
    contract = contract_of(option)
    assert tuple(contract.builtin) == RULES[option].builtin
    assert contract.examples or getattr(contract, "trial", None) or "reward" in option or option == "rollout.engine"
    assert resolve_name(RULES[option].contract).option in (option, "reward.functions")
