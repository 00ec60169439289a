"""The pages against the repository: the commands, options, paths, links, tests and warnings that they name exist."""

import ast
import importlib
import re
from pathlib import Path

import pytest

from d3s.config.schema import Config

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
OTHERS = [ROOT / "Makefile", *sorted((ROOT / "configs").rglob("*.yaml")), *sorted((ROOT / "d3s").rglob("*.py"))]
SOURCES = {path: path.read_text() for folder in ("d3s", "benchmarks") for path in sorted((ROOT / folder).rglob("*.py"))}
SOURCES |= {ROOT / name: (ROOT / name).read_text() for name in ("train.py", "eval.py")}
MAKEFILE = (ROOT / "Makefile").read_text()
OPTIONS = {section: field.annotation.model_fields for section, field in Config.model_fields.items()}
FILE_ENDINGS = {"py", "yaml", "json", "jsonl", "md", "html", "png", "safetensors"}  # train.py is no option
OF_A_RUN = {"config.yaml", "my_rewards.py"}  # written by a run, or by the reader
SOMETIMES = {"policy/kl_ref", "mismatch/tokens_capped", "mismatch/rollouts_masked", "loss/NAME"}  # by configuration


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def prose(path: Path) -> str:
    """A file's text; of Python its strings alone, which are docstrings and messages."""
    if path.suffix != ".py":
        return path.read_text()
    nodes = ast.walk(ast.parse(SOURCES[path]))
    return "\n".join(n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str))


def headings(page: Path) -> set[str]:
    """The anchors that GitHub gives the headings of a page."""
    lines = re.findall(r"^#+ (.+)$", page.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in lines}


def documented_metrics() -> set[str]:
    """The keys in the table of docs/reading-a-run.md; `a/b`, `c` is short for a/b and a/c, `a/b`, `_c` for a/b_c."""
    page = (ROOT / "docs/reading-a-run.md").read_text()
    table = page.partition("\n## Metrics\n")[2].partition("\n## ")[0]
    keys = set()
    for cell in re.findall(r"^\| (`.*?) \|", table, re.M):
        first, *more = re.findall(r"`([^`]+)`", cell)
        group, slash, _ = first.partition("/")
        short = {first + key if key[0] == "_" else key if "/" in key else group + slash + key for key in more}
        keys |= {first} | (short if slash else set(more))
    return keys


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_resolve(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        file, _, anchor = target.partition("#")
        if not target.startswith("http"):
            linked = page.parent / file if file else page
            assert linked.exists(), target
            assert not anchor or anchor in headings(linked), target


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_exist(page):
    text = page.read_text().replace("\\\n", " ")
    targets = set(re.findall(r"^([a-z0-9-]+):", MAKEFILE, re.M))
    assert set(re.findall(r"(?:^|`)make ([a-z0-9-]+)", text, re.M)) <= targets
    starts = r"(?:python -m (?=d3s|benchmarks)|(?=train\.py|eval\.py))"
    for program, rest in re.findall(starts + r"([\w.]+)([^`#|\n]*)", text):
        source = ROOT / (program if program.endswith(".py") else program.replace(".", "/") + ".py")
        source = source if source.exists() else source.with_suffix("") / "__main__.py"
        assert source in SOURCES, program
        known = (
            SOURCES[source] + SOURCES[ROOT / "benchmarks/learning/ablation.py"]
        )  # whose arguments other benchmarks share
        for flag in re.findall(r"(?<= )--[a-z][a-z-]*", rest):
            assert f'"{flag}"' in known, f"{program} {flag}"


@pytest.mark.parametrize("file", PAGES + OTHERS, ids=name_of)
def test_options_and_functions_exist(file):
    for section, name in re.findall(r"(?<![\w./-])(?:d3s\.)?([a-z_]+)\.([a-z_]+)\b", prose(file)):
        module = ROOT / "d3s" / f"{section}.py"
        packaged = ROOT / "d3s" / section / f"{name}.py"
        if name in FILE_ENDINGS | set(OPTIONS.get(section, ())) or packaged in SOURCES:
            continue
        if section in OPTIONS or (file in PAGES and module in SOURCES):
            exists = module in SOURCES and hasattr(importlib.import_module(f"d3s.{section}"), name)
            assert exists, f"{section}.{name}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_files_and_tests_exist(page):
    text = page.read_text()
    folders = [ROOT / name for name in ("d3s", "tests", "configs")]
    places = [ROOT, *folders, *(path for folder in folders for path in folder.rglob("*") if path.is_dir())]
    files = re.findall(r"(?<![\w/.:-])((?:configs|tests|benchmarks|docs|d3s)/[\w./*-]+\.\w+)", text)
    files += re.findall(r"`([\w./-]+\.(?:py|yaml|png))`", text)
    for file in set(files) - OF_A_RUN:
        assert any(list(place.glob(file)) for place in places), file
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("*.py"))
    for name in re.findall(r"(?<![\w/])(test_\w+)(?![\w.])", text):
        assert f"def {name}(" in tests, name


def test_warnings_are_documented():
    page = (ROOT / "docs/reading-a-run.md").read_text()
    rules = re.findall(r'Finding\(\s*"(\w+)"', SOURCES[ROOT / "d3s/tracking/health.py"])
    rules += re.findall(r'\.warn\("(\w+)"', SOURCES[ROOT / "d3s/tracking/tracker.py"])
    assert set(rules) == set(re.findall(r"^\| `(\w+)` \|", page.partition("\n## Warnings\n")[2], re.M))
    assert len(rules) > 8
