"""Proxies in the tester for objects of the program, so that no answer is decided where the program runs.

A value of the tests never reaches a comparison that the program computes:
- `==`, `in` and ordering with a plain value compare its *plain base* (the list in an instance of a subclass of list,
  the number in an IntEnum) here; an object without one equals no plain value and has no order with one.
- Two objects of the program are compared by the program, since the tests know neither.
- Arithmetic with a plain value happens here for numbers and strings, and for containers whose class leaves it alone.
  Otherwise the program does it (`f(2) - 4`) and has seen the value, so the result must be an object again, and gives
  out nothing that a test could compare implicitly: it has no truth value, length, items, order or plain base.
- An object that the test itself made from a class (`Vec(1, 2)`, a capitalized name) is the subject of the test, no
  answer. The program says what it makes of a plain value: `Vec(1, 2) * 3`, `5 in Interval(1, 9)`, `float(Ratio(1, 2))`.
Methods, attributes, items, `len`, `str`, `bool` of an object are asked from the program: plain answers then still have
to equal what the test expects.
"""

import operator
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

from d3s.sandbox.peer import TYPES, Peer, build_exception, standard_class
from d3s.sandbox.wire import CHANGEABLE, Broken

BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and_", "or_", "xor", "lshift", "rshift")
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
NUMBERS = (int, float, complex, Fraction, Decimal)
LOCAL = (*NUMBERS, str, bytes, timedelta)  # plain bases whose arithmetic happens here


class Store:
    """The references of one conversation: objects of the program, each with one proxy, and its exception classes."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self._remotes: dict[int, Remote] = {}
        self._exceptions: dict[int, type] = {}
        self._plain: dict[int, Any] = {}  # plain bases that were asked since the last other request
        self.classes: set[int] = set()  # objects that the tests named with a capital
        self.made: set[int] = set()  # what these returned when the tests called them

    def ask(self, operation: str, *arguments: Any) -> Any:
        """Let the program perform an operation. StopIteration would end a loop of the test as if all were well."""
        try:
            return self.peer.request(operation, *arguments)
        except StopIteration as stop:
            if operation == "next":
                raise
            raise RuntimeError("the program raised StopIteration") from stop
        finally:
            self._plain.clear()

    def call(self, function: Any, arguments: tuple, named: dict) -> Any:
        """Call in the program. A call without a result may have changed its arguments, as `sort(numbers)` does."""
        reply = self.ask("call", function, list(arguments), named)
        try:
            result, changed = reply
            changes = [(named[key] if type(key) is str else arguments[key], value) for key, value in changed.items()]
        except Exception as error:
            self.peer.failure = error
            raise Broken from None
        for argument, value in changes:
            if result is None and type(argument) in CHANGEABLE and type(value) is type(argument):
                argument.clear()
                (argument.update if isinstance(value, dict | set) else argument.extend)(value)
        return result

    def plain(self, remote: "Remote") -> Any:
        """Return the plain base of an object, the same for all comparisons in a row."""
        number = remote._d3s_number
        if number not in self._plain:
            value = self.peer.request("plain", remote)
            if type(value) is not remote._d3s_base:
                raise TypeError("the plain base of an object changed its type")
            self._plain[number] = value
        return self._plain[number]

    def resolve(self, form: list, decode: Callable) -> Any:
        """Read a reference that the solver sent."""
        tag = form[0]
        if tag == "T":
            return TYPES[form[1]]
        if tag == "h":
            _, number, base = form
            if number not in self._remotes:
                self._remotes[number] = Remote(self, int(number), TYPES[base] if base else None)
            return self._remotes[number]
        if tag == "C":
            return self._exception_class(*form[1:])
        if tag != "x":
            raise ValueError("unknown tag")
        error = build_exception(decode(form[1]), [decode(argument) for argument in form[2]], decode(form[4]))
        if form[3] is not None:
            error._d3s_number = int(form[3])
        return error

    def _exception_class(self, number: int | None, module: str, name: str, bases: list) -> type:
        if number is None:
            return standard_class(module, name) or Exception
        if number not in self._exceptions:
            kinds = tuple(self._exception_class(*form[1:]) for form in bases) or (Exception,)
            body = {"_d3s_store": self, "_d3s_class": int(number), "__str__": _exception_text}
            body |= {"__getattr__": _exception_attribute, "__module__": "program"}
            self._exceptions[number] = ExceptionClass(str(name), kinds, body)
        return self._exceptions[number]


class ExceptionClass(type):
    """Class of the stand-ins for a program's exception classes; a call makes the exception in the program."""

    def __call__(cls, *arguments: Any, **named: Any) -> BaseException:
        return cls._d3s_store.call(cls, arguments, named)


