"""Types of options, and the base class of the sections of a configuration."""

import contextlib
import json
import math
import re
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError


def _reject_empty(value: Any) -> Any:
    """Reject text without a character that shows, which Python takes for the current directory."""
    if isinstance(value, str) and not value.strip():
        raise PydanticCustomError("directory", "expected a path")
    return expand_home(value)


def expand_home(value: Any) -> Any:
    """Replace ~ at the beginning of a path or of FILE in NAME=FILE, also in a list: a shell does so only for words."""
    if isinstance(value, list):
        return [expand_home(entry) for entry in value]
    if not isinstance(value, str):
        return value
    return re.sub(r"^([^=/]*=)?~(?=/|$)", lambda match: f"{match[1] or ''}{Path.home()}", value)


LOWEST_TEMPERATURE = 0.01  # vLLM silently raises lower temperatures to this value
MOST = 10**9  # upper limit of every count: beyond any machine, and small enough for the arithmetic of the dry run
Number = Annotated[float, Field(strict=True)]  # rejects true, "1e-5" and "1_0"
Integer = Annotated[int, Field(strict=True)]  # rejects true, 3.0 and "3"
Switch = Annotated[bool, Field(strict=True)]
Fraction = Annotated[Number, Field(gt=0, le=1)]
Count = Annotated[Integer, Field(ge=0, le=MOST)]
Positive = Annotated[Integer, Field(ge=1, le=MOST)]
AtLeastTwo = Annotated[Integer, Field(ge=2, le=MOST)]


def _check_arguments(value: Any) -> Any:
    """Require names with values that are text, numbers, true, false or null, as JSON has them."""
    if isinstance(value, dict) and all(isinstance(name, str) for name in value):
        plain = (isinstance(item, str | int | float | None) for item in value.values())
        if all(plain) and all(math.isfinite(item) for item in value.values() if isinstance(item, float)):
            return value
    raise PydanticCustomError("arguments", "expected {name: value, ...} with text, numbers, true, false or null")


def _check_rule(value: Any) -> Any:
    """Require a name, or a mapping with the name under `rule` and the options of the rule."""
    if isinstance(value, str) and value:
        return value
    if isinstance(value, dict) and isinstance(value.get("rule"), str) and value["rule"]:
        return _check_arguments(value) if len(value) > 1 else value["rule"]
    raise PydanticCustomError("rule", "expected a name, module:function or {rule: NAME, option: value}")


def _check_weighted_rule(value: Any) -> Any:
    """Require a rule, or a list of a rule and a number."""
    if isinstance(value, str | dict):
        return _check_rule(value)
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        rule, weight = value
        if isinstance(rule, str | dict) and type(weight) in (int, float) and math.isfinite(weight):
            return _check_rule(rule), weight
    raise PydanticCustomError("name", "expected module:function or [module:function, weight]")


def _check_sources(value: Any) -> Any:
    """Require a source, or a list of different ones, each alone or as {path, weight}."""
    if isinstance(value, str):
        return expand_home(value)
    entries = [{"path": e} if isinstance(e, str) else e for e in value] if isinstance(value, list) else []
    entries = [{"weight": 1} | entry if isinstance(entry, dict) else entry for entry in entries]
    for entry in entries:
        if not isinstance(entry, dict) or set(entry) != {"path", "weight"} or not isinstance(entry["path"], str):
            entries = []
            break
        weight = entry["weight"]
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight <= MOST:
            raise PydanticCustomError("weight", "expected a weight above 0 for {path}", {"path": entry["path"]})
    if not entries:
        raise PydanticCustomError("sources", "expected text, or a list of {path: SOURCE, weight: NUMBER}")
    paths = [entry["path"] for entry in entries]
    if twice := [path for path in paths if paths.count(path) > 1]:
        raise PydanticCustomError("sources", "expected {path} once", {"path": twice[0]})
    return [entry | {"path": expand_home(entry["path"])} for entry in entries]


def _check_task_options(value: Any) -> Any:
    """Require the options of tasks, which are what JSON has."""
    with contextlib.suppress(TypeError, ValueError):
        if isinstance(value, dict) and all(isinstance(options, dict) for options in value.values()):
            return json.loads(json.dumps(value, allow_nan=False))
    raise PydanticCustomError("options", "expected {TASK: {option: value, ...}, ...}")


Directory = Annotated[Path, BeforeValidator(_reject_empty)]
Source = Annotated[str, BeforeValidator(expand_home)]  # a file or directory, or a name
Sources = Annotated[str | list[dict[str, Any]], BeforeValidator(_check_sources)]
TaskOptions = Annotated[dict[str, dict[str, Any]], BeforeValidator(_check_task_options)]
Arguments = Annotated[dict[str, Any], BeforeValidator(_check_arguments)]
RuleValue = Annotated[str | dict[str, Any], BeforeValidator(_check_rule)]  # see d3s/rules.py
WeightedRule = Annotated[
    str | dict[str, Any] | tuple[str | dict[str, Any], Number], BeforeValidator(_check_weighted_rule)
]


class RuleOption:
    """Marks an option that takes a rule.

    Args:
        contract: module:NAME of its contract, which is imported when a rule is tried, as torch takes seconds.
        builtin: names of the rules that the contract has itself.
    """

    def __init__(self, contract: str, *builtin: str) -> None:
        self.contract, self.builtin = contract, builtin


class Section(BaseModel):
    """A section of the configuration. Unknown keys are errors, defaults are validated, docstrings describe fields."""

    model_config = ConfigDict(extra="forbid", validate_default=True, allow_inf_nan=False, use_attribute_docstrings=True)
