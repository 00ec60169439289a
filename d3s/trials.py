"""Try the rules of a configuration with small arguments, and rewards on its problems, before anything expensive."""

import io
import math
import pickle
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import torch

from d3s.common import UserError
from d3s.config.checks import changed_rules
from d3s.config.schema import Config, RewardConfig
from d3s.data.dataset import Problems
from d3s.data.order import order_arguments
from d3s.data.problems import Problem, problem_order
from d3s.groups import Outcome, Rollout
from d3s.reward import RewardFunction, scorers
from d3s.rewards.token_advantages import SHAPER_RULES
from d3s.rollout.engine import Engine, SamplingParams
from d3s.rules import ClassContract, Contract, RuleObject, Value, rule_name
from d3s.schedule import follow_arguments

TRIED = 2  # problems


def attempt_rules(config: Config) -> None:
    """Call the user's own rules, and built-in ones with options of the user's. Raises UserError that names the rule."""
    for contract, value in changed_rules(config):
        if isinstance(value, str) and value in contract.builtin:
            continue
        attempt(contract, value, config)
        after = contract.option == "reward.advantages" and config.selector.normalize == "after"
        if after and "counted" not in contract.rule(value).takes:
            raise UserError(
                f"reward.advantages: {rule_name(value)} requires selector.normalize: before, as it does not take "
                "'counted'"
            )


def attempt(contract: Contract, value: Value, config: Config) -> list[Any]:
    """Call a rule with each example, or an object of a class rule as a run would. Returns what they returned.

    Nothing if a class reads what only a run has: vLLM's requests, or columns of the data.

    Raises: UserError if the rule fails, returns NaN or infinity, or differs once it is restored from its state.
    """
    if isinstance(contract, ClassContract):
        try:
            results = _attempt_class(contract, value, config)
        except _OfRuns:
            return []
    else:
        rule, examples = contract.rule(value), EXAMPLES.get(contract.option, tuple)
        results = [rule(**arguments) for arguments in examples()]
    if not _finite(results):
        raise UserError(f"{contract.option}: {rule_name(value)} returned NaN or infinity for finite arguments")
    return results


def attempt_rewards(config: Config, problems: Problems, reward_function: RewardFunction | None = None) -> None:
    """Score made-up responses to the first problems of the training and of each benchmark by the user's own functions.

    Args:
        reward_function: that of the run, which is opened for the trial where there is none.

    Raises: UserError that names the function, and the problem on which it fails.
    """
    first = problem_order(len(problems.train), seed=config.train.seed, position=0, count=TRIED)
    train = [problems.train[i] for i in first]
    opened = reward_function or RewardFunction(config.reward, config.rollout.max_completion_length)
    try:
        opened.attempt(train)
    finally:
        if not reward_function:
            opened.close()
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
        function = RewardFunction(settings.model_copy(update={"functions": [rule]}), 1, option)
        try:
            function.attempt(tests[name][:1])
        finally:
            function.close()


def _attempt_class(contract: ClassContract, value: Value, config: Config) -> list[Any]:
    arguments, trial = TRIALS[contract.option]
    first, second = (contract.build(value, **arguments(config)) for _ in range(2))
    known = True
    try:
        trial(first, config)
    except _OfRuns:  # a half step: its state can be kept, but no further step made
        known = False
    if first.has("state_dict"):
        second.load_state_dict(_through_file(first, contract.option))
    if not known:
        return []
    results = trial(first, config), trial(second, config)
    if results[0] != results[1]:
        raise UserError(
            f"{contract.option}: {first.name} behaves differently after load_state_dict(state_dict()); save "
            "everything that changes during training, and seed random numbers"
        )
    return results[0]


def _through_file(rule: RuleObject, option: str) -> dict[str, Any]:
    """The state of an object as a checkpoint gives it back. Raises UserError if it has other than plain values."""
    state, file = rule.state_dict(), io.BytesIO()
    try:
        torch.save(state, file)
        file.seek(0)
        return torch.load(file, weights_only=True)
    except (pickle.PickleError, AttributeError, TypeError, RuntimeError):
        raise UserError(
            f"{option}: {rule.name}.state_dict returned a value that torch.load(weights_only=True) refuses; expected "
            "tensors, numbers, texts, lists and dicts"
        ) from None


