"""The table of steps, tokens and seconds to a target, against hand-computed figures."""

import pytest

from benchmarks.learning.time_to_target import interval, row
from tests.helpers.experiments import make_run


def test_interval_is_students():
    assert interval([1000.0, 2000.0, 3000.0]) == "2,000 ± 2,484"  # 4.303 / sqrt(3)
    assert interval([None, None]) == "never"


@pytest.mark.parametrize(
    "target, reached, steps", [(0.5, "2 of 2", "2"), (0.7, "1 of 2", "4"), (0.95, "0 of 2", "never")]
)
def test_row_counts_runs_that_reach_the_target(tmp_path, target, reached, steps):
    """Pass@1 0.1, 0.5, 0.6 and 0.1, 0.5, 0.7 at steps 0, 2, 4: both reach 0.5 at step 2, one 0.7 at step 4."""
    runs = [make_run(tmp_path / str(end), [0.1, 0.5, end], tokens=10, seconds=1.0) for end in (0.6, 0.7)]
    name, count, *crossings = row("D3S", runs, target)
    assert (name, count) == ("D3S", reached)
    assert crossings[0].split(" ±")[0] == steps
