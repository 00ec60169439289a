"""Evaluation: Pass@k, avg@n and maj@n with confidence intervals. `d3s.evaluate(...)` itself does what eval.py does."""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

from d3s.evaluate.estimators import pass_at_k

__all__ = ["pass_at_k"]


class _Callable(ModuleType):
    """The package, which has the name of the function."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return import_module("d3s.commands.python").evaluate(*arguments, **options)


sys.modules[__name__].__class__ = _Callable
