"""Run one reward function beside generation: in a thread of its own, or as a class that answers with futures.

The verifier, a user's function and a user's class become a Judge, which checks values, names errors and ends calls that
hang.
"""

import inspect
import queue
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, Protocol

from d3s.common import UserError, describe, quote, shown
from d3s.config.schema import VERIFIER, RewardConfig
from d3s.functions import accepts, call_function, load_function
from d3s.rewards.scored import InvalidValue, Scored, as_scored
from d3s.rules import KINDS, load_object
from d3s.verifier.verifier import Verifier

OPTION = "reward.functions"
ARGUMENTS = ("response", "answer")
METHODS = {"submit": ARGUMENTS, "take_stats": (), "close": ()}  # of a class, and what they take
SLOW_S = 30.0  # after which a call that has not returned is reported
LIMIT = 12  # times reward.timeout_s, after which it is ended


class Scorer(Protocol):
    """What a user's class is. `submit` may also take `row`, the columns of the problem in the data set."""

    def submit(self, response: str, answer: str) -> Future[Any]:
        """Start to score a response and return at once. The result is a number or a Scored."""

    def take_stats(self) -> dict[str, int]:
        """Return counts since the last call, which become the metrics reward/NAME."""

    def close(self) -> None:
        """End processes and threads."""


class ThreadedFunction:
    """A reward function as a Scorer: one thread calls it for one response after the other."""

    def __init__(self, function: Any) -> None:
        self._function = function
        self._calls: queue.SimpleQueue = queue.SimpleQueue()
        self.start_thread()

    def start_thread(self) -> None:
        """Start a thread. An earlier one, which cannot be ended, leaves the calls to it, and ends with its own."""
        self._thread = threading.Thread(target=self._work, name="reward", daemon=True)
        self._thread.start()

    def submit(self, *arguments: Any, **keywords: Any) -> Future[Any]:
        """Call the function in the thread."""
        future: Future[Any] = Future()
        self._calls.put((future, arguments, keywords))
        return future

    def _work(self) -> None:
        while threading.current_thread() is self._thread and (call := self._calls.get()) is not None:
            future, arguments, keywords = call
            try:
                future.set_result(self._function(*arguments, **keywords))
            except BaseException as error:  # SystemExit too; set_exception would keep it from the run
                future.set_exception(error)

    def take_stats(self) -> dict[str, int]:
        """No counts."""
        return {}

    def close(self) -> None:
        """End the thread after the call that runs."""
        self._calls.put(None)


