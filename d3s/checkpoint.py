"""Checkpoints: written beside and renamed, so that what is there is whole; resumed exactly."""

import json
import os
import random
import re
import shutil
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

from d3s.actor import Actor
from d3s.config import Config, dump_config
from d3s.errors import UserError

FOLDER = "checkpoints"
MANIFEST = "manifest.json"  # the size of every file, written last: a checkpoint without it, or unlike it, is not whole


@dataclass
class RunState:
    """Where a run stands. Everything else that is random or moving follows from this, the weights and the seed."""

    step: int = 0  # training steps done
    position: int = 0  # problems taken from the data order
    tokens_trained: int = 0
    tokens_generated: int = 0


def save_checkpoint(actor: Actor, state: RunState, config: Config, run: Path, keep: int) -> Path:
    """Writes checkpoints/step_XXXXXX, atomically, and removes all but the newest `keep`. Collective.

    Raises: UserError if the disk does not take it; what was there before stays.
    """
    accelerator = actor.accelerator
    folder = run / FOLDER
    path, beside = folder / f"step_{state.step:06d}", folder / f".step_{state.step:06d}.partial"
    error = None
    try:
        if accelerator.is_main_process:
            shutil.rmtree(beside, ignore_errors=True)
            beside.mkdir(parents=True)
        accelerator.wait_for_everyone()
        actor.save(beside)
        torch.save(_random_states(), beside / f"random_{accelerator.process_index}.pt")
        if accelerator.is_main_process:
            world = {"processes": accelerator.num_processes, "zero3": actor.zero3}
            (beside / "state.json").write_text(json.dumps(asdict(state) | world))
            dump_config(config, beside / "config.yaml")
    except (OSError, RuntimeError) as problem:  # torch and safetensors report a full disk as either
        error = problem
    if not _everywhere(accelerator, error is None):
        if accelerator.is_main_process:
            shutil.rmtree(beside, ignore_errors=True)
        raise UserError(f"checkpoint {path} could not be written ({error or 'another rank failed'}); free some space")
    if accelerator.is_main_process:
        files = {str(f.relative_to(beside)): f.stat().st_size for f in sorted(beside.rglob("*")) if f.is_file()}
        (beside / MANIFEST).write_text(json.dumps(files))
        for file in beside.rglob("*"):
            _flush_to_disk(file)
        shutil.rmtree(path, ignore_errors=True)
        beside.rename(path)
        _flush_to_disk(folder)
        for old in _all(run)[:-keep]:
            shutil.rmtree(old, ignore_errors=True)
    accelerator.wait_for_everyone()
    return path


def find_resume(run: Path, resume: str) -> Path | None:
    """The checkpoint that --resume asks for: the newest whole one (auto), a named one, or none (never).

    Raises: UserError if the run directory holds a run that would be overwritten, or the named checkpoint is not whole.
    """
    if resume not in ("auto", "never"):
        if not _is_whole(Path(resume)):
            raise UserError(
                f"--resume {resume}: not a whole checkpoint; allowed are auto, never, or a checkpoint's path"
            )
        return Path(resume)
    if resume == "never":
        if (run / "metrics.jsonl").exists():
            raise UserError(
                f"{run} holds a run already: --resume auto goes on with it, train.output_dir=… starts another"
            )
        return None
    for path in reversed(_all(run)):
        if _is_whole(path):
            return path
        print(f"warning: {path} is not whole, falling back to the checkpoint before it", file=sys.stderr)
    return None


def load_checkpoint(actor: Actor, path: Path) -> RunState:
    """Brings the actor and the random states back to what they were, on any number of ranks. Collective.

    Raises: UserError if only one of the two runs is under ZeRO-3, or the checkpoint is not whole.
    """
    if not _is_whole(path):
        raise UserError(f"{path} is not a whole checkpoint")
    state = json.loads((path / "state.json").read_text())
    world, zero3 = state.pop("processes"), state.pop("zero3")
    if zero3 != actor.zero3:
        saved, here = ("under ZeRO-3" if one else "without ZeRO-3" for one in (zero3, actor.zero3))
        raise UserError(
            f"{path} was saved {saved}, this run is {here}; start it as it was, or train on from the exported model"
        )
    actor.load(path, world)
    own = path / f"random_{actor.accelerator.process_index}.pt"
    if own.exists():  # a rank that was not there has nothing to bring back: its randomness follows from the seed
        _restore(torch.load(own, weights_only=True))
    return RunState(**state)


def export_model(actor: Actor, tokenizer, path: Path) -> None:
    """The trained model as transformers and vLLM load it: safetensors, in the precision that it was trained in."""
    dtype = getattr(torch, actor.config.model.dtype)
    main = actor.accelerator.is_main_process
    weights = {name: tensor.to(dtype).cpu() for name, tensor in actor.weights() if main}  # the others only take part
    if main:
        beside = path.with_name(f".{path.name}.partial")
        shutil.rmtree(beside, ignore_errors=True)
        actor.lm.save_pretrained(beside, state_dict=weights)
        tokenizer.save_pretrained(beside)
        shutil.rmtree(path, ignore_errors=True)
        beside.rename(path)
    actor.accelerator.wait_for_everyone()


def _all(run: Path) -> list[Path]:
    return sorted(p for p in (run / FOLDER).glob("step_*") if re.fullmatch(r"step_\d+", p.name))


def _is_whole(path: Path) -> bool:
    try:
        files = json.loads((path / MANIFEST).read_text())
        return all((path / name).stat().st_size == size for name, size in files.items())
    except (OSError, ValueError):
        return False


def _everywhere(accelerator, fine: bool) -> bool:
    """Whether all ranks are fine."""
    return bool(accelerator.gather(torch.tensor([fine], device=accelerator.device)).all())


def _flush_to_disk(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _random_states() -> dict:
    name, keys, position, has_gauss, gauss = np.random.get_state()
    version, internal, gauss_next = random.getstate()
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state() if torch.cuda.is_available() else None,  # of this rank's own device
        "numpy": [name, torch.from_numpy(keys.astype(np.int64)), position, has_gauss, gauss],
        "python": [version, list(internal), gauss_next],
    }


def _restore(states: dict) -> None:
    torch.set_rng_state(states["torch"])
    cuda = states["cuda"]
    if isinstance(cuda, list):  # of all devices of the machine, as checkpoints once had it
        own = torch.cuda.current_device() if torch.cuda.is_available() else 0
        cuda = cuda[own] if own < len(cuda) else None
    if cuda is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(cuda)
    name, keys, *rest = states["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))
    version, internal, gauss_next = states["python"]
    random.setstate((version, tuple(internal), gauss_next))
