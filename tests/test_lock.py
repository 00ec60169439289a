"""uv.lock against the pins of requirements*.txt, the ranges of pyproject.toml and the public addresses of packages."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "uv.lock").read_text()
LOCK = tomllib.loads(TEXT)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
REQUIREMENTS = {"cpu": "requirements-cpu.txt", "gpu": "requirements.txt"}


def package(entry: dict) -> dict:
    """The package that a dependency means; its version is named where the lock has several."""
    same = [p for p in LOCK["package"] if p["name"] == entry["name"]]
    return next(p for p in same if entry.get("version") in (None, p.get("version")))


def installed(group: str, python: str) -> dict[str, dict]:
    """Follow the dependencies of `uv sync --group`: the packages by name."""
    environment = {"sys_platform": "linux", "platform_machine": "x86_64", "platform_system": "Linux"}
    environment |= {"python_version": python, "python_full_version": f"{python}.1", "extra": f"group-3-d3s-{group}"}
    todo, packages, expanded = [{"name": "d3s", "group": group}], {}, set()
    while todo:
        entry = todo.pop()
        if "marker" in entry and not Marker(entry["marker"]).evaluate(environment):
            continue
        packages[entry["name"]] = node = package(entry)
        wanted = [("dependencies", None), *(("optional-dependencies", extra) for extra in entry.get("extra", ()))]
        wanted += [("dev-dependencies", entry["group"])] if "group" in entry else []
        for table, key in wanted:
            if (entry["name"], table, key) not in expanded:
                expanded.add((entry["name"], table, key))
                todo += node.get(table, {}).get(key, ()) if key else node.get(table, ())
    return packages


def pins(file: str) -> dict[str, str]:
    lines = [line for line in (ROOT / file).read_text().splitlines() if "==" in line and line[0] != "#"]
    return {canonicalize_name(name): version for name, version in (line.split("==") for line in lines)}


@pytest.mark.parametrize("python", ["3.11", "3.12"])
@pytest.mark.parametrize("group", REQUIREMENTS)
def test_groups_install_the_pins(group, python):
    """Up to version 12 the wheel of cuda-python has the files of cuda-bindings; from 13 on it requires them."""
    packages, pinned = installed(group, python), pins(REQUIREMENTS[group])
    assert {name: packages[name]["version"] for name in pinned} == pinned and len(packages) > 150
    if group == "gpu":
        assert packages["cuda-python"]["version"] == packages["cuda-bindings"]["version"]
        assert "cuda-bindings" in {entry["name"] for entry in packages["cuda-python"]["dependencies"]}


def test_lock_is_of_these_ranges():
    of_trl = pins("benchmarks/requirements-trl.txt")
    assert {name: package({"name": name})["version"] for name in of_trl} == of_trl
    ranges, locked = set(), set()
    for extra, declared in {None: PROJECT["dependencies"], **PROJECT["optional-dependencies"]}.items():
        ranges |= {(extra, canonicalize_name(r.name), str(r.specifier)) for r in map(Requirement, declared)}
    for entry in package({"name": "d3s"})["metadata"]["requires-dist"]:
        extra = re.search(r"extra == '(\w+)'", entry.get("marker", ""))
        locked.add((extra[1] if extra else None, entry["name"], entry.get("specifier", "")))
    assert locked == ranges
    assert LOCK["requires-python"].replace(" ", "") == PROJECT["requires-python"]
