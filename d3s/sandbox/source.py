"""What the text of tests says before it runs: which names are the program's, and where statements begin."""

import ast
import builtins
import importlib
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

MODULES = "math cmath fractions decimal collections functools copy datetime typing"  # of what tests use unimported
PACKAGES = {"np", "numpy", "pd", "pandas", "pytest", "scipy", "sympy", "torch"}  # that the sandbox does not have
EVALUATORS = {"eval", "exec", "compile"}
LOADERS = {"code", "codeop", "marshal", "pickle", "runpy", "shelve"}  # modules that run what a text or bytes hold
# `from solution import f`, as tests of KodCode begin: the names are the program's
OWN_IMPORT = re.compile(
    r"^from[ \t]+\.?(?:solution|main|program|submission|your_module)[ \t]+import[ \t]+(?:\*|\w+(?:[ \t]*,[ \t]*\w+)*)"
    r"[ \t]*(?=$|#)",
    re.MULTILINE,
)
# Nodes that bind names: the fields of the names and of what they are bound to.
BINDING: dict[type, tuple[str, str]] = {
    ast.Assign: ("targets", "value"),
    **dict.fromkeys((ast.AnnAssign, ast.AugAssign, ast.NamedExpr), ("target", "value")),
    **dict.fromkeys((ast.For, ast.comprehension), ("target", "iter")),
    ast.withitem: ("optional_vars", "context_expr"),
    ast.Expr: ("value", "value"),  # what a call may change
}
SETTLE, IDENTITY, EVALUATE = "__d3s_settle__", "__d3s_identity__", "__d3s_evaluate__"  # functions of the tester


def _library() -> dict[str, Any]:
    """Functions, classes and numbers of the standard library by name; of two the one of the first module."""
    found: dict[str, Any] = {}
    for module in map(importlib.import_module, MODULES.split()):
        for name, value in vars(module).items():
            if name[0] != "_" and len(name) > 1 and (callable(value) or type(value) is float):
                found.setdefault(name, value)
    return found


LIBRARY = _library()


def split_names(tests: Iterable[str]) -> tuple[set[str], dict[str, Any]]:
    """Return the names that are the program's, and what the standard library gives for others that nobody defines.

    A name that tests neither define nor import is the standard library's if it is a module with the attribute that is
    read (`math.pi`), or if LIBRARY has it while another name is left that must be the program's. Such a name is tested
    itself, hence the program's, where a condition calls it on nothing but constants and variables that do not depend on
    the program: `assert gcd(4, 6) == 2`. Where
    LIBRARY has all names, those are the program's that the first operand of a condition calls last, on the inside:
    `sqrt` in `assert isclose(sqrt(4), 2.0)`. Where no name is the program's, so are builtins that a condition calls on
    nothing but constants: `assert sum(10, 15) == 6`.
    """
    nodes = [node for test in tests for node in nodes_of(test)]
    defined = {name for node in nodes for name in bound_names(node)} | vars(builtins).keys() | PACKAGES
    used = {node.id for node in nodes if isinstance(node, ast.Name)} - defined
    free = {name for name in used if not (name.startswith("__") and name.endswith("__"))}
    given: dict[str, Any] = {}
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in free:
            module = sys.modules.get(node.value.id)
            if module and node.value.id in sys.stdlib_module_names and hasattr(module, node.attr):
                given[node.value.id] = module
    free -= given.keys()
    conditions = [node.test for node in nodes if isinstance(node, ast.Assert)]
    conditions += [node.value for node in nodes if isinstance(node, ast.Expr)]
    bound = {name for node in nodes if not isinstance(node, ast.arg) for name in bound_names(node)}
    known = (bound - dependents(tests, free - LIBRARY.keys())) | {"self"} | vars(builtins).keys()
    if not free <= LIBRARY.keys():
        tested = {name for condition in conditions for name in _tested(condition, known)}
        given |= {name: LIBRARY[name] for name in free if name in LIBRARY and name not in tested}
    elif len(free) > 1:
        inner = [name for condition in conditions for name in _innermost(condition, free, known)]
        tested = {name for name, alone in inner if alone} or {name for name, _ in inner}
        given |= {name: LIBRARY[name] for name in free - tested if tested}
    if not free:
        free = {name for condition in conditions for name in _tested(condition, ()) if name in vars(builtins)}
    return free - given.keys(), given


def parse(test: str) -> ast.Module:
    """Parse a test, whose imports from the program fall away. Raises what ast.parse raises."""
    return ast.parse(OWN_IMPORT.sub("pass", test))


def _parse(test: str) -> ast.Module | None:
    try:
        return parse(test)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def nodes_of(test: str) -> Iterator[ast.AST]:
    tree = _parse(test)
    return iter(()) if tree is None else ast.walk(tree)


def bound_names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.alias):
        yield (node.asname or node.name).partition(".")[0]
    elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        yield node.id
    elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
        yield node.name


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


