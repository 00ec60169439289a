"""Load and call a user's functions; their mistakes become one sentence with the name of the option and function."""

import inspect
from collections.abc import Callable
from typing import Any

from d3s.common import UserError, describe, short
from d3s.rules import kind_problem, load_object


def load_function(name: str, option: str, arguments: tuple[str, ...]) -> Callable[..., Any]:
    """Import the user's function `module:function` that an option names.

    Raises: UserError if it does not exist or cannot be called with these arguments.
    """
    function = load_object(name, option)
    if problem := kind_problem(function):
        raise UserError(f"{option}: {name} {problem}")
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
