"""Reward functions that d3s.train and d3s.evaluate were given as Python objects, by name.

A rule names a function that can be imported as module:function; others, such as those of a notebook and lambdas, become
attributes of this module, which exist in their process alone.
"""

import pkgutil
import sys
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Any


def name_function(function: Callable[..., Any]) -> str:
    """The `module:function` that names this object in an option."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", type(function).__name__)
    if module != "__main__" and str(name).isidentifier():
        with suppress(Exception):  # importing a module executes it
            if pkgutil.resolve_name(f"{module}:{name}") is function:
                return f"{module}:{name}"
    stem = str(name).rpartition(".")[2]
    stem = stem if stem.isidentifier() else "reward"  # of a lambda
    known = vars(sys.modules[__name__])
    label = next(label for n in count(1) if known.get(label := stem if n == 1 else f"{stem}_{n}") in (None, function))
    known[label] = function
    return f"{__name__}:{label}"


def __getattr__(name: str) -> Any:
    raise AttributeError(f"{name} was not given in this process")
