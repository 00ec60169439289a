"""Seconds of one update at the shapes of Qwen2.5, D3S against dense GRPO and TRL (benchmarks/speed/gpu.py)."""

import statistics
import time
from collections.abc import Iterator
from types import SimpleNamespace

from benchmarks.gpu_check.rows import Row, at_most, equals
from benchmarks.speed.gpu import attempt, sides

CASES = {"cuda": [("1.5B", 1024), ("7B", 1024), ("0.5B", 1024), ("1.5B", 4096)], "cpu": [("tiny", 16)]}
ROLLOUTS = {"cuda": 32, "cpu": 8}
DENSE, UNSELECTED, COMPILED = "dense GRPO", "d3s without selection", "the same, compiled"
SIDE_SECONDS = {"cuda": 20, "cpu": 2}  # a side that takes longer than this is not started near the end
# Without selection D3S does the work of the dense side but its pass for old log-probabilities, in pieces and without
# padding. A ratio above this limit means that chunks, packing or the attention kernel cost more than these.
MOST_TO_DENSE = 1.25
COMPILED_LIMIT = 0.01  # of the gradient norm, as generated code rounds to bfloat16 in other places


def run(device: str, seconds: float) -> Iterator[Row]:
    """Median seconds, peak memory and attention operators of each side that the time and the memory allow."""
    started = time.monotonic()
    args = SimpleNamespace(
        rollouts=ROLLOUTS[device], prompt_tokens=128 if device == "cuda" else 4, micro_batch=2, rounds=3
    )
    skipped = []
    for shape, length in CASES[device]:
        _, functions = sides(shape, length, args)
        medians, norms = {}, {}
        for name, function in functions.items():
            label = f"{shape} at {length}: {name}"
            if time.monotonic() - started > seconds - SIDE_SECONDS[device]:
                skipped.append(label)
                continue
            result = attempt(function)
            if "failed" in result:
                yield Row(label, result["failed"])
                continue
            medians[name], norms[name] = statistics.median(result["seconds"]), result.get("grad_norm")
            operators = ", ".join(result.get("attention", []))
            peak = f", peak {result['peak_gb']:.1f} GB" if device == "cuda" else ""
            yield Row(label, f"{medians[name]:.3f} s{peak}{', ' + operators if operators else ''}")
            if device == "cuda" and name not in (COMPILED, DENSE, "TRL"):
                yield equals(f"{label}: attention", operators, "varlen_attn")
        if device == "cuda" and {DENSE, UNSELECTED} <= medians.keys():
            ratio = medians[UNSELECTED] / medians[DENSE]
            yield at_most(f"{shape} at {length}: {UNSELECTED} to {DENSE}", ratio, MOST_TO_DENSE)
        if {UNSELECTED, COMPILED} <= norms.keys():
            change = abs(norms[COMPILED] / norms[UNSELECTED] - 1)
            yield at_most(f"{shape} at {length}: change of the gradient norm by compiling", change, COMPILED_LIMIT)
    if skipped:
        yield Row("no time left for", "; ".join(skipped))
