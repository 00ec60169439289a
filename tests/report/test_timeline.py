"""Test the phases of a step against hand-made metrics, where every second is accounted for."""

from d3s.report.timeline import phase_seconds


def test_phase_seconds_add_up_to_the_wall_time():
    lines = [
        {"step": 1, "wall_time": 9.0, "time/generate": 2.0, "time/update": 1.0, "time/step": 3.5},
        {
            "step": 2, "wall_time": 14.0, "time/generate": 2.0, "time/update": 1.0, "time/step": 3.0,
            "time/evaluate": 1.5,
        },
    ]  # fmt: skip
    got = {name: values.tolist() for name, values in phase_seconds(lines).items()}
    assert got == {"generate": [2, 2], "update": [1, 1], "evaluate": [0, 1.5], "other": [0.5, 0.5]}
