"""Speed-ups of artificial curves whose crossing is known in closed form."""

import numpy as np
import pytest

from research.claims import PAPER_SHAPE
from research.comparisons import NotComparable, Results
from research.rows import BY_NAME
from research.speedups import COMPARED, FACTORS, early_scores, speedup, speedup_table
from research.step_costs import Costs
from research.tests.experiments import cells_of, make_record, planned_runs

NONE = Costs([])
STEP = FACTORS[1] / FACTORS[0]


def line(row: str, per_step: float, noise: float = 0.0, seconds: float = 1.0) -> list:
    """Runs of a row whose Pass@1 grows by `per_step` a step from 0; each run has its own share of noise."""
    steps, rng = np.arange(0, BY_NAME[row].steps + 1, 12), np.random.default_rng(len(row))
    runs = []
    for run in planned_runs(BY_NAME[row], [0]):
        slope = per_step * (1 + noise * rng.standard_normal())
        shares = np.outer(steps * slope, np.ones(200)) + rng.uniform(-0.5, 0.5, 200) / 8  # rounds to the mean
        right = np.clip(np.round(8 * shares), 0, 8).astype(int)
        fields = {"row": row, "base": run.base, "seed": run.seed, "seconds": seconds * steps}
        runs.append(make_record(steps, right, **fields))
    return runs


@pytest.mark.parametrize("ratio", [1.25, 2.0])
def test_speedup_is_the_ratio_of_slopes(ratio):
    """Equal seconds a step: a curve that rises `ratio` times as fast is there in 1 / ratio of the time."""
    results = Results([*line("D3S", 0.006 * ratio), *line(PAPER_SHAPE, 0.006)], NONE)
    for axis in ("steps", "seconds"):
        got = speedup(results, "D3S", PAPER_SHAPE, axis)
        assert got.value == pytest.approx(ratio, rel=2 * (STEP - 1))
        assert got.low <= got.value <= got.high


def test_speedup_in_seconds_counts_the_cost_of_a_step():
    """Equal curves by step, half the seconds a step: no speed-up in steps, a factor of two in seconds."""
    runs = [*line("D3S", 0.008, seconds=1.0), *line("PODS", 0.008, seconds=1.0), *line(PAPER_SHAPE, 0.008, seconds=2.0)]
    results = Results(runs, NONE)
    assert speedup(results, "PODS", PAPER_SHAPE, "steps").value == pytest.approx(1, rel=2 * (STEP - 1))
    assert speedup(results, "PODS", PAPER_SHAPE, "seconds").value == pytest.approx(2, rel=2 * (STEP - 1))


def test_interval_covers_the_true_ratio():
    """Noisy slopes with a true ratio of 1.5: the interval is that of the difference at the crossing."""
    covered = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        pairs = [(name, slope) for name, slope in (("D3S", 0.009), (PAPER_SHAPE, 0.006))]
        runs = []
        for name, slope in pairs:
            for run in line(name, slope):
                factor = 1 + 0.05 * rng.standard_normal()
                right = np.clip(np.round(run.right * factor), 0, 8).astype(int)
                runs.append(make_record(run.steps, right, row=name, base=run.base, seed=run.seed))
        got = speedup(Results(runs, NONE), "D3S", PAPER_SHAPE, "steps")
        covered += got.low / STEP <= 1.5 <= got.high * STEP
    assert covered >= 17


def test_row_that_stays_below_has_no_speedup():
    results = Results([*line("D3S", 0.004), *line(PAPER_SHAPE, 0.008)], NONE)
    assert speedup(results, "D3S", PAPER_SHAPE, "steps") is None
    assert "not reached" in cells_of(speedup_table(results))[f"D3S to the Pass@1 of {PAPER_SHAPE}"]


def test_interval_without_an_end_is_open():
    """Noisy runs of equal slopes, which end at the budget: slower than the reference is not seen."""
    results = Results([*line("D3S", 0.0082, 0.2), *line(PAPER_SHAPE, 0.008, 0.2)], NONE)
    got = speedup(results, "D3S", PAPER_SHAPE, "steps")
    assert got is None or got.low is None
    with pytest.raises(NotComparable, match="ends before"):
        early_scores(results, "D3S", "steps", 0.5)


def test_table_says_what_has_no_runs():
    lines = cells_of(speedup_table(Results(line("D3S", 0.008), NONE)))
    assert len(lines) == len(COMPARED) and all(cells[1:] == ["no runs"] * 2 for cells in lines.values())
