"""Plain values between solver and tester as tagged JSON, in frames of at most 8 MB.

Only data is rebuilt on the other side, never code: `decode` returns objects of the types in PLAIN, and what `resolve`
makes of a reference. What references mean is the business of solver.py and tester.py.
"""

import json
import os
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any

MAX_MESSAGE_BYTES = 8 << 20
MAX_DEPTH = 100  # of containers in containers; a container that contains itself is refused by it
MAX_VALUES = 2_000_000  # in one message; bounds a small graph of shared containers that is large as a tree
SMALL = 1 << 53
to_json = json.JSONEncoder(separators=(",", ":")).encode

ATOMS = frozenset((type(None), bool, str, int))
KEYS, VALUES, ITEMS = type({}.keys()), type({}.values()), type({}.items())
SEQUENCES = {list: "l", tuple: "t", set: "s", frozenset: "f", deque: "q", KEYS: "vk", VALUES: "vv", ITEMS: "vi"}
MAPPINGS = {dict: "d", OrderedDict: "o", Counter: "n"}
FROM_SEQUENCE = {tag: kind for kind, tag in SEQUENCES.items()} | {
    "vk": lambda members: dict.fromkeys(members).keys(),
    "vv": lambda members: dict(enumerate(members)).values(),
    "vi": lambda members: dict(members).items(),
}
FROM_MAPPING = {"d": dict, "o": OrderedDict, "n": Counter}
CHANGEABLE = (list, dict, set, deque, bytearray, OrderedDict, Counter, defaultdict)


def _number(text: str) -> int:
    return int(text, 16)


# Of each atomic type that JSON lacks: its tag, the parts of a value, and what builds the value from them.
SCALARS: dict[type, tuple[str, Callable, Callable]] = {
    int: ("i", lambda value: [hex(value)], _number),
    float: ("g", lambda value: [value.hex()], float.fromhex),
    complex: ("c", lambda v: [v.real.hex(), v.imag.hex()], lambda *parts: complex(*map(float.fromhex, parts))),
    bytes: ("b", lambda value: [value.hex()], bytes.fromhex),
    bytearray: ("ba", lambda value: [value.hex()], bytearray.fromhex),
    range: ("r", lambda v: [hex(v.start), hex(v.stop), hex(v.step)], lambda *parts: range(*map(_number, parts))),
    Fraction: ("F", lambda v: [hex(v.numerator), hex(v.denominator)], lambda *parts: Fraction(*map(_number, parts))),
    Decimal: ("D", lambda value: [str(value)], lambda text: Decimal(text)),
    timedelta: ("td", lambda v: [v.days, v.seconds, v.microseconds], lambda *parts: timedelta(*parts)),
    date: ("da", lambda value: [value.isoformat()], date.fromisoformat),
    datetime: ("dt", lambda v: [v.isoformat(), v.fold], lambda t, fold: datetime.fromisoformat(t).replace(fold=fold)),
    time: ("ti", lambda v: [v.isoformat(), v.fold], lambda text, fold: time.fromisoformat(text).replace(fold=fold)),
}
FROM_SCALAR = {tag: build for tag, _, build in SCALARS.values()}
PLAIN = frozenset((*ATOMS, *SEQUENCES, *FROM_MAPPING.values(), *SCALARS))  # all that decode builds

# An instance of a subclass crosses as the plain value in it, read by the methods of the base: no override has a say.
BASES: dict[type, Callable] = {
    OrderedDict: lambda value: OrderedDict(OrderedDict.items(value)),
    Counter: lambda value: Counter(dict(dict.items(value))),
    dict: lambda value: dict(dict.items(value)),
    **{kind: lambda value, kind=kind: kind(kind.__iter__(value)) for kind in (list, tuple, set, frozenset, deque)},
    int: int.__int__,
    float: float.__float__,
    complex: complex.__complex__,
    str: str.__str__,
    bytes: bytes.__bytes__,
    Fraction: lambda value: Fraction(
        *(int.__int__(part.fget(value)) for part in (Fraction.numerator, Fraction.denominator))
    ),
    Decimal: Decimal,
}


