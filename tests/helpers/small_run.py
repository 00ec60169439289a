"""A run of four tiny steps with the transformers engine, of which any step can go wrong."""

import hashlib
import json
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from d3s.checkpoint import MANIFEST
from tests.helpers.command_line import finish, lines, start, timeless


def arguments(model: Path, folder: Path) -> list[str]:
    """train.py and what it is given."""
    return [
        "train.py", "--config", "configs/tiny.yaml", f"model.name={model}", f"train.output_dir={folder}",
        "train.steps=4", "train.prompts_per_step=4", "rollout.num_generations=4", "schedule.n_init=2",
        "schedule.n_final=4", "rollout.engine=transformers", "rollout.max_completion_length=12",
        "reward.function=tests.helpers.rewards:even_length", "loss.old_logprobs=actor", "data.limit=40", "eval.data=[]",
        "checkpoint.every=1", "checkpoint.keep=4", "reward.workers=1",
    ]  # fmt: skip


def parameters(folder: Path) -> dict[str, Tensor]:
    """Those of the saved model in this folder; not the head, which is the embedding and not in every file."""
    tensors = load_file(folder / "model.safetensors")
    tensors.pop("lm_head.weight", None)
    return tensors


def same_run(left: Path, right: Path) -> bool:
    """Whether two runs have the same metrics and bit for bit the same model."""
    metrics = [timeless(lines(folder / "metrics.jsonl")) for folder in (left, right)]
    first, second = (parameters(folder / "model") for folder in (left, right))
    same = first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)
    return same and metrics[0] == metrics[1]


def accident(what: str, options: list[str], launcher: str) -> tuple[int, str]:
    """Exit code and output of train.py with an accident; it must end within a minute of it."""
    return finish(start(["tests/helpers/faulty_train.py", what, *options[1:]], launcher), timeout=120)


def assert_readable(folder: Path, steps: int) -> None:
    """Only whole lines, only whole checkpoints under their final names: the newest is that of `steps`."""
    text = (folder / "metrics.jsonl").read_text()
    assert text.endswith("\n") and [json.loads(line)["step"] for line in text.splitlines()][:steps] == [
        *range(1, steps + 1)
    ]
    whole = sorted(path for path in (folder / "checkpoints").iterdir() if not path.name.startswith("."))
    assert whole[-1].name == f"step_{steps:06d}"
    for path in whole:
        files = json.loads((path / MANIFEST).read_text())
        assert set(files) | {MANIFEST} == {str(file.relative_to(path)) for file in path.rglob("*") if file.is_file()}
        for name, expected in files.items():
            content = (path / name).read_bytes()
            assert expected == {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
