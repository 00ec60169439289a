"""Run what a test only defines, functions of pytest and classes of unittest, and stand in for pytest.

Every failure is raised: pytest's and unittest's own runners would write a report that nobody reads.
"""

import contextlib
import inspect
import io
import itertools
import math
import re
import sys
import types
import unittest
from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import Any

from d3s.sandbox.remote import Held


def run_cases(names: Collection[str], scope: dict[str, Any]) -> None:
    """Run the cases among the functions and classes of these names in a namespace. Raises what fails first."""
    for name in names:
        value = scope.get(name)
        if type(value) is Held:
            continue
        if isinstance(value, type) and issubclass(value, unittest.TestCase):
            cases = unittest.defaultTestLoader.loadTestsFromTestCase(value)
            unittest.TestSuite(case for case in cases if not _is_skipped(case)).debug()
        elif isinstance(value, type) and name.startswith("Test"):
            _run_class(value, scope)
        elif name.startswith("test") and inspect.isroutine(getattr(value, "__wrapped__", value)):
            _run(value, scope)


def _is_skipped(case: unittest.TestCase) -> bool:
    return any(getattr(x, "__unittest_skip__", False) for x in (case, getattr(case, case.id().rpartition(".")[2])))


def _run_class(kind: type, scope: dict[str, Any]) -> None:
    """Run the methods of a class, inherited ones too, each on an object of its own; then the classes in it."""
    for name in dict.fromkeys(n for base in reversed(kind.__mro__) for n in vars(base) if n.startswith("test")):
        case = kind()
        method = getattr(case, name)
        if setup := getattr(case, "setup_method", None):
            setup(*[method] * len(inspect.signature(setup).parameters))
        _run(method, {**scope, **{n: getattr(case, n) for n in dir(case) if n[0] != "_"}}, vars(kind))
    for name, inner in vars(kind).items():
        if isinstance(inner, type) and name.startswith("Test"):
            _run_class(inner, scope)


def _run(function: Callable, scope: dict[str, Any], kind: Mapping[str, Any] = {}) -> None:
    """Run a case with each of its parameters and those of its class; automatic fixtures first."""
    if getattr(function, "d3s_skipped", False):
        return
    scope = {**scope, "capsys": Captured()}
    for parameters in itertools.product(*getattr(function, "d3s_parameters", ()), *kind.get("d3s_parameters", ())):
        given = {name: value for pairs in parameters for name, value in pairs}
        missing = [n for n, p in inspect.signature(function).parameters.items() if p.default is p.empty]
        for name in [name for name, value in scope.items() if _is_automatic(value)]:
            _fixture(name, scope)
        with contextlib.redirect_stdout(scope["capsys"].file) if "capsys" in missing else contextlib.nullcontext():
            result = function(**{n: _fixture(n, scope) for n in missing if n not in given}, **given)
            if inspect.iscoroutine(result):
                getattr(sys.modules.get("asyncio"), "run", _finish)(result)


def _is_automatic(value: Any) -> bool:
    """Whether a value of the namespace, which may be a held object, is a fixture that every case gets."""
    is_function = type(value) in (types.FunctionType, types.MethodType)
    return is_function and bool(getattr(value, "d3s_fixture", {}).get("autouse"))


def _finish(coroutine: Coroutine) -> None:
    with contextlib.suppress(StopIteration):
        while True:
            coroutine.send(None)


def _fixture(name: str, scope: dict[str, Any]) -> Any:
    """The value of a fixture that the tests define, or of `capsys`."""
    fixture = scope.get(name)
    if isinstance(fixture, Captured):
        return fixture
    if not hasattr(fixture, "d3s_fixture"):
        raise LookupError(f"no fixture {name}; the sandbox has capsys and the fixtures that the tests define")
    value = fixture(**{n: _fixture(n, scope) for n in inspect.signature(fixture).parameters})
    return next(value) if inspect.isgeneratorfunction(fixture) else value


class Captured:
    """What was printed, by the test and the program, since it was last read: pytest's capsys."""

    def __init__(self) -> None:
        self.file = io.StringIO()

    def readouterr(self) -> Any:
        text = self.file.getvalue()
        self.file.truncate(self.file.seek(0))
        return types.SimpleNamespace(out=text, err="")


class Raises:
    """Context manager that expects an exception. After it, `value` is the exception."""

    def __init__(self, kinds: Any, match: str | None = None) -> None:
        self._kinds, self._match = kinds, match
        self.value: BaseException | None = None

    def match(self, pattern: str) -> bool:
        assert re.search(pattern, str(self.value)), f"{self.value} does not match {pattern}"
        return True

    def __enter__(self) -> "Raises":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> bool:
        assert kind is not None, f"did not raise {self._kinds}"
        self.value = error
        if not issubclass(kind, self._kinds):
            return False
        assert self._match is None or re.search(self._match, str(error)), f"{error} does not match {self._match}"
        return True


