"""Run one reward beside generation: a function in a thread of its own, or a class that answers with futures.

A function takes, by name, what it needs of the response and its problem

    response    the decoded text
    answer      the text of the answer column
    row         a dictionary of all columns of the problem, `problem` and `answer` included

and returns a number or a Scored. One that takes `responses` instead is called once for a group, when it is complete,
and returns a list. A class has `submit`, which takes what a function takes and returns a Future at once, or
`score_group`, which takes `responses`, or both: then score_group may replace the values, or return None. It may have
take_stats(), counts since the last call, close(), and a state as any rule. Its constructor takes, by name, the limits
of the configuration: workers, timeout_s, memory_mb, extraction.
"""

import inspect
import math
import queue
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from d3s.common import UserError, describe, shown
from d3s.config.schema import RewardConfig
from d3s.rewards.adapters import ADAPTERS, SIGNS, takes
from d3s.rewards.scored import InvalidValue, Scored, about, as_scored
from d3s.rules import ClassContract, Contract, Rule, RuleObject, Value, kind_problem, metrics_problem, place_of

ALONE, GROUP = ("response", "answer", "row"), ("responses", "answer", "row")
LIMITS = ("workers", "timeout_s", "memory_mb", "extraction")  # of the configuration, which constructors may take
SLOW_S = 30.0  # after which a call that has not returned is reported
LIMIT = 12  # times reward.timeout_s, after which it is ended


def _future_problem(result: Any, **_: Any) -> str | None:
    return None if isinstance(result, Future) else f"a {type(result).__name__}, expected a Future"


METHODS = {
    "submit": (ALONE, _future_problem),
    "score_group": (GROUP, lambda *_, **__: None),  # Judge checks the values, as those of functions
    "take_stats": ((), metrics_problem),
    "close": ((), lambda *_, **__: None),
}


@dataclass(frozen=True)
class RewardContract(Contract):
    """The contract of a reward: a function of a response or of a group, or a class; also of another library."""

    arguments: tuple[str, ...] = ALONE
    about: Callable[..., str] = about

    def load(self, name: str) -> Callable[..., Any]:
        """Import what `module:name` or `LIBRARY:module:name` is. Raises UserError if there is none."""
        library, _, path = name.partition(":")
        if library not in ADAPTERS or ":" not in path:
            return super().load(name)
        function = super().load(path)
        if problem := kind_problem(function):
            raise UserError(f"{self.option}: {name} {problem}")
        return ADAPTERS[library](function, partial(_call_by_name, self.option, name, function))

    def rule(self, value: Value) -> Rule:
        """See Contract.rule."""
        rule = super().rule(value)
        if rule.name.startswith("trl:") and type(chat := rule.options.get("conversational", False)) is not bool:
            raise UserError(f"{self.option}: {rule.name} got conversational: {shown(chat)}, expected true or false")
        return rule

    def remedy(self, name: str, argument: str) -> str:
        """The library whose rewards take such an argument, else see Contract.remedy."""
        library = SIGNS.get(argument) if ":" not in name.partition(":")[2] else None
        return f"write {library}:{name} for a reward of {library}" if library else super().remedy(name, argument)

    def of(self, function: Callable[..., Any]) -> Contract:
        """The contract of a class, of a function of a group, or of a function of a response."""
        if inspect.isclass(function):
            required = ("submit", "score_group")
            return ClassContract(
                self.option, {}, LIMITS, about=about, methods=METHODS, required=required, per_rank=True
            )
        return replace(self, arguments=GROUP) if takes(function, "responses") else self


def _call_by_name(
    option: str, name: str, function: Callable[..., Any], arguments: dict, options: dict, known: dict
) -> Any:
    """Call a function with those of the arguments that it takes, which may depend on the columns of the data."""
    contract = Contract(option, {}, tuple(arguments), about=lambda **_: about(**known))
    return Rule(contract, name, function, True, options)(**arguments)


