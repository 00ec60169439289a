"""Test the small multiples against hand-written values, panel lists and colors of the page."""

import pytest

from d3s.report.panels import format_value, panels_for
from d3s.report.runs import group_runs, load_runs
from tests.helpers.run_directories import write_run, write_small_run


@pytest.mark.parametrize(
    "value, form, text",
    [
        *[(0.345, "share", "34%"), (0.052, "share", "5.2%"), (1.0, "share", "100%"), (0.0, "share", "0%")],
        *[(1234, "count", "1.23k"), (2_060_000, "count", "2.06M"), (31, "count", "31"), (-1500, "count", "-1.5k")],
        *[(2.5e-4, "number", "2.5e-4"), (1e-6, "number", "1e-6"), (0.1234, "number", "0.123"), (0, "number", "0")],
    ],
)
def test_format_value_is_short(value, form, text):
    assert format_value(value, form) == text


def test_panels_exist_only_for_logged_metrics(tmp_path):
    groups = group_runs(load_runs([write_small_run(tmp_path / "small", None)]))
    assert [panel.key for panel in panels_for(groups)] == ["reward/mean"]
    groups = group_runs(load_runs([write_run(tmp_path / "run", steps=20)]))
    keys = [panel.key for panel in panels_for(groups)]
    assert keys[:3] == ["eval/precedence/pass@1", "eval/precedence/pass@8", "reward/mean"]
    assert "policy/kl_ref" not in keys and "grad_norm" in keys
