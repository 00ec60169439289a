"""The side that has the tests: runs them in order and writes a line of verdict for each.

Names that tests neither define nor import are the program's, unless the standard library has them (source.py).
"""

import ast
import builtins
import contextlib
import os
import sys
import traceback
import types
import unittest.case
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any

from d3s.sandbox import cases
from d3s.sandbox.peer import Peer
from d3s.sandbox.preload import COMMON
from d3s.sandbox.remote import Held, Refused, as_named, copy_of, identity, original, owner_and_number, refusals, refuse
from d3s.sandbox.source import (
    EVALUATE,
    IDENTITY,
    PACKAGES,
    SETTLE,
    bound_names,
    compile_test,
    dependents,
    mentions,
    parse,
    split_names,
)
from d3s.sandbox.vacuous import NOTHING_ASKED, cases_of, useless_statement
from d3s.sandbox.wire import CHANGEABLE, Broken, CannotCross, decode, to_json

# First line: how the definition of the program went. Then one for each test. After the letter, why a test did not pass.
DEFINED, PASSED, FAILED, MEMORY, REFUSED, CRASHED = b"d", b"1", b"0", b"m", b"r", b"c"
COMMON_MODULES = frozenset(COMMON.split())  # which both sides have
# What makes a test fail even if the program, which called a function of the test, swallows it.
FAILURES = (AssertionError, unittest.case.SkipTest)
READS = 8  # changeable values, the last that a test read of the program, whose changes are sent to the program
MAX_READ = 1 << 14  # characters of such a value, as it is compared before each question
MAX_REASON = 300  # characters


class Namespace(dict):
    """Globals of the tests, which read the names that are the program's own."""

    def __init__(self, read: Callable) -> None:
        super().__init__(__name__="__main__", __builtins__=builtins, __file__="test.py")
        self._read = read
        self.tested: set[str] = set()  # the names that are the program's

    def __missing__(self, name: str) -> Any:
        builtin = name in vars(builtins) and name not in self.tested
        if builtin or name in PACKAGES or (name.startswith("__") and name.endswith("__")):
            raise KeyError(name)
        try:
            return as_named(self._read("name", name), name)
        except NameError:
            raise KeyError(name) from None


