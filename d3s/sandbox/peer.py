"""Requests and replies between solver and tester, and what both share besides plain values: types and exceptions.

While a side waits for its reply it answers requests of the other, so that a program may call a function of a test.
A message is ["q", operation, arguments], ["v", value] or ["e", exception].
"""

import builtins
import contextlib
import datetime
import sys
import types
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

from d3s.sandbox.wire import Broken, CannotCross, Encoder, Frames, decode

TYPES = {
    f"{kind.__module__}.{kind.__name__}": kind
    for kind in (
        *(bool, int, float, complex, str, bytes, bytearray, list, tuple, set, frozenset, dict, range, type(None)),
        *(types.GeneratorType, map, zip, filter, enumerate),
        *(object, type, deque, Counter, OrderedDict, defaultdict, Fraction, Decimal),
        *(datetime.date, datetime.datetime, datetime.time, datetime.timedelta),
    )
}
# Subclasses are read by the methods of the class below, so that no override has a say.
PLAIN_BASES = {
    OrderedDict: lambda value: OrderedDict(OrderedDict.items(value)),
    Counter: lambda value: Counter(dict(dict.items(value))),
    dict: lambda value: dict(dict.items(value)),
    list: lambda value: list(list.__iter__(value)),
    tuple: lambda value: tuple(tuple.__iter__(value)),
    set: lambda value: set(set.__iter__(value)),
    frozenset: lambda value: frozenset(frozenset.__iter__(value)),
    deque: lambda value: deque(deque.__iter__(value)),
    int: int.__int__,
    float: float.__float__,
    complex: complex.__complex__,
    str: str.__str__,
    bytes: bytes.__bytes__,
    Fraction: lambda value: Fraction(
        *(int.__int__(part.fget(value)) for part in (Fraction.numerator, Fraction.denominator))
    ),
    Decimal: Decimal,
}


def plain_base(value: object) -> type | None:
    """Return the plain type that a value's class derives from, None if there is none."""
    return next((base for base in PLAIN_BASES if issubclass(type(value), base)), None)


class Peer:
    """One side of the conversation.

    Args:
        perform: executes an operation of the other side on decoded arguments.
        export, resolve: write and read what is no plain value, see wire.Encoder and wire.decode.
    """

    def __init__(self, descriptor: int, perform: Callable, export: Callable, resolve: Callable) -> None:
        self._frames = Frames(descriptor)
        self._perform, self._export, self._resolve = perform, export, resolve
        self.failure: BaseException | None = None  # why nothing can be asked any more
        self.refused = False  # whether an argument of a request could not cross

    def request(self, operation: str | int, *arguments: Any) -> Any:
        """Return the answer, or raise the exception that the other side answered.

        Raises: CannotCross for an argument without a form; Broken if the other side does not follow the protocol.
        """
        try:
            self.send("q", operation, self._encode(list(arguments)))
        except CannotCross:
            self.refused = True
            raise
        while True:
            kind, content = self._receive()
            if kind == "q":
                self._answer(*content)
            elif kind == "v":
                return content
            else:
                raise content

    def receive_value(self) -> Any:
        """Return the value that the other side sends unasked. Raises Broken if it sends anything else."""
        kind, content = self._receive()
        if kind != "v":
            raise Broken("request or exception instead of a value")
        return content

    def serve(self) -> None:
        """Answer requests until the other side ends."""
        while True:
            kind, content = self._receive()
            if kind != "q":
                raise Broken("reply without request")
            self._answer(*content)

    def send(self, *message: Any) -> None:
        """Send one message whose values are forms. Raises CannotCross, Broken."""
        if self.failure is not None:
            raise Broken
        try:
            self._frames.send(list(message))
        except CannotCross:
            raise
        except BaseException as error:
            self._fail(error)

    def _receive(self) -> tuple[str, Any]:
        """Return "q" with operation and arguments, "v" with a value, or "e" with an exception."""
        if self.failure is not None:
            raise Broken
        try:
            kind, *content = self._frames.receive()
            if kind == "q":
                operation, arguments = content
                return kind, (operation, decode(arguments, self._resolve))
            value = decode(content[0], self._resolve)
            if kind != "v" and (kind != "e" or not issubclass(type(value), BaseException)):
                raise ValueError("no message")
            return kind, value
        except BaseException as error:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        self.failure = self.failure or error
        raise Broken from None

    def _answer(self, operation: str | int, arguments: list) -> None:
        try:
            reply = "v", self._encode(self._perform(operation, arguments))
        except Broken:
            raise
        except BaseException as error:
            reply = "e", self._encode_exception(error)
        try:
            self.send(*reply)
        except CannotCross as error:
            self.send("e", self._encode_exception(error))

    def _encode(self, value: Any) -> Any:
        return Encoder(self._export).encode(value)

    def _encode_exception(self, error: BaseException) -> list:
        try:
            return self._encode(error)
        except Exception:  # its arguments have no form, or memory is short
            return ["x", standard_class_form(type(error)), [], None, None]


def standard_class_form(kind: type) -> list:
    """Return the form of the nearest exception class that the other side has too."""
    for base in kind.__mro__:
        if standard_class(base.__module__, base.__qualname__) is base:
            return ["C", None, base.__module__, base.__qualname__, []]
    return ["C", None, "builtins", "Exception", []]


def standard_class(module: str, name: str) -> type | None:
    """Return an exception class of an imported standard module."""
    if module != "builtins" and module.partition(".")[0] not in sys.stdlib_module_names:
        return None
    kind = vars(sys.modules.get(module, builtins)).get(name)
    return kind if isinstance(kind, type) and issubclass(kind, BaseException) else None


def constructor_arguments(error: BaseException) -> tuple:
    """Return what makes an equal exception: of an OSError with its file, of a JSONDecodeError with its position."""
    with contextlib.suppress(Exception):
        kind, arguments, *_ = error.__reduce__()
        if kind is type(error) and standard_class(kind.__module__, kind.__qualname__) is kind:
            return arguments
    return error.args


def build_exception(kind: type, arguments: list, cause: BaseException | None) -> BaseException:
    """Return an exception with these arguments and this cause."""
    error = None
    if standard_class(kind.__module__, kind.__qualname__) is kind:
        with contextlib.suppress(Exception):
            error = kind(*arguments)
    if error is None:
        error = kind.__new__(kind, *arguments)
        error.args = tuple(arguments)
    error.__cause__ = cause
    return error
