"""Several cards: steps of all ranks against those of one process, resumed by fewer ranks; train.py on all ranks."""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from benchmarks.gpu_check.models import DTYPE, free_memory, save_random
from benchmarks.gpu_check.rows import Row, at_least, at_most, equals
from benchmarks.gpu_check.training import options_of, train
from benchmarks.harness import ROOT

# In float32 ranks differ from one process by the order of additions alone. AdamW divides a gradient by its size, so of
# a gradient near 0 rounding decides the step: weights are compared by their distance, relative to the way they went.
LEAST_SAME = 0.99  # of the selected tokens; entropies that are equal but for rounding may change places
NORM_LIMIT = 1e-3
WEIGHTS_LIMIT = 0.02


@dataclass
class Result:
    """What the ranks of one launch of ranks.py have written."""

    record: dict
    weights: dict[str, Tensor]


def number_of_ranks(device: str) -> int:
    """One for each card; two on the CPU."""
    return torch.cuda.device_count() if device == "cuda" else 2


def launcher(kind: str, device: str, ranks: int) -> list[str]:
    """The command before a script and its arguments; `kind` is single, ddp or zero3."""
    if kind == "single":
        return [sys.executable]
    if kind == "ddp":
        return [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(ranks)]
    file = f"configs/accelerate/zero3_{'8gpu' if device == 'cuda' else 'cpu'}.yaml"
    return [sys.executable, "-m", "accelerate.commands.launch", "--config_file", file, "--num_processes", str(ranks)]


def launch(command: list[str]) -> int:
    """Run a command line in this stage's process group; its output is in this stage's log. Returns the exit code."""
    return subprocess.run(command, cwd=ROOT).returncode


def update(device: str, seconds: float) -> Iterator[Row]:
    """Three steps under DDP and ZeRO-3, and the third repeated by half of the ranks from the checkpoint before it."""
    import d3s.trainer  # noqa: F401 (reports missing libraries)

    ranks = number_of_ranks(device)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = save_random(folder / "model", device)
        free_memory()

        def run(kind: str, size: int, *resumed: str) -> Result | None:
            out = folder / (f"{kind}-resumed" if resumed else kind)
            out.mkdir()
            script = ["benchmarks/gpu_check/ranks.py", model, str(out), *resumed]
            if launch([*launcher(kind, device, size), *script]):
                return None
            return Result(json.loads((out / "record.json").read_text()), load_file(out / "weights.safetensors"))

        single = run("single", 1)
        yield equals("one process ends", single is not None, True)
        for kind in ("ddp", "zero3") if single else ():
            if kind == "zero3" and find_spec("deepspeed") is None:
                yield Row(kind, "not run: deepspeed is not installed")
                continue
            result = run(kind, ranks)
            yield equals(f"{kind}: {ranks} ranks end", result is not None, True)
            if result is None:
                continue
            yield from exchange_rows(kind, result.record)
            yield from compare(f"{kind} to one process", result, single)
            saved_by = result.record["ranks"]
            fewer = run(kind, saved_by // 2, str(folder / kind / "checkpoint"), str(saved_by))
            shutil.rmtree(folder / kind)  # 6 GB of the large model
            yield equals(f"{kind}: resumed by {saved_by // 2} of {saved_by} ranks", fewer is not None, True)
            if fewer:
                yield from compare(f"{kind}, resumed", fewer, result)


def exchange_rows(kind: str, record: dict) -> Iterator[Row]:
    """What the gathers of a step took."""
    gathers = record["exchange"]
    yield equals(f"{kind}: gathered in the order of the ranks", gathers["arrived"], True)
    received = (record["ranks"] - 1) * gathers["bytes"] / 1e9
    rate = f"{received / gathers['arrays']:.2f} GB/s of each rank"
    yield Row(f"{kind}: gather of arrays of {gathers['bytes'] / 1e6:.2g} MB", f"{gathers['arrays']:.3f} s ({rate})")
    yield Row(f"{kind}: gather of 1,000 texts of 1 kB", f"{gathers['objects']:.3f} s")


def compare(label: str, got: Result, expected: Result) -> Iterator[Row]:
    """Selections, gradient norms and weights of the steps that both have made."""
    steps = list(zip(got.record["steps"], expected.record["steps"][-len(got.record["steps"]) :], strict=True))
    pairs = [(set(left["selected"]), set(right["selected"])) for left, right in steps]
    same = min(len(left & right) / max(len(left), len(right)) for left, right in pairs)
    yield at_least(f"{label}: share of selected tokens that are the same", same, LEAST_SAME)
    norms = max(abs(left["grad_norm"] / right["grad_norm"] - 1) for left, right in steps)
    yield at_most(f"{label}: relative error of gradient norms", norms, NORM_LIMIT)
    after = [{k: v for k, v in result.weights.items() if k.startswith("after ")} for result in (got, expected)]
    start = {k.replace("before ", "after ", 1): v for k, v in expected.weights.items() if k.startswith("before ")}
    ratio = distance(*after) / distance(start, after[1])
    yield at_most(f"{label}: distance of the weights to the way they went", ratio, WEIGHTS_LIMIT)
    yield Row(f"{label}: seconds of the last update", f"{got.record['steps'][-1]['seconds']:.3f}")


def distance(left: dict[str, Tensor], right: dict[str, Tensor]) -> float:
    """Euclidean distance of two sets of weights."""
    return sum((left[name].double() - right[name].double()).square().sum().item() for name in right) ** 0.5


def training(device: str, seconds: float) -> Iterator[Row]:
    """train.py under ZeRO-3 with an engine for each rank, then under DDP with one for two ranks."""
    import d3s.trainer  # noqa: F401 (reports missing libraries)
    from d3s.rollout.sync import DEFAULT_GAPS

    vllm = find_spec("vllm") is not None
    cases = [("zero3", number_of_ranks(device), [f"rollout.engine={'vllm' if vllm else 'transformers'}"])]
    if vllm:
        cases.append(("ddp", 2, ["rollout.engine=vllm", "rollout.tensor_parallel_size=2"]))
    else:
        yield Row("tensor parallelism", "not run: vllm is not installed")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = save_random(folder / "model", device)
        free_memory()
        options = [*options_of(device), f"model.name={model}", "train.steps=3"]
        options.append("reward.functions=[benchmarks.speed.workload:coin]")
        size = (folder / "model" / "model.safetensors").stat().st_size / 1e9
        for kind, ranks, more in cases:
            code, steps = train(folder / kind, *options, *more, launcher=launcher(kind, device, ranks))
            label = f"{kind}, {ranks} ranks, {', '.join(more)}"
            yield equals(f"{label}: exit code and steps", (code, len(steps)), (0, 3))
            if not steps:
                continue
            gap = max(step["sync/mean_abs_dlogp"] for step in steps)
            yield at_most(f"{label}: largest mean gap of the probe after a sync", gap, DEFAULT_GAPS[DTYPE[device]])
            seconds_of = {phase: steps[-1][f"time/{phase}"] for phase in ("sync", "step")}
            text = f"{seconds_of['sync']:.2f} s for {size:.3g} GB in bfloat16, {seconds_of['step']:.2f} s the step"
            yield Row(f"{label}: last sync", text)