class Tester:
    """The tests' side of one conversation."""

    def __init__(self, descriptor: int) -> None:
        self._functions: list[Callable] = []  # of the tests, which the program may call
        self._own: dict[int, tuple[Any, list]] = {}  # objects of classes of the tests by id, with their form
        self._classes: set[str] = set()  # of such objects, which the program may make
        self._changes: list[tuple] = []  # of arguments, of calls whose statement has not ended
        self._hidden_failure = False  # of a function of the test that the program called
        self._asked = False  # whether the running test asked the program for more than what a name is
        self._dependents: set[str] = set()  # names of the tests that may have values of the program
        self._reads: deque[tuple] = deque(maxlen=READS)  # holder, name and value, with its form
        self.stdout: Any = None  # while it is sys.stdout, the test does not capture what is printed
        self.reason = ""  # why the definition or the last test failed, which may quote the program
        self._peer = Peer(descriptor, self._perform, self._export, self._resolve, self._extend)
        self.namespace = Namespace(self.read)
        self.namespace |= {SETTLE: self._settle, IDENTITY: identity, EVALUATE: _refuse_evaluation}
        self.namespace |= {"id": lambda value: id(identity(value)), "callable": self._callable}

    def define(self, tests: Sequence[str | dict]) -> bytes:
        """Let the program be defined; DEFINED, MEMORY or CRASHED. Raises nothing."""
        functions = [test for test in tests if isinstance(test, str)]
        self.namespace.tested, given = split_names(functions)
        self._dependents = dependents(functions, self.namespace.tested)
        self.namespace |= given
        try:
            self.ask("define", len(functions) < len(tests))
        except (Exception, Refused, Broken) as error:
            self.reason = self._reason(error, "the program")
            return MEMORY if isinstance(error, MemoryError) else CRASHED
        return DEFINED

    def run(self, test: str | dict, number: int) -> bytes:
        """Return the verdict of one test.

        Only a test that runs to its end with a solver that answers passes, if it asked the program something.
        """
        refusals.clear()
        self._hidden_failure = self._asked = False
        error: BaseException | None = None
        try:
            if isinstance(test, str):
                self._run_text(test, number)
            else:
                output = self.ask("run", test["input"])
                assert same_output(output, test["output"]), f"got {output!r:.100}, expected {test['output']!r:.100}"
        except BaseException as raised:
            error = raised
        if isinstance(error, ModuleNotFoundError) and error.name is not None:  # of an import statement of the test
            refusals.append(f"test {number}: no module {error.name}; the sandbox has the standard library alone")
        if refusals and self._peer.failure is None:
            self.reason = refusals[0]
            return REFUSED
        if error is None and self._peer.failure is None and not self._hidden_failure:
            return PASSED
        self.reason = self._reason(error, f"test {number}")
        if self._peer.failure is not None:
            return MEMORY if isinstance(self._peer.failure, MemoryError) else CRASHED
        return MEMORY if isinstance(error, MemoryError) else FAILED

    def _run_text(self, test: str, number: int) -> None:
        code, tree = compile_test(test, number), parse(test)
        try:
            exec(code, self.namespace)
        except SystemExit as end:  # of `sys.exit(pytest.main())`
            if end.code or any(end is of_program for of_program in self._peer.exits):
                raise
        cases.run_cases(cases_of(tree), self.namespace)
        if found := useless_statement(tree):
            refuse(found[1], f"test {number}, line {found[0]}: ")
        own = self.namespace.tested | {name for node in ast.walk(tree) for name in bound_names(node)}
        if not (self._asked or mentions([tree], self._dependents - own)):  # it may check an answer to an earlier test
            refuse(NOTHING_ASKED, f"test {number}, line {tree.body[0].lineno if tree.body else 1}: ")

    def _reason(self, error: BaseException | None, place: str) -> str:
        """Return why something failed."""
        if self._peer.failure is not None:
            return f"{place}: the program's process ended or broke the protocol"
        line = next((f", line {n}" for frame, n in traceback.walk_tb(getattr(error, "__traceback__", None))
                     if frame.f_code.co_filename == f"<{place}>"), "")  # fmt: skip
        if error is None:
            return f"{place}: a failure that the program or the test caught"
        text = ""
        with contextlib.suppress(BaseException):  # of a text that needs an object of the program
            text = str(error)
        return f"{place}{line}: {type(error).__name__}{text and f': {text}'}"

    def ask(self, *request: Any) -> Any:
        """Let the program perform a request."""
        self._asked |= request[0] not in ("define", "name", "callable") and not _is_special(*request)
        try:
            self._tell_changes()
            return self._peer.request(*request)
        except CannotCross as error:
            refuse(str(error))
        finally:
            captures = self.stdout is not None and sys.stdout is not self.stdout  # as the test wants it
            if captures and self._peer.failure is None:
                sys.stdout.write(str(self._peer.request("printed")))

    def read(self, *request: Any) -> Any:
        """Return a variable or an attribute of the program."""
        value = self.ask(*request)
        if type(value) is Held or _is_special(*request):
            return value
        self._asked = True
        if isinstance(value, CHANGEABLE):
            holder, form = request[1] if request[0] == "get" else None, self._peer.encode(value)
            if len(to_json(form)) <= MAX_READ and form == self._peer.encode(value):  # not so with iterators in it
                self._reads.append((holder, request[-1], value, form))
        return value

    def _tell_changes(self) -> None:
        """Let the program have what the test changed in a variable or attribute, as in `stack.items.append(1)`."""
        for place, (holder, name, value, form) in enumerate(self._reads):
            changed = self._peer.encode(value)
            if changed != form:
                self._reads[place] = holder, name, value, changed
                try:
                    self._peer.request("update", holder, name, value)
                except Exception as error:
                    refuse(f"a change of {name} of the program, of which the test has a copy ({error})")

    def _callable(self, value: Any) -> bool:
        return self.ask("callable", value) is True if type(value) is Held else builtins.callable(value)

    def call(self, function: Held, arguments: tuple, named: dict) -> Any:
        """Call in the program, which may change its arguments.

        The test sees a change at once if the call returns None, as `sort(a)` does, else when its next statement begins:
        in `assert f(a) == sorted(a)` the program must not decide about the right side.
        """
        for name, kind in list(self.namespace.items()):
            if name not in self._classes and _is_record(kind):
                self._classes.add(name)
                self._peer.request("give", name, kind)
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
            number, *true = content
            return Held(self, int(number), *map(bool, true[:1]))
        if tag == "copy":
            number, plain = content
            return copy_of(decode(plain, self._resolve), Held(self, int(number)))
        if tag == "default":
            return defaultdict(*(decode(part, self._resolve) for part in content))
        if tag == "iter":
            return self._items(int(*content))
        if tag == "own":
            return next(value for value, (_, number, *_) in self._own.values() if number == int(*content))
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
        if id(value) in self._own:
            return self._own[id(value)][1]
        if type(value).__module__ == "__main__":
            asks = [self._number(partial(_read, value)), self._number(partial(_write, value))]
            self._own[id(value)] = value, ["own", len(self._own), *asks]
            return self._own[id(value)][1]
        raise CannotCross(f"a {type(value).__name__} of a test cannot be given to the program")

    def _extend(self, value: Any, form: list) -> list:
        """Write an instance of a subclass of a plain type."""
        if type(value) is defaultdict:
            factory = value.default_factory
            return ["default", None if factory is None else self._export(factory), form]
        held = original(value)
        return form if held is None else self._export(held)

    def note_failure(self) -> None:
        """Let the running test fail."""
        self._hidden_failure = True

    def _number(self, function: Callable) -> int:
        self._functions.append(function)
        return len(self._functions) - 1


