"""Which tests say nothing about a program, and which cases of pytest and unittest a test only defines."""

import ast
import builtins
import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from d3s.sandbox.source import nodes_of, split_names

# Nodes that bind names: the fields of the names and of what they are bound to.
BINDING: dict[type, tuple[str, str]] = {
    ast.Assign: ("targets", "value"),
    **dict.fromkeys((ast.AnnAssign, ast.AugAssign, ast.NamedExpr), ("target", "value")),
    **dict.fromkeys((ast.For, ast.comprehension), ("target", "iter")),
    ast.withitem: ("optional_vars", "context_expr"),
    ast.Expr: ("value", "value"),  # what a call may change
}
CHECK = re.compile(r"assert|raises|warns|fail|exit", re.IGNORECASE)  # in the name of what a test calls
NOTHING_ASKED = "asks the program nothing, so every program passes; assert what it returns"


def dependents(tests: Iterable[str], names: Collection[str]) -> set[str]:
    """Return the names of tests whose values may depend on the program, which has `names`."""
    found, nodes = set(names), [node for test in tests for node in nodes_of(test)]
    while True:
        more = {name for node in nodes for name in _made_from(node, found)} - found
        if not more:
            return found
        found |= more


def _made_from(node: ast.AST, names: Collection[str]) -> set[str]:
    """The names that a node binds to what mentions names, or that stand in a statement which calls such a name."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name} if mentions([node], names) else set()
    target, source = BINDING.get(type(node), ("", ""))
    if not source or not mentions([getattr(node, source)], names):
        return set()
    targets = getattr(node, target)
    bound = [part for part in (targets if isinstance(targets, list) else [targets]) if part is not None]
    return {n.id for part in bound for n in ast.walk(part) if isinstance(n, ast.Name)} - vars(builtins).keys()


def mentions(nodes: Iterable[ast.AST], names: Collection[str]) -> bool:
    """Whether one of the names stands in one of the nodes."""
    return any(isinstance(part, ast.Name) and part.id in names for node in nodes if node for part in ast.walk(node))


def vacuous(tests: Sequence[str]) -> Iterator[tuple[int, int, str]]:
    """Yield index and line of each test that every program passes, or none, and why.

    What a test only defines counts if it runs: pytest's functions, unittest's classes, and what the rest names.
    """
    names = dependents(tests, split_names(tests)[0])
    for index, test in enumerate(tests):
        try:
            tree = ast.parse(test)
        except (SyntaxError, ValueError) as error:
            yield index, getattr(error, "lineno", None) or 1, f"no Python ({error})"
            continue
        statements = _reached(tree)
        nodes = [node for statement in statements for node in ast.walk(statement)]
        line = tree.body[0].lineno if tree.body else 1
        if dropped := dropped_comparison(tree):
            yield index, dropped, "a comparison whose result is not used; write assert"
        elif not any(isinstance(n, ast.Assert | ast.Raise) or _calls_check(n) for n in nodes):
            yield index, line, "checks nothing; write assert, or join it with the test that checks"
        elif not mentions(statements, names):
            yield index, line, NOTHING_ASKED


def dropped_comparison(tree: ast.AST) -> int:
    """Return the line of a statement that only compares, 0 if there is none."""
    kinds = ast.Compare | ast.BoolOp
    dropped = (n.lineno for n in ast.walk(tree) if isinstance(n, ast.Expr) and isinstance(n.value, kinds))
    return next(dropped, 0)


def _calls_check(node: ast.AST) -> bool:
    name = getattr(node.func, "attr", getattr(node.func, "id", "")) if isinstance(node, ast.Call) else ""
    return bool(CHECK.search(name))


def _reached(tree: ast.Module) -> list[ast.stmt]:
    """The statements of a test without definitions that nobody runs: no cases, not decorated, not named elsewhere."""
    reached = [s for s in tree.body if not _is_definition(s) or is_case(s) or s.decorator_list]
    while more := [s for s in tree.body if s not in reached and _is_definition(s) and mentions(reached, {s.name})]:
        reached += more
    return reached


def _is_definition(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)


def is_case(statement: ast.stmt) -> bool:
    """Whether pytest or unittest would run what a statement defines."""
    if isinstance(statement, ast.ClassDef):
        bases = [getattr(base, "attr", getattr(base, "id", "")) for base in statement.bases]
        return statement.name.startswith("Test") or any(base.endswith("TestCase") for base in bases)
    return isinstance(statement, ast.FunctionDef) and statement.name.startswith("test")


def cases_of(tree: ast.Module) -> list[str]:
    """Return the names of the cases that a test defines and does not call itself."""
    return [s.name for s in tree.body if is_case(s) and not mentions([n for n in tree.body if n is not s], {s.name})]