class CannotCross(TypeError):
    """A value that has no form on the wire."""


class Broken(BaseException):
    """The other side has ended, or sent what is no message."""


def encode(value: Any, export: Callable[[Any], list], extend: Callable[[Any, list], list] | None = None) -> Any:
    """Turn a value into its form, JSON-able lists. Raises CannotCross.

    Args:
        export: called with each value that is not plain, nor of a subclass of a plain type; returns its form, a list
            that begins with a tag of its own.
        extend: called with each value of a subclass and the form of the plain value in it; returns its form.
    """
    values = 0

    def form_of(value: Any, depth: int) -> Any:
        nonlocal values
        kind = type(value)
        values += 1 + (len(value) if kind in SEQUENCES else 0)
        if depth > MAX_DEPTH or values > MAX_VALUES:
            raise CannotCross("a value is too large, too deep or contains itself")
        if is_atom(value):
            return value
        if kind in SEQUENCES:
            return [SEQUENCES[kind], [i if is_atom(i) else form_of(i, depth + 1) for i in value]]
        if kind in MAPPINGS:
            return [MAPPINGS[kind], [[form_of(k, depth + 1), form_of(v, depth + 1)] for k, v in value.items()]]
        if kind in SCALARS and type(getattr(value, "tzinfo", None)) in (type(None), timezone):
            tag, parts_of, _ = SCALARS[kind]
            return [tag, *parts_of(value)]
        read = next((BASES[base] for base in type.mro(kind) if base in BASES), None)
        if read is None:
            return export(value)
        form = form_of(read(value), depth + 1)
        return form if extend is None else extend(value, form)

    return form_of(value, 0)


def is_atom(value: Any) -> bool:
    """Whether a value is its own form."""
    kind = type(value)
    return kind is str or (kind is int and -SMALL < value < SMALL) or value is None or kind is bool


def decode(form: Any, resolve: Callable[[list], Any]) -> Any:
    """Rebuild a value; the opposite of encode.

    Args:
        resolve: called with each form whose tag is unknown here.
    Raises: any exception for a form that encode did not write.
    """
    if type(form) in ATOMS:
        return form
    tag = form[0]
    if tag in FROM_SEQUENCE:
        return FROM_SEQUENCE[tag]([i if type(i) in ATOMS else decode(i, resolve) for i in form[1]])
    if tag in FROM_MAPPING:
        return FROM_MAPPING[tag]({decode(key, resolve): decode(value, resolve) for key, value in form[1]})
    return FROM_SCALAR[tag](*form[1:]) if tag in FROM_SCALAR else resolve(form)


class Frames:
    """Messages over one descriptor: four bytes of length, then JSON."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def send(self, message: list) -> None:
        """Send one message. Raises CannotCross if it is larger than 8 MB, OSError if the other side has ended."""
        data = to_json(message).encode()
        if len(data) > MAX_MESSAGE_BYTES:
            raise CannotCross("a value is too large")
        view = memoryview(len(data).to_bytes(4, "big") + data)
        while view:
            view = view[os.write(self._descriptor, view) :]

    def receive(self) -> list:
        """Return the next message. Raises EOFError at the end, any other exception for what is no message."""
        length = int.from_bytes(self._read(4), "big")
        if length > MAX_MESSAGE_BYTES:
            raise ValueError("message is too large")
        message = json.loads(self._read(length))
        if type(message) is not list:
            raise ValueError("message is no list")
        return message

    def _read(self, length: int) -> bytes:
        parts = []
        while length:
            part = os.read(self._descriptor, length)
            if not part:
                raise EOFError
            parts.append(part)
            length -= len(part)
        return b"".join(parts)
