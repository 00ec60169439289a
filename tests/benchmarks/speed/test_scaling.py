"""The scaling benchmark: fits against exact units and exponents, and its files at a small size."""

import json
import sys

import pytest

from benchmarks import harness
from benchmarks.speed import scaling
from benchmarks.speed.scaling import exponent, fit


def test_scaling_benchmark_writes_units_for_the_dry_run(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(scaling, "BASE", {"group": 4, "response_tokens": 8, "vocabulary": 300, "hidden": 64})
    for module in (scaling, harness):
        monkeypatch.setattr(module, "RESULTS", tmp_path)
    options = ["--doublings", "1", "--rounds", "1", "--axes", "response_tokens"]
    monkeypatch.setattr(sys, "argv", ["speed.scaling", *options])
    scaling.main()
    text = capsys.readouterr().out
    assert "8 / 16" in text and "Units of work" in text
    record = json.loads((tmp_path / "scaling.json").read_text())
    assert (tmp_path / "scaling.png").stat().st_size > 10_000
    assert {"generate", "update", "sync"} == set(record["units"]) and record["machine"]["gpu"]
    assert all(unit >= 0 for kinds in record["units"].values() for unit in kinds.values())


def test_units_are_recovered_and_never_negative():
    works = [{"calls": 1, "tokens": t, "weights": w} for t, w in ((10, 5), (20, 5), (40, 5), (40, 50), (10, 90))]
    exact = [(work, 2.0 + 0.5 * work["tokens"] + 0.1 * work["weights"]) for work in works]
    assert fit(exact) == pytest.approx({"calls": 2.0, "tokens": 0.5, "weights": 0.1})
    falling = fit([(work, 30.0 + work["tokens"] - 0.2 * work["weights"]) for work in works])
    assert falling["weights"] == 0 and falling["tokens"] > 0.5


def test_exponent_of_a_square():
    assert exponent([1, 2, 4], [3.0, 12.0, 48.0]) == pytest.approx(2)
