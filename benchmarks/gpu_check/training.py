"""train.py from end to end on a random model: three steps, then steps that keep no rollout."""

import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

import torch

from benchmarks.gpu_check.models import DTYPE, free_memory, save_random
from benchmarks.gpu_check.rows import Row, at_most, equals
from benchmarks.harness import ROOT
from d3s.common import NOTHING_TRAINED

STEPS = 3
EMPTY_STEPS = 2  # the second must find an engine that the first left awake
SIZES = {"cuda": (8, 256), "cpu": (2, 12)}  # problems per step, tokens of a response
PHASES = ["generate", "logprobs", "select", "update", "sync"]


def run(device: str, seconds: float) -> Iterator[Row]:
    """Metrics of both runs; the second needs about the time of the first and is left out without it."""
    import d3s.trainer  # noqa: F401 (reports missing libraries)
    from d3s.rollout.sync import DEFAULT_GAPS

    started = time.monotonic()
    engine = "vllm" if find_spec("vllm") else "transformers"
    yield Row("engine", engine)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = save_random(folder / "model", device)
        free_memory()
        options = [f"model.name={model}", f"rollout.engine={engine}", *options_of(device)]
        code, steps = train(
            folder / "run", *options, f"train.steps={STEPS}", "reward.functions=[benchmarks.speed.workload:coin]"
        )
        yield equals("exit code", code, 0)
        yield equals("steps", len(steps), STEPS)
        if code or not steps:
            return
        gaps = [step["sync/mean_abs_dlogp"] for step in steps]
        yield at_most("largest mean gap of the probe after a sync", max(gaps), DEFAULT_GAPS[DTYPE[device]])
        trained = sum(math.isfinite(s["loss"]) and 0 < s["grad_norm"] < math.inf for s in steps)
        yield equals("steps with a finite loss and gradient", trained, STEPS)
        yield equals("weights that changed", changed(Path(model), folder / "run" / "model"), True)
        times = ", ".join(f"{phase} {steps[-1].get(f'time/{phase}', 0):.2f}" for phase in PHASES)
        yield Row("seconds of the last step", f"{steps[-1]['time/step']:.2f} ({times})")
        used = [f"{name} {max(step[f'memory/{name}_gb'] for step in steps):.1f}" for name in ("generate", "update")]
        yield Row("GB of the device in use", ", ".join(used))
        if time.monotonic() - started > seconds / 2:
            yield Row("steps that keep no rollout", "no time left")
            return
        none = [
            "selector.rollouts=d3s.methods.nonzero:nonzero",
            "reward.functions=[benchmarks.gpu_check.training:zero]",
        ]
        code, steps = train(folder / "empty", *options, f"train.steps={EMPTY_STEPS}", *none)
        yield equals("steps that keep no rollout: exit code", code, NOTHING_TRAINED)
        kept = [step["selection/rollouts"] for step in steps]
        yield equals("steps that keep no rollout: rollouts kept", kept, [0] * EMPTY_STEPS)


def options_of(device: str) -> list[str]:
    """Options of both runs; CUDA graphs, which take a minute to build, are checked by the stage of the engine."""
    prompts, length = SIZES[device]
    return [
        f"model.dtype={DTYPE[device]}",
        f"train.prompts_per_step={prompts}",
        f"rollout.max_completion_length={length}",
        "rollout.enforce_eager=true",
        "optim.learning_rate=1e-5",
        "optim.num_minibatches=4",
        "data.limit=40",
        "eval.data=[]",
        "checkpoint.every=0",
        "reward.workers=1",
    ]


def train(folder: Path, *options: str, launcher: Sequence[str] = (sys.executable,)) -> tuple[int, list[dict]]:
    """Run train.py in this stage's process group. Returns the exit code and the metrics of its steps."""
    command = [*launcher, "train.py", "--config", "configs/tiny.yaml", f"train.output_dir={folder}", *options]
    code = subprocess.run(command, cwd=ROOT).returncode  # its output is in this stage's log
    metrics = folder / "metrics.jsonl"
    return code, [json.loads(line) for line in metrics.read_text().splitlines()] if metrics.exists() else []


def zero(response: str, answer: str, row: dict) -> float:
    """A reward that no response gets."""
    return 0.0


def changed(before: Path, after: Path) -> bool:
    """Whether the first matrix of a model differs from that of another."""
    from safetensors import safe_open

    tensors = []
    for folder in (before, after):
        with safe_open(folder / "model.safetensors", framework="pt") as file:
            tensors.append(file.get_tensor("model.layers.0.mlp.down_proj.weight").float())
    return not torch.equal(*tensors)
