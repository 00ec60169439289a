"""A section beyond the paper is written when all of its runs are recorded, with differences to its references."""

import pytest

from research import results
from research.beyond import section
from research.results import write_sections
from research.row import GRPO
from research.rows import BY_NAME
from research.tests.experiments import planned_runs

NAME, SECTION = section("one", "First", {"GRPO": (8, 1e-4, GRPO), "D3S": (8, 1e-4)}, "GRPO", seeds=3)
PAGE = "before\n<!-- one -->\nold\n<!-- /one -->\nafter\n"


@pytest.fixture
def page(tmp_path, monkeypatch):
    for row in SECTION.rows:
        monkeypatch.setitem(BY_NAME, row.name, row)
    monkeypatch.setattr(results, "SECTIONS", {NAME: SECTION})
    monkeypatch.setattr(results, "RESEARCH", tmp_path)
    path = tmp_path / "beyond-tables.md"
    path.write_text(PAGE)
    return path


def test_section_is_written_between_its_marks(page):
    """4 of 8 right over 2 of 8, with two evaluations: at the beginning and at the end."""
    grpo, d3s = (planned_runs(row, [right]) for row, right in zip(SECTION.rows, (2, 4), strict=True))
    assert [run.steps.tolist() for run in grpo] == [[0, 8]] * 3
    write_sections([*grpo, *d3s])
    text = page.read_text()
    assert text.startswith("before\n<!-- one -->\n\n## First\n\n3 seeds on tiny:precedence; 256 test problems")
    assert text.endswith("<!-- /one -->\nafter\n") and "old" not in text and "| over GRPO |" in text
    assert "| D3S | 8 | 2.00 | 50.0 (50.0 to 50.0) | 100.0 (100.0 to 100.0) | +25.0 (+25.0 to +25.0) |" in text
    assert "| GRPO | 8 | 2.00 | 25.0 (25.0 to 25.0)" in text
    assert "in points. As many runs would find true differences of 0.0 with a probability of 80 %.\n" in text


@pytest.mark.parametrize("runs", [0, 5])
def test_section_without_all_runs_keeps_its_text(page, runs):
    write_sections([run for row in SECTION.rows for run in planned_runs(row, [2])][:runs])
    assert page.read_text() == PAGE
