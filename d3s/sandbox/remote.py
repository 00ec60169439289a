"""What a test has of an object of the program: it can hold it, call it, read and set its attributes, nothing else.

All that a test compares, adds, iterates or prints is therefore a plain value, built in the tester by wire.py. Any other
use of an object is refused: the test cannot pass, whatever it catches. A method that a plain type has is the object's
own only if the test made the object, by calling a class, whose name begins with a capital letter: any other object may
stand for a plain value, and would be told by `f(x).union(E)` what to be equal to.
"""

import inspect
import re
from collections.abc import Callable
from typing import Any

from d3s.sandbox.wire import BASES, CHANGEABLE, PLAIN

SPECIAL = (
    "eq ne lt le gt ge hash bool len length_hint iter next reversed contains getitem setitem delitem delattr str repr "
    "format bytes int float complex index round trunc floor ceil abs neg pos invert add sub mul matmul truediv "
    "floordiv mod divmod pow lshift rshift and or xor radd rsub rmul rmatmul rtruediv rfloordiv rmod rdivmod rpow "
    "rlshift rrshift rand ror rxor iadd isub imul imatmul itruediv ifloordiv imod ipow ilshift irshift iand ior ixor "
    "enter exit aenter aexit aiter anext dir copy deepcopy replace reduce reduce_ex getstate fspath "
    "instancecheck subclasscheck mro_entries"
)
READ = "class bases"  # by isinstance and issubclass
# Methods of plain types that answer True or False: an object that stands for a value would say what a test wants.
PREDICATE = re.compile(r"is(?!o)\w+|\w+swith")  # not isoformat
PLAIN_METHODS = {n for kind in PLAIN for n in dir(kind) if n[0] != "_" and callable(getattr(kind, n))}
PREDICATES = {name for name in PLAIN_METHODS if PREDICATE.fullmatch(name)}
# Those that change a value and return None whatever it holds: nothing that a test could take for an answer.
SILENT = (
    "add append appendleft clear difference_update discard extend extendleft insert intersection_update reverse "
    "subtract symmetric_difference_update update"
)
JUDGING = PLAIN_METHODS.difference(SILENT.split())

refusals: list[str] = []  # since the list was cleared


class Refused(BaseException):
    """A test needs more of the program than plain values."""


def refuse(need: str, place: str = "") -> None:
    """Note that the running test needs more than plain values, with its line. Raises Refused."""
    refusals.append(f"{place or _place()}{need}")
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
    """An object of the program.

    Args:
        owner: the tester that asks for it, see tester.py.
        number: by which the solver knows it.
        true: whether it is true like any object, as its class says nothing else.
        own: whether the test knows it as an object: a class, or what the test made by calling one.
        method: its name, if it is a method that plain types have, of an object that may stand for a plain value.
    """

    __slots__ = ("_d3s",)

    def __init__(self, owner: Any, number: int, true: bool = False, own: bool = False, method: str = "") -> None:
        object.__setattr__(self, "_d3s", (owner, number, true, own, method))

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        owner, *_, own, method = _parts(self)
        if method and (arguments or named):
            refuse(
                f"{method}, a method of plain types, of an object of the program, which would judge itself by the "
                "arguments; of what the test makes by a class, whose name begins with a capital, any method is asked"
            )
        result = owner.call(self, arguments, named)
        return _with(result, own=True) if own and type(result) is Held else result

    def __getattribute__(self, name: str) -> Any:
        if name in FORBIDDEN:
            FORBIDDEN[name](self)
        owner, *_, own, _ = _parts(self)
        return as_named(owner.read("get", self, name), name, not own)

    def __setattr__(self, name: str, value: Any) -> None:
        owner_and_number(self)[0].ask("set", self, name, value)

    locals().update(METHODS)

    def __await__(self) -> Any:
        yield from ()
        return owner_and_number(self)[0].ask("await", self)

    def __bool__(self) -> bool:
        return _parts(self)[2] or METHODS["__bool__"](self)

    def __eq__(self, other: Any) -> bool:
        return other is not None and METHODS["__eq__"](self)

    def __ne__(self, other: Any) -> bool:
        return other is None or METHODS["__ne__"](self)


def _parts(held: Held) -> tuple[Any, int, bool, bool, str]:
    return object.__getattribute__(held, "_d3s")


def owner_and_number(held: Held) -> tuple[Any, int]:
    """Return the tester that a held object belongs to, and the number by which the solver knows it."""
    return _parts(held)[:2]


def _with(held: Held, own: bool = False, method: str = "") -> Held:
    return Held(*_parts(held)[:3], own, method)


def as_named(value: Any, name: str, may_judge: bool = False) -> Any:
    """Return a value that a test knows by a name: a class, or one that may be a method of a stand-in for a value."""
    if type(value) is not Held:
        return value
    return _with(value, name.lstrip("_")[:1].isupper(), name if may_judge and name in JUDGING else "")


def identity(*operands: Any) -> Any:
    """Return an operand of `is`, or of two whether they are one; that two objects differ only the program knows."""
    left, *right = operands
    if right and type(left) is type(right[0]) is Held and _parts(left)[1] == _parts(right[0])[1]:
        return True
    if any(type(operand) is Held or operand is Held for operand in operands):
        refuse("the identity of an object of the program, which only the program knows")
    if right and left is not right[0] and type(left) is type(right[0]) in CHANGEABLE and left == right[0]:
        refuse("the identity of equal values, which is lost on their way")
    return left is right[0] if right else left


def _attribute_of(changeable: bool) -> Callable:
    def method(self: Any, name: str) -> Any:
        if name.startswith("__") or "_d3s" not in vars(self):
            raise AttributeError(name)
        if changeable:
            refuse(f"{name} of a changeable value of a class of the program, of which the test has a copy")
        return getattr(vars(self)["_d3s"], name)

    return method


# What a test has of an instance of a subclass of a plain type, such as a named tuple: the plain value in it, whose
# methods are the tester's. The program is asked for further attributes.
COPIES = {
    kind: type(kind.__name__, (kind,), {
        "__getattr__": _attribute_of(kind in CHANGEABLE),
        "__reduce_ex__": lambda self, protocol, kind=kind: (kind, (kind(self),)),
    })
    for kind in BASES
}  # fmt: skip

UNCHANGING = {copy for kind, copy in COPIES.items() if kind not in CHANGEABLE}


def copy_of(value: Any, held: Held) -> Any:
    """Return a plain value with the attributes of an object. Raises KeyError for a type without subclasses."""
    copy = COPIES[type(value)](value)
    vars(copy)["_d3s"] = held
    return copy


def original(value: Any) -> Held | None:
    """Return the object of the program that a value is a copy of, if neither can have changed."""
    return vars(value).get("_d3s") if type(value) in UNCHANGING else None
