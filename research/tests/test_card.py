"""The runs on one card: the compared methods differ in what their names say, and the tables in what was measured."""

from pathlib import Path

import pytest

from d3s.config.load import load_config
from research import card


def options(part: str, method: str) -> dict:
    """The resolved options of a run, flat."""
    arguments = card.Run(part, method, 1e-5, 1).arguments(Path("runs/card"), 40)
    files = [argument for argument in arguments if argument.endswith(".yaml")]
    config = load_config(files, [argument for argument in arguments if argument not in files])
    sections = config.model_dump().items()
    return {f"{section}.{key}": value for section, values in sections for key, value in values.items()}


def differing(one: dict, other: dict) -> set[str]:
    return {key for key in one if one[key] != other[key]} - {"train.output_dir"}


def test_methods_differ_in_their_rules_alone():
    d3s = options("test", "D3S")
    assert differing(d3s, options("test", "D3S, random tokens")) == {"selector.tokens"}
    assert {key.split(".")[0] for key in differing(d3s, options("test", "GRPO"))} == {"schedule", "loss"}


@pytest.mark.parametrize("part", ["search", "test"])
def test_rates_are_chosen_on_other_problems(part):
    assert options(part, "GRPO")["eval.split"] == {"search": "validation", "test": "test"}[part]


def test_tables_have_means_over_seeds(tmp_path):
    rows = [("test", "GRPO", "1e-05", seed, 10, value, value) for seed, value in ((1, 0.2), (2, 0.4))]
    lines = [[*card.KEYS, *card.COLUMNS["evaluations.csv"]], *rows]
    (tmp_path / "evaluations.csv").write_text("\n".join(",".join(map(str, line)) for line in lines))
    assert "| GRPO | 30.0 (20.0-40.0) |" in card.learning_table(tmp_path, "test", 1)


def test_curves_stand_at_the_seconds_before_each_evaluation(tmp_path):
    """Of two seeds, whose steps have other seconds; the first evaluation precedes all steps."""
    steps = [("test", "D3S", "1e-05", seed, step, seed * step, *[0] * 8) for seed in (1, 2) for step in (1, 2, 3)]
    evaluations = [("test", "D3S", "1e-05", seed, step, step / 10, 1) for seed in (1, 2) for step in (0, 2, 3)]
    for name, rows in (("steps.csv", steps), ("evaluations.csv", evaluations)):
        lines = [[*card.KEYS, *card.COLUMNS[name]], *rows]
        (tmp_path / name).write_text("\n".join(",".join(map(str, line)) for line in lines))
    one, two = card.curves(tmp_path, "test", 1).values()
    assert one == [(0, 0), (3, 0.2), (6, 0.3)] and two == [(0, 0), (6, 0.2), (12, 0.3)]


def test_summary_has_the_second_and_the_last_evaluation(tmp_path):
    """Means of two seeds; those at step 0 and in between are left out."""
    steps = [("test", "D3S", "1e-05", seed, 9, *[0] * 7, 100 * seed, 0) for seed in (1, 3)]
    levels = {0: 0.1, 3: 0.2, 6: 0.3, 9: 0.4}
    evaluations = [
        ("test", "D3S", "1e-05", seed, step, level, level + seed / 10)
        for seed in (1, 3)
        for step, level in levels.items()
    ]
    for name, rows in (("steps.csv", steps), ("evaluations.csv", evaluations)):
        lines = [[*card.KEYS, *card.COLUMNS[name]], *rows]
        (tmp_path / name).write_text("\n".join(",".join(map(str, line)) for line in lines))
    assert "| D3S | 20.0 | 40.0 | 60.0 | 200 |" in card.summary_table(tmp_path, "test")
