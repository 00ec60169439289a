"""Exceptions on the wire: the nearest standard class and plain arguments, never one that ends a test quietly."""

import decimal
import json
import unittest

import pytest

from d3s.sandbox.peer import EXCEPTIONS, exception_form, standard_exception
from d3s.sandbox.tester import FAILED, MEMORY, PASSED, REFUSED
from tests.sandbox.conversation import connect


class Own(KeyError):
    def __init__(self, code):
        super().__init__(f"code {code}", self)


@pytest.mark.parametrize(
    ("error", "name", "arguments"),
    [
        (ValueError("bad", 3), "ValueError", ("bad", 3)),
        (Own(7), "KeyError", ("code 7", repr(Own(7)))),
        (FileNotFoundError(2, "missing"), "FileNotFoundError", (2, "missing")),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "no"), "UnicodeDecodeError", ("utf-8", b"\xff", 0, 1, "no")),
        (json.JSONDecodeError("no", "[", 1), "JSONDecodeError", ("no: line 1 column 2 (char 1)",)),
        (decimal.InvalidOperation("x"), "InvalidOperation", ("x",)),
        (ExceptionGroup("g", [ValueError()]), "Exception", ("g", "[ValueError()]")),
        *((kind(3), "Exception", (3,)) for kind in (StopIteration, StopAsyncIteration, unittest.SkipTest)),
        *((kind(0), "BaseException", (0,)) for kind in (GeneratorExit, KeyboardInterrupt)),
        (SystemExit(0), "SystemExit", (0,)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_nearest_standard_class_crosses(error, name, arguments):
    form = exception_form(error)
    assert form[0] == name
    copy = standard_exception(name, list(arguments))
    assert type(copy) is EXCEPTIONS[name] and copy.args == arguments


def test_any_arguments_make_an_error_of_the_class():
    """A subclass of the program may have any arguments."""
    for name, kind in EXCEPTIONS.items():
        for arguments in ([], [1], ["a", [2]], [1, 2, 3, 4, 5, 6]):
            error = standard_exception(name, arguments)
            assert isinstance(error, kind)


PROGRAM = """
import unittest
class Own(Exception): pass
class Stop(StopIteration): pass
def fail(kind, *arguments): raise getattr(unittest if kind == 'SkipTest' else __import__('builtins'), kind)(*arguments)
def own(x): raise Own(x)
def stop(x): raise Stop
def call(function):
    try: return function()
    except BaseException: return 1
"""


@pytest.mark.parametrize(
    ("test", "verdict"),
    [
        ("try: fail('KeyError', 'k')\nexcept KeyError as e: assert e.args == ('k',)\nelse: assert 0", PASSED),
        ("try: own(3)\nexcept ValueError: pass", FAILED),
        ("try: own(3)\nexcept Exception as e: assert str(e) == '3'\nelse: assert 0", PASSED),
        ("try: own(3)\nexcept Own: pass", REFUSED),
        ("all(map(stop, [1]))", FAILED),
        ("assert all(stop(x) == 2 for x in [1])", FAILED),
        ("assert list(map(stop, [1])) == []", FAILED),
        ("def loop(): yield stop(1)\nassert list(loop()) == []", FAILED),
        ("try: fail('SystemExit', 0)\nexcept Exception: pass", FAILED),
        ("try: fail('GeneratorExit')\nexcept Exception: pass", FAILED),
        ("try: fail('SystemExit', 2)\nexcept SystemExit as end: assert end.code == 2\nelse: assert 0", PASSED),
        ("fail('SystemExit', 0)", FAILED),
        ("try: fail('SystemExit', 0)\nfinally:\n  try: fail('KeyError')\n  except KeyError: pass", FAILED),
        ("fail('AssertionError')", FAILED),
        ("fail('MemoryError')", MEMORY),
        ("def wrong(): assert 1 == 2\ncall(wrong)", FAILED),
        ("def skip(): raise __import__('unittest').SkipTest\ncall(skip)", FAILED),
        ("def end(): raise SystemExit\ncall(end)", FAILED),
        ("def bad(): raise ValueError\nassert call(bad) == 1", PASSED),
        ("def wrong(): call(lambda: own == 1)\ncall(wrong)", REFUSED),
        ("import unittest\nclass Case(unittest.TestCase):\n  def test(self): fail('SkipTest')\n"
         "r = unittest.TestResult()\nCase('test').run(r)\nassert r.wasSuccessful()", FAILED),
    ],
)  # fmt: skip
def test_exceptions_end_no_test_quietly(test, verdict):
    assert connect(PROGRAM, test).run(test, 1) == verdict
