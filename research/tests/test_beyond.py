"""The rows beyond the paper are valid, and their tables on artificial runs have the known differences."""

import re
import sys

import numpy as np
import pytest

from d3s.data.problems import load_problems
from research import beyond
from research.beyond import (
    MEASURED,
    bases_table,
    differences_table,
    levels_table,
    logged_table,
    on_base,
    unmeasured,
)
from research.beyond_rows import COUNTDOWN, SECTIONS, Section, row
from research.methods import GRPO, shape
from research.tests.experiments import artificial_runs, config_of, make_run


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.name)
def test_section_rows_are_valid_and_distinct(section, tmp_path):
    copies = {on_base(cell, base, section.split).folder(tmp_path) for cell in section.rows for base in section.bases}
    labels = {cell.name for cell in section.rows}
    assert len(copies) == len(section.rows) * len(section.bases) and len(labels) == len(section.rows)
    assert set(section.rivals) <= labels and section.split in ("test", "validation")


def test_section_names_are_distinct():
    assert len({section.name for section in SECTIONS}) == len(SECTIONS)


def test_row_runs_on_the_task_of_its_base():
    cell = row("GRPO", 58, GRPO, *shape(128, 4))
    plain, countdown = (config_of(on_base(cell, base, "test")) for base in ("tiny:precedence@1", COUNTDOWN))
    assert (plain.data.path, plain.model.name) == ("synthetic:precedence", "tiny:precedence@1")
    assert (countdown.data.path, countdown.model.name) == ("synthetic:countdown", COUNTDOWN)
    assert countdown.reward.functions != plain.reward.functions
    for config in (plain, countdown):
        assert (config.rollout.num_generations, config.train.prompts_per_step, config.train.steps) == (4, 32, 58)
        assert (config.eval.split, config.eval.limit) == ("test", 256)


def test_tables_have_differences_to_first_row_and_rivals(tmp_path):
    """Rows at 30, 50 and 60 % on the first base and 20 points higher on the second; all runs of a row are equal."""

    def runs(name: str, end: float, seconds: float):
        return [
            [make_run(tmp_path / f"{name}{i}{j}", [0.1, end + 0.2 * i], 20, seconds) for j in range(2)]
            for i in range(2)
        ]

    rows = [("a", runs("a", 0.3, 1.0)), ("b", runs("b", 0.5, 2.0)), ("c", runs("c", 0.6, 3.0))]
    lines = differences_table(rows, ("b",)).splitlines()
    assert lines[0] == "|  | steps | seconds | Pass@1 | Pass@8 | over a | over b |"
    assert lines[2].startswith("| a | 2 | 2.0 | 40.0 (") and lines[2].endswith(" | – | -20.0 (-20.0 to -20.0) |")
    assert lines[3].endswith(" | +20.0 (+20.0 to +20.0) | – |")
    assert lines[4].startswith("| c | 2 | 6.0 | 70.0 (")
    assert lines[4].endswith(" | +30.0 (+30.0 to +30.0) | +10.0 (+10.0 to +10.0) |")
    second = "| b | 50.0 (50.0 to 50.0); +20.0 (+20.0 to +20.0) | 70.0 (70.0 to 70.0); +20.0 (+20.0 to +20.0) |"
    assert bases_table(rows, ("x", "y")).splitlines()[3] == second
    logged = logged_table(rows).splitlines()  # of the metrics, these runs have three
    assert logged[0] == "|  | kept with A ≠ 0 | gradient norm | tokens trained a step |"
    assert logged[2] == "| a | 0.75 | 0.5 | 20 |"
    assert logged_table(rows, {"rate": "grad_norm", "absent": "x"}).splitlines()[0] == "|  | rate |"


def test_five_seeds_are_measured(tmp_path):
    """Run means of 0.3 and 0.5 over 0.3: the paired differences of two seeds are 0 and 0.2, t(1) = 12.706, +- 1.27."""
    first = [[make_run(tmp_path / f"a{i}", [0.1, 0.3], 20, 1.0) for i in range(2)]]
    second = [[make_run(tmp_path / f"b{i}", [0.1, 0.3 + 0.2 * i], 20, 1.0) for i in range(2)]]
    rows = [("a", first), ("b", second)]
    assert unmeasured(rows, (), 2) == " **Not measured:** 2 seeds, intervals of differences from ±127.1 to ±127.1."
    assert unmeasured(rows, (), MEASURED) == ""
    assert unmeasured([("a", [first[0][:1]]), ("b", [second[0][:1]])], (), 1) == ""  # no interval, no width


def test_levels_table_splits_the_problems(tmp_path):
    """Runs at 20 and 50 %; the second is wrong on every problem of three operands."""
    problems = load_problems("synthetic:precedence", split="validation", limit=256)
    three = np.array([len(re.findall(r"\d", problem.problem)) == 3 for problem in problems])
    runs = {}
    for label, accuracy in (("a", 0.2), ("b", 0.5)):
        runs[label] = [[make_run(tmp_path / f"{label}{i}", [accuracy], 20, 1.0, problems=256) for i in range(2)]]
    for run in runs["b"][0]:
        run.evaluations[-1]["right"] = (5 * ~three).tolist()
    lines = levels_table(list(runs.items()), "validation").splitlines()
    assert lines[0] == "|  | 3-operands | over a | 4-operands | over a |"
    assert re.sub(r" \(.*?\)", "", lines[2]) == "| a | 20.0 | – | 20.0 | – |"
    assert re.sub(r" \(.*?\)", "", lines[3]) == "| b | 0.0 | -20.0 | 50.0 | +30.0 |"


def test_one_section_is_written_between_its_marks(tmp_path, monkeypatch):
    page = tmp_path / "beyond-tables.md"
    page.write_text("before\n<!-- one -->\nold\n<!-- /one -->\n<!-- two -->\nkept\n<!-- /two -->\n")
    rows = (row("GRPO", 8, GRPO), row("D3S", 8))
    sections = [Section("one", "First", rows, explain=True), Section("two", "Second", rows)]
    replacements = {"SECTIONS": sections, "RESEARCH": tmp_path, "RESULTS": tmp_path, "train_all": artificial_runs}
    for name, value in replacements.items():
        monkeypatch.setattr(beyond, name, value)
    monkeypatch.setattr(beyond, "ensure_base", lambda name: name)
    monkeypatch.setattr(sys, "argv", ["x", "--section", "one", "--seeds", "2", "--folder", str(tmp_path / "runs")])
    monkeypatch.chdir(tmp_path)
    beyond.main()
    text = page.read_text()
    assert text.startswith("before\n<!-- one -->\n\n## First\n\n2 seeds on tiny:precedence; 256 test problems")
    assert text.endswith("<!-- /one -->\n<!-- two -->\nkept\n<!-- /two -->\n") and "old" not in text
    assert "| D3S | 4 | 4.0 | 40.0 (40.0 to 40.0) | 100.0 (100.0 to 100.0) | -20.0 (-20.0 to -20.0) |" in text
    assert "intervals. **Not measured:** 2 seeds, intervals of differences from ±0.0 to ±0.0.\n" in text
    seeds = sorted(path.name for path in (tmp_path / "runs").glob("GRPO-*/*"))
    assert seeds == ["seed10", "seed11"]
