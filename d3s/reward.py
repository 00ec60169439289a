"""The reward of a response: the verifier or a user's function, plus optional format and length terms."""

import inspect
import pkgutil
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from d3s.common import UserError, printable
from d3s.config.schema import Config, RewardConfig
from d3s.verifier.extraction import extract
from d3s.verifier.verifier import Verifier, verify

__all__ = ["RewardFunction", "Verifier", "verify"]

VERIFIER = RewardConfig.model_fields["function"].default
HOPELESS = ("rollout.hopeless", ("problem", "text"))  # that option, and what its function takes
LARGEST = 1e12  # absolute limit of a user's reward: sums of its square must fit float32
SLOW_S = 30.0  # after which a call that has not returned is reported
EXCERPT = 60  # characters of a text quoted in a message
KINDS = {
    "a class": inspect.isclass,
    "an async function": inspect.iscoroutinefunction,
    "an async generator": inspect.isasyncgenfunction,
    "a generator": inspect.isgeneratorfunction,
}  # callables whose result is never a number


class RewardFunction:
    """Computes rewards of responses. `submit` returns at once, so verification overlaps with generation."""

    def __init__(self, config: RewardConfig, max_completion_length: int) -> None:
        self._config = config
        self._max_length = max_completion_length
        self._own = None if config.function == VERIFIER else OwnFunction(config.function)
        self._verifier = Verifier(config.workers, config.timeout_s, config.memory_mb, config.extraction)

    def submit(self, response: str, answer: str, length: int, problem: str = "") -> Callable[[], tuple[float, float]]:
        """Start to score a response of `length` tokens. The returned call waits for (reward, verdict).

        The verdict is the result of the verifier or the user's function. The reward adds the format and length terms.

        Args:
            problem: named in the message if the user's function fails.

        Raises: UserError if the user's function fails.
        """
        outcome = self.accuracy(response, answer, problem)
        extra = self._config.format_weight * format_reward(response) if self._config.format_weight else 0.0
        if self._config.overlong_buffer:
            buffer = max(1, round(self._config.overlong_buffer * self._max_length))
            extra += self._config.overlong_penalty * overlong_penalty(length, self._max_length, buffer)
        return lambda: (outcome.result() + extra, outcome.result())

    def accuracy(self, response: str, answer: str, problem: str = "") -> Future[float]:
        """Start to score by the verifier or the user's function alone, which is what evaluations count."""
        if self._own is None:
            return self._verifier.submit(response, answer)
        outcome: Future[float] = Future()
        outcome.set_result(self._own(response, answer, problem))
        return outcome

    def take_stats(self) -> dict[str, int]:
        """Return the verifier's counts since the last call, and reset them."""
        return self._verifier.take_stats()

    def close(self) -> None:
        """End the verifier's processes."""
        self._verifier.close()


class OwnFunction:
    """A user's reward function, run in this process. Its errors become one sentence."""

    def __init__(self, name: str) -> None:
        """Load `module:function`. Raises UserError; see load_function."""
        self._name = name
        self._function = load_function(name)
        self._call: tuple[float, str] | None = None  # start time and arguments of the running call
        threading.Thread(target=self._watch, name="reward-watch", daemon=True).start()

    def __call__(self, response: str, answer: str, problem: str = "") -> float:
        """The reward. Raises UserError if the function raises, exits, or returns no number within LARGEST."""
        what = (f"problem {quote(problem)}, " if problem else "") + f"answer {quote(answer)}"
        self._call = (time.monotonic(), what)
        what += f", response {quote(response)}"
        try:
            value = call_function(self._function, "reward.function", self._name, (response, answer), what)
        finally:
            self._call = None
        number = _as_number(value)
        if number is None:
            raise UserError(
                f"reward.function: {self._name} returned {shown(value)} on {what}; expected a finite number "
                f"from {-LARGEST:g} to {LARGEST:g}"
            )
        return number

    def _watch(self) -> None:
        """Report a slow call with its problem, to explain a run that seems to hang; then again after twice the time."""
        patience = SLOW_S
        while True:
            time.sleep(min(1.0, SLOW_S / 4))
            call = self._call
            if call and (waited := time.monotonic() - call[0]) > patience:
                text = f"warning: reward.function: {self._name} has not returned for {waited:.0f} s on {call[1]}"
                print(text, file=sys.stderr, flush=True)
                patience *= 2


def load_function(
    name: str, option: str = "reward.function", arguments: tuple[str, ...] = ("response", "answer")
) -> Callable[..., Any]:
    """Import the user's function `module:function` that an option names.

    Raises: UserError if it does not exist or cannot be called with these arguments.
    """
    try:
        function = pkgutil.resolve_name(name)
    except (Exception, SystemExit) as error:  # importing a module executes it
        reason = short(f"{type(error).__name__}: {error}")
        raise UserError(f"{option}: got {name!r}, expected module:function ({reason})") from error
    if ":" not in name or not callable(function):
        raise UserError(f"{option}: got {name!r}, expected module:function")
    for kind, is_kind in KINDS.items():
        if is_kind(function):
            raise UserError(f"{option}: {name} is {kind}, expected a plain function")
    try:
        signature = inspect.signature(function)
    except ValueError:  # of a builtin
        return function
    try:
        signature.bind(*arguments)
    except TypeError as error:
        raise UserError(
            f"{option}: {name} has the signature {short(str(signature))}, expected ({', '.join(arguments)})"
        ) from error
    return function


def check_functions(config: Config) -> None:
    """Load the user's functions that the options name, before anything expensive. Raises UserError."""
    if config.reward.function != VERIFIER:
        load_function(config.reward.function)
    if config.rollout.hopeless:
        load_function(config.rollout.hopeless, *HOPELESS)


def call_function(
    function: Callable[..., Any], option: str, name: str, arguments: tuple[str, ...], context: str
) -> Any:
    """Call a user's function; its errors become one sentence with the name and the context."""
    try:
        return function(*arguments)
    except (Exception, SystemExit) as error:  # sys.exit in it would end training silently
        reason = f"{type(error).__name__}: {error}".removesuffix(": ")
        raise UserError(f"{option}: {name} raised {short(reason)} on {context}") from error


def _as_number(value: Any) -> float | None:
    """A number or bool, of NumPy or torch too, as float; None for any other value and beyond LARGEST."""
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        value = value.item()
    return float(value) if isinstance(value, bool | int | float) and abs(value) <= LARGEST else None


def shown(value: Any) -> str:
    try:
        return short(repr(value))
    except Exception:  # a user's class; an integer of thousands of digits
        return f"a {type(value).__name__}"


def short(text: str) -> str:
    """One printable line of at most EXCERPT characters."""
    line = " ".join(printable(text[: 4 * EXCERPT]).split())
    return line if len(line) <= EXCERPT else line[: EXCERPT - 1] + "…"


def quote(text: str) -> str:
    return f'"{short(text)}"'


def format_reward(response: str) -> float:
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
