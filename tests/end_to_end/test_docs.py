"""Pages against the repository: commands and the notebook run; options, paths, links, names and warnings exist."""

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from d3s.common import read_json_lines
from d3s.config.schema import Config
from dev.notebook import SOURCE, cells, notebook
from tests.helpers.command_line import complete
from tests.helpers.pages import METRICS, PAGES, README, ROOT, section

CHECKED_FOR_OPTIONS = [ROOT / "Makefile", *sorted((ROOT / "configs").rglob("*.yaml"))]
CHECKED_FOR_OPTIONS += sorted((ROOT / "d3s").rglob("*.py"))
SOURCES = {path: path.read_text() for folder in ("d3s", "benchmarks") for path in sorted((ROOT / folder).rglob("*.py"))}
SOURCES |= {ROOT / name: (ROOT / name).read_text() for name in ("train.py", "train_sft.py", "eval.py")}
MAKEFILE = (ROOT / "Makefile").read_text()
OPTIONS = {section: field.annotation.model_fields for section, field in Config.model_fields.items()}
FILE_ENDINGS = {"py", "yaml", "json", "jsonl", "md", "html", "png", "safetensors"}  # train.py is no option
MBPP_COLUMNS = {"test_list", "test_setup_code", "test_imports"}  # no tests of this repository
OTHER_FILES = {"config.yaml", "my_rewards.py"}  # written by a run, or by the reader
COMMAND = re.compile(
    r"(train\.py|train_sft\.py|eval\.py|python -m (?:d3s|benchmarks)[\w.]*|accelerate launch)\b([^`#|\n]*)"
)
PATH = re.compile(r"(?<![\w/.:-])((?:configs|tests|benchmarks|docs|d3s|dev)/[\w./-]+\.(?:md|py|yaml|png))\b")
PUBLIC = {"_exit", "_current_frames", "_library"}  # documented by Python, and a part of the name of a logger


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def prose(path: Path) -> str:
    """The text of a file; of Python the strings only, which are docstrings and messages."""
    if path.suffix != ".py":
        return path.read_text()
    nodes = ast.walk(ast.parse(SOURCES[path]))
    return "\n".join(n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str))


def headings(page: Path) -> set[str]:
    """The anchors that GitHub gives the headings of a page."""
    lines = re.findall(r"^#+ (.+)$", page.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in lines}


def commands(page: Path) -> list[tuple[str, str]]:
    """The programs of this repository that a page calls, each with its arguments."""
    calls = []
    for program, rest in COMMAND.findall(page.read_text().replace("\\\n", " ")):
        before, nested, after = rest.partition("train.py")  # accelerate launch … train.py …
        calls += [(program, before), *([("train.py", after)] if nested else [])]
    return calls


def source_of(program: str) -> Path:
    path = ROOT / program.removeprefix("python -m ").replace(".", "/")
    if program.endswith(".py"):
        return ROOT / program
    return path.with_suffix(".py") if path.with_suffix(".py") in SOURCES else path / "__main__.py"


PROGRAMS = sorted({program for page in PAGES for program, _ in commands(page)})


def test_links_resolve():
    for page in PAGES:
        assert not re.findall(r"\]\([^)\s]*\s[^)]*\)", page.read_text())  # such as a target broken across lines
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
            file, _, anchor = target.partition("#")
            if not target.startswith("http"):
                linked = page.parent / file if file else page
                assert linked.exists(), f"{name_of(page)}: {target}"
                assert not anchor or anchor in headings(linked), f"{name_of(page)}: {target}"


def test_pages_are_linked_and_sections_named_in_code_exist():
    links = set(re.findall(r"\]\(([^)\s#]+)", README.read_text()))
    assert {name_of(page) for page in PAGES} - {"README.md"} <= links
    for file, text in SOURCES.items():
        for page, anchor in re.findall(r"(docs/[\w-]+\.md)#([\w-]+)", text):
            assert anchor in headings(ROOT / page), f"{name_of(file)}: {page}#{anchor}"


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_run_with_documented_flags(program, monkeypatch):
    monkeypatch.setenv("COLUMNS", "1000")
    monkeypatch.setenv("WANDB_MODE", "offline")
    rests = [rest for page in PAGES for name, rest in commands(page) if name == program]
    used = set(re.findall(r"(?<= )--[a-z][a-z_-]*", "\n".join(rests)))
    known, accelerate = set(), program == "accelerate launch"
    source = "" if accelerate else SOURCES[source_of(program)]
    assert accelerate or "__main__" in source
    if accelerate or re.search(r"ArgumentParser\(|argument_parser\(|arguments\(|d3s\.commands", source):
        words = ["-m", "accelerate.commands.launch"] if accelerate else program.removeprefix("python ").split()
        known = set(re.findall(r"--[a-z][a-z_-]*", complete([*words, "--help"])))
    assert used <= known, program


