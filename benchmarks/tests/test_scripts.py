"""Every script of the benchmarks is imported, and those with options print their help."""

import importlib
import sys

import pytest

from tests.helpers.pages import ROOT

MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for folder in ("speed", "verifier", ".")
    for path in sorted((ROOT / "benchmarks" / folder).glob("*.py"))
    if not path.stem.startswith(("__", "trl"))
]


@pytest.mark.parametrize("name", MODULES)
def test_script_explains_its_options(name, monkeypatch, capsys):
    module = importlib.import_module(name)
    if "argparse" in vars(module) and hasattr(module, "main") and not module.main.__code__.co_argcount:
        monkeypatch.setattr(sys, "argv", [name, "--help"])
        with pytest.raises(SystemExit) as ended:
            module.main()
        assert ended.value.code == 0 and "usage" in capsys.readouterr().out
