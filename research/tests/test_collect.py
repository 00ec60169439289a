"""Collected runs against Pass@k, budgets, differences and intervals worked out by hand."""

import csv
import json
import math

import pytest
import yaml

from d3s.common import UserError
from d3s.evaluation.intervals import t_quantile
from research.collect import main, read_curves, table


def write_run(folder, seed, counts, *, kind="grpo", seconds=2.0, final=None):
    """A run of 4 steps with an evaluation of 4 samples before training and after every second step.

    Args:
        counts: {benchmark: right answers per evaluation and problem}
        final: {benchmark: right answers per problem} of eval.py
    """
    folder.mkdir(parents=True)
    config = {"model": {"name": "m"}, "loss": {"kind": kind}, "train": {"seed": seed, "output_dir": str(folder)}}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    costs = {"selection/tokens_total": 100, "selection/tokens": 10, "time/step": seconds, "wall_time": 99.0}
    steps = [{"step": step} | costs for step in range(1, 5)]
    evaluations = [
        {"step": 2 * i, "data": name, "n": 4, "right": right}
        for name, all in counts.items()
        for i, right in enumerate(all)
    ]
    for name, lines in (("metrics", steps), ("eval", evaluations)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if final:
        (folder / "final").mkdir()
        results = [{"data": name, "n": 4, "right": right} for name, right in final.items()]
        (folder / "final" / "summary.json").write_text(json.dumps({"results": results}))


def cells(text, row):
    """The cells of a row of a Markdown table."""
    return next(
        [c.strip() for c in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith(f"| {row} ")
    )


def test_line_has_curves_and_counts(tmp_path, capsys):
    write_run(tmp_path / "grpo/seed3", 3, {"aime": [[0, 1], [2, 1], [4, 2]]}, final={"aime": [3, 4]})
    (tmp_path / "grpo/seed3/provenance.txt").write_text("commit abc\n8 cards\n")
    main([str(tmp_path / "grpo"), "--output", str(tmp_path / "out.csv"), "--k", "1,2"])
    training, final = csv.DictReader((tmp_path / "out.csv").open())
    names = ("model", "row", "seed", "benchmark", "part", "n", "provenance")
    assert [training[name] for name in names] == ["m", "grpo", "3", "aime", "training", "4", "commit abc 8 cards"]
    assert json.loads(training["settings"])["loss"] == {"kind": "grpo"}
    assert [training[c] for c in ("steps", "generated", "trained", "seconds")] == [
        "0 2 4",
        "0 200 400",
        "0 20 40",
        "0 4 8",
    ]
    assert training["right"] == "0;1 2;1 4;2" and training["pass@1"] == "0.125 0.375 0.75"
    # two of four samples: 1 - C(4 - c, 2) / C(4, 2) = 0, 1/2, 5/6, 1, 1
    assert [float(x) for x in training["pass@2"].split()] == pytest.approx([1 / 4, 2 / 3, 11 / 12], abs=1e-5)
    assert (final["part"], final["steps"], final["pass@1"], final["right"]) == ("final", "4", "0.875", "3;4")
    assert "## m: aime, final, after its own steps" in capsys.readouterr().out


def test_difference_is_paired_by_seed_and_problem(tmp_path):
    """Problems and seeds differ by up to 50 points; every pair of the two rows by exactly 25."""
    for seed in range(3):
        base = [[0, 0], [seed, 1], [seed, 1]]
        write_run(tmp_path / f"b/seed{seed}", seed, {"aime": base})
        write_run(tmp_path / f"a/seed{seed}", seed, {"aime": [[0, 0], *([seed + 1, 2],) * 2]}, kind="gspo")
    write_run(tmp_path / "a/seed7", 7, {"aime": [[4, 4]] * 3}, kind="gspo")  # without a partner
    text = table(read_curves([tmp_path / "b", tmp_path / "a"]), [1], "steps")
    assert cells(text, "b")[1:2] + cells(text, "b")[3:] == ["3", "–"]
    assert cells(text, "a")[1] == "4" and cells(text, "a")[3] == "+25.0 (+25.0 to +25.0)"


def test_equal_seconds_interpolate_the_slower_row(tmp_path):
    """8 against 16 seconds: after 8 the slower row is at its second evaluation, after 2 of 4 steps."""
    write_run(tmp_path / "fast/seed0", 0, {"aime": [[0, 0], [1, 1], [2, 2]]})
    write_run(tmp_path / "slow/seed0", 0, {"aime": [[0, 0], [3, 3], [4, 4]]}, kind="gspo", seconds=4.0)
    curves = read_curves([tmp_path / "fast", tmp_path / "slow"])
    assert cells(table(curves, [1], "seconds"), "slow")[2:] == ["75.0", "+25.0"]
    assert cells(table(curves, [1], "steps"), "slow")[2:] == ["100.0", "+50.0"]
    assert curves[0].at(1, "steps", 3).tolist() == [0.375, 0.375]


def test_mean_over_benchmarks_weighs_them_equally(tmp_path, capsys):
    """Means 0.5, 0.625, 0.75 over seeds; the last run, which lacks a benchmark, does not count."""
    for seed in range(3):
        counts = {"aime": [[0], [seed], [seed]], "math": [[4] * 9] * 3}
        write_run(tmp_path / f"grpo/seed{seed}", seed, counts)
    write_run(tmp_path / "grpo/seed9", 9, {"math": [[0] * 9] * 3})
    main([str(tmp_path / "grpo"), "--output", str(tmp_path / "out.csv"), "--k", "1"])
    section = capsys.readouterr().out.split("## m: mean of 2 benchmarks, training, equal steps")[1]
    half = t_quantile(2) * 12.5 / math.sqrt(3)
    assert cells(section, "grpo")[1:3] == ["3", f"62.5 ({62.5 - half:.1f} to {62.5 + half:.1f})"]


def test_k_above_the_samples_is_refused(tmp_path):
    write_run(tmp_path / "grpo/seed0", 0, {"aime": [[0]] * 3})
    with pytest.raises(UserError, match="at most 4"):
        main([str(tmp_path / "grpo"), "--output", str(tmp_path / "out.csv")])
