"""Test the phases of a step against hand-made metrics, where every second is accounted for."""

import pytest
from matplotlib.figure import Figure

from d3s.report.runs import load_runs
from d3s.report.timeline import draw_time_stack, phase_seconds
from tests.helpers.run_directories import write_run


def test_phase_seconds_add_up_to_the_wall_time():
    lines = [
        {"step": 1, "wall_time": 9.0, "time/generate": 2.0, "time/update": 1.0, "time/step": 3.5},
        {
            "step": 2,
            "wall_time": 14.0,
            "time/generate": 2.0,
            "time/update": 1.0,
            "time/step": 3.0,
            "time/evaluate": 1.5,
        },
    ]
    got = {name: values.tolist() for name, values in phase_seconds(lines).items()}
    assert got == {"generate": [2, 2], "update": [1, 1], "evaluate": [0, 1.5], "other": [0.5, 0.5]}


def test_time_stack_returns_shares_of_the_time(tmp_path):
    (run,) = load_runs([write_run(tmp_path / "run", steps=40)])
    shares = dict(draw_time_stack(Figure().add_subplot(), run, bins=7))
    totals = {name: values.sum() for name, values in phase_seconds(run.metrics).items()}
    expected = {name: total / sum(totals.values()) for name, total in totals.items()}
    assert shares == pytest.approx({name: share for name, share in expected.items() if share >= 0.01})
