"""Rules: options whose value is a built-in name, `module:function`, or {rule: NAME, option: value, ...}.

    loss.kind: gspo
    loss.kind: my_rules:tanh_loss                       # my_rules.py beside train.py, or elsewhere on the Python path
    loss.kind: {rule: my_rules:tanh_loss, width: 0.5}   # further keys are keyword arguments of the function

A rule takes, by name, those arguments of its contract that it needs; its other parameters are its options. What no rule
takes is not computed. A rule of your own gets copies of tensors, lists and dictionaries, so that it may change them.
The contracts stand in the file of each concern, as d3s/loss.py, with small arguments by which d3s/trials.py calls every
rule before a run starts; those of rewards are called with the first problems. d3s/config/schema.py names each contract.

A rule with a state is a class, `module:Class`, as those of data.order and schedule.follow. One object is made per
run: its constructor takes contract arguments and options by name, and the trainer calls those contract methods that the
class defines. What it learns is part of the checkpoints by state_dict() -> tensors and plain values, and
load_state_dict(state). Every rank has its own object and calls it alike, so its random numbers need a seed.
"""

import inspect
import io
import math
import pickle
import pkgutil
import site
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from d3s.common import UserError, describe, suggestion

if TYPE_CHECKING:  # imported where it is used, as the configuration needs no torch
    import torch

Value = str | Mapping[str, Any]
ATOMS = {int, float, str, bool, type(None)}  # which no copy is needed of
PATHS = (*map(sysconfig.get_path, ("stdlib", "purelib", "platlib")), site.getusersitepackages())
LIBRARIES = tuple(f"{path}/" for path in PATHS)  # of Python and its packages
FORMS = "module:function or {rule: NAME, option: value}"
KINDS = {
    "a class": inspect.isclass,
    "an async function": inspect.iscoroutinefunction,
    "an async generator": inspect.isasyncgenfunction,
    "a generator": inspect.isgeneratorfunction,
}  # callables whose result is never a value


def kind_problem(function: Callable[..., Any]) -> str | None:
    """Why calling this object gives no value."""
    kinds = (kind for kind, is_kind in KINDS.items() if is_kind(function))
    return next((f"is {kind}, expected a plain function" for kind in kinds), None)


class OfRuns(BaseException):
    """A rule reads what only a run has, so it cannot be tried. A BaseException is not taken for a fault of the rule."""


@dataclass(frozen=True)
class Contract:
    """What the rules of one option take and return."""

    option: str  # section.key
    builtin: Mapping[str, Callable[..., Any]]
    arguments: tuple[str, ...]
    problem: Callable[..., str | None] = lambda *_, **__: None  # (result, **arguments) -> what is wrong with a result
    about: Callable[..., str] = lambda **_: ""  # (**arguments) -> which call failed, the end of a message
    # small arguments of a few calls, with which d3s/trials.py calls a rule before a run
    examples: Callable[[], Iterable[dict[str, Any]]] | None = None
    # (examples, their results, whether random numbers were drawn) -> what is wrong between the calls
    together: Callable[[list[dict[str, Any]], list[Any], bool], str | None] = lambda *_: None

    def rule(self, value: Value) -> "Rule":
        """The rule that the option names. Raises UserError for an unknown name, argument or option."""
        require_known(self.option, self.builtin, value)
        name = rule_name(value)
        own = name not in self.builtin
        options = {} if isinstance(value, str) else {key: item for key, item in value.items() if key != "rule"}
        function = self.load(name) if own else self.builtin[name]
        return Rule(self.of(function), name, function, own, options)

    def load(self, name: str) -> Callable[..., Any]:
        """Import a function or class of the user's. Raises UserError if there is none."""
        return load_object(name, self.option)

    def of(self, function: Callable[..., Any]) -> "Contract":
        """The contract of this kind of function, where an option takes several."""
        return self

    def remedy(self, name: str, argument: str) -> str:
        """What helps a rule that needs another argument."""
        return f"set it by {{rule: {name}, {argument}: VALUE}}"

    def problem_of_kind(self, function: Callable[..., Any]) -> str | None:
        """What is wrong with the kind of an object that the option names."""
        return kind_problem(function)


@dataclass(frozen=True, kw_only=True)
class ClassContract(Contract):
    """What the classes of one option take, and what their methods take and return."""

    # name -> arguments, (result, **arguments of the call and the constructor) -> what is wrong with a result
    methods: Mapping[str, tuple[tuple[str, ...], Callable[..., str | None]]]
    required: tuple[str, ...] = ()  # a class has at least one of these methods
    every: tuple[str, ...] = ()  # and all of these
    per_rank: bool = False  # whether the states of the ranks differ
    # (config) -> arguments of the constructor, and (object, config) -> results of a few calls, likewise
    constructs: Callable[[Any], dict[str, Any]] = lambda config: {}
    trial: Callable[["RuleObject", Any], list[Any]] | None = None

    def problem_of_kind(self, function: Callable[..., Any]) -> str | None:
        if function in self.builtin.values():
            return None
        if not inspect.isclass(function):
            return "is no class"
        has = {name for name in (*self.required, *self.every) if callable(getattr(function, name, None))}
        if self.required and not has & set(self.required):
            return f"has no method {' or '.join(self.required)}"
        if missing := [name for name in self.every if name not in has]:
            return f"has no method {missing[0]}"
        if hasattr(function, "state_dict") != hasattr(function, "load_state_dict"):
            return "has one of state_dict and load_state_dict, expected both or neither"
        return None

    def build(self, value: Value, **arguments: Any) -> "RuleObject":
        """Make an object of the class that the option names."""
        return RuleObject(self.rule(value), arguments)


