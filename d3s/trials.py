"""Try the rules of a configuration with small arguments, and rewards on its problems, before anything expensive."""

import math
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from d3s.common import UserError
from d3s.config.checks import RULES, changed_rules, contract_of
from d3s.config.schema import Config, RewardConfig, RolloutConfig
from d3s.data.dataset import Problems
from d3s.data.problems import Problem, problem_order
from d3s.pretrained import load_model
from d3s.reward import RewardFunction, scorers
from d3s.rewards.token_advantages import SHAPER_RULES
from d3s.rollout.engine import SamplingParams
from d3s.rollout.named import open_engine
from d3s.rules import ClassContract, Contract, OfRuns, Value, rule_name, through_file
from d3s.tiny import ensure_base

TRIED = 2  # problems


def attempt_rules(config: Config) -> None:
    """Call the user's own rules, and built-in ones with options of the user's. Raises UserError that names the rule."""
    for option, value in changed_rules(config):
        if isinstance(value, str) and value in RULES[option].builtin:
            continue
        contract = contract_of(option)
        if option == "rollout.engine":
            attempt_engine(value, config.rollout, option, entropies=config.selector.entropy_source == "engine")
            continue
        attempt(contract, value, config)
        after = option == "reward.advantages" and config.selector.normalize == "after"
        if after and "counted" not in contract.rule(value).takes:
            problem = "requires selector.normalize: before, as it does not take 'counted'"
            raise UserError(f"reward.advantages: {rule_name(value)} {problem}")


def attempt(contract: Contract, value: Value, config: Config) -> None:
    """Call a rule with each example of its contract, or an object of a class rule as its trial does.

    Nothing if a class reads what only a run has: vLLM's requests, or columns of the data.

    Raises: UserError if the rule fails, returns NaN or infinity, or differs once it is restored from its state.
    """

    def require_finite(result: Any, given: str = "finite arguments") -> None:
        if not _finite(result):
            raise UserError(f"{contract.option}: {rule_name(value)} returned NaN or infinity for {given}")

    if isinstance(contract, ClassContract):
        with suppress(OfRuns):
            require_finite(_attempt_class(contract, value, config))
        return
    rule, results, state = contract.rule(value), [], torch.get_rng_state()
    calls = list(contract.examples()) if contract.examples else []
    for arguments in calls:
        empty = any(isinstance(x, torch.Tensor) and not x.numel() for x in arguments.values())
        results.append(rule(**arguments))
        require_finite(results[-1], "empty tensors" if empty else "finite arguments")
    drew = not torch.equal(torch.get_rng_state(), state)
    if problem := contract.together(calls, results, drew):
        raise UserError(f"{contract.option}: {rule_name(value)} returned {problem}")


def attempt_engine(value: Value, settings: RolloutConfig, option: str, entropies: bool = False) -> None:
    """Let the user's own engine sample from a tiny model, and load its weights, as a run does.

    Args:
        entropies: whether the run needs those of the engine.

    Raises: UserError if it fails or returns something else.
    """
    contract = replace(contract_of("rollout.engine"), option=option)
    if not contract.rule(value).own:
        return
    params = SamplingParams(max_tokens=8, temperature=settings.temperature)
    with TemporaryDirectory() as folder:
        model = str(ensure_base("tiny:precedence", folder=Path(folder)))
        weights = load_model(model, dtype=torch.float32).state_dict()
        sizes = {"dtype": "float32", "head_dtype": "auto", "max_model_len": 16}
        try:
            engine = open_engine(contract, value, model_path=model, config=settings, seed=0, **sizes)
            for _ in range(2):
                rollouts = engine.generate([[5, 6, 7], [8, 9]], n=2, params=params, seeds=[1, 2, 3, 4])
                engine.sleep()
                engine.wake("weights")
                engine.load_weights(iter(weights.items()))
                engine.wake("kv_cache")
                engine.checksums()
            engine.close()
        except UserError as error:
            if isinstance(error.__cause__, NotImplementedError):  # it serves the model of the run alone
                return
            raise
    if entropies and not all(r.entropies for r in rollouts):
        raise UserError(f"{option}: {rule_name(value)} returned no entropies; set selector.entropy_source: actor")


def attempt_rewards(config: Config, problems: Problems, reward_function: RewardFunction | None = None) -> None:
    """Score made-up responses to the first problems of the training and of each benchmark by the user's own functions.

    Args:
        reward_function: that of the run, which is opened for the trial where there is none.

    Raises: UserError that names the function, and the problem on which it fails.
    """
    first = problem_order(len(problems.train), seed=config.train.seed, position=0, count=TRIED)
    train = [problems.train[i] for i in first]
    if reward_function:
        reward_function.attempt(train)
    else:
        with closing(RewardFunction(config.reward, config.rollout.max_completion_length)) as opened:
            opened.attempt(train)
    attempt_scores(problems.tests, config.eval.reward, config.reward)
    for problem in train if config.reward.shaper else ():
        shaper = SHAPER_RULES.rule(config.reward.shaper)
        for response, advantage in product((problem.answer, r"So \boxed{1}.", ""), (-1.0, 1.0)):
            shaper(problem=problem.problem, response=response, answer=problem.answer, advantage=advantage)


def attempt_scores(
    tests: Mapping[str, Sequence[Problem]], reward: Value | None, settings: RewardConfig, option: str = "eval.reward"
) -> None:
    """Score made-up responses to the first problem of each data set, as an evaluation does. Raises UserError."""
    for name, rule in scorers(tests, reward).items():
        with closing(RewardFunction(settings.model_copy(update={"functions": [rule]}), 1, option)) as function:
            function.attempt(tests[name][:1])


def _attempt_class(contract: ClassContract, value: Value, config: Config) -> list[Any]:
    first, second = (contract.build(value, **contract.constructs(config)) for _ in range(2))
    known = False
    with suppress(OfRuns):  # a half step: its state can be kept, but no further step made
        contract.trial(first, config)
        known = True
    if first.has("state_dict"):
        second.load_state_dict(through_file(first.state_dict(), f"{contract.option} {first.name}"))
    if not known:
        return []
    results, restored = (contract.trial(each, config) for each in (first, second))
    if results != restored:
        problem = "behaves differently after load_state_dict(state_dict())"
        remedy = "save everything that changes during training, and seed random numbers"
        raise UserError(f"{contract.option}: {first.name} {problem}; {remedy}")
    return results


def _finite(value: Any) -> bool:
    """Whether the tensors and numbers in a result are finite."""
    if isinstance(value, Mapping):
        return all(map(_finite, value.values()))
    if isinstance(value, tuple | list):
        return all(map(_finite, value))
    if isinstance(value, float | int):
        return math.isfinite(value)
    return not hasattr(value, "isfinite") or bool(value.isfinite().all())
