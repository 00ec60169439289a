"""The shelf d3s/methods/: the core does not know it, and every file has an overlay and names its paper."""

import ast
import re
from pathlib import Path

SHELF = sorted(path for path in Path("d3s/methods").glob("*.py") if path.stem != "__init__")


def test_core_does_not_import_the_shelf():
    for path in set(Path("d3s").rglob("*.py")) - set(SHELF):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
            names += [f"{node.module}.{name}" for name in names] if isinstance(node, ast.ImportFrom) else []
            assert not any(name.startswith("d3s.methods") for name in names), path


def test_every_method_has_an_overlay_and_a_paper():
    overlays = "".join(path.read_text() for path in Path("configs").rglob("*.yaml"))
    for path in SHELF:
        assert re.search(r"arXiv \d{4}\.\d{5}|OpenReview \w{10}", ast.get_docstring(ast.parse(path.read_text()))), path
        assert f"d3s.methods.{path.stem}:" in overlays, path
