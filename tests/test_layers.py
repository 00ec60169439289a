"""The packages of d3s import one another in one direction, and nothing imports the shelf, by their syntax trees."""

import ast
from collections import defaultdict
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

from tests.helpers.configs import ROOT

FILES = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in (ROOT / "d3s").rglob("*.py")}


def imports(tree: ast.AST) -> set[str]:
    """Modules that run an import of d3s, also inside functions; not those of type checkers alone."""
    typing = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in ast.walk(block)
    }
    found = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and id(node) not in typing]
    return {f"{node.module}.{a.name}" for node in found if (node.module or "").startswith("d3s") for a in node.names}


def test_packages_import_downwards():
    above, why = defaultdict(set), {}
    for module, path in FILES.items():
        own = module.split(".")[1]
        for name in imports(ast.parse(path.read_text())):
            other = name.split(".")[1]
            why[own, other] = f"{module} imports {name}"
            if other != own:
                above[own].add(other)
            assert other != "methods" or own == "methods", why[own, other]
    try:
        TopologicalSorter(above).prepare()
    except CycleError as error:
        circle = error.args[1][::-1]
        raise AssertionError([why[pair] for pair in pairwise(circle)]) from error
