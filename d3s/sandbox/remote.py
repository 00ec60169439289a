"""What a test has of an object of the program: it can hold it, call it, read and set its attributes, nothing else.

All that a test compares, adds, iterates, prints or tests for truth is therefore a plain value, built in the tester by
wire.py. Any other use of an object is refused: the test cannot pass, whatever it catches.
"""

import inspect
import re
from collections.abc import Callable
from typing import Any

from d3s.sandbox.wire import PLAIN

SPECIAL = (
    "eq ne lt le gt ge hash bool len length_hint iter next reversed contains getitem setitem delitem delattr str repr "
    "format bytes int float complex index round trunc floor ceil abs neg pos invert add sub mul matmul truediv "
    "floordiv mod divmod pow lshift rshift and or xor radd rsub rmul rmatmul rtruediv rfloordiv rmod rdivmod rpow "
    "rlshift rrshift rand ror rxor iadd isub imul imatmul itruediv ifloordiv imod ipow ilshift irshift iand ior ixor "
    "enter exit aenter aexit await aiter anext dir copy deepcopy replace reduce reduce_ex getstate fspath "
    "instancecheck subclasscheck mro_entries"
)
READ = "class bases"  # by isinstance and issubclass
# Methods of plain types that answer True or False: an object that stands for a value would say what a test wants.
PREDICATE = re.compile(r"is(?!o)\w+|\w+swith")  # not isoformat
PREDICATES = {name for kind in PLAIN for name in dir(kind) if PREDICATE.fullmatch(name)}

refusals: list[str] = []  # since the list was cleared


class Refused(BaseException):
    """A test needs more of the program than plain values."""


def refuse(need: str) -> None:
    """Note that the running test needs more than plain values, with its line. Raises Refused."""
    refusals.append(f"{_place()}{need}")
    raise Refused(refusals[-1])


def _place() -> str:
    """Test and line that run, "" outside of a test."""
    frame = inspect.currentframe()
    while frame is not None and not frame.f_code.co_filename.startswith("<test "):
        frame = frame.f_back
    return f"{frame.f_code.co_filename.strip('<>')}, line {frame.f_lineno}: " if frame is not None else ""


def _refusing(name: str) -> Callable:
    def method(*operands: Any) -> None:
        refuse(f"{name} of an object of the program, which a test can only hold, call and ask for attributes")

    return method


def _refusing_of_type(name: str) -> Callable:
    method = getattr(type, name)
    return lambda cls, *operands: _refusing("type()")() if _place() else method(cls, *operands)


# In a test, `type(x)` of a held object tells nothing: `type(f(1)) == int` and `type(f(1)).__name__` are refused.
TYPE_METHODS = ("__eq__", "__ne__", "__repr__", "__getattribute__", "__or__", "__ror__")
HELD_TYPE = {name: _refusing_of_type(name) for name in TYPE_METHODS}
HeldType = type("HeldType", (type,), HELD_TYPE | {"__hash__": type.__hash__})
METHODS = {f"__{name}__": _refusing(f"__{name}__") for name in SPECIAL.split()}
FORBIDDEN = METHODS | {name: _refusing(name) for name in (*map("__{}__".format, READ.split()), *PREDICATES)}


class Held(metaclass=HeldType):
    __slots__ = ("_d3s",)

    def __init__(self, owner: Any, number: int) -> None:
        object.__setattr__(self, "_d3s", (owner, number))

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return owner_and_number(self)[0].call(self, arguments, named)

    def __getattribute__(self, name: str) -> Any:
        if name in FORBIDDEN:
            FORBIDDEN[name](self)
        return owner_and_number(self)[0].ask("get", self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        owner_and_number(self)[0].ask("set", self, name, value)

    locals().update(METHODS)


def owner_and_number(held: Held) -> tuple[Any, int]:
    """Return the tester that a held object belongs to, and the number by which the solver knows it."""
    return object.__getattribute__(held, "_d3s")


def identity(value: Any) -> Any:
    """Return an operand of `is`, or refuse it."""
    if type(value) is Held or value is Held:
        refuse("the identity of an object of the program, which only the program knows")
    return value