class ThreadedFunction:
    """A function as an object with `submit` or `score_group`: one thread makes one call after the other."""

    def __init__(self, rule: Rule) -> None:
        self._rule, self._method = rule, "score_group" if rule.contract.arguments == GROUP else "submit"
        self._calls: queue.SimpleQueue = queue.SimpleQueue()
        self.start_thread()

    def start_thread(self) -> None:
        """Start a thread. An earlier one, which cannot be ended, leaves the calls to it, and ends with its own."""
        self._thread = threading.Thread(target=self._work, name="reward", daemon=True)
        self._thread.start()

    def has(self, name: str) -> bool:
        """Whether it is called for a response alone, or for a group."""
        return name == self._method

    def submit(self, **arguments: Any) -> Future[Any]:
        """Call the function in the thread."""
        future: Future[Any] = Future()
        self._calls.put((future, arguments))
        return future

    score_group = submit

    def _work(self) -> None:
        while threading.current_thread() is self._thread and (call := self._calls.get()) is not None:
            future, arguments = call
            try:
                future.set_result(self._rule(**arguments))
            except BaseException as error:  # SystemExit too; set_exception would keep it from the run
                future.set_exception(error)

    def take_stats(self) -> dict[str, int]:
        """No counts."""
        return {}

    def close(self) -> None:
        """End the thread after the call that runs."""
        self._calls.put(None)


class _Call(NamedTuple):
    """A call that has not returned."""

    context: Callable[[], str]  # which it is, as the end of a message
    zero: Any  # what a failure counts as
    limit_s: float


