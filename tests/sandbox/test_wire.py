"""Values on the wire: plain values come back equal and of their type.

test_frames.py draws wrong forms, test_lies.py subclasses of plain types that deny what they hold.
"""

import contextlib
import json
import os
from collections import Counter, OrderedDict, defaultdict, deque
from datetime import UTC, date, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from d3s.sandbox import wire
from d3s.sandbox.wire import MAPPINGS, MAX_MESSAGE_BYTES, SEQUENCES, CannotCross, Frames, decode, encode

TEXTS = st.text(st.characters(codec=None, exclude_categories=()))  # surrogates included
ZONES = st.sampled_from([None, UTC, timezone(timedelta(hours=-3, minutes=-30))])
CLOCKS = st.one_of(st.times(timezones=ZONES), st.datetimes(timezones=ZONES))
ATOMS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.integers(1 << 60, 1 << 90), TEXTS, st.binary(), st.floats(),
    st.complex_numbers(), st.fractions(), st.decimals(), st.dates(), st.timedeltas(), CLOCKS,
    CLOCKS.map(lambda value: value.replace(fold=1)), st.binary().map(bytearray),
    st.builds(range, st.integers(), st.integers(), st.integers(1)),
)  # fmt: skip


def containers(values):
    keys = values.filter(is_hashable)
    tables = st.dictionaries(keys, values)
    kinds = (OrderedDict, Counter, dict.keys, dict.values, dict.items)
    lists = st.one_of(st.lists(values), st.frozensets(keys), st.sets(keys), *map(st.lists(values).map, (tuple, deque)))
    return st.one_of(lists, tables, *map(tables.map, kinds))


def is_hashable(value) -> bool:
    with contextlib.suppress(TypeError):
        return hash(value) is not None
    return False


def refuse(value):
    raise CannotCross("reference")


def crossed(value):
    form = json.loads(json.dumps(encode(value, refuse)))
    return decode(form, refuse)


def text(value) -> str:
    """A text that equal values of equal types share, all the way down: 1, 1.0 and True differ, as do 0.0 and -0.0."""
    kind, parts = type(value), repr(value)
    if kind in (*SEQUENCES, *MAPPINGS):
        parts = [text(member) for member in (value.items() if kind in MAPPINGS else value)]
    return f"{kind.__name__} {sorted(parts) if kind in (set, frozenset) else parts}"


@given(st.recursive(ATOMS, containers, max_leaves=8))
def test_plain_values_come_back_the_same(value):
    assert text(crossed(value)) == text(value)


def test_other_values_are_left_to_export():
    class Day(date):
        pass

    exported = []
    encode([Day(1, 1, 1), print, ..., int], lambda value: exported.append(type(value)) or ["h"])
    assert exported == [Day, type(print), type(...), type]
    assert text(crossed(defaultdict(list, a=1))) == text({"a": 1})  # a default is code, which does not cross


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
            encode(value, refuse)


MESSAGES = [["q", 1], [], ["é", "\ud800"]]


@pytest.mark.parametrize("form", [1.5, {}, ["F", "1", "0"], ["i", "zz"], ["r", ["a"]], ["h", 1], [["l"], []], ["g", 1]])
def test_wrong_forms_raise(form):
    with pytest.raises(Exception):  # noqa: B017 (of any kind: the tester takes each as the end of the conversation)
        decode(form, refuse)


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
