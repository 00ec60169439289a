"""The reward of a response: the verifier or the user's own function, plus the optional format and length parts."""

import pkgutil
from collections.abc import Callable
from concurrent.futures import Future

from d3s.config import RewardConfig
from d3s.errors import UserError
from d3s.reward import Verifier, format_reward, overlong_penalty

VERIFIER = RewardConfig.model_fields["function"].default


class Scorer:
    """Turns responses into rewards; `submit` returns at once, so that answers are verified while others generate."""

    def __init__(self, config: RewardConfig, max_completion_length: int) -> None:
        self._config = config
        self._max_length = max_completion_length
        self._own = None if config.function == VERIFIER else load_function(config.function)
        self._verifier = Verifier(config.workers, config.timeout_s, config.memory_mb, config.extraction)

    def submit(self, response: str, answer: str, length: int) -> Callable[[], tuple[float, float]]:
        """Starts scoring a response of `length` tokens; the returned function waits for reward and verdict.

        The verdict is the verifier's or the user's function's; the reward adds what format and length are worth.
        """
        outcome = self.accuracy(response, answer)
        extra = self._config.format_weight * format_reward(response) if self._config.format_weight else 0.0
        if self._config.overlong_buffer:
            share = overlong_penalty(length, self._max_length, self._config.overlong_buffer)
            extra += self._config.overlong_penalty * share
        return lambda: (outcome.result() + extra, outcome.result())

    def accuracy(self, response: str, answer: str) -> Future[float]:
        """Starts scoring by the verifier alone or by the user's function: what evaluations count."""
        return self._verifier.submit(response, answer) if self._own is None else self._call(response, answer)

    def take_stats(self) -> dict[str, int]:
        """The verifier's counts since the last call."""
        return self._verifier.take_stats()

    def close(self) -> None:
        """Ends the verifier's processes."""
        self._verifier.close()

    def _call(self, response: str, answer: str) -> Future:
        outcome: Future = Future()
        outcome.set_result(float(self._own(response, answer)))
        return outcome


def load_function(name: str) -> Callable[[str, str], float]:
    """The function that `module:function` names. Raises UserError if there is none."""
    try:
        function = pkgutil.resolve_name(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(f"reward.function is {name!r}, must name a function as module:function ({error})") from error
    if ":" not in name or not callable(function):
        raise UserError(f"reward.function is {name!r}, must name a function as module:function")
    return function
