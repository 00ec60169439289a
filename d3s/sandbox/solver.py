"""The side that has the program: defines it, then calls its functions and reads its objects as the tester asks.

Whatever the program does to this process, it can only change its own answers: no test and no expected value is here.
"""

import atexit
import builtins
import contextlib
import errno
import io
import operator
import os
import re
import stat
import sys
import threading
import types
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent import futures
from itertools import islice
from typing import Any

from d3s.sandbox.peer import Peer
from d3s.sandbox.wire import CHANGEABLE, PLAIN, Broken, CannotCross, decode, encode

NAME = "program"  # of the module; code under `if __name__ == "__main__":` does not run
LEETCODE = re.compile(r"^class Solution\b", re.MULTILINE)
UNSTATED = "typing collections itertools functools heapq bisect math operator random re string copy datetime"
MAX_PRINTED = 1 << 20  # bytes of what a call prints, for a test that captures it


class Solver:
    """The program's module, and the objects of it that the tester has references to."""

    def __init__(self, descriptor: int, program: str) -> None:
        self._peer = Peer(descriptor, self._perform, self._export, self._resolve, self._extend)
        self._program = program
        self._code: types.CodeType | None = None
        self._module = types.ModuleType(NAME)
        self._given: dict[int, _Given] = {}  # objects of the tests, by their number
        self._objects: list[Any] = []
        self._numbers: dict[int, int] = {}  # id of an object, which stays alive: its number
        self._operations = {"define": self._define, "run": self._run, "name": self._name, "call": self._call}
        self._operations |= {"get": getattr, "set": setattr, "next": self._next, "update": self._update}
        self._operations |= {
            "await": _await,
            "give": self._give,
            "callable": callable,
            "printed": lambda: self._printed.getvalue().decode(errors="replace"),
        }
        self._printed = _Output(MAX_PRINTED)  # since the last request but one for it

    def serve(self) -> None:
        """Answer the tester until it ends."""
        with contextlib.suppress(Broken):
            self._peer.serve()

    def capture(self) -> None:
        """Keep what the program prints outside of scripts, for tests that ask for it."""
        sys.stdout = _text_file(self._printed, "w")

    def _perform(self, operation: str, *arguments: Any) -> Any:
        if operation != "printed":
            self._printed.truncate(self._printed.seek(0))
        return self._operations[operation](*arguments)

    def _define(self, script: bool) -> None:
        """Compile the program, and run it, unless it is a script, which runs once for each test."""
        builtins.exit = builtins.quit = sys.exit  # which the module site defines
        self._code = compile(self._program, "<program>", "exec", dont_inherit=True)
        if not script:
            sys.modules[NAME] = self._module
            if LEETCODE.search(self._program):
                self._module.__dict__["__builtins__"] = unstated_names() | vars(builtins)
            exec(self._code, self._module.__dict__)

    def _run(self, text: str) -> str:
        """Run the program with a standard input. Returns its standard output."""
        source, output = _Input(text.encode(errors="surrogatepass")), _Output()
        sys.stdin = sys.__stdin__ = _text_file(source, "r")
        sys.stdout = sys.__stdout__ = _text_file(output, "w")
        sys.argv, os._exit = ["program"], sys.exit
        builtins.open = io.open = _open
        io.FileIO = lambda file, mode="r", *_, **named: _open(file, f"{mode}b")
        os.read = lambda number, size: source.read(size) if number == 0 else _read(number, size)
        os.write = lambda number, data: output.write(data) if number == 1 else _write(number, data)
        os.fstat = lambda number: _file_status(len(source.getvalue()) * (number == 0))
        threading.Thread.start, threading.Thread.join = _run_thread, lambda thread, timeout=None: None
        threading.Thread.is_alive = lambda thread: False
        if pool := sys.modules.get("concurrent.futures.thread"):
            pool.ThreadPoolExecutor.submit = _submit
        module = sys.modules["__main__"] = types.ModuleType("__main__")
        module.__file__ = "program.py"
        if resource := sys.modules.get("resource"):
            resource.setrlimit = lambda *_: None
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

    def _give(self, name: str, kind: Callable) -> None:
        """Let the program make objects of a class of the tests, unless it has one of this name."""
        self._module.__dict__.setdefault(name, kind)

    def _next(self, number: int) -> list:
        return list(islice(self._objects[number], 1))

    def _update(self, holder: Any, name: str, value: Any) -> None:
        """Let a variable of the program, or an attribute of an object, have the content that a test gave it."""
        current = getattr(self._module if holder is None else holder, name)
        if type(current) is not type(value):
            raise TypeError(f"{name} is of a type of its own")
        current.clear()
        (current.update if isinstance(value, dict | set) else current.extend)(value)

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
            return self._peer.encode(value)
        except CannotCross:
            return None

    def _export(self, value: Any) -> list:
        if type(value) is _Given:
            return ["own", object.__getattribute__(value, "_d3s")[0]]
        if type(value) is _Held:
            return ["h", self._number(value.value), _is_true(value.value)]
        if isinstance(value, type) and issubclass(value, BaseException):
            return ["x"]
        plain_iterator = isinstance(value, Iterator) and type(value).__module__ != NAME
        # an own class has attributes to ask for
        return ["iter", self._number(value)] if plain_iterator else ["h", self._number(value), _is_true(value)]

    def _extend(self, value: Any, form: list) -> list:
        if type(value) is defaultdict:
            return ["default", encode(value.default_factory, self._export), form]
        return ["copy", self._number(value), form]  # which may have attributes to ask for

    def _number(self, value: Any) -> int:
        number = self._numbers.setdefault(id(value), len(self._objects))
        if number == len(self._objects):
            self._objects.append(value)
        return number

    def _resolve(self, form: list) -> Any:
        tag, *content = form
        if tag == "h":
            return self._objects[content[0]]
        if tag == "default":
            return defaultdict(*(decode(part, self._resolve) for part in content))
        if tag == "m":
            module, name = content
            return operator.attrgetter(name)(sys.modules[module])
        if tag == "own":
            number, *asks = content[0], *(self._resolve(["k", k]) for k in content[1:])
            return self._given.setdefault(number, _Given(number, *asks))
        (number,) = content
        ask = lambda *arguments, **named: self._peer.request(number, list(arguments), named)  # noqa: E731
        return ask if tag == "k" else (item for items in iter(ask, []) for item in items)


