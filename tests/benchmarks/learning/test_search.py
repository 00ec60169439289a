"""The rows of the option search, and its tables on artificial runs."""

import sys

from benchmarks.learning import search
from tests.helpers.experiments import artificial_runs


def test_search_rows_are_valid_and_distinct(tmp_path):
    cells = [cell.extended(*search.SHARED_OVERRIDES) for _, rows, _ in search.TABLES for cell in rows]
    assert len({cell.folder(tmp_path) for cell in cells}) == len({cell.name for cell in cells}) == len(cells)


def test_search_writes_both_tables(tmp_path, monkeypatch):
    """GRPO's artificial runs end at 60 %, all others at 40 %; the steps and seconds of all are equal."""
    page = tmp_path / "results-tables.md"
    page.write_text("before\n<!-- search -->\nold\n<!-- /search -->\nafter\n")
    monkeypatch.setattr(search, "TABLES", [("One", search.CELLS[6:8], 2), ("Two", search.LONGER[:2], 1)])
    for name, value in {"DOCS": tmp_path, "RESULTS": tmp_path, "train_all": artificial_runs}.items():
        monkeypatch.setattr(search, name, value)
    monkeypatch.setattr(search, "ensure_base", lambda name: name)
    monkeypatch.setattr(sys, "argv", ["search", "--folder", str(tmp_path / "runs")])
    monkeypatch.chdir(tmp_path)
    search.main()
    text = page.read_text()
    assert text.startswith("before\n<!-- search -->\nCode at ") and "old" not in text and text.endswith("after\n")
    assert "### One\n\n2 seeds per row.\n" in text and "### Two\n\n1 seeds per row.\n" in text
    assert "| GRPO: learning rate 3e-4 | 4 | 4.0 | 60.0 (60.0 to 60.0) |" in text
    assert text.count("| -20.0") == 2
