"""Test curves, groups, phases and tables of runs against the statistics module and hand-written files."""

import json
import math
import random
import re
import statistics
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from d3s.report.png import summary_title
from d3s.report.runs import differing_settings, group_runs, load_runs, mean_and_spread, smooth
from d3s.report.tables import Table, budget_tables, final_table, settings_table
from d3s.report.theme import PHASES
from d3s.report.timeline import phase_seconds
from tests.helpers.command_line import lines
from tests.helpers.run_directories import write_lines, write_run, write_small_run


def test_mean_and_spread_covers_the_common_range():
    # By wall time, no two runs share a point: y = x / 10 and y = 1 - x / 10 at their own times.
    curves = [(np.array(x, float), np.array(y, float)) for x, y in (([0, 4, 8], [0, 0.4, 0.8]), ([1, 5], [0.9, 0.5]))]
    x, mean, spread = mean_and_spread(curves)
    assert x.tolist() == [1, 4, 5]
    assert mean == pytest.approx([0.5, 0.5, 0.5])
    assert spread == pytest.approx([statistics.stdev([v / 10, 1 - v / 10]) for v in (1, 4, 5)])


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=40), st.integers(1, 50))
def test_smooth_is_a_centered_mean_shrinking_at_ends(values, window):
    got = smooth(np.array(values), window)
    for i, value in enumerate(got):
        reach = min(window // 2, i, len(values) - 1 - i)
        assert value == pytest.approx(statistics.fmean(values[i - reach : i + reach + 1]), abs=1e-8)


def test_curves_skip_missing_and_incomplete_lines(tmp_path, capsys):
    records = [{"step": 1, "loss": 0.5, "tokens_trained": 10}, {"step": 2, "loss": None}, {"step": 3, "loss": 0.25}]
    write_lines(tmp_path / "metrics.jsonl", records)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4, "loss": 0.1')
    (run,) = load_runs([tmp_path])
    assert [v.tolist() for v in run.curve("loss")] == [[1, 3], [0.5, 0.25]]
    assert [v.tolist() for v in run.curve("loss", "tokens")] == [[10], [0.5]]
    assert run.last_step == 3 and run.curve("nothing")[0].tolist() == []
    assert capsys.readouterr().err == ""
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write("25}x\n")  # the line is complete now, but damaged
    assert load_runs([tmp_path])[0].last_step == 3
    assert "metrics.jsonl: damaged lines are left out: 4\n" in capsys.readouterr().err


def test_steps_without_an_update_have_no_norm(tmp_path):
    values = [(1, 2.0), (0, 0.0), (4, 3.0)]
    lines_of = ({"step": i, "optimizer_steps": n, "grad_norm": v, "reward/mean": v} for i, (n, v) in enumerate(values))
    write_lines(tmp_path / "metrics.jsonl", lines_of)
    (run,) = load_runs([tmp_path])
    assert [v.tolist() for v in run.curve("grad_norm")] == [[0, 2], [2.0, 3.0]]
    assert run.curve("reward/mean")[1].tolist() == [2.0, 0.0, 3.0]


def test_runs_with_different_seeds_are_one_group(tmp_path):
    """By their settings, and by the names of directories without config.yaml."""

    def groups(root: str) -> dict[str, int]:
        return {group.name: len(group.runs) for group in group_runs(load_runs([tmp_path / root]))}

    for seed in range(3):
        for rate in (1e-3, 1e-4):
            own = {"train": {"seed": seed, "output_dir": f"runs/{seed}{rate}"}, "tracker": {"mirrors": ["x"] * seed}}
            write_small_run(tmp_path / f"set/d3s_lr{rate}_seed{seed}", {"optim": {"learning_rate": rate}} | own)
    assert groups("set") == {"d3s_lr0.0001": 3, "d3s_lr0.001": 3}
    for name in ("d3s_seed0", "d3s_seed1", "grpo-s0", "grpo-s1", "pods.seed=3.long", "s2"):
        write_small_run(tmp_path / "named" / name, None)
    assert groups("named") == {"d3s": 2, "grpo": 2, "pods.long": 1, "named": 1}


def test_malformed_lines_are_ignored(tmp_path):
    """Copies of all lines with one field of a wrong type change no table and raise no error."""
    malformed = ("null", "[1]", '"x"', "NaN", "1e999", "-1e308", "{}", "9" * 400)
    rng = random.Random(0)
    good, bad = (write_run(tmp_path / name, steps=6, seed=seed) for seed, name in enumerate(("good", "bad")))
    before = final_table(group_runs(load_runs([bad]))).rows
    for name in ("metrics", "eval", "warnings"):
        file, lines = bad / f"{name}.jsonl", []
        for line in file.read_text().splitlines() if file.exists() else ['{"step": 1, "message": "x"}']:
            record = json.loads(line)
            wrong = rng.choice(list(record))
            values = {k: rng.choice(malformed) if k == wrong else json.dumps(v) for k, v in record.items()}
            lines += [line, "{" + ", ".join(f"{json.dumps(key)}: {value}" for key, value in values.items()) + "}"]
        file.write_text("\n".join(lines) + "\n")
    assert final_table(group_runs(load_runs([bad]))).rows == before
    assert set(phase_seconds(load_runs([bad])[0].metrics)) == set(phase_seconds(load_runs([good])[0].metrics))
    for line in ("[1]", "train: [1]", "train: {steps: many, seed: [2]}", "a: {b: 2026-01-01}", "? [a, b]\n: 1"):
        (bad / "config.yaml").write_text(line)
        groups = group_runs(load_runs([good, bad]))
        assert len(groups) == 2
        assert settings_table(groups) and budget_tables(groups)


def test_groups_differ_by_data_and_machines(tmp_path):
    """Runs of other data are another group; the number of processes of a group may vary."""
    for name, content, processes in (("a-s0", "x", 1), ("a-s1", "x", 2), ("b-s0", "y", 1), ("b-s1", "y", 1)):
        run = write_small_run(tmp_path / name, {"train": {"seed": int(name[-1])}, "loss": {"beta": 0}})
        record = {"processes": processes, "machine": "a GPU", "content": {"data.path": content}}
        (run / "machine.json").write_text(json.dumps(record))
    groups = group_runs(load_runs([tmp_path]))
    assert [len(group.runs) for group in groups] == [2, 2]
    assert differing_settings(groups) == {"content of data.path": ["x", "y"], "processes": ["1, 2", "1"]}


def test_changes_of_resumptions_part_seeds(tmp_path):
    """Of train.steps and of contents, but not of steps that were computed again."""
    resumed = {
        "a": [(2, {"train.steps": 2}), (4, {"train.steps": 4, "data.path": "old"})],
        "b": [(3, {"train.steps": 9}), (2, {"train.steps": 2}), (4, {"train.steps": 4, "data.path": "old"})],
        "c": [(3, {"train.steps": 9}), (2, {"checkpoint.every": 1})],
        "d": [],
    }
    for seed, (name, resumes) in enumerate(resumed.items()):
        run = write_small_run(tmp_path / name, {"train": {"seed": seed, "steps": 8}})
        record = {"processes": 1, "machine": "a GPU", "content": {"data.path": "new"}}
        (run / "machine.json").write_text(json.dumps(record))
        changes = [(step, {key: {"old": old, "new": ""} for key, old in changed.items()}) for step, changed in resumes]
        write_lines(run / "resumes.jsonl", [{"step": step, "changed": changed} for step, changed in changes])
    groups = group_runs(load_runs([tmp_path]))
    assert [[run.path.name for run in group.runs] for group in groups] == [["a", "b"], ["c", "d"]]
    assert differing_settings(groups) == {
        "train.steps": ["2 until step 2, then 4 until step 4, then 8", 8],
        "content of data.path": ["old until step 4, then new", "new"],
    }


@pytest.mark.parametrize("name", ["data.path", "reasoning-gym:basic of data.path"])
def test_drawn_problems_do_not_part_seeds(tmp_path, name):
    """Training problems of reasoning-gym follow from the seed; those of an evaluation do not."""
    for seed in range(2):
        config = {"train": {"seed": seed}, "data": {"path": "reasoning-gym:basic"}}
        content = {name: str(seed), "reasoning-gym:basic of eval.data": "x"}
        run = write_small_run(tmp_path / f"s{seed}", config)
        (run / "machine.json").write_text(json.dumps({"processes": 1, "machine": "a GPU", "content": content}))
    assert len(group_runs(load_runs([tmp_path]))) == 1
    (run / "machine.json").write_text(json.dumps({"content": content | {"reasoning-gym:basic of eval.data": "y"}}))
    assert len(group_runs(load_runs([tmp_path]))) == 2


def test_phases_add_up_to_the_wall_time():
    """They are those that the trainer measures."""
    first = {"step": 1, "wall_time": 9.0, "time/generate": 2.0, "time/update": 1.0, "time/step": 3.5}
    second = first | {"step": 2, "wall_time": 14.0, "time/step": 3.0, "time/evaluate": 1.5}
    got = {name: values.tolist() for name, values in phase_seconds([first, second]).items()}
    assert got == {"generate": [2, 2], "update": [1, 1], "evaluate": [0, 1.5], "other": [0.5, 0.5]}
    source = "\n".join(path.read_text() for path in (Path(__file__).parents[2] / "d3s").glob("*.py"))
    measured = set(re.findall(r'timed\("(\w+)"\)|seconds\["(\w+)"\]', source))
    assert {name for pair in measured for name in pair if name} - {"step"} == set(PHASES) - {"other"}


# --- tables -----------------------------------------------------------------------------------------------------------


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
    first = (tmp_path / "run/eval.jsonl").read_text().splitlines(keepends=True)[0]
    (tmp_path / "run/eval.jsonl").write_text(first)
    row = columns(final_table(group_runs(load_runs([tmp_path / "run"]))), 0)
    assert row["Pass@8 before"] != "–" and row["Pass@8 after"] == "–"


def test_interval_is_that_of_the_value_beside_it(tmp_path):
    """One seed has ended, and the other has only begun; an evaluation after some steps is none before training."""
    end = {"pass@1_ci": [0.7, 0.9]}
    write_evaluations(tmp_path / "a-s0", "a", [(0, 0.2, {"pass@1_ci": [0.1, 0.3]}), (20, 0.8, end)])
    write_evaluations(tmp_path / "a-s1", "a", [(0, 0.4, {"pass@1_ci": [0.3, 0.5]})], seed=1)
    write_evaluations(tmp_path / "b", "b", [(20, 0.8, end)])
    table = final_table(group_runs(load_runs([tmp_path])))
    ends = [(row["Pass@1 before"], row["Pass@1 after"]) for row in (columns(table, 0), columns(table, 1))]
    assert ends == [("0.300", "0.800 [0.700, 0.900] (1 of 2 seeds)"), ("–", "0.800 [0.700, 0.900]")]
    titles = [summary_title(run, "d") for run in load_runs([tmp_path])]
    first = "Pass@1 40% before training, now at step 1"
    assert titles == ["Pass@1 from 20% to 80% in 20 steps", first, "Pass@1 80% at step 20"]


def test_final_values_are_of_finished_runs(tmp_path):
    """One is at step 10 of 20, one has done them, one has reached its goal at step 15."""
    for seed, (steps, key) in enumerate([(10, "entropy"), (20, "entropy"), (15, "stop_at")]):
        run = tmp_path / f"s{seed}"
        write_evaluations(run, "", [(0, 0.1), (steps, 0.4 + steps / 100)], seed)
        (run / "config.yaml").write_text(f"train: {{seed: {seed}, steps: 20}}")
        write_lines(run / "warnings.jsonl", [{"step": steps, "key": key, "message": ""}])
        write_lines(run / "metrics.jsonl", [{"step": steps, "reward/mean": steps / 100}])
    row = columns(final_table(group_runs(load_runs([tmp_path]))), 0)
    assert row["Pass@1 after"] == "0.575 [0.257, 0.893] (2 of 3 seeds)"
    assert row["reward"].startswith("0.175 [") and row["reward"].endswith(" (2 of 3 seeds)")


def test_final_values_are_of_the_last_evaluation(tmp_path):
    """A run that went on with other values of k has no last Pass@8."""
    points = [(0, 0.2, {"pass@8": 0.5}), (10, 0.3, {"pass@8": 0.6, "pass@8_ci": [0.4, 0.7]}), (20, 0.4)]
    write_evaluations(tmp_path / "a", "a", points)
    row = columns(final_table(group_runs(load_runs([tmp_path]))), 0)
    assert (row["Pass@1 after"], row["Pass@8 before"], row["Pass@8 after"]) == ("0.400", "0.500", "–")


def test_runs_of_one_seed_are_no_seeds(tmp_path):
    """Whatever their directories are called."""
    for folder, seed in (("a/x", 0), ("b/x", 0), ("c/x", 1)):
        write_evaluations(tmp_path / folder, "x", [(0, 0.2), (20, 0.8)], seed)
    groups = group_runs(load_runs([tmp_path / folder for folder in "abc"]))
    assert [[run.path.parent.name for run in group.runs] for group in groups] == [["a", "c"], ["b"]]
    assert len({group.name for group in groups}) == 2


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


def test_budgets_before_the_first_evaluation_are_left_out(tmp_path):
    """At 100 tokens, the end of the one, the other had not been evaluated: it begins at 150, as branches do."""
    for name, tokens in (("a", (50, 100)), ("b", (150, 300))):
        write_evaluations(tmp_path / name, name, [(5 + i, 0.2, {"tokens_trained": t}) for i, t in enumerate(tokens)])
    (table,) = budget_tables(group_runs(load_runs([tmp_path])))
    assert table.header[1::2] == ["at 6 steps", "at 6 s"]


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
