"""type, isinstance and issubclass for tests, which see the classes of the program's objects through their proxies."""

from collections.abc import Callable
from types import UnionType
from typing import Any

from d3s.sandbox.peer import PLAIN_BASES
from d3s.sandbox.remote import Remote, Store


def overrides(store: Store) -> dict[str, Any]:
    """Return the builtins to replace, by name."""

    def class_of(value: Any) -> Any:
        if type(value) is not Remote:
            return type(value)
        kind = store.ask("type", value)
        if type(kind) is not Remote and kind in PLAIN_BASES:
            raise TypeError(f"the program calls an object a {kind.__name__}")  # which would have crossed as one
        return kind

    class Meta(type):
        """Of a class that stands for `type`."""

        def __call__(cls, *arguments: Any, **named: Any) -> Any:
            if len(arguments) != 1 or named:
                return type(*arguments, **named)
            kind = class_of(*arguments)
            return cls if kind is type or kind is Meta else kind

        __eq__ = lambda cls, other: other is cls or other is type  # noqa: E731
        __hash__ = type.__hash__

    stand_in = Meta("type", (type,), {})

    def asking(operation: str, builtin: Callable) -> Callable:
        def check(value: Any, kind: Any) -> bool:
            kind = type if kind is stand_in else kind
            if isinstance(kind, tuple | UnionType):
                return any(check(value, part) for part in getattr(kind, "__args__", kind))
            if type(value) is Remote and type(kind) is not Remote and kind not in PLAIN_BASES:
                return store.ask(operation, value, kind) is True
            return builtin(value, kind)

        return check

    return {
        "type": stand_in,
        "isinstance": asking("isinstance", isinstance),
        "issubclass": asking("issubclass", issubclass),
    }