# set here: in the body of the class it would hide the builtin
Raises.type = property(lambda self: type(self.value))  # type: ignore[attr-defined]


class Approx:
    """A number, or a list, tuple or dict of numbers, that equals what is close to it."""

    def __init__(self, expected: Any, rel: float | None = None, abs: float | None = None) -> None:
        self._expected = expected
        self._relative = (0.0 if abs is not None else 1e-6) if rel is None else rel
        self._absolute = 1e-12 if abs is None else abs

    def __eq__(self, other: Any) -> bool:
        return self._equal(self._expected, other)

    def _equal(self, expected: Any, other: Any) -> bool:
        if isinstance(expected, dict) and isinstance(other, dict):
            return expected.keys() == other.keys() and all(self._equal(expected[k], other[k]) for k in expected)
        if isinstance(expected, list | tuple) and isinstance(other, list | tuple):
            return len(expected) == len(other) and all(map(self._equal, expected, other))
        if isinstance(expected, int | float) and isinstance(other, int | float):
            if expected == other or not math.isfinite(expected):
                return expected == other
            return math.fabs(expected - other) <= max(self._relative * math.fabs(expected), self._absolute)
        return bool(expected == other)


def raises(kinds: Any, *call: Any, match: str | None = None, **named: Any) -> Raises:
    """Return a context manager that expects an exception, or expect it of a call."""
    expected = Raises(kinds, match)
    if call:
        with expected:
            call[0](*call[1:], **named)
    return expected


def parametrize(names: str | list[str], values: Any, **_: Any) -> Callable:
    """Decorate a function that is called once for each of the values."""
    names = [n.strip() for n in names.split(",") if n.strip()] if isinstance(names, str) else list(names)
    rows = [[*zip(names, [v] if len(names) == 1 and type(v) is not Parameters else v, strict=True)] for v in values]

    def decorate(function: Callable) -> Callable:
        function.d3s_parameters = [*getattr(function, "d3s_parameters", []), rows]  # type: ignore[attr-defined]
        return function

    return decorate


class Parameters(tuple):
    """The arguments of pytest.param."""


def fixture(*function: Callable, **options: Any) -> Callable:
    """Decorate a function whose value a case has as argument."""

    def decorate(made: Callable) -> Callable:
        made.d3s_fixture = options  # type: ignore[attr-defined]
        return made

    return decorate(*function) if function else decorate


def _skipped(made: Callable) -> Callable:
    made.d3s_skipped = True  # type: ignore[attr-defined]
    return made


class _Marks:
    """Marks but parametrize and skip change nothing."""

    parametrize = staticmethod(parametrize)

    def skip(self, *reason: Any, **_: Any) -> Callable:
        return _skipped(*reason) if reason and callable(reason[0]) else _skipped

    def skipif(self, condition: Any, **_: Any) -> Callable:
        return _skipped if condition else lambda made: made

    def __getattr__(self, name: str) -> Callable:
        return lambda *arguments, **_: arguments[0] if arguments and callable(arguments[0]) else lambda made: made


def fail(reason: str = "") -> None:
    """Fail the running test."""
    raise AssertionError(reason)


def install(note_failure: Callable[[], None]) -> None:
    """Let tests import the stand-in as pytest. The main functions do nothing, as the tester runs all cases.

    Args:
        note_failure: called when a result of unittest, which the test may never read, receives a failure.
    """
    pytest = sys.modules["pytest"] = types.ModuleType("pytest")
    pytest.__dict__.update(raises=raises, approx=Approx, mark=_Marks(), fixture=fixture, fail=fail)
    pytest.__dict__.update(param=lambda *values, **_: Parameters(values), main=lambda *_, **named: 0)
    unittest.main = lambda *_, **named: None  # type: ignore[assignment,misc]
    if asyncio := sys.modules.get("asyncio"):
        run = asyncio.run
        asyncio.run = lambda main, **named: run(_awaited(main), **named)  # type: ignore[attr-defined]
    for name in ("addFailure", "addError", "addUnexpectedSuccess"):
        setattr(unittest.TestResult, name, _noting(getattr(unittest.TestResult, name), note_failure))


async def _awaited(value: Any) -> Any:
    """Of a coroutine, of the test or held, which asyncio.run would not take."""
    return await value


def _noting(method: Callable, note_failure: Callable[[], None]) -> Callable:
    def noting(*arguments: Any) -> None:
        note_failure()
        method(*arguments)

    return noting
