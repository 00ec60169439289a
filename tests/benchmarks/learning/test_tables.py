"""Tables of the learning experiments on artificial runs; results.md against results-tables.md."""

import re
from pathlib import Path

import pytest

from benchmarks.learning.tables import comparison, results_table, verdict, write_between_marks
from d3s.evaluate.intervals import Estimate
from tests.helpers.experiments import make_run

DOCS = Path(__file__).resolve().parents[3] / "docs"


def test_unequal_steps_are_compared_in_equal_time_only(tmp_path):
    """Two steps of 10 s against four of 4.8, 5.2 and 5.4 s: 4 % less, 4 % and 8 % more."""
    first = make_run(tmp_path / "first", [0.1, 0.5], 10, 10.0)
    others = {x: make_run(tmp_path / str(x), [0.1, 0.3, 0.6], 10, x) for x in (4.8, 5.2, 5.4)}
    rows = [("first", [[first]]), *((str(x), [[run]]) for x, run in others.items())]
    lines = results_table(rows).splitlines()
    assert lines[2] == "| first | 2 | 20.0 | 50.0 | 100.0 | – | – |"
    assert lines[3].startswith("| 4.8 | 4 | 19.2 | 60.0 ") and lines[3].endswith(" | +10.0 | +0.0 |")
    assert lines[4].endswith(" | +10.0 | +0.0 |")
    assert lines[5].endswith(" | not compared: +8% seconds | – |")
    slow = make_run(tmp_path / "slow", [0.1, 0.4], 10, 30.0)  # at equal steps seconds do not matter
    assert comparison([[slow]], [[first]]) == ["-10.0", "+0.0"]


@pytest.mark.parametrize(
    "gap, expected",
    [
        (Estimate(0.2, 0.1, 0.3), "yes"),
        (Estimate(-0.2, -0.3, -0.1), "no"),
        (Estimate(0.2, -0.1, 0.5), "undecided"),
        (Estimate(0.2), "undecided"),
    ],
)
def test_verdict_needs_an_interval_without_zero(gap, expected):
    assert verdict(gap) == expected


def test_text_between_marks_is_replaced(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- x -->\nold\n<!-- /x -->\nb\n<!-- y -->\nkept\n<!-- /y -->\n")
    write_between_marks(page, "x", "new\n")
    assert page.read_text() == "a\n<!-- x -->\nnew\n<!-- /x -->\nb\n<!-- y -->\nkept\n<!-- /y -->\n"


def test_claims_page_agrees_with_tables_page():
    """Figures are equal, and verdicts follow from the intervals."""
    table = re.findall(
        r"^\| (.*) \| [^|]* over [^|]* \| (\S+) \((\S+) to (\S+)\) \|", (DOCS / "results-tables.md").read_text(), re.M
    )
    claims = re.findall(r"^\| (.*) \| (yes|no|undecided) \| (\S+) points \|", (DOCS / "results.md").read_text(), re.M)
    assert len(table) == len(claims) > 10
    for (claim, value, low, high), (shown_claim, shown_verdict, shown_value) in zip(table, claims, strict=True):
        assert (claim, value) == (shown_claim, shown_value)
        if "0.0" not in (low[1:], high[1:]):  # rounded to 0, the sign of the end is lost
            assert shown_verdict == verdict(Estimate(float(value), float(low), float(high)))