class _Given:
    """An object of a class of the tests, whose attributes the tester reads and sets."""

    __slots__ = ("_d3s",)

    def __init__(self, number: int, read: Callable, write: Callable) -> None:
        object.__setattr__(self, "_d3s", (number, read, write))

    def __getattr__(self, name: str) -> Any:
        return object.__getattribute__(self, "_d3s")[1](name)

    def __setattr__(self, name: str, value: Any) -> None:
        object.__getattribute__(self, "_d3s")[2](name, value)


class _Held:
    """Mark of a result that crosses as a reference."""

    def __init__(self, value: Any) -> None:
        self.value = value


def unstated_names() -> dict[str, Any]:
    """What LeetCode imports for a program: modules and their public names. They are builtins, so that a test that asks
    the program for one of them finds only what the program defines."""
    modules = {name: sys.modules[name] for name in UNSTATED.split()}
    return {k: v for module in modules.values() for k, v in vars(module).items() if k[0] != "_"} | modules


def _await(value: Any) -> Any:
    async def result() -> Any:
        return await value

    return sys.modules["asyncio"].run(result())


def _is_true(value: Any) -> bool:
    """Whether no class of an object says when it is true."""
    return not any({"__bool__", "__len__"} & vars(base).keys() for base in type.mro(type(value)))


class _Input(io.BytesIO):
    """Standard input of a script, with and without a buffer."""

    raw = property(lambda self: self)

    def fileno(self) -> int:
        return 0


class _Output(io.BytesIO):
    """Standard output, which keeps what was written when it is closed.

    Args:
        limit: bytes after which no more is kept.
    """

    def __init__(self, limit: float = float("inf")) -> None:
        super().__init__()
        self._limit = limit

    def write(self, data: Any) -> int:
        return super().write(data) if self.tell() < self._limit else len(data)

    def fileno(self) -> int:
        return 1

    def close(self) -> None:
        pass


def _text_file(file: io.BytesIO, mode: str) -> io.TextIOWrapper:
    text = io.TextIOWrapper(file, "utf-8", "surrogatepass" if mode == "w" else "strict", write_through=mode == "w")
    text.mode = mode  # which scripts read that wrap the descriptor
    return text


_opened, _read, _write = builtins.open, os.read, os.write


def _file_status(size: int) -> os.stat_result:
    return os.stat_result([stat.S_IFREG, *[0] * (stat.ST_SIZE - 1), size, 0, 0, 0])


def _open(file: Any, *arguments: Any, **named: Any) -> Any:
    """Stand-in for open, which knows two files: standard input and output."""
    if file == 1:
        return sys.__stdout__.buffer if "b" in str(arguments or named.get("mode")) else sys.__stdout__
    if file not in (0, "/dev/stdin"):
        try:
            return _opened(file, *arguments, **named)
        except PermissionError:  # of every file
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), file) from None
    return sys.__stdin__.buffer if "b" in str(arguments or named.get("mode")) else sys.__stdin__


def _run_thread(thread: threading.Thread) -> None:
    """Stand-in for Thread.start: a script, which often runs its main function in a thread with a large stack, has one
    thread. As in a thread, no exception ends the script."""
    with contextlib.suppress(Exception, SystemExit):
        thread.run()


def _submit(pool: Any, function: Callable, /, *arguments: Any, **named: Any) -> futures.Future:
    """Stand-in for ThreadPoolExecutor.submit, in the same thread."""
    future: futures.Future = futures.Future()
    try:
        future.set_result(function(*arguments, **named))
    except Exception as error:
        future.set_exception(error)
    return future


def main(descriptor: int, program: str) -> None:
    """Answer the tester until it ends."""
    solver = Solver(descriptor, program)
    solver.capture()
    solver.serve()
