"""Tables of the studies on artificial runs with known values."""

from dataclasses import replace

import numpy as np

from research import study_tables
from research.comparisons import Results
from research.rows import BY_NAME, STUDIES
from research.step_costs import Costs
from research.tests.experiments import cells_of, planned_runs

TOKENS, SCHEDULES = (
    next(s for s in study_tables.TABLES if s.title == title) for title in ("Tokens kept, K", "Schedules")
)
N_ROW, ORDER_ROW = "N = 16 of 16, K = 5%", "128 problems, D3S, MoPPS"


def results_of(runs) -> Results:
    return Results(runs, Costs([]))


def test_every_study_has_a_title():
    """One, and none has a reference of another study."""
    assert all(sum(study.part in row.name for study in study_tables.TABLES) == 1 for row in STUDIES)
    assert all(study.reference in BY_NAME and study.part in study.reference for study in study_tables.TABLES)
    assert len({study.title for study in study_tables.TABLES}) == len(study_tables.TABLES)


def test_study_table_has_the_values_of_its_runs():
    """Five runs of 60 steps of 2 seconds; Pass@1 differs by seed, the largest norm is in one interval of one run."""
    runs = planned_runs(BY_NAME[N_ROW], [2, 3, 4, 5, 6])
    for run in runs:
        run.logged["grad_norm"][:], run.logged["entropy"][:] = 0.25, 0.125
        run.kl_to_base[-1] = 0.5
    runs[3].logged["grad_norm_peak"][2] = 7.25
    runs[1].logged["grad_norm_peak"][0] = np.nan
    (cells,) = cells_of(study_tables.study_table(results_of(runs), TOKENS)).values()
    assert cells[:2] == ["60", "2.00"] and cells[2].startswith("50.0 (") and cells[3] == "100.0 (100.0 to 100.0)"
    assert cells[4:8] == ["no runs", "0.25", "7.2", "0.125"]
    assert cells[8:] == ["0.500 (0.500 to 0.500)"]


def test_study_table_shortens_names():
    runs = [run for name in (N_ROW, "schedule: cosine", "PODS") for run in planned_runs(BY_NAME[name], [1])]
    results = results_of(runs)
    assert study_tables.study_names(results, "schedule: ") == ["schedule: cosine"]
    assert list(cells_of(study_tables.study_table(results, SCHEDULES))) == ["cosine"]
    assert list(cells_of(study_tables.study_table(results, TOKENS))) == ["K = 5%"]


def test_study_table_has_paired_differences():
    """The seeds of the reference differ as much as those of the row: pairs have no spread."""
    linear = planned_runs(BY_NAME["schedule: linear"], [1, 2, 3, 4, 5])
    better = [np.vstack([run.right[:1], run.right[1:] + 2]) for run in linear]
    changed = [{"right": right, "seconds": 9 * run.seconds} for run, right in zip(linear, better)]
    cosine = [replace(run, row="schedule: cosine", **new) for run, new in zip(linear, changed)]
    table = study_tables.study_table(results_of([*linear, *reversed(cosine)]), SCHEDULES)
    assert "| over linear |" in table
    lines = cells_of(table)
    assert (lines["linear"][4], lines["cosine"][4]) == ("–", "+25.0 (+25.0 to +25.0)")


def test_curve_table_has_means_by_step():
    """One row is evaluated at 0, 12, ... 96, the other at 0, 12, ... 120."""
    grpo = planned_runs(BY_NAME["twice the time: GRPO, G = 16"], [1, 3])
    d3s = planned_runs(BY_NAME["twice the time: D3S"], [8])
    results = results_of([*grpo, *d3s])
    table = study_tables.curve_table(results, "twice the time: ", lambda run: run.levels(1))
    assert table.splitlines()[0] == "| step | " + " | ".join(str(step) for step in range(0, 121, 12)) + " |"
    lines = cells_of(table)
    assert lines["GRPO, G = 16"] == ["0.0"] + ["22.5"] * 8 + [""] * 2  # three seeds with 1 and two with 3 of 8 right
    assert lines["D3S"] == ["0.0"] + ["100.0"] * 10
    kl = [replace(run, kl_to_base=run.steps / 1000) for run in d3s]
    lines = cells_of(study_tables.curve_table(results_of(kl), "twice the time: ", lambda run: run.kl_to_base, 1, 3))
    assert lines["D3S"][::5] == ["0.000", "0.060", "0.120"]


def test_order_table_has_the_gap_to_training():
    runs = planned_runs(BY_NAME[ORDER_ROW], [4])
    for run in runs:
        run.logged["zero_std_groups"][:], run.logged["usefulness"][:] = 0.25, 0.75
        run.logged["reward"][:] = [0.1] * 5 + [0.8]
    lines = cells_of(study_tables.order_table(results_of([*runs, *planned_runs(BY_NAME["PODS"], [4])])))
    assert lines == {"D3S, MoPPS": ["25", "75", "50.0 (50.0 to 50.0)", "+30.0 (+30.0 to +30.0)"]}
