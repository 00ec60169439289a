"""type, isinstance and issubclass of tests, over a real conversation, against what Python says of the same classes."""

import pytest

from tests.sandbox.test_remote import connect

PROGRAM = """
from enum import Enum
from collections.abc import Sized
class Meta(type): pass
class Base(metaclass=Meta):
    def __len__(self): return 1
class Child(Base): pass
class Color(Enum): RED = 1
class Text(str): pass
class Liar: pass
child, text, liar = Child(), Text(), Liar()
"""
TRUE = """
type(child) is Child and type(child) == Child and type(child) is not Base and type(child).__name__ == 'Child'
type(Child) is Meta and type(Meta) is type and type(type) is type and type(1) is int and type(int) is type
type('X', (), {'a': 1})().a == 1 and isinstance(type('X', (), {}), type)
type(text) is Text and type(text) is not str and isinstance(text, str) and isinstance(text, (int, str))
isinstance(child, Base) and isinstance(child, (int, Base)) and isinstance(child, object) and not isinstance(1, Base)
isinstance(Child, type) and isinstance(Child, Meta) and not isinstance(child, type) and isinstance(int, type)
isinstance(Color.RED, enum.Enum) and issubclass(Color, enum.Enum) and isinstance(child, collections.abc.Sized)
isinstance(1, int | str) and isinstance(text, int | str) and not isinstance(child, int | str)
issubclass(Child, Base) and issubclass(Child, (int, Base)) and issubclass(Child, object) and issubclass(bool, int)
not issubclass(Base, Child) and issubclass(Text, str)
""".strip().splitlines()


@pytest.fixture(scope="module")
def tester():
    return connect(PROGRAM)[0]


@pytest.mark.parametrize("expression", TRUE)
def test_classes_of_both_sides_are_known(expression, tester):
    scope: dict = {}
    imports = "import enum, collections.abc\n"
    exec(imports + PROGRAM, scope)
    assert eval(expression, scope)  # in plain Python
    exec(imports, tester.namespace)
    assert eval(expression, tester.namespace)


def test_object_is_of_no_plain_type(tester, monkeypatch):
    liar = tester.namespace["liar"]
    monkeypatch.setattr(tester.store, "ask", lambda operation, *arguments: int)
    with pytest.raises(TypeError, match="calls an object a int"):
        tester.namespace["type"](liar)
