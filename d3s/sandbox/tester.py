"""The side that has the tests: runs them in order and writes one byte of verdict for each.

The names that a test neither defines nor imports, and that are no builtins, are those of the program.
"""

import builtins
import os
import re
import sys
import types
from collections.abc import Callable, ItemsView, Iterator, KeysView, ValuesView
from typing import Any

from d3s.sandbox.classes import overrides
from d3s.sandbox.peer import PLAIN_BASES, TYPES, Peer, constructor_arguments, plain_base, standard_class_form
from d3s.sandbox.preload import COMMON
from d3s.sandbox.remote import ExceptionClass, Remote, Store
from d3s.sandbox.wire import Broken, CannotCross, Encoder

# First byte: how the definition of the program went. Then a byte for each test.
DEFINED, PASSED, FAILED, MEMORY, REFUSED, CRASHED = b"d", b"1", b"0", b"m", b"r", b"c"
COMMON_MODULES = frozenset(COMMON.split())  # which both sides have
SHARED_FUNCTIONS = {"builtins", "math", "cmath", "operator", "_operator"}  # modules of functions that cross by name


MEMBER = re.compile(r"(?<![\w.])([a-z]\w*)[ \t]*\.[ \t]*([A-Za-z]\w*)")  # math.isclose


class Namespace(dict):
    """Globals of the tests."""

    def __init__(self, store: Store) -> None:
        super().__init__(__name__="tests", __builtins__=builtins, **overrides(store))
        self._store = store

    def __missing__(self, name: str) -> Any:
        if name in vars(builtins) or (name.startswith("__") and name.endswith("__")):
            raise KeyError(name)
        value = self._store.ask("name", name)
        if type(value) is Remote and name[0].isupper() and "_" not in name:
            self._store.classes.add(value._d3s_number)
        return value

    def add_modules(self, test: str) -> None:
        """Define the standard modules that a test uses without an import, since `math` of the program may lie."""
        for name, member in MEMBER.findall(test):
            module = sys.modules.get(name)
            if name not in self and name in sys.stdlib_module_names and hasattr(module, member):
                self[name] = module


class Tester:
    """The tests' side of one conversation."""

    def __init__(self, descriptor: int) -> None:
        self._functions: list[Callable] = []  # of the tests, which the program may call
        self.peer = Peer(descriptor, self._perform, self._export, lambda form, decode: self.store.resolve(form, decode))
        self.store = Store(self.peer)
        self.namespace = Namespace(self.store)

    def definition(self) -> bytes:
        """Wait until the program is defined; DEFINED, MEMORY or CRASHED."""
        try:
            return {"defined": DEFINED, "memory": MEMORY}.get(self.peer.receive_value(), CRASHED)
        except Broken:
            return CRASHED

    def run(self, test: str, number: int) -> bytes:
        """Return the verdict of one test. Only a test that runs to its end with a solver that answers passes."""
        self.peer.refused = False
        error: BaseException | None = None
        try:
            code = compile(test, f"<test {number}>", "exec", dont_inherit=True)
            self.namespace.add_modules(test)
            exec(code, self.namespace)
        except BaseException as raised:
            error = raised
        if self.peer.failure is not None:
            return MEMORY if isinstance(self.peer.failure, MemoryError) else CRASHED
        if self.peer.refused:
            return REFUSED
        if error is None:
            return PASSED
        return MEMORY if isinstance(error, MemoryError) else FAILED

    def _perform(self, number: int, arguments: list) -> Any:
        positional, named = arguments
        return self._functions[number](*positional, **named)

    def _export(self, value: Any, encoder: Encoder) -> list:
        """Write what is no plain value: references back, types, exceptions, functions, iterators."""
        kind = type(value)
        if kind is Remote:
            return ["h", value._d3s_number]
        if kind is ExceptionClass:
            return ["h", value._d3s_class]
        if isinstance(value, BaseException):
            if "_d3s_number" in vars(value):
                return ["h", value._d3s_number]
            arguments = [encoder.encode(argument) for argument in constructor_arguments(value)]
            return ["x", standard_class_form(kind), arguments, None, encoder.encode(value.__cause__)]
        if isinstance(value, type):
            if issubclass(value, BaseException):
                return standard_class_form(value)
            value = type if value is self.namespace["type"] else value
            name = f"{value.__module__}.{value.__name__}"
            if TYPES.get(name) is value:
                return ["T", name]
            if value.__module__ in COMMON_MODULES and vars(sys.modules[value.__module__]).get(value.__name__) is value:
                return ["M", value.__module__, value.__name__]
        base = plain_base(value)
        if base is not None:
            return encoder.encode(PLAIN_BASES[base](value))
        if isinstance(value, KeysView | ValuesView | ItemsView):
            return encoder.encode(list(value))
        return self._export_function(value)

    def _export_function(self, value: Any) -> list:
        owner = getattr(value, "__objclass__", getattr(value, "__self__", None))
        if isinstance(value, types.MethodDescriptorType) and owner in TYPES.values():
            return ["M", owner.__module__, value.__qualname__]
        shared = isinstance(owner, types.ModuleType) and owner.__name__ in SHARED_FUNCTIONS
        if shared and isinstance(value, types.BuiltinFunctionType):
            return ["M", owner.__name__, value.__name__]
        if isinstance(value, Iterator):
            return ["I", self._number(value.__next__)]
        if callable(value):
            return ["K", self._number(value)]
        raise CannotCross(f"a {type(value).__name__} of a test cannot be given to the program")

    def _number(self, function: Callable) -> int:
        self._functions.append(function)
        return len(self._functions) - 1


def main(descriptor: int, verdicts: int, tests: list[str]) -> None:
    """Write the verdicts of all tests."""
    tester = Tester(descriptor)
    state = tester.definition()
    os.write(verdicts, state)
    if state == DEFINED:
        for number, test in enumerate(tests):
            os.write(verdicts, tester.run(test, number))
