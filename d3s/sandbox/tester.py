"""The side that has the tests: runs them in order and writes a line of verdict for each.

Names that tests neither define nor import are the program's, unless the standard library has them (source.py).
"""

import builtins
import os
import sys
import types
import unittest.case
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

from d3s.sandbox.peer import Peer
from d3s.sandbox.preload import COMMON
from d3s.sandbox.remote import Held, Refused, identity, owner_and_number, refusals, refuse
from d3s.sandbox.source import EVALUATE, IDENTITY, PACKAGES, SETTLE, compile_test, split_names
from d3s.sandbox.wire import CHANGEABLE, Broken, CannotCross

# First line: how the definition of the program went. Then one for each test; that of a refused test says why.
DEFINED, PASSED, FAILED, MEMORY, REFUSED, CRASHED = b"d", b"1", b"0", b"m", b"r", b"c"
COMMON_MODULES = frozenset(COMMON.split())  # which both sides have
# What makes a test fail even if the program, which called a function of the test, swallows it.
FAILURES = (AssertionError, unittest.case.SkipTest)


class Namespace(dict):
    """Globals of the tests, which ask the program for the names that are its own."""

    def __init__(self, ask: Callable) -> None:
        super().__init__(__name__="tests", __builtins__=builtins)
        self._ask = ask
        self.tested: set[str] = set()  # the names that are the program's

    def __missing__(self, name: str) -> Any:
        builtin = name in vars(builtins) and name not in self.tested
        if builtin or name in PACKAGES or (name.startswith("__") and name.endswith("__")):
            raise KeyError(name)
        try:
            return self._ask("name", name)
        except NameError:
            raise KeyError(name) from None


class Tester:
    """The tests' side of one conversation."""

    def __init__(self, descriptor: int) -> None:
        self._functions: list[Callable] = []  # of the tests, which the program may call
        self._changes: list[tuple] = []  # of arguments, of calls whose statement has not ended
        self._hidden_failure = False  # of a function of the test that the program called
        self._peer = Peer(descriptor, self._perform, self._export, self._resolve)
        self.namespace = Namespace(self.ask)
        self.namespace |= {SETTLE: self._settle, IDENTITY: identity, EVALUATE: _refuse_evaluation}
        self.namespace["id"] = lambda value: id(identity(value))

    def define(self, tests: Sequence[str | dict]) -> bytes:
        """Let the program be defined; DEFINED, MEMORY or CRASHED. Raises nothing."""
        functions = [test for test in tests if isinstance(test, str)]
        self.namespace.tested, given = split_names(functions)
        self.namespace |= given
        try:
            self.ask("define", len(functions) < len(tests))
        except MemoryError:
            return MEMORY
        except (Exception, Refused, Broken):
            return CRASHED
        return DEFINED

    def run(self, test: str | dict, number: int) -> bytes:
        """Return the verdict of one test. Only a test that runs to its end with a solver that answers passes."""
        refusals.clear()
        self._hidden_failure = False
        error: BaseException | None = None
        try:
            if isinstance(test, str):
                exec(compile_test(test, number), self.namespace)
            else:
                assert same_output(self.ask("run", test["input"]), test["output"])
        except BaseException as raised:
            error = raised
        if self._peer.failure is not None:
            return MEMORY if isinstance(self._peer.failure, MemoryError) else CRASHED
        if refusals:
            return REFUSED
        if error is None and not self._hidden_failure:
            return PASSED
        return MEMORY if isinstance(error, MemoryError) else FAILED

    def ask(self, *request: Any) -> Any:
        """Let the program perform a request."""
        try:
            return self._peer.request(*request)
        except CannotCross as error:
            refuse(str(error))

    def call(self, function: Held, arguments: tuple, named: dict) -> Any:
        """Call in the program, which may change its arguments.

        The test sees a change at once if the call returns None, as `sort(a)` does, else when its next statement begins:
        in `assert f(a) == sorted(a)` the program must not decide about the right side.
        """
        reply = self.ask("call", function, list(arguments), named)
        try:
            result, changed = reply
            changes = [(named[key] if type(key) is str else arguments[key], value) for key, value in changed.items()]
        except Exception as error:
            self._peer.fail(error)
        self._changes += changes
        if result is None:
            self._settle()
        return result

    def _settle(self) -> None:
        """Make the changes of arguments seen."""
        for argument, value in self._changes:
            if type(argument) in CHANGEABLE and type(value) is type(argument):
                argument.clear()
                (argument.update if isinstance(value, dict | set) else argument.extend)(value)
        self._changes = []

    def _perform(self, number: int, arguments: list, named: dict) -> Any:
        try:
            return self._functions[number](*arguments, **named)
        except BaseException as error:
            self._hidden_failure |= isinstance(error, FAILURES) or not isinstance(error, Exception)
            raise

    def _resolve(self, form: list) -> Any:
        """Read a reference that the solver sent."""
        tag, *content = form
        if tag == "h":
            return Held(self, int(*content))
        if tag == "iter":
            return self._items(int(*content))
        if tag == "x":
            refuse("an exception class of the program; a test can expect the standard class that it derives from")
        raise ValueError("unknown tag")

    def _items(self, number: int) -> Iterator:
        """The items of an iterator of the program."""
        while True:
            item = self.ask("next", number)
            if type(item) is not list or len(item) > 1:
                self._peer.fail(ValueError("no item"))
            if not item:
                return
            if (yield item[0]) is not None:
                refuse("send to a generator of the program")

    def _export(self, value: Any) -> list:
        """Write what is no plain value: references back, functions and classes by name or for a call, iterators."""
        if type(value) is Held:
            return ["h", owner_and_number(value)[1]]
        if isinstance(value, Iterator):
            return ["iter", self._number(lambda: list(islice(value, 1)))]
        owner = getattr(value, "__objclass__", None) or getattr(value, "__self__", None)
        module = owner.__name__ if isinstance(owner, types.ModuleType) else getattr(owner or value, "__module__", None)
        name = getattr(value, "__qualname__", None)
        if module in COMMON_MODULES | {"builtins"} and _member(module, name) is value:
            return ["m", module, name]
        if callable(value):
            return ["k", self._number(value)]
        raise CannotCross(f"a {type(value).__name__} of a test cannot be given to the program")

    def _number(self, function: Callable) -> int:
        self._functions.append(function)
        return len(self._functions) - 1


def _member(module: str, name: Any) -> Any:
    value: Any = sys.modules.get(module)
    for part in str(name).split("."):
        value = getattr(value, part, None)
    return value


def _refuse_evaluation(*arguments: Any, **named: Any) -> None:
    refuse("eval, exec or compile of a text that is no constant; it may be the program's")


def same_output(output: Any, expected: str) -> bool:
    """Whether two texts have equal lines but for white space at the end of lines and of the text."""
    return type(output) is str and _lines(output) == _lines(expected)


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().split("\n")]


def main(descriptor: int, verdicts: int, tests: list[str | dict]) -> None:
    """Write the verdicts of all tests."""
    tester = Tester(descriptor)
    state = tester.define(tests)
    os.write(verdicts, state + b"\n")
    if state == DEFINED:
        for number, test in enumerate(tests, 1):
            verdict = tester.run(test, number)
            reason = refusals[0].encode() if verdict == REFUSED else b""
            os.write(verdicts, verdict + reason + b"\n")
