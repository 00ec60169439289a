"""The reward of a response: a weighted sum of reward functions, plus a term for its length.

The header of d3s/rewards/judge.py says what a reward function takes and returns. A rule of reward.length takes, by
name, what it needs of the G responses to a problem

    lengths    in tokens
    right      whether the first reward function gave 1
    limit      rollout.max_completion_length

and returns G finite numbers, which are added to the rewards.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from functools import partial
from math import exp, isfinite
from statistics import fmean, pstdev
from typing import Any

from accelerate import Accelerator

from d3s.advantage import ADVANTAGE_RULES
from d3s.common import UserError, shown
from d3s.config.schema import LENGTH, VERIFIER, RewardConfig
from d3s.data.problems import Problem
from d3s.distributed import all_gather_objects
from d3s.groups import Outcome
from d3s.gym.scores import Correctness
from d3s.rewards.judge import Judge, RewardContract
from d3s.rewards.scored import Scored
from d3s.rules import Contract, RuleObject, Value, rule_label, stateful, through_file
from d3s.verifier.extraction import extract

MOST_DEVIATIONS = 700  # below the mean, with which reward.length: shorter computes; exp overflows at 710

# (response, gold answer, columns of the problem) -> score, 1 for correct; does not block
ScoreFunction = Callable[[str, str, dict[str, Any]], Future[float]]


class RewardError(UserError):
    """A reward function, a shaper or a strategy failed. It is raised on all ranks, whichever called the function."""


@contextmanager
def fails_together(accelerator: Accelerator) -> Iterator[None]:
    """Raise a UserError of the block as RewardError on every rank, so that all of them can save. Collective."""
    failures = []
    try:
        yield
    except UserError as error:
        failures = [str(error)]
    if failures := all_gather_objects(failures, accelerator):
        raise RewardError(failures[0])


class RewardFunction:
    """Computes rewards of responses. `submit` returns at once, so rewards are computed beside generation."""

    def __init__(self, config: RewardConfig, max_completion_length: int, option: str = "reward.functions") -> None:
        """Load the functions, which `option` names. Raises UserError."""
        self._config = config
        self._max_length = max_completion_length
        contract = replace(REWARD_RULES, option=option)
        self._judges = {name: Judge(contract, rule, config) for name, rule in config.function_names().items()}
        self._weights = dict(zip(self._judges, config.weights(), strict=True))
        self._first = next(iter(self._judges))
        takes_parts = "parts" in ADVANTAGE_RULES.rule(config.advantages).takes
        self._is_split = len(self._judges) > 1 or takes_parts  # outcomes have the value of each function by name
        self._length = LENGTH_RULES.rule(config.length) if config.length != "none" else None

    @property
    def objects(self) -> list[RuleObject]:
        """Those functions that are objects of a class, which may have a state."""
        return [judge.scorer for judge in self._judges.values() if isinstance(judge.scorer, RuleObject)]

    def attempt(self, problems: Sequence[Problem]) -> None:
        """Call the user's own functions with made-up responses to these problems, and restore their states.

        Raises: UserError if one fails.
        """
        rules = stateful(*self.objects)
        before = {name: deepcopy(rule.state_dict()) for name, rule in rules.items()}
        for judge in self._judges.values():
            for problem in problems if judge.own else ():
                judge.attempt(problem.answer, problem.row)
        self.take_stats()
        for name, rule in rules.items():
            through_file(rule.state_dict(), name)  # whether a checkpoint could keep it
            rule.load_state_dict(before[name])

    def submit(self, response: str, answer: str, row: dict[str, Any] | None = None) -> Callable[..., Outcome]:
        """Start to score a response. The returned call waits for the outcome, which lacks the term for the length.

        With grouped=True it leaves functions of groups to score_group; without, they score the response alone.

        Args:
            row: the columns of the problem in the data set; `problem` is named in messages.

        Raises: UserError if a function fails, in the returned call, unless reward.errors is zero.
        """
        pending = {name: judge.submit(response, answer, row) for name, judge in self._judges.items() if judge.alone}

        def outcome(grouped: bool = False) -> Outcome:
            values = {}
            for name, judge in self._judges.items():
                if judge.alone:
                    values[name] = pending[name].result()
                else:
                    values[name] = Scored(0.0) if grouped else judge.submit(response, answer, row).result()
            return self._outcome(values)

        return outcome

    def score_group(
        self, outcomes: list[Outcome], responses: list[str], lengths: list[int], answer: str, row: dict[str, Any]
    ) -> list[Outcome]:
        """The outcomes of all responses to a problem, with the values of functions of the group and the length term.

        Args:
            lengths: tokens of each response.
        """
        values = [dict(outcome.values) for outcome in outcomes]
        for name, judge in self._judges.items():
            for before, value in zip(values, judge.score_group(responses, answer, row) or ()):
                before[name] = replace(value, parts={**before[name].parts, **value.parts})
        if not self._length:
            return list(map(self._outcome, values))
        right = [of[self._first].total == 1 for of in values]
        terms = self._length(lengths=lengths, right=right, limit=self._max_length)
        return list(map(self._outcome, values, terms))

    def _outcome(self, values: dict[str, Scored], term: float | None = None) -> Outcome:
        """The outcome of a response with these values of the functions and this term for its length, if any."""
        reward, parts, spans = 0.0, {}, {}
        for name, value in values.items():
            weight = self._weights[name]
            reward += weight * value.total
            parts |= {name: value.total} if self._is_split else {}
            parts |= {f"{name}/{part}": number for part, number in value.parts.items()}
            spans |= {name: [(*ends, weight * number) for *ends, number in value.spans]} if value.spans else {}
        if term is not None:
            reward += term
            parts |= {LENGTH: term} if self._is_split else {}
        return Outcome(reward, values[self._first].total, parts, spans, values)

    def score_functions(self) -> dict[str, ScoreFunction]:
        """Each function alone by the label of its rule, unweighted and without the other terms, for evaluations."""
        names = self._config.function_names()
        return {rule_label(rule): partial(_total, self._judges[name]) for name, rule in names.items()}

    def take_stats(self) -> dict[str, int]:
        """Return the counts of the functions since the last call, and reset them."""
        counts: Counter[str] = Counter()
        for judge in self._judges.values():
            counts.update(judge.take_stats())
        return dict(counts)

    def close(self) -> None:
        """End the threads and processes of the functions."""
        for judge in self._judges.values():
            judge.close()


def _total(judge: Judge, response: str, answer: str, row: dict[str, Any] | None = None) -> Future[float]:
    """Start to score a response; the result is the total of its Scored."""
    total: Future[float] = Future()

    def finish(done: Future[Scored]) -> None:
        if error := done.exception():
            total.set_exception(error)
        else:
            total.set_result(done.result().total)

    judge.submit(response, answer, row).add_done_callback(finish)
    return total


def scorers(tests: Mapping[str, Sequence[Problem]], reward: Value | None) -> dict[str, Value]:
    """The rule that scores each data set: `reward`, else the reward of its problems, else the verifier.

    Raises: UserError for problems with several rewards.
    """
    for name, problems in tests.items():
        if not reward and len(kinds := {problem.reward or VERIFIER for problem in problems}) > 1:
            raise UserError(f"{name}: has problems for {' and '.join(sorted(kinds))}; evaluate them from one file each")
    return {name: reward or problems[0].reward or VERIFIER for name, problems in tests.items()}


def boxed(response: str, answer: str) -> float:
    """1.0 if the response states exactly one final answer in a non-empty box after its thinking, else 0.0."""
    texts = extract(response, "strict")
    return 1.0 if texts is not None and len(texts) == 1 else 0.0


REWARD_RULES = RewardContract("reward.functions", {VERIFIER: Correctness, "boxed": boxed})


# R = 0 up to L - B tokens, then linearly to -1 at L                    DAPO's eq. 13, arXiv 2503.14476; L: the limit
def overlong(lengths: list[int], limit: int, buffer: float, penalty: float = 1.0) -> list[float]:
    """DAPO's soft overlong penalty: over the last fraction of the length limit the reward falls linearly.

    Args:
        buffer: this fraction of the limit, above 0, at most 1.
        penalty: what a response at the limit loses. DAPO uses 1 with rewards 1 and -1; the equivalent for rewards 1 and
            0 is 0.5.
    """
    for name, value, most in (("buffer", buffer, 1), ("penalty", penalty, 10**6)):
        if isinstance(value, str | None) or not 0 < value <= most:
            raise UserError(f"reward.length: got {name}: {value}, expected a number above 0, at most {most}")
    tokens = max(1, round(buffer * limit))
    return [-penalty * min(1.0, max(0.0, (length - (limit - tokens)) / tokens)) for length in lengths]


# R = 1 - alpha sigmoid((length - mean) / deviation) for a right response; mean and deviation over the right responses
# to the problem. Arora & Zanette, arXiv 2502.04463
def shorter(lengths: list[int], right: list[bool], alpha: float) -> list[float]:
    """Right responses lose up to alpha by their length among the right ones; half of it if all are as long.

    Args:
        alpha: at least 0, below 1, so that a right response stays above every wrong one.
    """
    if isinstance(alpha, str | None) or not 0 <= alpha < 1:
        raise UserError(f"reward.length: got alpha: {alpha}, expected a number >= 0, < 1")
    counted = [length for length, is_right in zip(lengths, right, strict=True) if is_right]
    mean, deviation = (fmean(counted), pstdev(counted) or 1.0) if counted else (0.0, 1.0)
    shares = (1 / (1 + exp(min((mean - length) / deviation, MOST_DEVIATIONS))) for length in lengths)
    return [-alpha * share if is_right else 0.0 for share, is_right in zip(shares, right)]


def _problem(result: Any, lengths: list[int], **_: Any) -> str | None:
    numbers = isinstance(result, list) and all(type(term) in (int, float) and isfinite(term) for term in result)
    if numbers and len(result) == len(lengths):
        return None
    return f"{shown(result)}, expected a list of {len(lengths)} finite numbers"


def _examples() -> Iterable[dict[str, Any]]:
    yield {"lengths": [3, 1024, 700, 700], "right": [True, False, True, True], "limit": 1024}
    yield {"lengths": [5, 5], "right": [False, False], "limit": 8}


LENGTH_RULES = Contract(
    "reward.length",
    {"none": lambda lengths: [0.0] * len(lengths), "overlong": overlong, "shorter": shorter},
    ("lengths", "right", "limit"),
    _problem,
    examples=_examples,
)