def _tested(condition: ast.expr, known: Collection[str]) -> set[str]:
    """The names that parts of a condition call without using another name but known ones."""
    if isinstance(condition, ast.BoolOp):
        return set().union(*(_tested(part, known) for part in condition.values))
    nodes = list(ast.walk(condition))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}.difference(known)
    called = {node.func.id for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    return names & called if len(names) == 1 else set()


def _innermost(node: ast.AST, free: Collection[str], known: Collection[str]) -> list[tuple[str, bool]]:
    """The free names that a condition calls on the inside, and whether on known names alone or given to a call."""
    if isinstance(node, ast.BoolOp):
        return [pair for part in node.values for pair in _innermost(part, free, known)]
    if isinstance(node, ast.Name):
        return [(node.id, True)] if node.id in free else []
    named = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    parts = [part for part in ast.iter_child_nodes(node) if not (named and part is node.func)]
    inner = next(filter(None, (_innermost(part, free, known) for part in parts)), [])
    if inner or not (named and node.func.id in free):
        return inner
    used = {n.id for part in parts for n in ast.walk(part) if isinstance(n, ast.Name)}
    return [(node.func.id, used <= set(known))]


def compile_test(test: str, number: int) -> Any:
    """Compile a test whose statements begin with SETTLE(), whose operands of `is` pass IDENTITY, and in which EVALUATE
    stands for eval, exec and compile of anything but a constant, and for imports of LOADERS. Raises SyntaxError."""
    tree = parse(test)
    constant = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call) and _has_constant(node)}
    for node in ast.walk(tree):
        if _is_identity(node) and len(node.ops) == 1:
            same = _call(IDENTITY, node.left, node.left, *node.comparators)
            node.left, node.ops, node.comparators = same, [_OTHER[type(node.ops[0])]()], [_constant(node)]
        elif _is_identity(node):
            node.left, *node.comparators = [_call(IDENTITY, o, o) for o in (node.left, *node.comparators)]
        elif isinstance(node, ast.Call) and _names_identity(node):
            equal, (left, right, *rest) = _SAME[node.func.attr], node.args
            node.func.attr, node.args = equal, [_call(IDENTITY, left, left, right), _constant(node), *rest]
        elif isinstance(node, ast.Name) and node.id in EVALUATORS and id(node) not in constant:
            node.id = EVALUATE if isinstance(node.ctx, ast.Load) else node.id
        elif isinstance(node, ast.Attribute) and node.attr in EVALUATORS and ast.unparse(node.value) == "builtins":
            node.value, node.attr = ast.copy_location(ast.Name(EVALUATE, ast.Load()), node), "__call__"
        for field in ("body", "orelse", "finalbody"):
            if isinstance(statements := getattr(node, field, None), list):
                setattr(node, field, list(_settled(statements)))
    return compile(ast.fix_missing_locations(tree), f"<test {number}>", "exec", dont_inherit=True)


def _is_identity(node: ast.AST) -> bool:
    """Whether a node compares what may be objects with `is`; no constant, such as None."""
    return (
        isinstance(node, ast.Compare)
        and any(isinstance(operator, ast.Is | ast.IsNot) for operator in node.ops)
        and not any(isinstance(operand, ast.Constant) for operand in (node.left, *node.comparators))
    )


_OTHER = {ast.Is: ast.Eq, ast.IsNot: ast.NotEq}  # of IDENTITY(left, right) with True


def _constant(place: ast.AST) -> ast.Constant:
    return ast.copy_location(ast.Constant(True), place)


_SAME = {"assertIs": "assertEqual", "assertIsNot": "assertNotEqual", "is_": "eq", "is_not": "ne"}


def _names_identity(node: ast.Call) -> bool:
    """Whether a call compares two that may be objects as `is` does, by unittest or the module operator."""
    known = isinstance(node.func, ast.Attribute) and node.func.attr in _SAME and len(node.args) > 1
    return known and not any(isinstance(operand, ast.Constant) for operand in node.args[:2])


def _has_constant(node: ast.Call) -> bool:
    return bool(node.args) and isinstance(node.args[0], ast.Constant)


def _settled(statements: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    for place, statement in enumerate(statements):
        docstring = place == 0 and isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        if not (docstring or (isinstance(statement, ast.ImportFrom) and statement.module == "__future__")):
            yield ast.copy_location(ast.Expr(_call(SETTLE, statement)), statement)
        modules = {getattr(statement, "module", None)} if isinstance(statement, ast.ImportFrom) else set()
        if isinstance(statement, ast.Import):
            modules = {alias.name for alias in statement.names}
        yield ast.copy_location(ast.Expr(_call(EVALUATE, statement)), statement) if modules & LOADERS else statement


def _call(name: str, place: ast.AST, *arguments: ast.expr) -> ast.Call:
    function = ast.copy_location(ast.Name(name, ast.Load()), place)
    return ast.copy_location(ast.Call(function, list(arguments), []), place)
