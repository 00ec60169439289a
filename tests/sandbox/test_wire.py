"""Values on the wire: plain values come back equal and of their type, wrong forms raise (test_frames.py draws them)."""

import json
import os
from collections import Counter, OrderedDict, defaultdict, deque
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from d3s.sandbox import wire
from d3s.sandbox.wire import MAX_MESSAGE_BYTES, CannotCross, Encoder, Frames, decode

TEXTS = st.text(st.characters(codec=None, exclude_categories=()))  # surrogates included
ZONES = st.sampled_from([None, UTC, timezone(timedelta(hours=-3, minutes=-30))])
ATOMS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.integers(1 << 60, 1 << 90), TEXTS, st.binary(),
    st.floats(allow_nan=False), st.complex_numbers(allow_nan=False), st.fractions(), st.decimals(allow_nan=False),
    st.dates(), st.times(timezones=ZONES), st.datetimes(timezones=ZONES), st.timedeltas(),
    st.builds(range, st.integers(), st.integers(), st.integers(1)),
)  # fmt: skip


def containers(values):
    keys = values.filter(is_hashable)
    return st.one_of(
        st.lists(values), st.lists(values).map(tuple), st.frozensets(keys), st.sets(keys), st.lists(values).map(deque),
        st.dictionaries(keys, values), st.dictionaries(keys, values).map(OrderedDict),
    )  # fmt: skip


def is_hashable(value) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def refuse(value, encoder):
    raise CannotCross("reference")


def crossed(value):
    form = json.loads(json.dumps(Encoder(refuse).encode(value)))
    return decode(form, refuse)


def same(a, b) -> bool:
    """Equal with equal types all the way down, which == alone does not ask of 1, 1.0 and True."""
    if type(a) is not type(b) or a != b:
        return False
    if isinstance(a, dict):
        return all(same(x, y) for x, y in zip(a.items(), b.items()))
    if isinstance(a, list | tuple | deque):
        return all(same(x, y) for x, y in zip(a, b))
    if isinstance(a, set | frozenset):
        return all(any(same(x, y) for y in b) for x in a)  # as many, since they are equal
    return repr(a) == repr(b)


@given(st.recursive(ATOMS, containers, max_leaves=8))
def test_plain_values_come_back_the_same(value):
    assert same(crossed(value), value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (bytearray(b"ab"), bytearray(b"ab")),
        (Counter("aab"), Counter(a=2, b=1)),
        (defaultdict(list, a=1), {"a": 1}),
        (float("-inf"), float("-inf")),
        (-0.0, -0.0),
        (float("nan"), float("nan")),
        (Decimal("NaN"), Decimal("NaN")),
        (datetime(2024, 10, 27, 2, 30, fold=1), datetime(2024, 10, 27, 2, 30, fold=1)),
    ],
)
def test_special_values_cross(value, expected):
    result = crossed(value)
    assert type(result) is type(expected) and repr(result) == repr(expected)


def lying(kind: type) -> type:
    """A subclass whose methods deny what it holds."""
    lies = {"__iter__": lambda self: iter(()), "__len__": lambda self: 0, "__eq__": lambda self, other: True}
    lies |= {name: lambda self: 0 for name in ("__int__", "__float__", "__complex__", "__str__", "__bytes__")}
    return type("Lying", (kind,), lies | {"items": lambda self: (), "__hash__": lambda self: 0})


VALUES = [[1, 2], (1, 2), {1, 2}, frozenset({1}), {1: 2}, OrderedDict(a=1), Counter("aab"), 7, 1.5, 2j, "a", b"a"]
VALUES += [Fraction(1, 3), Decimal("0.1"), deque([1])]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_subclasses_cross_as_the_value_in_them(value):
    copy = crossed(lying(type(value))(value))
    assert type(copy) is type(value) and copy == value


def test_views_of_dictionaries_cross():
    table = {"a": 1, "b": [2]}
    for view in (table.keys(), table.values(), table.items()):
        copy = crossed(view)
        assert type(copy) is type(view) and list(copy) == list(view)
    assert crossed(table.keys()) == {"a", "b"}


def test_other_values_are_left_to_export():
    class Day(date):
        pass

    exported = []
    Encoder(lambda value, encoder: exported.append(type(value)) or ["h"]).encode([Day(1, 1, 1), print, ..., int])
    assert exported == [Day, type(print), type(...), type]


def cycle() -> list:
    value = []
    value.append(value)
    return value


def shared_tree(depth: int) -> list:
    value: list = []
    for _ in range(depth):
        value = [value, value]
    return value


@pytest.mark.parametrize("value", [cycle(), shared_tree(40), [0] * 20_001], ids=["cycle", "tree", "length"])
def test_unbounded_values_are_refused(value, monkeypatch):
    monkeypatch.setattr(wire, "MAX_VALUES", 20_000)
    with pytest.raises(CannotCross):
        Encoder(refuse).encode(value)


@pytest.mark.parametrize("form", [1.5, {}, ["F", "1", "0"], ["i", "zz"], ["r", ["a"]], ["h", 1], [["l"], []], ["g", 1]])
def test_wrong_forms_raise(form):
    with pytest.raises(Exception):  # noqa: B017 (of any kind: the tester takes each as the end of the conversation)
        decode(form, refuse)


def frames_of(data: bytes) -> Frames:
    reader, writer = os.pipe()
    os.write(writer, data)
    os.close(writer)
    return Frames(reader)


def test_frames_keep_messages_apart():
    reader, writer = os.pipe()
    for message in (["q", 1], [], ["é", "\ud800"]):
        Frames(writer).send(message)
    os.close(writer)
    frames = Frames(reader)
    assert [frames.receive() for _ in range(3)] == [["q", 1], [], ["é", "\ud800"]]
    with pytest.raises(EOFError):
        frames.receive()


@pytest.mark.parametrize("data", [b"\xff" * 8, b"\0\0\0\4\xff\xff\0\0", b"\0\0\0\1{", b"\0\0\0\2{}"])
def test_bytes_that_are_no_message_raise(data):
    with pytest.raises(ValueError):
        frames_of(data).receive()
    with pytest.raises(EOFError):  # half a message
        frames_of(b"\0\0\0\4[").receive()


def test_large_messages_are_refused():
    with pytest.raises(CannotCross):
        Frames(-1).send(["x" * MAX_MESSAGE_BYTES])
