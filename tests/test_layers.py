"""The files and packages of d3s import one another in one direction, in few floors, and nothing imports the shelf."""

import ast
from collections import defaultdict
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

from tests.helpers.configs import ROOT

FLOORS = 8  # a file or package of d3s stands one floor above the highest that it imports, also for types alone
FILES = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in (ROOT / "d3s").rglob("*.py")}


def imports(tree: ast.AST) -> set[str]:
    """Names that are imported from d3s, also inside functions."""
    found = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {f"{node.module}.{a.name}" for node in found if (node.module or "").startswith("d3s") for a in node.names}


# What a package imports of d3s at most, as it is of use alone; the sandbox's processes have nothing else of d3s.
LEAVES = {"sandbox": {"common"}}


def test_leaves_import_next_to_nothing():
    for module, path in FILES.items():
        _, own, *_ = module.split(".")
        for name in imports(ast.parse(path.read_text())):
            assert own not in LEAVES or name.split(".")[1] in LEAVES[own] | {own}, f"{module} imports {name}"


def test_packages_import_downwards():
    below, why, floors = defaultdict(set), {}, {}
    for module, path in FILES.items():
        own = module.split(".")[1]
        for name in imports(ast.parse(path.read_text())):
            other = name.split(".")[1]
            why[own, other] = f"{module} imports {name}"
            if other != own:
                below[own].add(other)
            assert other != "methods" or own == "methods", why[own, other]
    try:
        for room in TopologicalSorter(below).static_order():
            floors[room] = 1 + max((floors[other] for other in below[room]), default=0)
    except CycleError as error:
        circle = error.args[1][::-1]
        raise AssertionError([why[pair] for pair in pairwise(circle)]) from error
    tower = [max(floors, key=floors.get)]
    while below[tower[-1]]:
        tower.append(max(below[tower[-1]], key=floors.get))
    assert len(tower) <= FLOORS, [why[pair] for pair in pairwise(tower)]