def test_make_targets_run_and_are_listed():
    documented = {t for page in PAGES for t in re.findall(r"(?:^|`)make ([a-z][a-z0-9-]*)", page.read_text(), re.M)}
    assert {"demo", "test", "help", "ablation"} <= documented
    targets = set(re.findall(r"^([a-z][a-z0-9-]*):", MAKEFILE, re.M))
    assert documented <= targets == set(re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.M)[1].split())
    for target in targets:
        done = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        for path in re.findall(r"(?<= )(?:\w+/)?tests(?:/[\w.]+)*(?= |$)", done.stdout, re.M):
            assert (ROOT / path).exists(), f"make {target}: {path}"
    listed = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, timeout=60).stdout
    assert set(re.findall(r"^  make (\S+) ", listed, re.M)) == targets  # under make test, make also prints directories


def test_options_and_functions_exist():
    for file in PAGES + CHECKED_FOR_OPTIONS:
        for owner, name in re.findall(r"(?<![\w./-])(?:d3s\.)?([a-z_]+)\.([a-z_]+)\b", prose(file)):
            module = ROOT / "d3s" / f"{owner}.py"
            packaged = ROOT / "d3s" / owner / f"{name}.py"
            if name in FILE_ENDINGS | set(OPTIONS.get(owner, ())) or packaged in SOURCES:
                continue
            if owner in OPTIONS or (file in PAGES and module in SOURCES):
                exists = module in SOURCES and hasattr(importlib.import_module(f"d3s.{owner}"), name)
                assert exists, f"{name_of(file)}: {owner}.{name}"


def test_files_and_tests_exist():
    text = "\n".join(page.read_text() for page in PAGES)
    folders = [ROOT / name for name in ("d3s", "tests", "configs", "benchmarks")]
    places = [ROOT, *folders, *(path for folder in folders for path in folder.rglob("*") if path.is_dir())]
    files = re.findall(r"(?<![\w/.:-])((?:configs|tests|benchmarks|docs|d3s|dev)/[\w./*-]+\.\w+)", text)
    files += re.findall(r"`((?:configs|tests|benchmarks|docs|d3s|dev)/(?:[\w-]+/)*)`", text)
    files += " ".join(re.findall(r"pytest ((?:tests/[\w/.]+ ?)+)", text)).split()
    files += re.findall(r"`([\w./-]+\.(?:py|yaml|png))`", text)
    for file in set(files) - OTHER_FILES:
        assert any(list(place.glob(file)) for place in places), file
    tests = "".join(path.read_text() for name in ("tests", "benchmarks") for path in (ROOT / name).rglob("*.py"))
    for name in set(re.findall(r"(?<![\w/])(test_\w+)(?![\w.])", text)) - MBPP_COLUMNS:
        assert f"def {name}(" in tests, name
    others = [ROOT / name for name in ("Makefile", "pyproject.toml", "requirements.txt", "requirements-cpu.txt")]
    for file in [*SOURCES, *(ROOT / "configs").rglob("*.yaml"), *others]:
        for path in PATH.findall(file.read_text()):
            assert (ROOT / path).exists(), f"{name_of(file)}: {path}"


def test_warnings_are_documented():
    rules = re.findall(r'(?:yield|return) \(?\s*"(\w+)",', SOURCES[ROOT / "d3s/tracking/health.py"])
    rules += re.findall(r'\.warn\("(\w+)"', SOURCES[ROOT / "d3s/tracking/tracker.py"])
    assert set(rules) == set(re.findall(r"^\| `(\w+)` \|", section(METRICS, "Warnings"), re.M))
    assert len(rules) > 8


def test_private_library_names_are_listed():
    """Names with a leading underscore that a file of d3s/ reads and does not define."""
    listed = section(ROOT / "docs/hacking.md", "Private names of libraries we rely on")
    for file in (ROOT / "d3s").rglob("*.py"):
        read = set(re.findall(r"(?:(?<!\bself)\.|import (?:.*, )?)(_(?!d3s)[a-zA-Z]\w*)", SOURCES[file]))
        own = set(re.findall(r"(?:def |class |self\.)(_\w+)", SOURCES[file]))
        for name in read - own - PUBLIC:
            assert name.endswith("__") or re.search(rf"\b{name}\b", listed), f"{name_of(file)}: {name}"


def test_stored_notebook_is_that_of_its_source():
    stored = SOURCE.with_suffix(".ipynb").read_text(encoding="utf-8")
    assert stored == notebook(SOURCE.read_text(encoding="utf-8"))


@pytest.mark.slow
def test_notebook_runs(base_model, monkeypatch, capsys):
    import matplotlib.pyplot as plt

    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(SOURCE.parent)
    names: dict = {}
    monkeypatch.setattr(plt, "show", lambda: plt.close("all"))
    for kind, text in cells(SOURCE.read_text(encoding="utf-8")):
        if kind == "code":
            exec(text.replace('"train.steps=40"', f'"train.steps=2", "model.name={base_model}"'), names)
    assert int(names["kept"].sum()) == 64 and 0 < int(names["batch"].selected.sum()) < 0.25 * len(names["priorities"])
    assert names["advantages"][names["kept"]].var() > names["advantages"].var()
    assert plt.imread(names["picture"]).shape[1] == 1376
    assert len(read_json_lines(names["folder"] / "metrics.jsonl")) == 2
    assert "tokens trained, priority ≥" in capsys.readouterr().out
