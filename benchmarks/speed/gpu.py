"""Time one update in bfloat16 on a GPU: D3S, dense GRPO and, if installed, TRL, at Qwen2.5's shapes.

    .venv-trl/bin/python -m benchmarks.speed.gpu [--shapes 0.5B,1.5B,7B] [--lengths 1024,4096]      (make bench-gpu)

Random weights, 32 responses whose lengths vary between half of the limit and the limit. Needs torch, transformers and
accelerate only; benchmarks/speed/gpu_sides.py has the implementations. A side that runs out of memory reports it. The
table is printed and written after every side, and no side starts after --budget seconds (460). The column "attention"
has the operators that ran in the warm-up update, according to the profiler. tokens/s are the batch's response tokens,
however many of them were computed.

MFU counts the FLOPs of d3s/flops.py in passes with gradient; passes without gradient and recomputations do not
count. It is relative to the matrix-product rate that the device reaches in this process.
"""

import argparse
import gc
import re
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks.harness import publish
from benchmarks.speed.gpu_sides import DEVICE, GROUP, SHAPES, D3s, Dense, dense_cost, random_model
from benchmarks.speed.workload import make_rollouts
from d3s.launch import compiler_problem

ATTENTION = re.compile("_scaled_dot_product_|_varlen_attn")
COLUMNS = [
    "shape",
    "tokens",
    "side",
    "seconds",
    "to D3S",
    "tokens/s",
    "MFU",
    "peak GB",
    "forwarded / rows",
    "attention",
]


def synchronize() -> None:
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()


def measure(update: Callable[[dict], dict], work: dict, rounds: int) -> dict:
    """Time `rounds` updates after a warm-up update.

    Returns:
        the update's cost, `seconds` of each round, the peak of device memory in GB, and the attention operators of the
        warm-up
    """
    attention = attention_operators(lambda: update(work))
    if DEVICE.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    seconds = []
    for _ in range(rounds):
        synchronize()
        started = time.perf_counter()
        cost = update(work)
        synchronize()
        seconds.append(time.perf_counter() - started)
    return cost | {"seconds": seconds, "peak_gb": peak_gb(), "attention": list(attention)}


