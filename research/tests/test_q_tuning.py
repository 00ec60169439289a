"""Rows of the Q-Tuning benchmark are valid runs, its table has means of known values, finished runs are only read."""

import json

import pytest

from d3s.config.load import load_config
from research import q_tuning
from research.q_tuning import ROWS, SETTINGS, measure, table


def test_rows_are_valid_and_distinct():
    configs = [
        load_config(["configs/sft.yaml"], [*SETTINGS, *row.overrides, f"train.steps={row.steps}"]) for row in ROWS
    ]
    assert len({config.model_dump_json() for config in configs}) == len({row.name for row in ROWS}) == len(ROWS)
    kept = [(config.sft.sample_share, config.sft.token_share) for config in configs]
    assert kept == [(1, 1), (0.5, 0.75), (0.5, 0.75), (0.2, 0.75), (0.2, 0.75)]


def test_table_has_means_and_values_of_all_seeds():
    records = [
        {"row": row.name, "seconds": 10.0 + seed, "pass@1": 20.0 + i + 2 * seed, "pass@8": 60.0}
        for i, row in enumerate(ROWS)
        for seed in (0, 1)
    ]
    lines = table(records, {"pass@1": 3.14, "pass@8": 20.0}).splitlines()
    assert lines[2] == "| start | 0 | 0 | 3.1 | 20.0 |"
    assert lines[4].endswith("| 10 | 22.0 (21.0, 23.0) | 60.0 (60.0, 60.0) |")
    assert len(lines) == 3 + len(ROWS)


def test_finished_runs_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(q_tuning, "ensure_base", lambda *_, **__: tmp_path)
    monkeypatch.setattr(q_tuning, "call", None)  # a call would fail
    folder = tmp_path / f"full-{ROWS[0].steps}-seed100"
    for name in ("model", "eval"):
        (folder / name).mkdir(parents=True)
    (folder / "model/config.json").write_text("{}")
    lines = [{"time/cpu": 0.25, "tokens_trained": 10 * step} for step in (1, 2)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "eval/summary.json").write_text(json.dumps({"results": [{"pass@1": 0.25, "pass@8": 0.5}]}))
    record = measure(ROWS[0], 100, tmp_path)
    assert (record["seconds"], record["tokens"]) == (0.5, 20)
    assert (record["pass@1"], record["pass@8"]) == pytest.approx((25, 50))
