"""FLOPs of a step, against sums by hand for a model of one layer; CPU time of processes that burn it; traces."""

import gzip
import json
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from d3s.config.load import load_config
from d3s.groups import RolloutGroups
from d3s.tracking.throughput import Throughput, cpu_seconds
from tests.helpers.training import train

MODEL = {
    "model_type": "qwen2", "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 1, "intermediate_size": 16, "vocab_size": 100,
}  # fmt: skip
TRUNK = 8 * (8 + 4 + 4) + 8 * 8 + 3 * 8 * 16  # weights of query, key and value; output; gate, up and down
PROMPTS = [[5] * 3, [5] * 9, [5] * 4]  # token ids


def make_throughput(option: str, ranks: int = 1, device: str = "cpu") -> Throughput:
    accelerator = SimpleNamespace(num_processes=ranks, device=torch.device(device))
    return Throughput(load_config([], [option]), MODEL, accelerator)


def hand_flops(lengths: list[int], rows: int, passes: int) -> int:
    """FLOPs of sequences of these lengths: every token attends to itself and all before it, in products of width 8."""
    pairs = sum(sum(range(1, n + 1)) for n in lengths)
    return passes * (2 * TRUNK * sum(lengths) + 2 * 2 * 8 * pairs + 2 * 100 * 8 * rows)


def test_update_share_matches_hand_count():
    """Two optimizer steps, one of which computes two rows of the head without gradient.

    Problem 2 has responses of 6 and 1 tokens, problem 0 has two of 2 and 1.
    """
    first = {"forwarded": 7, "pairs": 28, "rows": 2.0, "tokens": 2.0}
    steps, table = [first, {"forwarded": 4, "pairs": 10, "rows": 3.0, "tokens": 1.0}], torch.zeros(2, 2)
    groups = RolloutGroups([2, 0], [], table, table, torch.tensor([[6, 1], [2, 1]]), table == 0, table)
    metrics = make_throughput("optim.num_iterations=2").update(steps, groups, PROMPTS)
    flops = hand_flops([7], 2, passes=3) + hand_flops([4], 1, passes=3) + hand_flops([], 2, passes=1)
    dense = 2 * hand_flops([4 + 6 - 1, 4 + 1 - 1, 3 + 2 - 1, 3 + 1 - 1], 6 + 1 + 2 + 1, passes=3)
    assert metrics == {"selection/flops": flops, "selection/flops_share": pytest.approx(flops / dense)}


def test_mfu_is_relative_to_the_peak_of_all_cards(monkeypatch):
    """A peak second of work in 4 seconds on 2 cards."""
    step, seconds = {"selection/tokens_total": 600, "selection/flops": 989.4e12}, {"step": 3.0, "update": 4.0}
    for name, dtype, mfu in (("H100", "bfloat16", 1 / 8), ("H100", "float32", None), ("Unheard", "bfloat16", None)):
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda device, name=name: f"NVIDIA {name} 80GB HBM3")
        rates = make_throughput(f"model.dtype={dtype}", ranks=2, device="cuda").rates(step, seconds)
        assert rates.get("throughput/mfu") == mfu


BURN = "import time\nwhile time.process_time() < 0.4: pass\nprint(1, flush=True); input()"
PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BURN!r}])"


@pytest.mark.slow
def test_cpu_seconds_have_those_of_processes_below():
    """While a child of a child runs, and after it has ended, its time counts once."""
    before = cpu_seconds()
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-S", "-c", PARENT], **pipes) as child:
        child.stdout.readline()
        running = cpu_seconds() - before
        child.communicate("\n")
    assert 0.3 < running < 3 and running - 0.1 < cpu_seconds() - before < 3


def test_listed_steps_have_traces_with_phases(tied_model, tmp_path):
    _, metrics = train(tied_model, tmp_path, overrides=["train.profile_steps=[2]"])
    trace, table = sorted((tmp_path / "profile").iterdir())
    assert trace.name == "step_000002_rank0.json.gz" and "aten::mm" in table.read_text()
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    ranges = {event["name"]: event for event in events if event.get("cat") == "user_annotation"}
    phases = ["exchange", "select", "update", "sync"]
    assert [name for name in sorted(ranges, key=lambda name: ranges[name]["ts"]) if name in phases] == phases
    for name in phases:
        assert 0 < ranges[name]["dur"] / 1e6 <= metrics[1][f"time/{name}"] + 1e-3
    start, end = ranges["update"]["ts"], ranges["update"]["ts"] + ranges["update"]["dur"]
    assert "MmBackward0" in {event["name"] for event in events if start <= event.get("ts", 0) < end}
