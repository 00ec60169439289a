"""Traces of profiled steps: their ranges, operators and table, and files that cannot be written."""

import gzip
import json
from pathlib import Path

from tests.helpers.training import train


def read_trace(path: Path) -> list[dict]:
    return json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]


def test_listed_steps_have_traces_with_phases(tied_model, tmp_path):
    _, metrics = train(tied_model, tmp_path, overrides=["train.profile_steps=[2,3]"])
    names = {f"step_00000{step}_rank0.{kind}" for step in (2, 3) for kind in ("json.gz", "txt")}
    assert {path.name for path in (tmp_path / "profile").iterdir()} == names
    events = read_trace(tmp_path / "profile" / "step_000003_rank0.json.gz")
    ranges = {event["name"]: event for event in events if event.get("cat") == "user_annotation"}
    phases = ["exchange", "select", "update", "sync"]
    assert [name for name in sorted(ranges, key=lambda name: ranges[name]["ts"]) if name in phases] == phases
    for name in phases:
        assert 0 < ranges[name]["dur"] / 1e6 <= metrics[2][f"time/{name}"] + 1e-3
    start, end = ranges["update"]["ts"], ranges["update"]["ts"] + ranges["update"]["dur"]
    operators = {event["name"] for event in events if start <= event.get("ts", 0) < end}
    assert {"aten::mm", "MmBackward0"} <= operators
    assert "aten::mm" in (tmp_path / "profile" / "step_000003_rank0.txt").read_text()
