"""Traces of profiled steps: their ranges, operators and table."""

import gzip
import json

from tests.helpers.training import train


def test_listed_steps_have_traces_with_phases(tied_model, tmp_path):
    _, metrics = train(tied_model, tmp_path, overrides=["train.profile_steps=[2]"])
    trace, table = sorted((tmp_path / "profile").iterdir())
    assert (trace.name, table.name) == ("step_000002_rank0.json.gz", "step_000002_rank0.txt")
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    ranges = {event["name"]: event for event in events if event.get("cat") == "user_annotation"}
    phases = ["exchange", "select", "update", "sync"]
    assert [name for name in sorted(ranges, key=lambda name: ranges[name]["ts"]) if name in phases] == phases
    for name in phases:
        assert 0 < ranges[name]["dur"] / 1e6 <= metrics[1][f"time/{name}"] + 1e-3
    start, end = ranges["update"]["ts"], ranges["update"]["ts"] + ranges["update"]["dur"]
    operators = {event["name"] for event in events if start <= event.get("ts", 0) < end}
    assert {"aten::mm", "MmBackward0"} <= operators and "aten::mm" in table.read_text()