def _is_special(operation: str, *arguments: Any) -> bool:
    """Whether a request reads what every object has, such as `f.__name__`."""
    return operation == "get" and arguments[1].startswith("__")


def _is_record(kind: Any) -> bool:
    """Whether it is a class of the tests with no attribute but special methods, such as a node of a list or tree."""
    if type(kind) is not type or kind.__module__ != "__main__" or kind.__bases__ != (object,):
        return False
    return "__init__" in vars(kind) and all(name.startswith("__") for name in vars(kind))


def _read(value: Any, name: str) -> Any:
    """Return an attribute of an object of the tests to the program. Raises AttributeError."""
    if name.startswith("__"):
        raise AttributeError(name)
    return getattr(value, name)


def _write(value: Any, name: str, content: Any) -> None:
    """Set an attribute of an object of the tests as the program does. Raises AttributeError."""
    if name.startswith("__") or callable(getattr(type(value), name, None)):
        raise AttributeError(name)
    setattr(value, name, content)


def _member(module: str, name: Any) -> Any:
    value: Any = sys.modules.get(module)
    for part in str(name).split("."):
        value = getattr(value, part, None)
    return value


def _refuse_evaluation(*arguments: Any, **named: Any) -> None:
    refuse("eval, exec, compile or a module such as pickle, which may run text that the program wrote")


def _line(verdict: bytes, reason: str) -> bytes:
    """Return a verdict and its reason, which may quote the program, as one line of bounded length."""
    return verdict + " ".join(reason.split())[:MAX_REASON].encode(errors="replace") + b"\n"


def same_output(output: Any, expected: str) -> bool:
    """Whether two texts have equal lines but for white space at the end of lines and of the text."""
    return type(output) is str and _lines(output) == _lines(expected)


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().split("\n")]


def main(descriptor: int, verdicts: int, tests: list[str | dict]) -> None:
    """Write the verdicts of all tests."""
    tester = Tester(descriptor)
    tester.stdout = sys.stdout
    cases.install(tester.note_failure)
    state = tester.define(tests)
    os.write(verdicts, _line(state, tester.reason))
    if state == DEFINED:
        for number, test in enumerate(tests, 1):
            verdict = tester.run(test, number)
            os.write(verdicts, _line(verdict, "" if verdict == PASSED else tester.reason))