def _finite(value: Any) -> bool:
    """Whether the tensors and numbers in a result are finite."""
    if isinstance(value, Mapping):
        return all(map(_finite, value.values()))
    if isinstance(value, tuple | list):
        return all(map(_finite, value))
    if isinstance(value, float | int):
        return math.isfinite(value)
    return not hasattr(value, "isfinite") or bool(value.isfinite().all())


# --- small arguments of each rule ------------------------------------------------------------------------------------


def _progress() -> Iterator[dict[str, Any]]:
    return ({"progress": i / 20} for i in range(21))


def _rewards() -> Iterator[dict[str, Any]]:
    rewards = torch.zeros(3, 128)  # large groups, as a rule may need some responses
    rewards[0, 0] = rewards[1, ::2] = 1.0
    yield {
        "rewards": rewards,
        "counted": torch.ones_like(rewards, dtype=torch.bool),
        "parts": {"first": rewards, "second": rewards.flip(1)},
        "weights": {"first": 1.0, "second": 0.5},
    }


def _lengths() -> Iterator[dict[str, Any]]:
    yield {"lengths": [3, 1024, 700, 700], "right": [True, False, True, True], "limit": 1024}
    yield {"lengths": [5, 5], "right": [False, False], "limit": 8}


def _rollouts() -> Iterator[dict[str, Any]]:
    rewards = torch.tensor([[1.0, 0.0, 0.0, 0.5], [0.0, 0.0, 0.0, 0.0]])
    for cross_share in (0.0, 1.0):
        yield {
            "advantages": rewards - rewards.mean(1, keepdim=True),
            "rewards": rewards,
            "keep": 2,
            "eligible": torch.tensor([[True, True, True, True], [True, True, True, False]]),
            "cross_share": cross_share,
            "generator": torch.Generator().manual_seed(0),
        }


def _tokens() -> Iterator[dict[str, Any]]:
    for count in (8, 0):
        yield {
            "advantages": torch.linspace(-1.0, 1.5, count),
            "entropies": torch.linspace(0.0, 2.0, count),
            "logprobs": -torch.linspace(0.0, 3.0, count),
            "ref_logprobs": -torch.linspace(2.0, 0.5, count),
            "sequence_ids": torch.arange(count) // 4,
            "fraction": 0.25,
            "generator": torch.Generator().manual_seed(0),
        }


def _losses() -> Iterator[dict[str, Any]]:
    for count in (6, 0):
        logprobs = -torch.linspace(0.1, 3.0, count)
        yield {
            "logprobs": logprobs.clone().requires_grad_(),
            "old_logprobs": logprobs + 0.1,
            "advantages": torch.linspace(-1.0, 1.5, count),
            "sequence_log_ratio": torch.full((count,), -0.1),
            "rollout_logprobs": logprobs - 0.1,
            "ref_logprobs": logprobs + 0.2,
            "sequence_ids": torch.arange(count) // 2,
            "epsilon": 0.2,
            "epsilon_high": 0.28,
            "denominator": torch.full((count,), 6.0),
        }


def _demonstrations() -> Iterator[dict[str, Any]]:
    ids = torch.tensor([0, 0, 0, 1, 2, 2, 3, 3])
    values = torch.arange(8) / 8
    yield {"sequence_ids": ids, "logprobs": -values, "entropies": 1 - values, "generator": torch.Generator()}


def _log_ratios() -> Iterator[dict[str, Any]]:
    yield {
        "log_ratios": torch.linspace(-1.0, 1.0, 6),
        "sequence_ids": torch.tensor([0, 0, 0, 2, 2, 2]),
        "counted": torch.tensor([True, True, True, True, True, False]),
    }


EXAMPLES: dict[str, Callable[[], Iterator[dict[str, Any]]]] = {
    "reward.length": _lengths,
    "reward.advantages": _rewards,
    "selector.rollouts": _rollouts,
    "selector.tokens": _tokens,
    "schedule.n_shape": _progress,
    "schedule.k_shape": _progress,
    "loss.kind": _losses,
    "loss.engine_correction": _log_ratios,
    "sft.prune": _demonstrations,
}


# --- a small run of each class ---------------------------------------------------------------------------------------


class _OfRuns(BaseException):
    """A rule reads what only a run has. A BaseException is not taken for a fault of the rule."""


