"""What both sides share besides plain values: plain copies of subclasses, and exceptions rebuilt on the other side."""

import json
from collections import Counter, OrderedDict
from decimal import Decimal
from fractions import Fraction

import pytest

from d3s.sandbox.peer import (
    PLAIN_BASES,
    build_exception,
    constructor_arguments,
    plain_base,
    standard_class,
    standard_class_form,
)

VALUES = [[1, 2], (1, 2), {1, 2}, frozenset({1}), {1: 2}, OrderedDict(a=1), Counter("aab"), 7, 1.5, 2j, "a", b"a"]
VALUES += [Fraction(1, 3), Decimal("0.1")]


def lying(kind: type) -> type:
    """A subclass whose methods deny what it holds."""
    lies = {"__iter__": lambda self: iter(()), "__len__": lambda self: 0, "__eq__": lambda self, other: True}
    lies |= {name: lambda self: 0 for name in ("__int__", "__float__", "__complex__", "__str__", "__bytes__")}
    return type("Lying", (kind,), lies | {"items": lambda self: (), "__hash__": lambda self: 0})


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_plain_copy_ignores_overrides(value):
    lie = lying(type(value))(value)
    base = plain_base(lie)
    copy = PLAIN_BASES[base](lie)
    assert base is type(value) and type(copy) is type(value) and copy == value


def test_other_objects_have_no_plain_base():
    assert plain_base(object()) is None and plain_base(range(3)) is None


def test_nearest_standard_class_stands_for_a_subclass():
    class Own(KeyError):
        pass

    assert standard_class_form(Own) == ["C", None, "builtins", "KeyError", []]
    assert standard_class_form(json.JSONDecodeError) == ["C", None, "json.decoder", "JSONDecodeError", []]


@pytest.mark.parametrize(("module", "name"), [("builtins", "print"), ("os", "system"), ("numpy", "AxisError")])
def test_only_standard_exceptions_are_found_by_name(module, name):
    """A name from the other side must not reach a function, nor a library that is no standard one."""
    assert standard_class(module, name) is None
    assert standard_class("builtins", "ValueError") is ValueError


@pytest.mark.parametrize(
    "error",
    [
        ValueError("bad", 3),
        FileNotFoundError(2, "missing", "a.txt"),
        json.JSONDecodeError("expected a value", "[1,", 3),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_standard_exception_is_rebuilt_equal(error):
    cause = KeyError("cause")
    copy = build_exception(type(error), list(constructor_arguments(error)), cause)
    assert type(copy) is type(error) and copy.args == error.args and str(copy) == str(error)
    assert copy.__cause__ is cause
    fields = ("errno", "filename", "pos", "lineno", "start", "reason")
    assert [getattr(copy, name, None) for name in fields] == [getattr(error, name, None) for name in fields]


def test_constructor_of_own_exception_is_not_called():
    """The class may be the program's: its arguments are set without running its code."""

    class Own(Exception):
        def __init__(self):
            raise AssertionError("called")

    error = build_exception(Own, ["a", 1], None)
    assert type(error) is Own and error.args == ("a", 1)
