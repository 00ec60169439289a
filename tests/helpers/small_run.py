"""Command lines of a four-step run with the transformers engine, and checks of its files."""

import hashlib
import json
import subprocess
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from d3s.checkpoint import MANIFEST
from tests.helpers.command_line import finish, lines, start, timeless


def arguments(model: Path, folder: Path) -> list[str]:
    """train.py and its arguments."""
    return [
        "train.py", "--config", "configs/tiny.yaml", "tests/helpers/small.yaml",
        f"model.name={model}", f"train.output_dir={folder}",
        "train.steps=4", "train.prompts_per_step=4", "rollout.num_generations=4", "schedule.n_init=2",
        "schedule.n_final=4", "rollout.engine=transformers", "rollout.max_completion_length=12",
        "reward.functions=[tests.helpers.rewards:even_length]", "loss.old_logprobs=actor", "data.limit=40",
        "eval.data=[]", "checkpoint.every=1", "checkpoint.keep=4", "reward.workers=1",
    ]  # fmt: skip


def checkpoint_names(folder: Path) -> list[str]:
    """The names of the checkpoints of a run."""
    return sorted(path.name for path in (folder / "checkpoints").iterdir())


def parameters(folder: Path) -> dict[str, Tensor]:
    """Parameters of the saved model in this folder, except the head: it is the embedding and not in every file."""
    tensors = load_file(folder / "model.safetensors")
    tensors.pop("lm_head.weight", None)
    return tensors


def same_parameters(left: Path, right: Path) -> bool:
    """Whether two folders hold the same model, bit for bit."""
    first, second = parameters(left), parameters(right)
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def same_run(left: Path, right: Path) -> bool:
    """Whether two runs have the same metrics and, bit for bit, the same model."""
    metrics = [timeless(lines(folder / "metrics.jsonl")) for folder in (left, right)]
    return metrics[0] == metrics[1] and same_parameters(left / "model", right / "model")


def start_with_fault(fault: str, options: list[str], launcher: str = "single") -> subprocess.Popen:
    """Start a command line of train.py with a fault (see faulty_train.py)."""
    return start(["tests/helpers/faulty_train.py", fault, *options[1:]], launcher)


def run_with_fault(fault: str, options: list[str], launcher: str = "single") -> tuple[int, str]:
    """Exit code and output of a command line of train.py with a fault; it must end within two minutes."""
    return finish(start_with_fault(fault, options, launcher), timeout=120)


def assert_readable(folder: Path, steps: int) -> None:
    """Metrics have complete lines, and checkpoints match their manifests; the newest checkpoint is that of `steps`."""
    text = (folder / "metrics.jsonl").read_text()
    assert text.endswith("\n")
    logged = [json.loads(line)["step"] for line in text.splitlines()]
    assert logged[:steps] == [*range(1, steps + 1)]
    checkpoints = sorted(path for path in (folder / "checkpoints").iterdir() if not path.name.startswith("."))
    assert checkpoints[-1].name == f"step_{steps:06d}"
    for path in checkpoints:
        assert_matches_manifest(path)


def assert_matches_manifest(checkpoint: Path) -> None:
    """The manifest lists every file of the checkpoint with its size and checksum."""
    files = json.loads((checkpoint / MANIFEST).read_text())
    present = {str(file.relative_to(checkpoint)) for file in checkpoint.rglob("*") if file.is_file()}
    assert set(files) | {MANIFEST} == present
    for name, expected in files.items():
        content = (checkpoint / name).read_bytes()
        assert expected == {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