class Judge:
    """A reward function with its name. Every value is checked; errors end the run or count as 0."""

    def __init__(self, name: str, config: RewardConfig, option: str = OPTION) -> None:
        """Load `module:name`, which `option` names. Raises UserError; see check_judge."""
        self.name, self.option = name, option
        self._zero = config.errors == "zero"
        check_judge(name, option)
        self._scorer = _open_scorer(name, config, option)
        self._limit_s = LIMIT * config.timeout_s
        self._row_argument = "" if name == VERIFIER else _row_argument(load_object(name, option))
        self._pending: dict[Future[Scored], str] = {}  # in the order of submission, with what each call is about
        self._last_result = time.monotonic()
        self._lock = threading.Lock()
        self._failures = 0  # since the last take_stats
        self._warned = False
        self._failed: UserError | None = None
        self._closed = threading.Event()
        if name != VERIFIER:  # which has a limit of its own
            threading.Thread(target=self._watch, name="reward-watch", daemon=True).start()

    def submit(self, response: str, answer: str, row: dict[str, Any] | None = None) -> Future[Scored]:
        """Start to score a response. The result raises UserError if the function fails and reward.errors is stop."""
        checked: Future[Scored] = Future()
        if self._failed:  # the run ends when it reads the first result
            checked.set_exception(self._failed)
            return checked
        row = dict(row or {})
        problem = f"problem {quote(row['problem'])}, " if isinstance(row.get("problem"), str) else ""
        what = f"{problem}answer {quote(answer)}"
        with self._lock:
            if not self._pending:
                self._last_result = time.monotonic()
            self._pending[checked] = what
        arguments = (response, answer, row) if self._row_argument == "position" else (response, answer)
        keywords = {"row": row} if self._row_argument == "keyword" else {}
        try:
            future = self._scorer.submit(*arguments, **keywords)
        except (Exception, SystemExit) as error:
            self._fail(checked, f"{describe(error)} on {what}, response {quote(response)}")
            return checked
        if not isinstance(future, Future):
            self._fail(checked, f"submit returned a {type(future).__name__} on {what}; expected a Future")
            return checked
        future.add_done_callback(lambda done: self._check(done, checked, response, what))
        return checked

    def score_group(self, responses: list[str], answer: str, row: dict[str, Any]) -> list[float] | None:
        """The values of all responses to a problem, if the scorer has a method of this name that returns them.

        It is called once every response has its value, with the same arguments in every run: its group is sampled by
        one rank, and in the order of the samples. Raises UserError if it fails.
        """
        method = getattr(self._scorer, "score_group", None)
        if method is None:
            return None
        name, what = f"{self.name}.score_group", f"answer {quote(answer)}"
        totals = call_function(method, self.option, name, (responses, answer, row), what)
        if totals is None:
            return None
        try:
            if not isinstance(totals, Sequence) or len(totals) != len(responses):
                raise InvalidValue(shown(totals), f"a list of {len(responses)} numbers")
            return [as_scored(total, "").total for total in totals]
        except InvalidValue as error:
            problem = f"{name} returned {error.value} on {what}; expected {error.expected}"
            raise UserError(f"{self.option}: {problem}") from error

    def take_stats(self) -> dict[str, int]:
        """Counts since the last call: those of the scorer, and failures with reward.errors: zero."""
        with self._lock:
            failures, self._failures = self._failures, 0
        return self._scorer.take_stats() | ({"failures": failures} if self._zero else {})

    def close(self) -> None:
        """End the threads and processes."""
        self._closed.set()
        self._scorer.close()

    def _check(self, done: Future[Any], checked: Future[Scored], response: str, what: str) -> None:
        context = f"{what}, response {quote(response)}"
        if error := done.exception():
            self._fail(checked, f"{describe(error)} on {context}")
            return
        try:
            self._settle(checked, as_scored(done.result(), response))
        except InvalidValue as reason:
            self._fail(checked, f"returned {reason.value} on {context}; expected {reason.expected}")
        except Exception as reason:  # of a user's number or list
            self._fail(checked, f"returned a value that {describe(reason)} on {context}")

    def _settle(self, checked: Future[Scored], value: Scored | UserError) -> bool:
        """Resolve a call once; a late result of an abandoned call is dropped."""
        with self._lock:
            if self._pending.pop(checked, None) is None:
                return False
            self._last_result = time.monotonic()
        if isinstance(value, UserError):
            checked.set_exception(value)
        else:
            checked.set_result(value)
        return True

    def _fail(self, checked: Future[Scored], reason: str) -> None:
        error = UserError(f"{self.option}: {self.name} {reason}")
        if not self._zero:
            self._failed = error
            self._settle(checked, error)
        elif self._settle(checked, Scored(0.0)):
            with self._lock:
                self._failures += 1
                first, self._warned = not self._warned, True
            if first:
                self._warn(f"{reason}; it counts as 0, and later failures are counted in reward/failures")

    def _warn(self, text: str) -> None:
        print(f"warning: {self.option}: {self.name} {text}", file=sys.stderr, flush=True)

    def _watch(self) -> None:
        """Report a slow call with its problem, again after twice the time, and end one that exceeds the limit."""
        patience = SLOW_S
        while not self._closed.wait(min(1.0, SLOW_S / 4, self._limit_s / 4)):
            with self._lock:
                checked, what = next(iter(self._pending.items()), (None, ""))
                waited = time.monotonic() - self._last_result
            if checked is None or waited < min(SLOW_S, self._limit_s):
                patience = SLOW_S
            elif waited > self._limit_s:
                if isinstance(self._scorer, ThreadedFunction):
                    self._scorer.start_thread()
                self._fail(checked, f"did not return within {self._limit_s:g} s ({LIMIT} x reward.timeout_s) on {what}")
            elif waited > patience:
                self._warn(f"has not returned for {waited:.0f} s on {what}")
                patience *= 2


def check_judge(name: str, option: str = OPTION) -> None:
    """Check that `module:name`, which `option` names, is a function or a class that can score, without calling it.

    Raises: UserError.
    """
    if name == VERIFIER:
        return
    target = load_object(name, option)
    if not inspect.isclass(target):
        if _row_argument(target) is None or any(is_kind(target) for is_kind in KINDS.values()):
            load_function(name, option, ARGUMENTS)  # whose message says what is wrong
        return
    for method, arguments in METHODS.items():
        if not callable(getattr(target, method, None)):
            raise UserError(f"{option}: the class {name} has no method {method}({', '.join(arguments)})")


def _row_argument(target: Any) -> str | None:
    """How a function, or a class's submit, takes the row: by "keyword" or "position"; "" for not at all; else None."""
    own = ("self",) if inspect.isclass(target) else ()
    function = target.submit if own else target
    if accepts(function, (*own, *ARGUMENTS), "row"):
        return "keyword"
    if accepts(function, (*own, *ARGUMENTS)):
        return ""
    return "position" if accepts(function, (*own, *ARGUMENTS, "row")) else None


def _open_scorer(name: str, config: RewardConfig, option: str) -> Scorer:
    if name == VERIFIER:
        return Verifier(config.workers, config.timeout_s, config.memory_mb, config.extraction)
    target = load_object(name, option)
    if not inspect.isclass(target):
        return ThreadedFunction(target)
    try:
        return target(config) if accepts(target, ("config",)) else target()
    except (Exception, SystemExit) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{option}: {name} {describe(error)} when it was constructed") from error