def attention_operators(function: Callable[[], object]) -> dict[str, int]:
    """Call a function, and count its forward calls of attention operators, by name in alphabetical order."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        function()
    calls = {event.key.split("::")[-1]: event.count for event in profile.key_averages()}
    found = {name.lstrip("_"): calls[name] for name in sorted(calls) if ATTENTION.match(name)}
    return {name: count for name, count in found.items() if "backward" not in name}


def peak_gb() -> float:
    return torch.cuda.max_memory_allocated() / 2**30 if DEVICE.type == "cuda" else 0.0


def trl_updates(shape: str, work: dict, micro_batch: int, rounds: int) -> dict:
    """Time TRL's trainer on the same rollouts, without the preparation of the batch.

    Raises:
        ImportError: TRL is not installed
    """
    from trl import GRPOConfig

    from benchmarks.speed.trl_side import TimedUpdates, options, with_fixed_rollouts
    from d3s.tiny import byte_tokenizer

    class Stopwatch(TimedUpdates):
        def on_step_begin(self, *args, **_) -> None:
            synchronize()
            self.trainer.preparing, self.started = (0.0, 0.0), time.perf_counter()

        def on_step_end(self, *args, **_) -> None:
            synchronize()
            seconds.append(time.perf_counter() - self.started - self.trainer.preparing[0])

    seconds: list[float] = []
    model = random_model(shape, "sdpa")
    longest = max(map(len, work["responses"]))
    settings = {"rollouts": len(work["responses"]), "group": GROUP, "micro_batch": micro_batch, "temperature": 1.0}
    with tempfile.TemporaryDirectory() as folder:
        settings |= {"response_tokens": longest, "learning_rate": 1e-6}
        arguments = options(Path(folder), settings, rounds + 1) | {"use_cpu": DEVICE.type == "cpu", "bf16": True}
        with_fixed_rollouts(model, byte_tokenizer(), GRPOConfig(**arguments), work | settings, Stopwatch(None)).train()
    return dense_cost(model, work) | {"seconds": seconds[1:], "peak_gb": peak_gb()}


def matrix_rate(size: int = 8192, warmup: float = 1.0) -> float:
    """FLOPs per second of a bfloat16 product of square matrices, after `warmup` seconds of such products."""
    size = size if DEVICE.type == "cuda" else 512
    a = torch.randn(size, size, device=DEVICE, dtype=torch.bfloat16)
    warmup_started = time.perf_counter()
    while time.perf_counter() - warmup_started < warmup:  # an idle device has low clocks
        a @ a
        synchronize()
    seconds = []
    for _ in range(12):
        synchronize()
        started = time.perf_counter()
        a @ a
        synchronize()
        seconds.append(time.perf_counter() - started)
    return 2 * size**3 / statistics.median(seconds)


def sides(shape: str, length: int, args: argparse.Namespace) -> tuple[dict, dict[str, Callable[[], dict]]]:
    """The rollouts of a shape and length, and a function per side that returns its result."""
    work = make_rollouts(SHAPES[shape][5], args.rollouts // GROUP, GROUP, args.prompt_tokens, length, ragged=True)
    micro_batch = args.micro_batch
    max_tokens = micro_batch * (length + args.prompt_tokens)
    problem = compiler_problem()

    def d3s(n: int, k: float, compiled: bool = False) -> Callable[[], dict]:
        return lambda: measure(D3s(shape, n, k, max_tokens, compiled).update, work, args.rounds)

    return work, {
        "D3S, N = G/4, K = 5 %": d3s(GROUP // 4, 0.05),
        "D3S, N = 5/8 G, K = 12.5 %": d3s(GROUP * 5 // 8, 0.125),
        "d3s without selection": d3s(GROUP, 1.0),
        "the same, compiled": (lambda: {"failed": problem}) if problem else d3s(GROUP, 1.0, compiled=True),
        "dense GRPO": lambda: measure(Dense(shape, micro_batch).update, work, args.rounds),
        "TRL": lambda: trl_updates(shape, work, micro_batch, args.rounds),
    }


def attempt(side: Callable[[], dict]) -> dict:
    """Run a side alone on the device, and return its result or the reason why it failed."""
    gc.collect()
    if DEVICE.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    try:
        return side()
    except torch.OutOfMemoryError:
        return {"failed": "out of memory"}
    except ImportError as error:
        return {"failed": f"not installed ({error.name})"}


def rows_of(shape: str, length: int, results: dict[str, dict], rate: float, total: int) -> list[list[str]]:
    """One row per side, for a batch with `total` response tokens."""
    rows = []
    for name, result in results.items():
        if "failed" in result:
            rows.append([shape, str(length), name, result["failed"], *[""] * (len(COLUMNS) - 4)])
            continue
        middle = statistics.median(result["seconds"])
        base = statistics.median(next(iter(results.values())).get("seconds", [middle]))
        spread = f"{middle:.3f} ({min(result['seconds']):.3f}-{max(result['seconds']):.3f})"
        mfu, peak = f"{result['flops'] / middle / rate:.0%}", f"{result['peak_gb']:.1f}"
        cells = [spread, f"{middle / base:.1f}x", f"{total / middle:,.0f}", mfu, peak]
        computed = f"{result['forwarded']:,.0f} / {result['rows']:,.0f}"
        rows.append([shape, str(length), name, *cells, computed, ", ".join(result.get("attention", ["unknown"]))])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", default="0.5B,1.5B,7B" if DEVICE.type == "cuda" else "tiny")
    parser.add_argument("--lengths", default="1024,4096" if DEVICE.type == "cuda" else "32")
    parser.add_argument("--rollouts", type=int, default=32)
    parser.add_argument("--prompt-tokens", type=int, default=128)
    parser.add_argument("--micro-batch", type=int, default=2, help="rollouts per micro-batch; for D3S as many tokens")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--budget", type=float, default=460, help="seconds after which no further side starts")
    args = parser.parse_args()
    started, rate = time.perf_counter(), matrix_rate()
    device = torch.cuda.get_device_name() if DEVICE.type == "cuda" else "CPU"
    title = f"One update of {args.rollouts} rollouts in bfloat16 on {device} ({rate / 1e12:.2f} TFLOP/s measured)"
    rows, cases, skipped = [], {}, []
    record = {"arguments": vars(args), "rate": rate, "cases": cases}
    for shape in args.shapes.split(","):
        for length in map(int, args.lengths.split(",")):
            work, functions = sides(shape, length, args)
            total, results = sum(map(len, work["responses"])), {}
            cases[f"{shape}-{length}"] = results
            for name, function in functions.items():
                if time.perf_counter() - started > args.budget:
                    skipped.append(f"{shape} at {length}, {name}")
                    continue
                results[name] = attempt(function)
                publish("gpu", title, COLUMNS, rows + rows_of(shape, length, results, rate, total), record)
            rows += rows_of(shape, length, results, rate, total)
    if skipped:
        publish("gpu", title, COLUMNS, rows, record, f"no time was left for: {'; '.join(skipped)}")


if __name__ == "__main__":
    main()
