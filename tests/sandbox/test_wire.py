"""Values on the wire: plain values come back equal and of their type, wrong forms raise.

test_frames.py draws wrong forms, test_lies.py subclasses of plain types that deny what they hold.
"""

import contextlib
import json
import os
from collections import Counter, OrderedDict, defaultdict, deque
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal

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
    with contextlib.suppress(TypeError):
        return hash(value) is not None
    return False


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


SPECIAL = [bytearray(b"ab"), Counter("aab"), float("-inf"), -0.0, float("nan"), Decimal("NaN")]
SPECIAL += [datetime(2024, 10, 27, 2, 30, fold=1), time(2, 30, fold=1)]


@pytest.mark.parametrize("value", [*SPECIAL, defaultdict(list, a=1)], ids=repr)
def test_special_values_cross(value):
    result = crossed(value)
    expected = dict(value) if type(value) is defaultdict else value  # a default is code, which does not cross
    assert type(result) is type(expected) and repr(result) == repr(expected)


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


def test_unbounded_values_are_refused(monkeypatch):
    """One that contains itself, a graph of shared lists that is large as a tree, a long list."""
    monkeypatch.setattr(wire, "MAX_VALUES", 20_000)
    cycle: list = []
    cycle.append(cycle)
    tree: list = []
    for _ in range(40):
        tree = [tree, tree]
    for value in (cycle, tree, [0] * 20_001):
        with pytest.raises(CannotCross, match="too large, too deep or contains itself"):
            Encoder(refuse).encode(value)


@pytest.mark.parametrize("form", [1.5, {}, ["F", "1", "0"], ["i", "zz"], ["r", ["a"]], ["h", 1], [["l"], []], ["g", 1]])
def test_wrong_forms_raise(form):
    with pytest.raises(Exception):  # noqa: B017 (of any kind: the tester takes each as the end of the conversation)
        decode(form, refuse)


MESSAGES = [["q", 1], [], ["é", "\ud800"]]


def test_frames_keep_messages_apart():
    reader, writer = os.pipe()
    for message in MESSAGES:
        Frames(writer).send(message)
    os.close(writer)
    assert [Frames(reader).receive() for _ in MESSAGES] == MESSAGES
    with pytest.raises(EOFError):
        Frames(reader).receive()
    with pytest.raises(CannotCross):
        Frames(-1).send(["x" * MAX_MESSAGE_BYTES])


WRONG = [b"\xff" * 8, b"\0\0\0\4\xff\xff\0\0", b"\0\0\0\1{", b"\0\0\0\2{}"]


@pytest.mark.parametrize(("data", "error"), [*((data, ValueError) for data in WRONG), (b"\0\0\0\4[", EOFError)])
def test_bytes_that_are_no_message_raise(data, error):
    reader, writer = os.pipe()
    os.write(writer, data)
    os.close(writer)
    with pytest.raises(error):
        Frames(reader).receive()
