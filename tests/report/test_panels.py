"""Test the small multiples against hand-written values, panel lists and colors of the page."""

from d3s.report.panels import panels_for
from d3s.report.runs import group_runs, load_runs
from tests.helpers.run_directories import write_run, write_small_run


def test_panels_exist_only_for_logged_metrics(tmp_path):
    groups = group_runs(load_runs([write_small_run(tmp_path / "small", None)]))
    assert [panel.key for panel in panels_for(groups)] == ["reward/mean"]
    groups = group_runs(load_runs([write_run(tmp_path / "run", steps=20)]))
    keys = [panel.key for panel in panels_for(groups)]
    assert keys[:3] == ["eval/precedence/pass@1", "eval/precedence/pass@8", "reward/mean"]
    assert "policy/kl_ref" not in keys and "grad_norm" in keys
