"""Test the tables of a report against the statistics module on the same files."""

import math
import statistics

import pytest

from d3s.report.runs import group_runs, load_runs
from d3s.report.tables import Table, budget_tables, final_table
from tests.helpers.command_line import lines
from tests.helpers.run_directories import write_lines, write_run, write_small_run


def columns(table: Table, row: int) -> dict[str, str]:
    return dict(zip(table.header, table.rows[row]))


def test_final_table_of_several_seeds(tmp_path):
    runs = [write_run(tmp_path / f"d3s-seed{seed}", seed=seed) for seed in range(3)]
    row = columns(final_table(group_runs(load_runs([tmp_path]))), 0)
    ends = [lines(run / "eval.jsonl")[-1]["pass@1"] for run in runs]
    metrics = [lines(run / "metrics.jsonl") for run in runs]
    rewards = [statistics.fmean(line["reward/mean"] for line in of_run[-13:]) for of_run in metrics]  # a tenth of 130
    trained = [of_run[-1]["tokens_trained"] for of_run in metrics]
    half, mean = 4.3026527 * statistics.stdev(ends) / math.sqrt(3), statistics.fmean(ends)
    assert row["Pass@1 after"] == f"{mean:.3f} [{mean - half:.3f}, {mean + half:.3f}]"
    assert row["Pass@1 before"] == "0.350"
    assert row["reward"].startswith(f"{statistics.fmean(rewards):.3f} [")
    assert row["trained tokens"].startswith(f"{statistics.fmean(trained) / 1000:.0f}k")
    assert (row["group"], row["seeds"], row["steps"]) == ("d3s", "3", "130")


def test_single_run_has_intervals_over_problems(tmp_path):
    groups = group_runs(load_runs([write_run(tmp_path / "run")]))
    record, row = lines(tmp_path / "run/eval.jsonl")[-1], columns(final_table(groups), 0)
    low, high = record["pass@8_ci"]
    assert row["Pass@8 after"] == f"{record['pass@8']:.3f} [{low:.3f}, {high:.3f}]"
    assert "[" not in row["reward"] and budget_tables(groups) == []


def write_evaluations(run, name, points, seed=0, **fields):
    """A run directory with (step, Pass@1, ...) evaluations, a second per step; `fields` hold for all of them."""
    path = write_small_run(run, {"loss": {"kind": name}, "train": {"seed": seed}})
    records = ({"step": s, "wall_time": s, "data": "d", "pass@1": v} | dict(*more) for s, v, *more in points)
    write_lines(path / "eval.jsonl", (record | fields for record in records))


def test_budgets_are_the_largest_that_all_runs_reach(tmp_path):
    # Pass@1 is linear in tokens in both, so interpolation at 100 tokens is exact: 0.2 + 0.001 t and 0.2 + 0.002 t.
    for name, slope, tokens in (("slow", 0.001, (0, 150, 300)), ("fast", 0.002, (0, 50, 100))):
        for seed, shift in enumerate((0.0, 0.02)):
            points = [(5 * i, 0.2 + slope * t + shift, {"tokens_trained": t}) for i, t in enumerate(tokens)]
            write_evaluations(tmp_path / f"{name}-s{seed}", name, points, seed)
    (table,) = budget_tables(group_runs(load_runs([tmp_path])))
    assert table.header[1::2] == ["at 10 steps", "at 100 tokens", "at 10 s"]
    fast, slow = table.rows
    assert [cell[:5] for cell in fast[1::2]] == ["0.410", "0.410", "0.410"] and fast[2::2] == ["–"] * 3
    assert [cell[:5] for cell in slow[1::2]] == ["0.510", "0.310", "0.510"]
    half = 4.3026527 * math.sqrt(2 * 0.0002 / 2)  # two variances of 0.0002 over 2 seeds each, 2 degrees of freedom
    assert slow[4] == f"-0.100* [{-0.1 - half:+.3f}, {-0.1 + half:+.3f}]"


@pytest.mark.parametrize("steps", [(0, 42), (0, 7, 42)])
def test_equal_runs_differ_by_nothing_at_common_steps(tmp_path, steps):
    """Of one concave curve, evaluated at many steps and at few; a step that only one of them has does not count."""
    curve = {step: 1 - math.exp(-step / 10) for step in (0, 7, 20, 30, 42, 60)}
    write_evaluations(tmp_path / "a", "a", list(curve.items()))
    write_evaluations(tmp_path / "b", "b", [(step, curve[step]) for step in steps])
    (table,) = budget_tables(group_runs(load_runs([tmp_path])))
    assert table.header == ["group", "at 42 steps", "difference", "at 42 s", "difference"]
    assert table.rows[1][1:] == [f"{curve[42]:.3f}", "+0.000"] * 2


def test_equal_time_counts_processes(tmp_path):
    """Two processes at half the wall time are no faster than one."""
    points = [(0, 0.0), (20, 0.2), (40, 0.4)]
    write_evaluations(tmp_path / "one", "one", points)
    halved = [(step, value, {"wall_time": step / 2}) for step, value in points]
    write_evaluations(tmp_path / "two", "two", halved, processes=2)
    (table,) = budget_tables(group_runs(load_runs([tmp_path])), ["time"])
    assert table.header[1] == "at 40 s (wall time x processes)"
    assert [row[1] for row in table.rows] == ["0.400", "0.400"]
