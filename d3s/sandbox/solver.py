"""The side that has the program: defines it, then performs what the tester asks of its objects.

Whatever the program does to this process, it can only change its own answers: no test and no expected value is here.
"""

import copy
import operator
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

from d3s.sandbox.peer import (
    PLAIN_BASES,
    TYPES,
    Peer,
    build_exception,
    constructor_arguments,
    plain_base,
    standard_class,
    standard_class_form,
)
from d3s.sandbox.wire import CHANGEABLE, Broken, CannotCross, Encoder

NAME = "program"  # of the module; code under `if __name__ == "__main__":` does not run
UNARY = ("neg", "pos", "invert", "abs")
BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and_", "or_", "xor", "lshift", "rshift")
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
IN_PLACE = tuple("i" + name.rstrip("_") for name in BINARY)
OPERATIONS: dict[str, Callable] = {
    **{name: getattr(operator, name) for name in (*UNARY, *BINARY, *COMPARISONS, *IN_PLACE)},
    **{kind.__name__: kind for kind in (bool, str, reversed)},
    **{function.__name__: function for function in (getattr, setattr, delattr, iter, next, len, repr, format, hash)},
    **{function.__name__: function for function in (dir, divmod, round, isinstance, issubclass, float, int)},
    **{function.__name__: function for function in (copy.copy, copy.deepcopy)},
    **{function.__name__: function for function in (operator.getitem, operator.setitem, operator.delitem)},
    "contains": operator.contains,
    "type": lambda value: type(value),
    "enter": lambda manager: type(manager).__enter__(manager),
    "exit": lambda manager, kind, error: type(manager).__exit__(manager, kind, error, None),
    "plain": lambda value: PLAIN_BASES[plain_base(value)](value),
}


class Solver:
    """The program's module, and the objects of it that the tester has references to."""

    def __init__(self, descriptor: int) -> None:
        self._peer = Peer(descriptor, self._perform, self._export, self._resolve)
        self._module = types.ModuleType(NAME)
        self._objects: list[Any] = []
        self._numbers: dict[int, int] = {}  # id of an object, which stays alive: its number

    def run(self, program: str) -> None:
        """Define the program, say how that went, answer requests. Never returns normally."""
        sys.modules[NAME] = self._module
        try:
            exec(compile(program, "<program>", "exec", dont_inherit=True), self._module.__dict__)
        except BaseException as error:
            self._peer.send("v", "memory" if isinstance(error, MemoryError) else "crash")
        else:
            self._peer.send("v", "defined")
        self._peer.serve()

    def _call(self, function: Callable, arguments: list, named: dict) -> list:
        """Return the result, and the arguments that a function without a result changed, by position or name."""
        containers = {key: value for key, value in [*enumerate(arguments), *named.items()] if type(value) in CHANGEABLE}
        before = {key: self._form(value) for key, value in containers.items()}
        result = function(*arguments, **named)
        if result is not None:
            return [result, {}]
        return [None, {key: value for key, value in containers.items() if self._form(value) != before[key]}]

    def _form(self, value: Any) -> list | None:
        try:
            return Encoder(self._export).encode(value)
        except CannotCross:
            return None

    def _perform(self, operation: str, arguments: list) -> Any:
        if operation == "call":
            return self._call(*arguments)
        if operation != "name":
            return OPERATIONS[operation](*arguments)
        (name,) = arguments
        if name not in self._module.__dict__:
            raise NameError(f"name {name!r} is not defined")
        return self._module.__dict__[name]

    def _number(self, value: Any) -> int:
        number = self._numbers.setdefault(id(value), len(self._objects))
        if number == len(self._objects):
            self._objects.append(value)
        return number

    def _export(self, value: Any, encoder: Encoder) -> list:
        kind = type(value)
        if isinstance(value, type):
            name = f"{value.__module__}.{value.__name__}"
            if TYPES.get(name) is value:
                return ["T", name]
            if issubclass(value, BaseException):
                return self._exception_class(value)
        elif issubclass(kind, BaseException):
            arguments = [self._argument(argument, encoder) for argument in constructor_arguments(value)]
            own = standard_class(kind.__module__, kind.__qualname__) is not kind
            number = self._number(value) if own else None
            return ["x", self._exception_class(kind), arguments, number, encoder.encode(value.__cause__)]
        base = plain_base(value)
        return ["h", self._number(value), base and f"{base.__module__}.{base.__name__}"]

    def _argument(self, argument: Any, encoder: Encoder) -> Any:
        try:
            return encoder.encode(argument)
        except CannotCross:
            return repr(argument)[:1000]

    def _exception_class(self, kind: type) -> list:
        if standard_class(kind.__module__, kind.__qualname__) is kind:
            return standard_class_form(kind)
        bases = [self._exception_class(base) for base in kind.__bases__ if issubclass(base, BaseException)]
        return ["C", self._number(kind), kind.__module__, kind.__name__, bases]

    def _resolve(self, form: list, decode: Callable) -> Any:
        tag = form[0]
        if tag == "h":
            return self._objects[form[1]]
        if tag == "T":
            return TYPES[form[1]]
        if tag == "M":
            return operator.attrgetter(form[2])(sys.modules[form[1]])
        if tag == "C":
            return standard_class(form[2], form[3])
        if tag == "x":
            return build_exception(decode(form[1]), [decode(argument) for argument in form[2]], decode(form[4]))
        if tag == "I":
            return self._iterate(form[1])
        assert tag == "K"
        number = form[1]
        return lambda *arguments, **named: self._peer.request(number, list(arguments), named)

    def _iterate(self, number: int) -> Iterator:
        while True:
            try:
                item = self._peer.request(number, [], {})
            except StopIteration:
                return
            yield item


def main(descriptor: int, program: str) -> None:
    """Serve one tester until it ends."""
    try:
        Solver(descriptor).run(program)
    except Broken:
        return