class Rule:
    """A function with its options, called by name with those arguments of its contract that it takes."""

    def __init__(
        self, contract: Contract, name: str, function: Callable[..., Any], own: bool, options: Mapping[str, Any]
    ) -> None:
        self.contract, self.name, self.function, self.own, self.options = contract, name, function, own, options
        self.takes = self._bind()

    @property
    def summary(self) -> str:
        """Its name, its options and the first sentence of its docstring, for plans."""
        options = ", ".join(f"{name} {value}" for name, value in self.options.items())
        text = (inspect.getdoc(self.function) or "").partition("\n")[0].partition(". ")[0].rstrip(".")
        return f"{self.name}{options and f' ({options})'}{text and f': {text}'}"

    def _bind(self) -> frozenset[str]:
        """The arguments that the function takes. Raises UserError if its parameters do not fit."""
        option, allowed = self.contract.option, self.contract.arguments
        if problem := self.contract.problem_of_kind(self.function):
            raise UserError(f"{option}: {self.name} {problem}")
        try:
            parameters = inspect.signature(self.function).parameters.values()
        except (TypeError, ValueError):
            raise UserError(f"{option}: {self.name} has no readable signature; wrap it in a function") from None
        for p in parameters:
            if p.kind is p.POSITIONAL_ONLY:
                raise UserError(f"{option}: {self.name} takes {p.name!r} by position; rules take arguments by name")
        any_name = any(p.kind is p.VAR_KEYWORD for p in parameters)
        named = {p.name: p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
        own = [name for name in named if name not in allowed]
        for name in self.options:
            if name in allowed or not (name in own or any_name):
                expected = f"one of {', '.join(own)}" if own else "no options"
                raise UserError(f"{option}: {self.name} has no option {name!r}; expected {expected}")
        for name in own:
            if named[name].default is inspect.Parameter.empty and name not in self.options:
                hint = "" if inspect.ismethod(self.function) else f"; {self.contract.remedy(self.name, name)}"
                problem = f"{name!r}{suggestion(name, allowed)}, which is no argument of this rule and has no default"
                known = f"the arguments are {', '.join(allowed) or 'none'}"
                raise UserError(f"{option}: {self.name} needs {problem}; {known}{hint}")
        return frozenset(allowed if any_name else (name for name in named if name in allowed))

    def __call__(self, **arguments: Any) -> Any:
        """Call the function. Raises UserError if a function or an option of the user's own makes it fail."""
        taken = {name: value for name, value in arguments.items() if name in self.takes}
        return self._checked(taken, arguments) if self.own or self.options else self.function(**taken)

    def _checked(self, taken: dict[str, Any], arguments: dict[str, Any]) -> Any:
        """Call it with `taken` of the arguments, and check what it returns."""
        contract, about = self.contract, partial(self.contract.about, **arguments)
        if self.own:
            taken = {name: _copy(value) for name, value in taken.items()}
        result = _guarded(contract.option, self.name, partial(self.function, **taken, **self.options), about)
        if problem := contract.problem(result, **arguments):
            raise UserError(f"{contract.option}: {self.name} returned {problem}{about()}")
        return result


class RuleObject:
    """An object of a class rule. It has the methods of the contract; one that the class lacks returns None."""

    def __init__(self, rule: Rule, arguments: Mapping[str, Any]) -> None:
        self.option, self.name, self._object = rule.contract.option, rule.name, rule(**arguments)
        self.per_rank = rule.contract.per_rank
        self._methods = dict.fromkeys(rule.contract.methods, _nothing)
        for name, (takes, problem) in rule.contract.methods.items():
            if self.has(name):
                contract = Contract(self.option, {}, takes, partial(problem, **arguments), rule.contract.about)
                self._methods[name] = Rule(contract, f"{rule.name}.{name}", getattr(self._object, name), rule.own, {})

    def has(self, name: str) -> bool:
        """Whether the class has this method."""
        return hasattr(self._object, name)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in self._methods:
            raise AttributeError(name)
        return self._methods[name]

    def state_dict(self) -> dict[str, Any]:
        """What the object keeps for a resumed run. Raises UserError if this is no dict."""
        state = _guarded(self.option, f"{self.name}.state_dict", self._object.state_dict)
        if not isinstance(state, dict):
            raise UserError(f"{self.option}: {self.name}.state_dict returned {type(state).__name__}, not dict")
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what state_dict returned."""
        _guarded(self.option, f"{self.name}.load_state_dict", partial(self._object.load_state_dict, state))


def _nothing(**_: Any) -> None:
    """A method that a class lacks."""


def through_file(state: dict[str, Any], rule: str) -> dict[str, Any]:
    """The state of a rule, `option name`, as a checkpoint gives it back. Raises UserError for values of other kinds."""
    import torch

    file = io.BytesIO()
    try:
        torch.save(state, file)
        file.seek(0)
        return torch.load(file, weights_only=True)
    except (pickle.PickleError, AttributeError, TypeError, RuntimeError) as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        problem = "returned a value that torch.load(weights_only=True) refuses"
        remedy = "expected tensors, texts, lists, dicts and Python's numbers; convert NumPy's by float(x)"
        raise UserError(f"{rule.replace(' ', ': ', 1)}.state_dict {problem}; {remedy}") from None


def _copy(value: Any) -> Any:
    """A copy of a tensor, a list or a dictionary with all in it, which a rule may change; other values themselves."""
    if isinstance(value, dict):
        copied = copy(value)  # of the same kind
        copied.update((key, _copy(item)) for key, item in value.items())
        return copied
    from torch import Tensor

    if isinstance(value, Tensor):
        return value.clone()
    if type(value) is not list:
        return value
    return list(value) if ATOMS.issuperset(map(type, value)) else [*map(_copy, value)]


def _guarded(option: str, name: str, call: Callable[[], Any], about: Callable[[], str] = str) -> Any:
    """Call a function of the user's own. Raises UserError with the place of an exception."""
    try:
        return call()
    except (Exception, SystemExit) as error:  # sys.exit in it would end training silently
        if isinstance(error, UserError) or type(error).__name__ == "OutOfMemoryError":
            raise
        raise UserError(f"{option}: {name} {describe(error)}{place_of(error)}{about()}") from error


def place_of(error: BaseException) -> str:
    """File and line of the deepest call, outside Python and its packages if any is, in parentheses."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith((__file__, "<frozen"))]
    own = [frame for frame in frames if not frame.filename.startswith(LIBRARIES)]
    return "".join(f" ({Path(frame.filename).name}, line {frame.lineno})" for frame in (own or frames)[-1:])


def stateful(*rules: RuleObject) -> dict[str, RuleObject]:
    """Those with a state that checkpoints keep, by option and name."""
    return {f"{rule.option} {rule.name}": rule for rule in rules if rule.has("state_dict")}


def load_object(name: str, option: str) -> Callable[..., Any]:
    """Import the function or class `module:name` that an option names. Raises UserError if there is none."""
    try:
        function = pkgutil.resolve_name(name)
    except (Exception, SystemExit) as error:  # importing a module executes it
        place = "" if isinstance(error, ModuleNotFoundError | AttributeError) else place_of(error)
        reason = describe(error).removeprefix("raised ") + place
        hint = "; write the module without .py" if ".py:" in name else ""
        raise UserError(f"{option}: got {name!r}, expected module:function ({reason}){hint}") from error
    if ":" not in name or not callable(function):
        raise UserError(f"{option}: got {name!r} ({type(function).__name__}), expected module:function")
    return function


def require_known(option: str, builtin: Iterable[str], value: Value) -> None:
    """Require a name that is built in, or has the form of a user's own, which is not imported. Raises UserError."""
    name = rule_name(value)
    if name not in builtin and not name.partition(":")[2]:
        known = ", ".join([*map(repr, builtin), FORMS])
        raise UserError(f"{option}: got {name!r}, expected {known}{suggestion(name, builtin)}")


def rule_name(value: Value) -> str:
    """The name of a rule, which is also its label in plans and reports."""
    return value if isinstance(value, str) else value["rule"]


def rule_label(value: Value) -> str:
    """The name and the options of a rule; equal rules have equal labels."""
    options = [] if isinstance(value, str) else [f"{key}={item}" for key, item in value.items() if key != "rule"]
    return rule_name(value) + (f"({', '.join(sorted(options))})" if options else "")


def tensor_problem(value: Any, shape: tuple[int, ...], *dtypes: "torch.dtype", entry: str = "") -> str | None:
    """What is wrong with a tensor that a rule returned.

    Args:
        dtypes: without any, all floating-point types are allowed.
        entry: what an entry is, where NaN and infinity are refused.
    """
    from torch import Tensor

    if not isinstance(value, Tensor):
        return f"{type(value).__name__}, expected a tensor {list(shape)}"
    if tuple(value.shape) != shape:
        return f"a tensor {list(value.shape)}, expected {list(shape)}"
    if value.requires_grad and shape:  # but of a loss
        return "a tensor that requires a gradient, expected x.detach()"
    if value.dtype not in dtypes and not (not dtypes and value.is_floating_point()):
        return f"a tensor of {value.dtype}, expected {' or '.join(map(str, dtypes)) or 'floating point'}"
    return f"NaN or infinity as {entry}" if entry and not value.isfinite().all() else None


def metrics_problem(result: Any, **_: Any) -> str | None:
    """What is wrong with the metrics that a method returned."""
    numbers = isinstance(result, dict) and all(type(value) in (int, float) for value in result.values())
    if numbers and all(isinstance(name, str) and math.isfinite(value) for name, value in result.items()):
        return None
    return f"{result!r:.60}, expected finite numbers by name"
