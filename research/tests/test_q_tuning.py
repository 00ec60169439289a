"""Rows of the Q-Tuning benchmark are valid runs, its table has means of known values, finished runs are only read."""

import json

import pytest

from d3s.config.load import load_config
from research import q_tuning
from research.q_tuning import ROWS, SETTINGS, measure, table


def test_rows_are_valid_and_distinct():
    configs = [
        load_config(["configs/sft.yaml"], [*SETTINGS, *own, f"train.steps={steps}"]) for steps, own in ROWS.values()
    ]
    assert len({config.model_dump_json() for config in configs}) == len(ROWS)
    kept = [(config.sft.sample_share, config.sft.token_share) for config in configs]
    assert kept == [(1, 1), (0.5, 0.75), (0.5, 0.75), (0.2, 0.75), (0.2, 0.75)]


def test_table_has_means_and_values_of_all_seeds():
    records = [
        {"row": name, "seconds": 10.0 + seed, "pass@1": 20.0 + i + 2 * seed, "pass@8": 60.0}
        for i, name in enumerate(("start", *ROWS))
        for seed in (0, 1)
    ]
    lines = table(records).splitlines()
    assert lines[2] == "| start | 0 | 10 | 21.0 (20.0, 22.0) | 60.0 (60.0, 60.0) |"
    assert lines[4].endswith("| 10 | 23.0 (22.0, 24.0) | 60.0 (60.0, 60.0) |")
    assert len(lines) == 3 + len(ROWS)


def test_finished_runs_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(q_tuning, "ensure_base", lambda *_, **__: tmp_path)
    monkeypatch.setattr(q_tuning, "call", None)  # a call would fail
    for folder in (tmp_path / "full-600-seed100", tmp_path / "start-seed100"):
        for name in ("model", "eval"):
            (folder / name).mkdir(parents=True)
        (folder / "model/config.json").write_text("{}")
        lines = [{"time/cpu": 0.25}] * 2
        (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        for summary in (folder / "eval/summary.json", folder / "summary.json"):
            summary.write_text(json.dumps({"results": [{"pass@1": 0.25, "pass@8": 0.5}]}))
    scores = {"pass@1": pytest.approx(25), "pass@8": pytest.approx(50)}
    assert measure("full", 100, tmp_path) == {"row": "full", "seconds": 0.5} | scores
    assert measure("start", 100, tmp_path) == {"row": "start", "seconds": 0.0} | scores
