"""Checkpoints: written beside and renamed, so that what is there is whole; resumed exactly."""

import hashlib
import json
import os
import random
import re
import shutil
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

from d3s.actor import Actor
from d3s.common import UserError
from d3s.config.load import dump_config
from d3s.config.schema import Config
from d3s.distributed import all_gather_objects

FOLDER = "checkpoints"
MANIFEST = "manifest.json"  # size and checksum of every file, written last
STATE = "state.json"


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
    main, errors = accelerator.is_main_process, []
    files: list[tuple[str, dict]] = []

    def prepare() -> None:
        if main:
            shutil.rmtree(beside, ignore_errors=True)
            beside.mkdir(parents=True)

    def write() -> None:
        actor.save(beside)
        torch.save(_random_states(), beside / f"random_{accelerator.process_index}.pt")
        if main:
            world = {"processes": accelerator.num_processes, "zero3": actor.zero3}
            (beside / STATE).write_text(json.dumps(asdict(state) | world))
            dump_config(config, beside / "config.yaml")
        files.extend(_finish_files(beside, accelerator.process_index))

    def publish() -> None:
        every = dict(all_gather_objects(files, accelerator))
        if main:
            _publish(beside, path, every)

    def done_everywhere(action: Callable[[], None]) -> bool:
        try:
            action()
        except (OSError, RuntimeError) as error:  # torch and safetensors report a full disk as either
            errors.append(error)
        return all(all_gather_objects([not errors], accelerator))

    if not all(done_everywhere(action) for action in (prepare, write, publish)):
        if main:
            shutil.rmtree(beside, ignore_errors=True)
        reason = errors[0] if errors else "another rank failed"
        raise UserError(f"checkpoint {path} could not be written ({reason}); free some space")
    if main:
        for old in _all(run)[:-keep]:
            shutil.rmtree(old, ignore_errors=True)
    accelerator.wait_for_everyone()
    return path


def _finish_files(folder: Path, rank: int) -> list[tuple[str, dict]]:
    """Flushes the files that this rank wrote to disk: (name, size and checksum) of each for the manifest."""
    own = []
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        writer = re.search(r"(?:pp_rank|random)_(\d+)", file.name)  # the names of ZeRO-3's shares, and of our own
        if int(writer[1] if writer else 0) == rank:
            _flush_to_disk(file)
            own.append((str(file.relative_to(folder)), {"bytes": file.stat().st_size, "sha256": _checksum(file)}))
    return own


def _publish(beside: Path, path: Path, files: dict[str, dict]) -> None:
    """Writes the manifest of a complete folder, and gives the folder its final name."""
    (beside / MANIFEST).write_text(json.dumps(files, indent=1))
    for unsaved in (beside / MANIFEST, *(folder for folder in beside.rglob("*") if folder.is_dir()), beside):
        _flush_to_disk(unsaved)
    shutil.rmtree(path, ignore_errors=True)
    beside.rename(path)
    _flush_to_disk(path.parent)


def find_resume(run: Path, resume: str) -> Path | None:
    """The checkpoint that --resume asks for: the newest undamaged one (auto), a named one, or none (never).

    Raises: UserError if the run directory holds a run that would be overwritten, or the checkpoint is damaged.
    """
    begun = (run / "metrics.jsonl").exists()
    if resume not in ("auto", "never"):
        path = Path(resume)
        if reason := _damage(path):
            raise UserError(f"--resume {resume}: {reason}; allowed are auto, never, or the path of a checkpoint")
        if path.resolve().parent != (run / FOLDER).resolve() and begun:
            raise UserError(f"--resume {resume}: {run} holds another run; choose a new train.output_dir")
        return path
    if resume == "never":
        if begun:
            raise UserError(f"{run} holds a run already: --resume auto continues it, train.output_dir=… starts another")
        return None
    for path in reversed(_all(run)):
        if not (reason := _damage(path)):
            return path
        print(f"warning: {path} is damaged ({reason}); falling back to the one before it", file=sys.stderr)
    if begun and (_all(run) or (run / "model").exists()):  # to start over would lose its record
        raise UserError(f"--resume auto: {run} has no undamaged checkpoint; choose a new train.output_dir")
    if begun:
        print(f"{run} has no checkpoint yet: the run starts over")
    return None


def load_checkpoint(actor: Actor, path: Path) -> RunState:
    """Brings the actor and the random states back to what they were, on any number of ranks. Collective.

    Raises: UserError if only one of the two runs is under ZeRO-3, or the checkpoint does not fit this model.
    """
    state = read_state(path)
    world, zero3 = state.pop("processes"), state.pop("zero3")
    if zero3 != actor.zero3:
        saved, here = ("under ZeRO-3" if one else "without ZeRO-3" for one in (zero3, actor.zero3))
        raise UserError(
            f"{path} was saved {saved}, this run is {here}; start it as it was, or train on from the exported model"
        )
    try:
        actor.load(path, world)
        own = path / f"random_{actor.accelerator.process_index}.pt"
        if own.exists():  # a rank that was not there has nothing to bring back: its randomness follows from the seed
            _restore(torch.load(own, weights_only=True))
        return RunState(**state)
    except UserError:
        raise
    except Exception as error:  # what torch, safetensors, pickle and DeepSpeed raise for bad files has no common class
        reason = next(iter(str(error).splitlines()), "")
        raise UserError(
            f"{path} cannot be loaded into this model ({type(error).__name__}: {reason:.200}); "
            "resume with the model.name of that run, or from an earlier checkpoint by --resume PATH"
        ) from error


def read_state(path: Path) -> dict:
    """Read state.json: RunState's fields, the number of processes, and whether ZeRO-3 saved it.

    Raises: UserError if the file is damaged.
    """
    try:
        state = json.loads((path / STATE).read_text())
        if {"step", "position", "processes", "zero3"} <= state.keys():
            return state
    except (OSError, ValueError, AttributeError):
        pass
    raise UserError(f"{path / STATE} is damaged; resume from an earlier checkpoint by --resume PATH")


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
    found = [path for path in (run / FOLDER).glob("step_*") if re.fullmatch(r"step_\d+", path.name)]
    return sorted(found, key=lambda path: int(path.name.removeprefix("step_")))


def _damage(path: Path) -> str:
    """What is wrong with a checkpoint's files, "" if nothing is. Manifests of sizes alone, older ones, still count."""
    if not (path / MANIFEST).is_file():
        return f"there is no {MANIFEST} in it"
    try:
        files = json.loads((path / MANIFEST).read_text())
        if STATE not in files:
            return f"{MANIFEST} does not name {STATE}"
        with ThreadPoolExecutor(max_workers=8) as pool:
            wrong = [name for name in pool.map(lambda item: _differs(path, *item), files.items()) if name]
    except (OSError, ValueError, TypeError, KeyError) as error:
        return f"{type(error).__name__}: {error}"
    return f"{wrong[0]} is not what {MANIFEST} says" if wrong else ""


def _differs(folder: Path, name: str, expected: dict | int) -> str:
    """The name of a file that is not as the manifest expects it, else ""."""
    size, file = expected["bytes"] if isinstance(expected, dict) else expected, folder / name
    same = file.stat().st_size == size and (isinstance(expected, int) or _checksum(file) == expected["sha256"])
    return "" if same else name


def _checksum(file: Path) -> str:
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


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
