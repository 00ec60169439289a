"""Make and score problems of reasoning-gym, in the worker processes of d3s/verifier/pool.py alone.

There a task that hangs or takes too much memory costs one answer, and the hash seed is fixed, on which some generators
depend. A scorer that evaluates text would run what a model writes: `evaluators` finds such calls in its source.
"""

import ast
import builtins
import importlib
import inspect
import json
import math
import sys
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import fields
from functools import lru_cache
from typing import Any

PACKAGE = "reasoning_gym"
SIZE = 20_000  # problems of one seed: word_ladder allows no more, and some tasks draw differently for another size
EVALUATES = {"eval", "exec", "compile", "__import__", "sympify", "parse_expr", "parse_latex", "score_answer"}
EVALUATING_PACKAGES = {"sympy", "z3", "numexpr", "pickle", "yaml", "subprocess", "importlib", "os", "posix"}


def serve(request: str = "", *arguments: Any) -> str:
    """Answer "describe", "draw" or "score" by JSON; without a request import the package."""
    importlib.import_module(f"{PACKAGE}.factory")
    return json.dumps(REQUESTS[request](*arguments)) if request else ""


def describe(task: str, options: dict[str, Any]) -> dict[str, Any]:
    """What can be wrong with a task: names of all tasks or options, what its scorer evaluates, its error."""
    datasets = sys.modules[f"{PACKAGE}.factory"].DATASETS
    if task not in datasets:
        return {"tasks": sorted(datasets)}
    names = [field.name for field in fields(datasets[task][1]) if field.name not in ("seed", "size")]
    if unknown := [name for name in options if name not in names]:
        return {"unknown": unknown[0], "options": names}
    try:
        _entry(task, json.dumps(options), 0, 0)
        found = _evaluates(task, json.dumps(options), 0)
        return {"evaluates": found} if found else {}
    except Exception as error:  # an assertion of its own, or whatever a wrong type leads to
        return {"error": str(error) or type(error).__name__}


def draw(task: str, options: dict[str, Any], seed: int, start: int, count: int) -> list[tuple[int, str, str]]:
    """Number, text and answer of `count` problems from number `start` on, without those that the task fails to make.

    The answer is "" where a problem has several.
    """
    drawn = []
    for number in range(start, min(start + count, SIZE)):
        with suppress(ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError):
            entry = _entry(task, json.dumps(options), seed, number)
            drawn.append((number, str(entry["question"]), "" if entry["answer"] is None else str(entry["answer"])))
    return drawn


def score(answer: str, task: str, options: dict[str, Any], seed: int, number: int) -> float:
    """The task's own score of an answer to problem `number`. Raises ValueError for a scorer that evaluates text."""
    drawn = task, json.dumps(options), seed
    if _evaluates(*drawn):  # the request may be that of a data file
        raise ValueError(f"{task} evaluates text")
    value = float(_dataset(*drawn).score_answer(answer, _entry(*drawn, number)))
    return value if math.isfinite(value) else 0.0


REQUESTS = {"describe": describe, "draw": draw, "score": score}


@lru_cache(maxsize=16)
def _dataset(task: str, options: str, seed: int) -> Any:
    return sys.modules[f"{PACKAGE}.factory"].create_dataset(task, seed=seed, size=SIZE, **json.loads(options))


@lru_cache(maxsize=256)
def _entry(task: str, options: str, seed: int, number: int) -> dict[str, Any]:
    return _dataset(task, options, seed)[number]


@lru_cache(maxsize=16)
def _evaluates(task: str, options: str, seed: int) -> str | None:
    return next(evaluators(_dataset(task, options, seed)), None)


def evaluators(dataset: Any) -> Iterator[str]:
    """The calls in `score_answer` of a data set, and in what it uses of the package, that evaluate text.

    Whatever of EVALUATING_PACKAGES is named counts, as sympy evaluates every text that it gets. Functions and classes
    of the package are followed, the latter as a whole; a method of an unknown object counts by its name.
    """
    queue = [(dataset, vars(kind)["score_answer"]) for kind in type(dataset).__mro__ if "score_answer" in vars(kind)]
    seen = set()
    for owner, function in queue:  # which grows
        if function in seen:
            continue
        seen.add(function)
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
        names = vars(builtins) | vars(sys.modules[function.__module__]) | _imported(tree, function) | {"self": owner}
        for node in ast.walk(tree):
            if not isinstance(node, ast.Name | ast.Attribute):
                continue
            name, target = node.id if isinstance(node, ast.Name) else node.attr, _resolve(node, names)
            module = getattr(target, "__module__", None) or getattr(target, "__name__", None) or ""
            home = module.partition(".")[0] if isinstance(module, str) else ""
            if home in EVALUATING_PACKAGES:
                yield f"{home}.{name}"
            elif name in EVALUATES and (target is None or home == "builtins"):
                yield name
            elif home == PACKAGE:
                of_class = inspect.isclass(target)
                queue += [(target if of_class else owner, f) for f in _functions(target)]


def _imported(tree: ast.AST, function: Any) -> dict[str, Any]:
    """What a function imports itself."""
    names, package = {}, sys.modules[function.__module__].__package__
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {(a.asname or a.name.partition(".")[0]): importlib.import_module(a.name) for a in node.names}
        elif isinstance(node, ast.ImportFrom):
            module = importlib.import_module("." * node.level + (node.module or ""), package)
            names |= {a.asname or a.name: getattr(module, a.name, None) for a in node.names}
    return names


def _functions(target: Any) -> list[Any]:
    """A function or method, or all that a class and its parents in the package define; nothing of other objects."""
    owners = [kind for kind in target.__mro__ if kind.__module__.startswith(PACKAGE)] if inspect.isclass(target) else []
    members = [member for owner in owners for member in vars(owner).values()] or [target]
    members = (getattr(member, "__func__", None) or getattr(member, "fget", None) or member for member in members)
    functions = (inspect.unwrap(member) for member in members if callable(member))
    return [f for f in functions if inspect.isfunction(f) and f"/{PACKAGE}/" in f.__code__.co_filename]


def _resolve(node: ast.expr, names: Mapping[str, Any]) -> Any:
    """The object that a name or an attribute stands for; None if it is known only at run time."""
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.Attribute):
        parent = isinstance(node.value, ast.Call) and ast.unparse(node.value) == "super()"
        return getattr(names["self"] if parent else _resolve(node.value, names), node.attr, None)
    return None