def _exception_attribute(error: Any, name: str) -> Any:
    if name.startswith(("__", "_d3s")) or "_d3s_number" not in vars(error):
        raise AttributeError(name)
    return error._d3s_store.ask("getattr", error, name)


def _exception_text(error: Any) -> str:
    return _of_type(error._d3s_store.ask("str", error), str)


def _of_type(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise TypeError(f"the program answered {type(value).__name__}, expected {kind.__name__}")
    return value


class Remote:
    """Stand-in for one object of the program.

    Args:
        base: type of its plain base, None if it has none.
        tainted: whether the program computed it from a value of the tests.
    """

    __slots__ = ("_d3s_base", "_d3s_number", "_d3s_store", "_d3s_tainted")

    def __init__(self, store: Store, number: int, base: type | None, tainted: bool = False) -> None:
        for name, value in zip(Remote.__slots__, (base, number, store, tainted)):
            object.__setattr__(self, name, value)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        result = self._d3s_store.call(self, arguments, named)
        if type(result) is Remote and self._d3s_number in self._d3s_store.classes:
            self._d3s_store.made.add(result._d3s_number)
        return result

    def __getattr__(self, name: str) -> Any:
        return self._d3s_store.ask("getattr", self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._d3s_store.ask("setattr", self, name, value)

    def __delattr__(self, name: str) -> None:
        self._d3s_store.ask("delattr", self, name)

    @property
    def __class__(self) -> Any:
        return self._d3s_base or self._d3s_store.ask("getattr", self, "__class__")

    @property
    def __doc__(self) -> Any:
        return self._d3s_store.ask("getattr", self, "__doc__")

    def __repr__(self) -> str:
        return _of_type(self._d3s_store.ask("repr", self), str)

    def __str__(self) -> str:
        return _of_type(self._d3s_store.ask("str", self), str)

    def __format__(self, spec: str) -> str:
        if self._d3s_base in LOCAL:
            return format(_plain(self), spec)
        return _of_type(_untainted(self, "format", spec), str)

    def __dir__(self) -> list:
        return self._d3s_store.ask("dir", self)

    def __bool__(self) -> bool:
        return _of_type(_untainted(self, "bool"), bool)

    def __len__(self) -> int:
        return _of_type(_untainted(self, "len"), int)

    def __iter__(self) -> Any:
        return _untainted(self, "iter")

    def __next__(self) -> Any:
        return _untainted(self, "next")

    def __reversed__(self) -> Any:
        return _untainted(self, "reversed")

    def __getitem__(self, key: Any) -> Any:
        return _untainted(self, "getitem", key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._d3s_store.ask("setitem", self, key, value)

    def __delitem__(self, key: Any) -> None:
        self._d3s_store.ask("delitem", self, key)

    def __contains__(self, item: Any) -> bool:
        if type(item) is Remote or (_is_made(self) and self._d3s_base is None):
            return _of_type(_untainted(self, "contains", item), bool)
        return any(item is member or item == member for member in self)

    def __enter__(self) -> Any:
        return self._d3s_store.ask("enter", self)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        return bool(self._d3s_store.ask("exit", self, kind, error))

    def __instancecheck__(self, value: Any) -> bool:
        return type(value) is Remote and _of_type(self._d3s_store.ask("isinstance", value, self), bool)

    def __subclasscheck__(self, value: Any) -> bool:
        return type(value) is Remote and _of_type(self._d3s_store.ask("issubclass", value, self), bool)

    def __mro_entries__(self, bases: tuple) -> tuple:
        raise TypeError("a test cannot derive a class from a class of the program")

    def __hash__(self) -> int:
        if self._d3s_base is not None and self._d3s_base.__hash__ is not None:
            return hash(_plain(self))
        return hash(_of_type(self._d3s_store.ask("hash", self), int))

    def __copy__(self) -> Any:
        return self._d3s_store.ask("copy", self)

    def __deepcopy__(self, memo: dict) -> Any:
        return self._d3s_store.ask("deepcopy", self)

    def __round__(self, digits: int | None = None) -> Any:
        if _is_made(self) and self._d3s_base is None:
            return self._d3s_store.ask("round", self, digits)
        return round(_number(self)) if digits is None else round(_number(self), digits)

    def __divmod__(self, other: Any) -> Any:
        return divmod(_number(self), other)

    def __rdivmod__(self, other: Any) -> Any:
        return divmod(other, _number(self))

    def __int__(self) -> int:
        return int(_number(self, int))

    def __float__(self) -> float:
        return float(_number(self, float))

    def __index__(self) -> int:
        return operator.index(_number(self))


def _plain(remote: Remote) -> Any:
    return remote._d3s_store.plain(remote)


def _is_made(remote: Remote) -> bool:
    return remote._d3s_number in remote._d3s_store.made and not remote._d3s_tainted


def _number(remote: Remote, kind: type | None = None) -> Any:
    """Return the number in an object. Raises TypeError if there is none: the program must not name one."""
    if kind is not None and remote._d3s_base is None and _is_made(remote):
        return _of_type(remote._d3s_store.ask(kind.__name__, remote), kind)
    if remote._d3s_base not in NUMBERS:
        raise TypeError("an object of the program is no number")
    return _plain(remote)


def _untainted(remote: Remote, operation: str, *arguments: Any) -> Any:
    if remote._d3s_tainted:
        raise TypeError(f"{operation} of a result that the program computed from a value of the test")
    return remote._d3s_store.ask(operation, remote, *arguments)


def _computed(store: Store, operation: str, *operands: Any) -> Any:
    """Let the program do arithmetic; a result that may depend on a value of the tests is tainted."""
    result = store.ask(operation, *operands)
    if all(type(operand) is Remote and not operand._d3s_tainted for operand in operands):
        return result
    if any(type(operand) is Remote and _is_made(operand) for operand in operands):
        if type(result) is Remote:
            store.made.add(result._d3s_number)
        return result
    if type(result) is not Remote:
        if all(type(operand) is not Remote or operand._d3s_base is not None for operand in operands):
            return getattr(operator, operation)(*(_plain(o) if type(o) is Remote else o for o in operands))
        raise TypeError(f"{operation} of an object of the program and a plain value gave a plain value")
    return Remote(store, result._d3s_number, None, tainted=True)


def _binary(name: str, swapped: bool) -> Callable:
    local = getattr(operator, name)

    def method(self: Remote, other: Any) -> Any:
        operands = (other, self) if swapped else (self, other)
        if type(other) is not Remote and self._d3s_base in LOCAL:
            return local(*(_plain(operand) if operand is self else operand for operand in operands))
        return _computed(self._d3s_store, name, *operands)

    return method


def _unary(name: str) -> Callable:
    local = getattr(operator, name)

    def method(self: Remote) -> Any:
        return local(_plain(self)) if self._d3s_base in LOCAL else _computed(self._d3s_store, name, self)

    return method


def _comparison(name: str) -> Callable:
    local = getattr(operator, name)

    def method(self: Remote, other: Any) -> Any:
        if type(other) is Remote:
            return _of_type(self._d3s_store.ask(name, self, other), bool)
        return NotImplemented if self._d3s_base is None else local(_plain(self), other)

    return method


for _name in COMPARISONS:
    setattr(Remote, f"__{_name}__", _comparison(_name))
for _name in ("neg", "pos", "invert", "abs"):
    setattr(Remote, f"__{_name}__", _unary(_name))
for _name in BINARY:
    setattr(Remote, f"__{_name.rstrip('_')}__", _binary(_name, swapped=False))
    setattr(Remote, f"__r{_name.rstrip('_')}__", _binary(_name, swapped=True))
    setattr(Remote, f"__i{_name.rstrip('_')}__", _binary("i" + _name.rstrip("_"), swapped=False))