class Judge:
    """A reward with its name. Every value is checked; errors end the run or count as 0."""

    def __init__(self, contract: RewardContract, value: Value, config: RewardConfig) -> None:
        """Make what the option names. Raises UserError if that is impossible."""
        rule = contract.rule(value)
        self.own, self._title = rule.own, f"{contract.option}: {rule.name}"
        self._zero, self._limit_s = config.errors == "zero", LIMIT * config.timeout_s
        if isinstance(rule.contract, ClassContract):
            self.scorer = RuleObject(rule, {name: getattr(config, name) for name in LIMITS})
        else:
            self.scorer = ThreadedFunction(rule)
        self.alone = self.scorer.has("submit")  # whether a response has its value before its group is complete
        self._pending: dict[Future[Any], _Call] = {}  # in the order of submission
        self._last_result = time.monotonic()
        self._lock = threading.Lock()
        self._failures = self._successes = 0  # failures are those since the last take_stats
        self._failure: UserError | None = None  # the first
        self._closed = threading.Event()
        if self.own:  # built-in ones have limits of their own
            threading.Thread(target=self._watch, name="reward-watch", daemon=True).start()

    def submit(self, response: str, answer: str, row: dict[str, Any] | None = None) -> Future[Scored]:
        """Start to score a response alone. The result raises UserError if that fails and reward.errors is stop."""
        arguments = {"answer": answer, "row": row or {}}
        if self.alone:
            read = partial(as_scored, response=response)
            return self._start(self.scorer.submit, read, Scored(0.0), response=response, **arguments)

        def first(values: Any) -> Scored:
            return self._read_group([response], values)[0]

        return self._start(self._score_group, first, Scored(0.0), responses=[response], **arguments)

    def score_group(self, responses: list[str], answer: str, row: dict[str, Any]) -> list[Scored] | None:
        """The values of all responses to a problem, if there is a method or function of groups that returns them.

        Called when all responses of a group have a value, in the order of the samples; one rank has the whole group, so
        the call is reproducible. Raises UserError if it fails.
        """
        if not self.scorer.has("score_group"):
            return None
        arguments = {"responses": responses, "answer": answer, "row": row or {}}
        zeros = [Scored(0.0)] * len(responses)
        return self._start(self._score_group, partial(self._read_group, responses), zeros, **arguments).result()

    def attempt(self, answer: str, row: dict[str, Any]) -> None:
        """Score made-up responses to a problem. Raises UserError if that fails, with reward.errors: zero each time."""
        texts = [rf"The answer is \boxed{{{answer}}}.", answer, ""]
        for future in [self.submit(text, answer, row) for text in texts if self.alone]:
            future.result()
        self.score_group(texts, answer, row)
        if self._failure and not self._successes:
            raise self._failure

    def take_stats(self) -> dict[str, int]:
        """Counts since the last call: those of the class, and failures with reward.errors: zero."""
        with self._lock:
            failures, self._failures = self._failures, 0
        return (self.scorer.take_stats() or {}) | ({"failures": failures} if self._zero else {})

    def close(self) -> None:
        """End the threads and processes."""
        self._closed.set()
        self.scorer.close()

    def _score_group(self, **arguments: Any) -> Future[Any]:
        """Call a function of groups in its thread, a method here."""
        result = self.scorer.score_group(**arguments)
        if isinstance(result, Future):
            return result
        done: Future[Any] = Future()
        done.set_result(result)
        return done

    def _read_group(self, responses: Sequence[str], values: Any) -> list[Scored] | None:
        if values is None and self.alone:
            return None
        values = values.tolist() if hasattr(values, "tolist") else values  # of NumPy or torch
        if not isinstance(values, Sequence) or isinstance(values, str) or len(values) != len(responses):
            raise InvalidValue(shown(values), f"a list of {len(responses)} numbers")
        return [as_scored(value, response) for value, response in zip(values, responses)]

    def _start(self, method: Callable[..., Future], read: Callable[[Any], Any], zero: Any, **arguments: Any) -> Future:
        """Make a call and read its result, which is checked; the returned future has it, or `zero` for a failure."""
        checked: Future[Any] = Future()
        if self._failure and not self._zero:  # the run ends when it reads the first result
            checked.set_exception(self._failure)
            return checked
        threaded = self.alone or isinstance(self.scorer, ThreadedFunction)
        call = _Call(partial(about, **arguments), zero, self._limit_s if threaded else math.inf)
        with self._lock:
            if not self._pending:
                self._last_result = time.monotonic()
            self._pending[checked] = call
        try:
            method(**arguments).add_done_callback(lambda done: self._finish(done, checked, read, call))
        except UserError as error:
            self._fail(checked, call, str(error))
        return checked

    def _finish(self, done: Future[Any], checked: Future[Any], read: Callable[[Any], Any], call: _Call) -> None:
        error = CancelledError() if done.cancelled() else done.exception()
        if isinstance(error, UserError):
            self._fail(checked, call, str(error))
            return
        reason = f"{describe(error)}{place_of(error)}" if error else ""
        try:
            if not error:
                self._settle(checked, read(done.result()))
                return
        except InvalidValue as invalid:
            reason = f"returned {invalid.value}, expected {invalid.expected}"
        except Exception as odd:  # of a user's number or list
            reason = f"returned a value that {describe(odd)}"
        self._fail(checked, call, f"{self._title} {reason}{call.context()}")

    def _settle(self, checked: Future[Any], value: Any, failed: bool = False) -> bool:
        """Resolve a call once; a late result of an abandoned call is dropped."""
        with self._lock:
            if self._pending.pop(checked, None) is None:
                return False
            self._last_result = time.monotonic()
            self._successes += not failed
        if isinstance(value, UserError):
            checked.set_exception(value)
        else:
            checked.set_result(value)
        return True

    def _fail(self, checked: Future[Any], call: _Call, message: str) -> None:
        error, first = UserError(message), self._failure is None
        self._failure = self._failure or error
        if not self._zero:
            self._settle(checked, error, failed=True)
        elif self._settle(checked, call.zero, failed=True):
            with self._lock:
                self._failures += len(call.zero) if isinstance(call.zero, list) else 1
            if first:
                _warn(f"{message}; it counts as 0, and later failures are counted in reward/failures")

    def _watch(self) -> None:
        """Report a slow call with its problem, again after twice the time, and end one that exceeds the limit."""
        patience = SLOW_S
        while not self._closed.wait(min(1.0, SLOW_S / 4, self._limit_s / 4)):
            with self._lock:
                checked, call = next(iter(self._pending.items()), (None, None))
                waited = time.monotonic() - self._last_result
            if call is None or waited < min(SLOW_S, call.limit_s):
                patience = SLOW_S
            elif waited > call.limit_s:
                if isinstance(self.scorer, ThreadedFunction):
                    self.scorer.start_thread()
                limit = f"{call.limit_s:g} s ({LIMIT} x reward.timeout_s)"
                self._fail(checked, call, f"{self._title} did not return within {limit}{call.context()}")
            elif waited > patience:
                _warn(f"{self._title} has not returned for {waited:.0f} s{call.context()}")
                patience *= 2


def _warn(text: str) -> None:
    print(f"warning: {text}", file=sys.stderr, flush=True)
