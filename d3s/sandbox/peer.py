"""Requests and replies between solver and tester. Exceptions cross as the name of a standard class and plain arguments.

While a side waits for its reply it answers requests of the other, so that a program may call a function of a test.
A message is ["q", request], ["v", value] or ["e", class name, arguments].
"""

import builtins
import dataclasses
import decimal
import json
import queue
import re
import statistics
from collections.abc import Callable
from typing import Any

from d3s.sandbox.wire import Broken, CannotCross, Frames, decode, encode

# StopIteration would end a loop of the test as if all were well: it crosses as Exception. What is no Exception crosses
# as BaseException, but for SystemExit, which tests of a command line expect.
LEFT_OUT = (StopIteration, StopAsyncIteration, BaseExceptionGroup)
STANDARD = [*vars(builtins).values(), *vars(decimal).values()]
STANDARD += [
    dataclasses.FrozenInstanceError,
    json.JSONDecodeError,
    statistics.StatisticsError,
    re.error,
    queue.Empty,
    queue.Full,
]
EXCEPTIONS = {
    kind.__name__: kind
    for kind in STANDARD
    if isinstance(kind, type) and issubclass(kind, Exception) and not issubclass(kind, LEFT_OUT)
} | {"BaseException": BaseException, "SystemExit": SystemExit}


class Peer:
    """One side of the conversation.

    Args:
        perform: executes a request of the other side.
        export, resolve, extend: write and read what is no plain value, see wire.encode and wire.decode.
    """

    def __init__(
        self, descriptor: int, perform: Callable, export: Callable, resolve: Callable, extend: Callable
    ) -> None:
        self._frames = Frames(descriptor)
        self._perform, self._resolve = perform, resolve
        self.encode = lambda value: encode(value, export, extend)
        self.failure: BaseException | None = None  # why nothing can be asked any more
        self.exits: list[BaseException] = []  # each SystemExit that the other side answered

    def request(self, *request: Any) -> Any:
        """Return the answer, or raise the exception that the other side answered.

        Raises: CannotCross for an argument without a form; Broken if the other side does not follow the protocol.
        """
        self._send("q", self.encode(list(request)))
        while True:
            kind, content = self._receive()
            if kind == "q":
                self._answer(content)
            elif kind == "v":
                return content
            else:
                if isinstance(content, SystemExit):
                    self.exits.append(content)
                raise content

    def serve(self) -> None:
        """Answer requests until the other side ends."""
        while True:
            kind, content = self._receive()
            if kind != "q":
                self.fail(ValueError("reply without request"))
            self._answer(content)

    def fail(self, error: BaseException) -> None:
        """End the conversation: no later request is answered. Raises Broken."""
        self.failure = self.failure or error
        raise Broken from None

    def _send(self, *message: Any) -> None:
        if self.failure is not None:
            raise Broken
        try:
            self._frames.send(list(message))
        except CannotCross:
            raise
        except BaseException as error:
            self.fail(error)

    def _receive(self) -> tuple[str, Any]:
        """Return "q" with a request, "v" with a value, or "e" with an exception."""
        if self.failure is not None:
            raise Broken
        try:
            kind, *content = self._frames.receive()
            if kind == "e":
                name, arguments = content
                return kind, standard_exception(name, [decode(argument, self._resolve) for argument in arguments])
            (form,) = content
            value = decode(form, self._resolve)
            if kind != "v" and (kind != "q" or type(value) is not list):
                raise ValueError("no message")
            return kind, value
        except Exception as error:  # any other is raised by `resolve` about a message that is in order
            self.fail(error)

    def _answer(self, request: list) -> None:
        try:
            self._send("v", self.encode(self._perform(*request)))
        except Broken:
            raise
        except BaseException as error:
            self._send("e", *exception_form(error))


def exception_form(error: BaseException) -> tuple[str, list]:
    """Return the name of the nearest class in EXCEPTIONS and the forms of the arguments."""
    names = (base.__name__ for base in type(error).__mro__ if EXCEPTIONS.get(base.__name__) is base)
    try:
        arguments = [_argument_form(argument) for argument in BaseException.args.__get__(error)]
    except Exception:  # of a repr, or memory is short
        arguments = []
    return next(names), arguments


def _argument_form(argument: Any) -> Any:
    def refuse(value: Any) -> list:
        raise CannotCross

    try:
        return encode(argument, refuse)
    except CannotCross:
        return repr(argument)[:1000]


def standard_exception(name: str, arguments: list) -> BaseException:
    """Return an exception of a class in EXCEPTIONS, with these arguments even if its constructor takes others."""
    kind = EXCEPTIONS[name]
    try:
        return kind(*arguments)
    except Exception:
        return kind.__new__(kind, *arguments)
