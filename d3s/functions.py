"""Load and call a user's functions; their mistakes become one sentence with the name of the option and function."""

import inspect
import pkgutil
from collections.abc import Callable
from typing import Any

from d3s.common import UserError, printable

EXCERPT = 60  # characters of a text quoted in a message
KINDS = {
    "a class": inspect.isclass,
    "an async function": inspect.iscoroutinefunction,
    "an async generator": inspect.isasyncgenfunction,
    "a generator": inspect.isgeneratorfunction,
}  # callables whose result is never a value


def load_object(name: str, option: str) -> Callable[..., Any]:
    """Import the function or class `module:name` that an option names. Raises UserError if there is none."""
    try:
        function = pkgutil.resolve_name(name)
    except (Exception, SystemExit) as error:  # importing a module executes it
        reason = short(f"{type(error).__name__}: {error}")
        raise UserError(f"{option}: got {name!r}, expected module:function ({reason})") from error
    if ":" not in name or not callable(function):
        raise UserError(f"{option}: got {name!r}, expected module:function")
    return function


def load_function(name: str, option: str, arguments: tuple[str, ...]) -> Callable[..., Any]:
    """Import the user's function `module:function` that an option names.

    Raises: UserError if it does not exist or cannot be called with these arguments.
    """
    function = load_object(name, option)
    for kind, is_kind in KINDS.items():
        if is_kind(function):
            raise UserError(f"{option}: {name} is {kind}, expected a plain function")
    if not accepts(function, arguments):
        raise UserError(
            f"{option}: {name} has the signature {short(str(inspect.signature(function)))}, expected "
            f"({', '.join(arguments)})"
        )
    return function


def accepts(function: Callable[..., Any], arguments: tuple[str, ...], *keywords: str) -> bool:
    """Whether a function can be called with these arguments by position, and these by keyword."""
    try:
        signature = inspect.signature(function)
    except ValueError:  # of a builtin
        return not keywords
    try:
        signature.bind(*arguments, **dict.fromkeys(keywords))
    except TypeError:
        return False
    return True


def call_function(
    function: Callable[..., Any], option: str, name: str, arguments: tuple[Any, ...], context: str
) -> Any:
    """Call a user's function; its errors become one sentence with the name and the context."""
    try:
        return function(*arguments)
    except (Exception, SystemExit) as error:  # sys.exit in it would end training silently
        raise UserError(f"{option}: {name} {describe(error)} on {context}") from error


def describe(error: BaseException) -> str:
    """What a function raised, as a clause."""
    return "raised " + short(f"{type(error).__name__}: {error}".removesuffix(": "))


def shown(value: Any) -> str:
    """The beginning of a value's repr."""
    try:
        return short(repr(value))
    except Exception:  # a user's class; an integer of thousands of digits
        return f"a {type(value).__name__}"


def short(text: str) -> str:
    """One printable line of at most EXCERPT characters."""
    line = " ".join(printable(text[: 4 * EXCERPT]).split())
    return line if len(line) <= EXCERPT else line[: EXCERPT - 1] + "…"


def quote(text: str) -> str:
    """The beginning of a text in quotation marks."""
    return f'"{short(text)}"'
