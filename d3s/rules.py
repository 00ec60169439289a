"""Rules: options whose value is a built-in name, `module:function`, or {rule: NAME, option: value, ...}.

    loss.kind: gspo
    loss.kind: my_rules:tanh_loss                       # my_rules.py beside train.py, or elsewhere on the Python path
    loss.kind: {rule: my_rules:tanh_loss, width: 0.5}   # further keys are keyword arguments of the function

A rule takes, by name, those arguments of its contract that it needs; its other parameters are its options. What no rule
takes is not computed. The contracts stand in the header of the file of each concern, as d3s/loss.py.
"""

import difflib
import inspect
import math
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from d3s.common import UserError
from d3s.rewards.functions import KINDS, describe, load_object

if TYPE_CHECKING:  # imported where it is used, as the configuration needs no torch
    import torch

Value = str | Mapping[str, Any]
FORMS = "module:function or {rule: NAME, option: value}"


@dataclass(frozen=True)
class Contract:
    """What the rules of one option take and return."""

    option: str  # section.key
    builtin: Mapping[str, Callable[..., Any]]
    arguments: tuple[str, ...]
    problem: Callable[..., str | None]  # (result, **arguments) -> what is wrong with a result
    examples: Callable[[], Iterable[dict[str, Any]]]  # arguments that every rule must accept

    def rule(self, value: Value) -> "Rule":
        """The rule that the option names. Raises UserError for an unknown name, argument or option."""
        return Rule(self, value)

    def known(self, value: Value) -> None:
        """Require a name that is built in or has the form of an own function, which is not imported."""
        name = rule_name(value)
        if name not in self.builtin and ":" not in name:
            close = difflib.get_close_matches(name, self.builtin, 1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise UserError(
                f"{self.option}: got {name!r}, expected {', '.join(map(repr, self.builtin))}, {FORMS}{hint}"
            )

    def attempt(self, value: Value) -> list[Any]:
        """Call the rule with each example. Raises UserError if it fails or returns NaN or infinity."""
        rule, results = self.rule(value), []
        for arguments in self.examples():
            results.append(rule(**arguments))
            if not _finite(results[-1]):
                raise UserError(f"{self.option}: {rule.name} returned NaN or infinity for finite arguments")
        return results


class Rule:
    """A function with its options, called by name with those arguments of its contract that it takes."""

    def __init__(self, contract: Contract, value: Value) -> None:
        contract.known(value)
        self.contract, self.name = contract, rule_name(value)
        self.options = {} if isinstance(value, str) else {key: item for key, item in value.items() if key != "rule"}
        self.own = self.name not in contract.builtin
        self.function = load_object(self.name, contract.option) if self.own else contract.builtin[self.name]
        self.takes = self._bind()

    @property
    def summary(self) -> str:
        """Its name, its options and the first line of its docstring, for plans."""
        options = ", ".join(f"{name} {value}" for name, value in self.options.items())
        text = (inspect.getdoc(self.function) or "").partition("\n")[0].rstrip(".")
        return f"{self.name}{options and f' ({options})'}{text and f': {text}'}"

    def _bind(self) -> frozenset[str]:
        """The arguments that the function takes. Raises UserError if its parameters do not fit."""
        option, allowed = self.contract.option, self.contract.arguments
        for kind, is_kind in KINDS.items():
            if is_kind(self.function):
                raise UserError(f"{option}: {self.name} is {kind}, expected a plain function")
        try:
            parameters = inspect.signature(self.function).parameters.values()
        except (TypeError, ValueError):
            raise UserError(f"{option}: {self.name} has no readable signature; wrap it in a function") from None
        named = {p.name: p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
        any_name = any(p.kind is p.VAR_KEYWORD for p in parameters)
        for p in parameters:
            if p.kind is p.POSITIONAL_ONLY:
                raise UserError(f"{option}: {self.name} takes {p.name!r} by position; rules take arguments by name")
        own = [name for name in named if name not in allowed]
        for name in self.options:
            if name in allowed or not (name in own or any_name):
                expected = f"one of {', '.join(own)}" if own else "no options"
                raise UserError(f"{option}: {self.name} has no option {name!r}; expected {expected}")
        for name in own:
            if named[name].default is inspect.Parameter.empty and name not in self.options:
                raise UserError(
                    f"{option}: {self.name} needs {name!r}, which is no argument of this rule and has no default; the "
                    f"arguments are {', '.join(allowed)}; an option is set by {{rule: {self.name}, {name}: VALUE}}"
                )
        return frozenset(allowed if any_name else (name for name in named if name in allowed))

    def __call__(self, **arguments: Any) -> Any:
        """Call the function. Raises UserError if a function of the user's own raises or returns something else."""
        taken = {name: value for name, value in arguments.items() if name in self.takes}
        if not self.own:
            return self.function(**taken, **self.options)
        try:
            result = self.function(**taken, **self.options)
        except (Exception, SystemExit) as error:  # sys.exit in it would end training silently
            if isinstance(error, UserError) or type(error).__name__ == "OutOfMemoryError":
                raise
            place = traceback.extract_tb(error.__traceback__)[-1]
            where = f" ({place.filename.rpartition('/')[2]}, line {place.lineno})"
            raise UserError(f"{self.contract.option}: {self.name} {describe(error)}{where}") from error
        if problem := self.contract.problem(result, **arguments):
            raise UserError(f"{self.contract.option}: {self.name} returned {problem}")
        return result


def rule_name(value: Value) -> str:
    """The name of a rule, which is also its label in plans and reports."""
    return value if isinstance(value, str) else value["rule"]


def tensor_problem(value: Any, shape: tuple[int, ...], *dtypes: "torch.dtype") -> str | None:
    """What is wrong with a tensor that a rule returned; without dtypes all floating-point types are allowed."""
    from torch import Tensor

    if not isinstance(value, Tensor):
        return f"{type(value).__name__}, expected a tensor {list(shape)}"
    if tuple(value.shape) != shape:
        return f"a tensor {list(value.shape)}, expected {list(shape)}"
    if value.dtype not in dtypes and not (not dtypes and value.is_floating_point()):
        return f"a tensor of {value.dtype}, expected {' or '.join(map(str, dtypes)) or 'floating point'}"
    return None


def _finite(value: Any) -> bool:
    """Whether the tensors and numbers in a result are finite."""
    if isinstance(value, Mapping):
        return all(map(_finite, value.values()))
    if isinstance(value, tuple | list):
        return all(map(_finite, value))
    if isinstance(value, float | int):
        return math.isfinite(value)
    return not hasattr(value, "isfinite") or bool(value.isfinite().all())