class _Columns(dict):
    """The columns of a problem, which are unknown before the data is read."""

    def __missing__(self, name: str) -> Any:
        raise _OfRuns

    def get(self, name: str, default: Any = None) -> Any:
        return self[name]

    def __ror__(self, other: dict[str, Any]) -> "_Columns":  # dict | _Columns, in Problem.row
        return _Columns(other)


TWELVE = [Problem(str(i), f"problem {i}", "1", "example", _Columns()) for i in range(12)]


def _try_order(order: RuleObject, config: Config) -> list[Any]:
    """Two steps of four problems, of whose two responses i are right."""
    results = []
    for position in (0, 4):
        problems = order.take(count=4, position=position)
        verdicts = (torch.arange(2) < torch.tensor(problems)[:, None] % 3).float()
        results += [problems, order.learn(problems=problems, verdicts=verdicts, rewards=verdicts), order.metrics()]
    return results


def _try_follow(follow: RuleObject, config: Config) -> list[Any]:
    """Two steps and an evaluation after each."""
    g, results, tokens = config.rollout.num_generations, [], torch.linspace(0.0, 1.0, 8)
    advantages = torch.linspace(-1.0, 1.0, g).repeat(2, 1)
    for step in range(2):
        results += [follow.at(step=step), follow.cross_share()]
        results.append(follow.n_of(advantages=advantages, choose=lambda n: (torch.arange(g) < n).repeat(2, 1)))
        results += [follow.k_of(advantages=tokens, entropies=tokens), follow.observe(metrics=defaultdict(lambda: 0.5))]
        results += [follow.metrics(), follow.observe_eval(accuracies=[0.25, 0.5])]
    return results


class _TrialEngine(Engine):
    """Its responses are functions of their seeds: one to eight times the same token."""

    def __init__(self, config: Config) -> None:
        limit = config.data.max_prompt_length + config.rollout.max_completion_length
        self.stop_token_ids, self.stop, self.max_model_len = {0}, config.rollout.stop, limit

    def sample(self, rollouts, params, seeds, entropies, on_finished) -> None:
        for r, seed in zip(rollouts, seeds, strict=True):
            length = 1 + seed % min(8, params.max_tokens)
            r.response_ids, r.logprobs = [1 + seed % 3] * length, [-0.5] * length
            r.entropies, r.finished = [0.7] * length if entropies else [], length < params.max_tokens
            on_finished(r)

    def __getattr__(self, name: str) -> Any:
        raise _OfRuns

    load_weights = __getattr__


def _try_strategy(strategy: RuleObject, config: Config) -> list[Any]:
    """Two steps of two groups with rewards of 0 and 1."""
    n, results = config.rollout.num_generations, []

    def score(rollout: Rollout) -> None:
        right = float(rollout.sample % 2)
        rollout.scoring = lambda: Outcome(right, right, {}, [])

    for step in range(2):
        asked = strategy.problems_for(count=2) or 2
        problems = list(range(step * asked, (step + 1) * asked))
        groups = strategy.generate(
            engine=_TrialEngine(config),
            prompts=[[3, 4, 5, problem] for problem in problems],
            problems=problems,
            count=2,
            n=n,
            params=SamplingParams(max_tokens=config.rollout.max_completion_length),
            seeds=list(range(step, step + n * asked)),
            entropies=not config.rollout.servers,
            step=step,
            on_finished=score,
        )
        rollouts = [r for group in groups for r in group]
        if wrong := [r.problem for r in rollouts if r.prompt_ids != [3, 4, 5, r.problem]]:
            raise UserError(
                f"rollout.strategy: {strategy.name} returned a response to another prompt than that of problem "
                f"{wrong[0]}; pass `problems` to Engine.generate or empty_rollouts"
            )
        strategy.token_advantages(rollouts=rollouts, advantages=torch.ones(len(rollouts)))
        results.append([(r.response_ids, r.logprobs, r.entropies) for r in rollouts])
    return results


TRIALS: dict[str, tuple[Callable[[Config], dict[str, Any]], Callable[[RuleObject, Config], list[Any]]]] = {
    "data.order": (lambda config: order_arguments(config, TWELVE), _try_order),
    "schedule.follow": (follow_arguments, _try_follow),
    "rollout.strategy": (lambda config: {"config": config}, _try_strategy),
}
