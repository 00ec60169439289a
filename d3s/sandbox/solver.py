"""The side that has the program: defines it, then calls its functions and reads its objects as the tester asks.

Whatever the program does to this process, it can only change its own answers: no test and no expected value is here.
"""

import atexit
import builtins
import contextlib
import io
import operator
import sys
import types
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from d3s.sandbox.peer import Peer
from d3s.sandbox.wire import CHANGEABLE, PLAIN, Broken, CannotCross, encode

NAME = "program"  # of the module; code under `if __name__ == "__main__":` does not run


class Solver:
    """The program's module, and the objects of it that the tester has references to."""

    def __init__(self, descriptor: int, program: str) -> None:
        self._peer = Peer(descriptor, self._perform, self._export, self._resolve)
        self._program = program
        self._code: types.CodeType | None = None
        self._module = types.ModuleType(NAME)
        self._objects: list[Any] = []
        self._numbers: dict[int, int] = {}  # id of an object, which stays alive: its number
        self._operations = {"define": self._define, "run": self._run, "name": self._name, "call": self._call}
        self._operations |= {"get": getattr, "set": setattr, "next": self._next}

    def serve(self) -> None:
        """Answer the tester until it ends."""
        with contextlib.suppress(Broken):
            self._peer.serve()

    def _perform(self, operation: str, *arguments: Any) -> Any:
        return self._operations[operation](*arguments)

    def _define(self, script: bool) -> None:
        """Compile the program, and run it, unless it is a script, which runs once for each test."""
        builtins.exit = builtins.quit = sys.exit  # which the module site defines
        self._code = compile(self._program, "<program>", "exec", dont_inherit=True)
        if not script:
            sys.modules[NAME] = self._module
            exec(self._code, self._module.__dict__)

    def _run(self, text: str) -> str:
        """Run the program with a standard input. Returns its standard output."""
        output = _Output()
        sys.stdin = io.TextIOWrapper(io.BytesIO(text.encode(errors="surrogatepass")), "utf-8")
        sys.stdout = io.TextIOWrapper(output, "utf-8", "surrogatepass", write_through=True)
        builtins.open = _open
        module = sys.modules["__main__"] = types.ModuleType("__main__")
        try:
            exec(self._code, module.__dict__)
        except SystemExit as end:
            if end.code:
                raise
        atexit._run_exitfuncs()
        sys.stdout.flush()
        return output.getvalue().decode(errors="replace")

    def _name(self, name: str) -> Any:
        if name not in self._module.__dict__:
            raise NameError(f"name {name!r} is not defined")
        return self._module.__dict__[name]

    def _next(self, number: int) -> list:
        return list(islice(self._objects[number], 1))

    def _call(self, function: Callable, arguments: list, named: dict) -> list:
        """Return the result, and the arguments that were changed, by position or name."""
        containers = {key: value for key, value in [*enumerate(arguments), *named.items()] if type(value) in CHANGEABLE}
        before = {key: self._form(value) for key, value in containers.items()}
        result = function(*arguments, **named)
        if isinstance(function, type) and type(result) not in PLAIN:
            result = _Held(result)  # what a class makes is held, whatever it derives from
        return [result, {key: value for key, value in containers.items() if self._form(value) != before[key]}]

    def _form(self, value: Any) -> list | None:
        try:
            return encode(value, self._export)
        except CannotCross:
            return None

    def _export(self, value: Any) -> list:
        if type(value) is _Held:
            return ["h", self._number(value.value)]
        if isinstance(value, type) and issubclass(value, BaseException):
            return ["x"]
        plain_iterator = isinstance(value, Iterator) and type(value).__module__ != NAME
        return ["iter" if plain_iterator else "h", self._number(value)]  # an own class has attributes to ask for

    def _number(self, value: Any) -> int:
        number = self._numbers.setdefault(id(value), len(self._objects))
        if number == len(self._objects):
            self._objects.append(value)
        return number

    def _resolve(self, form: list) -> Any:
        tag, *content = form
        if tag == "h":
            return self._objects[content[0]]
        if tag == "m":
            module, name = content
            return operator.attrgetter(name)(sys.modules[module])
        (number,) = content
        ask = lambda *arguments, **named: self._peer.request(number, list(arguments), named)  # noqa: E731
        return ask if tag == "k" else (item for items in iter(ask, []) for item in items)


class _Held:
    """Mark of a result that crosses as a reference."""

    def __init__(self, value: Any) -> None:
        self.value = value


class _Output(io.BytesIO):
    """Standard output of a script, which keeps what was written when it is closed."""

    def close(self) -> None:
        pass


_opened = builtins.open


def _open(file: Any, *arguments: Any, **named: Any) -> Any:
    """Stand-in for open, which knows one file: standard input."""
    if file not in (0, "/dev/stdin"):
        return _opened(file, *arguments, **named)
    return sys.stdin.buffer if "b" in str(arguments or named.get("mode")) else sys.stdin
