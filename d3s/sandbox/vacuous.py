"""Which tests say nothing about a program, and which cases of pytest and unittest a test only defines."""

import ast
import re
from collections.abc import Iterator, Sequence

from d3s.sandbox.source import bound_names, dependents, mentions, parse, split_names

CHECK = re.compile(r"assert|raises|warns|fail|exit", re.IGNORECASE)  # in the name of what a test calls
NOTHING_ASKED = "asks the program nothing, so every program passes; assert what it returns"


def vacuous(tests: Sequence[str]) -> Iterator[tuple[int, int, str]]:
    """Yield index and line of each test that every program passes, or none, and why.

    What a test only defines counts if it runs: pytest's functions, unittest's classes, and what the rest names.
    """
    names = dependents(tests, split_names(tests)[0])
    for index, test in enumerate(tests):
        try:
            tree = parse(test)
        except (SyntaxError, ValueError) as error:
            yield index, getattr(error, "lineno", None) or 1, f"no Python ({error})"
            continue
        statements = _reached(tree)
        nodes = [node for statement in statements for node in ast.walk(statement)]
        line = tree.body[0].lineno if tree.body else 1
        if found := useless_statement(tree):
            yield index, *found
        elif not any(isinstance(n, ast.Assert | ast.Raise) or _calls_check(n) for n in nodes):
            yield index, line, "checks nothing; write assert, or join it with the test that checks"
        elif not mentions(statements, names):
            yield index, line, NOTHING_ASKED


def useless_statement(tree: ast.AST) -> tuple[int, str] | None:
    """Return the line of the first statement that could check and does not, and why; None without one."""
    raising = {id(s) for n in ast.walk(tree) if isinstance(n, ast.With) and _calls_check(n.items[0].context_expr)
               for s in n.body}  # fmt: skip
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Compare | ast.BoolOp) and id(node) not in raising:
            return node.lineno, "a comparison whose result is not used; write assert"
        if isinstance(node, ast.Assert) and _is_always_true(node.test):
            return node.lineno, "an assertion that is always true, as of a tuple or list; write all(...)"
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("assertTrue") and _is_true(node.args[:1]):
            return node.lineno, "an assertion that is always true"
        if isinstance(node, ast.With) and _holds_assertion(node.body) and "suppress(" in ast.unparse(node.items[0]):
            return node.lineno, "an assertion whose failure is suppressed"
        if isinstance(node, ast.Try) and not node.orelse and _holds_assertion(node.body):
            for handler in node.handlers:
                if _swallows(handler):
                    return handler.lineno, "an assertion whose failure is caught and only printed"
    checks = [n for n in ast.walk(tree) if isinstance(n, ast.Assert | ast.Raise) or _calls_check(n)]
    if checks and all(isinstance(n, ast.Assert) and _is_constant(n.test) for n in checks):
        return checks[0].lineno, NOTHING_ASKED
    return None


def _holds_assertion(statements: Sequence[ast.stmt]) -> bool:
    """Whether statements hold an assertion or call a case."""
    nodes = [node for statement in statements for node in ast.walk(statement)]
    called = [getattr(node.func, "id", "") for node in nodes if isinstance(node, ast.Call)]
    return any(isinstance(node, ast.Assert) for node in nodes) or any(name.startswith("test") for name in called)


def _is_always_true(condition: ast.expr) -> bool:
    """Whether a condition is a display with items, one comparison for each item of something, or text of one."""
    if isinstance(condition, ast.ListComp | ast.GeneratorExp):
        return isinstance(condition.elt, ast.Compare | ast.BoolOp)
    if isinstance(condition, ast.BoolOp):
        return isinstance(condition.op, ast.Or) and any(_is_true([value]) for value in condition.values)
    if isinstance(condition, ast.Compare) and isinstance(condition.ops[0], ast.IsNot):
        return isinstance(getattr(condition.left, "value", condition.left), ast.Compare | ast.BoolOp)
    if isinstance(condition, ast.Call) and condition.args:
        name, last = ast.unparse(condition.func), ast.unparse(condition.args[-1])
        return name in ("str", "repr") or (name, last) == ("isinstance", "object")
    return bool(getattr(condition, "elts", getattr(condition, "keys", ())))


def _is_true(values: Sequence[ast.expr]) -> bool:
    return any(isinstance(value, ast.Constant) and bool(value.value) for value in values)


def _is_constant(condition: ast.expr) -> bool:
    """Whether a condition is a constant that is true, or compares a constant with itself."""
    if isinstance(condition, ast.Compare) and isinstance(condition.ops[0], ast.Eq):
        constant = isinstance(condition.left, ast.Constant)
        return constant and ast.dump(condition.left) == ast.dump(condition.comparators[0])
    return _is_true([condition])


def _swallows(handler: ast.ExceptHandler) -> bool:
    """Whether a handler catches failed assertions and at most prints."""
    kinds = {n.id for n in ast.walk(handler.type) if isinstance(n, ast.Name)} if handler.type else {"BaseException"}
    statements = [s.value if isinstance(s, ast.Expr) else s for s in handler.body]
    harmless = all(
        isinstance(s, ast.Pass | ast.Continue | ast.Constant)
        or (isinstance(s, ast.Call) and ast.unparse(s.func) in ("print", "traceback.print_exc"))
        for s in statements
    )
    return harmless and bool(kinds & {"AssertionError", "Exception", "BaseException"})


def _calls_check(node: ast.AST) -> bool:
    name = getattr(node.func, "attr", getattr(node.func, "id", "")) if isinstance(node, ast.Call) else ""
    return bool(CHECK.search(name))


def _reached(tree: ast.Module) -> list[ast.stmt]:
    """The statements of a test without definitions that nobody runs: no cases, not decorated, not named elsewhere."""
    body = list(_module_level(tree.body))
    reached = [s for s in body if not _is_definition(s) or is_case(s) or s.decorator_list]
    while more := [s for s in body if s not in reached and _is_definition(s) and mentions(reached, {s.name})]:
        reached += more
    return reached


def _is_definition(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)


def _module_level(statements: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements, with those that stand in a block among them in its place if it defines something."""
    for statement in statements:
        inner = [s for field in ("body", "orelse", "finalbody") for s in getattr(statement, field, [])]
        if isinstance(statement, ast.If | ast.Try | ast.With) and any(_is_definition(s) for s in inner):
            yield from _module_level(inner)
        yield statement


def is_case(statement: ast.stmt) -> bool:
    """Whether pytest or unittest may run what a statement defines: of classes, those with a base or a test method."""
    if isinstance(statement, ast.ClassDef):
        methods = any(_is_definition(s) and s.name.startswith("test") for s in statement.body)
        return statement.name.startswith("Test") or (bool(statement.bases) and methods)
    return _is_definition(statement) and statement.name.startswith("test")


def cases_of(tree: ast.Module) -> list[str]:
    """Return the names of classes and functions that may be cases and that a test does not call itself."""
    called = {n.func.id for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
    bound = [name for s in _module_level(tree.body) for name in bound_names(s)]
    given = {
        s.name
        for s in tree.body
        if isinstance(s, ast.FunctionDef) and s.args.args and mentions([n for n in tree.body if n is not s], {s.name})
    }  # `for test in (test_a, test_b): test(f)`
    return [name for name in dict.fromkeys(bound) if name not in called | given]
