"""The reward of a response: a weighted sum of reward functions, plus optional length terms."""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from math import exp
from statistics import fmean, pstdev
from typing import Any

from d3s.advantage import ADVANTAGE_RULES
from d3s.common import UserError
from d3s.config.schema import LENGTH, Config, RewardConfig
from d3s.functions import load_function
from d3s.rewards.judge import Judge, check_judge
from d3s.rewards.scored import Outcome, Scored
from d3s.verifier.extraction import extract
from d3s.verifier.verifier import Verifier, verify

__all__ = ["Outcome", "RewardFunction", "ScoreFunction", "Scored", "Verifier", "verify"]

# (response, gold answer, columns of the problem) -> score, 1 for correct; does not block
ScoreFunction = Callable[[str, str, dict[str, Any]], Future[float]]
FUNCTIONS = {  # other options that name a function, and what it takes
    "reward.shaper": ("problem", "response", "answer", "advantage"),
}


class RewardFunction:
    """Computes rewards of responses. `submit` returns at once, so rewards are computed beside generation."""

    def __init__(self, config: RewardConfig, max_completion_length: int) -> None:
        """Load the functions. Raises UserError; see check_functions."""
        self._config = config
        self._max_length = max_completion_length
        self._judges = {name: Judge(function, config) for name, function in config.function_names().items()}
        self._weights = config.weights()
        takes_parts = "parts" in ADVANTAGE_RULES.rule(config.advantages).takes
        self._is_split = len(self._judges) > 1 or takes_parts
        self._has_terms = bool(config.overlong_buffer or config.length_penalty)

    def submit(
        self, response: str, answer: str, length: int, row: dict[str, Any] | None = None
    ) -> Callable[[], Outcome]:
        """Start to score a response of `length` tokens. The returned call waits for the outcome.

        Args:
            row: the columns of the problem in the data set; `problem` is named in messages.

        Raises: UserError if a function fails, then or in the returned call, unless reward.errors is zero.
        """
        pending = {name: judge.submit(response, answer, row) for name, judge in self._judges.items()}
        extra = 0.0
        if self._config.overlong_buffer:
            buffer = max(1, round(self._config.overlong_buffer * self._max_length))
            extra = self._config.overlong_penalty * overlong_penalty(length, self._max_length, buffer)

        def outcome() -> Outcome:
            scored = {name: future.result() for name, future in pending.items()}
            values = [weight * value.total for weight, value in zip(self._weights, scored.values(), strict=True)]
            spans = [
                (start, end, weight * value)
                for weight, part in zip(self._weights, scored.values(), strict=True)
                for start, end, value in part.spans
            ]
            parts = {f"{name}/{part}": x for name, value in scored.items() for part, x in value.parts.items()}
            if self._is_split:
                parts |= {name: value.total for name, value in scored.items()}
                parts |= {LENGTH: extra} if self._has_terms else {}
            return Outcome(sum(values) + extra, next(iter(scored.values())).total, parts, spans)

        return outcome

    def score_group(
        self, outcomes: list[Outcome], responses: list[str], lengths: list[int], answer: str, row: dict[str, Any]
    ) -> list[Outcome]:
        """The outcomes of all responses to a problem, with the values of functions that look at the whole group.

        Args:
            lengths: tokens of each response.
        """
        for i, (weight, (name, judge)) in enumerate(zip(self._weights, self._judges.items(), strict=True)):
            totals = judge.score_group(responses, answer, row)
            for at, total in enumerate(totals or ()):
                reward, verdict, parts, spans = outcomes[at]
                reward += weight * (total - (parts[name] if i else verdict))
                parts = parts | ({name: total} if name in parts else {})
                outcomes[at] = Outcome(reward, verdict if i else total, parts, spans)
        if self._config.length_penalty:
            shares = length_shares(lengths, [outcome.verdict == 1 for outcome in outcomes])
            for at, (reward, verdict, parts, spans) in enumerate(outcomes):
                lost = self._config.length_penalty * shares[at]
                parts = parts | ({LENGTH: parts[LENGTH] - lost} if LENGTH in parts else {})
                outcomes[at] = Outcome(reward - lost, verdict, parts, spans)
        return outcomes

    def score_functions(self) -> dict[str, ScoreFunction]:
        """Each function alone by its `module:function`, unweighted and without the other terms, for evaluations."""
        names = self._config.function_names()
        return {path: partial(_total, self._judges[name]) for name, path in names.items()}

    def take_stats(self) -> dict[str, int]:
        """Return the counts of the functions since the last call, and reset them."""
        counts: Counter[str] = Counter()
        for judge in self._judges.values():
            for name, count in judge.take_stats().items():
                counts[name] += count
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


def check_functions(config: Config) -> None:
    """Load the user's functions that the options name, before anything expensive. Raises UserError."""
    for name in config.reward.function_names().values():
        check_judge(name)
    if config.eval.reward:
        check_judge(config.eval.reward, "eval.reward")
    for option, arguments in FUNCTIONS.items():
        section, _, key = option.partition(".")
        if name := getattr(getattr(config, section), key):
            load_function(name, option, arguments)


def boxed(response: str, answer: str) -> float:
    """1.0 if the response states exactly one final answer in a non-empty box after its thinking, else 0.0."""
    extracted = extract(response, "strict")
    return 1.0 if extracted is not None and len(extracted.texts) == 1 else 0.0


def overlong_penalty(length: int, max_length: int, buffer: int) -> float:
    """DAPO's soft overlong punishment (arXiv 2503.14476, eq. 13), in [-1, 0].

    It is 0 up to `max_length - buffer` tokens, then falls linearly to -1 at `max_length`.
    """
    if buffer <= 0 or buffer > max_length:
        raise UserError(f"overlong_penalty: got a buffer of {buffer}, expected 1 to max_length = {max_length}")
    return -min(1.0, max(0.0, (length - (max_length - buffer)) / buffer))


# R = 1 - alpha sigmoid((length - mean) / deviation) for a right response; mean and deviation over the right responses
# to the problem. Arora & Zanette, arXiv 2502.04463
def length_shares(lengths: list[int], right: list[bool]) -> list[float]:
    """The share of reward.length_penalty that each response of a group loses; 0 if wrong, 1/2 if all are as long."""
    counted = [length for length, is_right in zip(lengths, right, strict=True) if is_right]
    mean, deviation = (fmean(counted), pstdev(counted) or 1.0) if counted else (0.0, 1.0)
    return [1 / (1 + exp((mean - length) / deviation)) if is_right else 0.0 for length, is_right in zip(lengths, right)]
