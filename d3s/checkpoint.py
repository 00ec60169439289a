"""Save checkpoints atomically, find the newest undamaged one, resume exactly, export the model."""

import hashlib
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Container, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from safetensors import SafetensorError
from torch import Tensor

from d3s.actor import Actor
from d3s.actor.lora import save_adapter
from d3s.common import (
    UserError,
    disk_error,
    read_json_lines,
    recover_directories,
    replace_directory,
    write_directory,
    write_json,
)
from d3s.config.load import dump_config
from d3s.config.schema import Config
from d3s.distributed import all_gather_objects
from d3s.random_states import random_states, restore_random_states

FOLDER = "checkpoints"
# What a run replaces in its directory, which may be anybody's before it.
REPLACED = "config.yaml", "machine.json", "eval.jsonl", "warnings.jsonl", "model", "adapter", "best", "best-adapter"
MANIFEST = "manifest.json"  # size and SHA-256 of every file, written last
STATE = "state.json"
PARTS = "parts.pt"  # RunState.parts, if any
OF_STATE = {STATE, PARTS, "config.yaml"}


@dataclass
class RunState:
    """Progress of a run. With the weights, the optimizer and the seed it determines everything that follows."""

    step: int = 0  # finished training steps
    position: int = 0  # problems asked so far, which fixes the seeds of rollouts
    tokens_trained: int = 0
    tokens_generated: int = 0
    parts: dict[str, dict] = field(default_factory=dict)  # the state_dict of each part, by name
    fingerprint: dict[str, str] = field(default_factory=dict)  # of d3s/tracking/fingerprint.py; compared on resume
    evaluation_due: bool = False  # the evaluation after `step` has not ended


# A part is a piece of the trainer with a state of its own, equal on all ranks unless its `per_rank` is True:
# state_dict() -> tensors and plain values, load_state_dict(state), which raises UserError if it does not fit this run.
def part_states(parts: dict[str, Any], accelerator: Accelerator) -> dict[str, dict]:
    """The state of each part, of all ranks where they differ. Collective."""
    states = {}
    for name, part in parts.items():
        state = part.state_dict()
        per_rank = getattr(part, "per_rank", False)
        states[name] = {"ranks": all_gather_objects([state], accelerator)} if per_rank else state
    return states


def restore_parts(parts: dict[str, Any], saved: dict[str, dict], accelerator: Accelerator) -> list[str]:
    """Restore each part from its saved state. Return the names of those that have none and start anew.

    Raises: UserError for a state that does not fit, or that another number of ranks saved.
    """
    for name in sorted(parts.keys() & saved.keys()):
        state = saved[name]
        if getattr(parts[name], "per_rank", False):
            before, ranks = len(state["ranks"]), accelerator.num_processes
            if before != ranks:
                problem = f"the checkpoint has the state of {before} processes, and this run has {ranks}"
                raise UserError(f"{name}: {problem}; launch as many as before")
            state = state["ranks"][accelerator.process_index]
        try:
            parts[name].load_state_dict(state)
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            problem = f"does not fit this run ({type(error).__name__}: {error})"
            remedy = "resume with the configuration of that run"
            raise UserError(f"the checkpoint's state of {name} {problem}; {remedy}") from error
    return sorted(parts.keys() - saved.keys())


def save_checkpoint(actor: Actor, state: RunState, config: Config, run: Path, *, same_weights: bool = False) -> Path:
    """Write checkpoints/step_XXXXXX atomically and keep the newest checkpoint.keep up to this step. Collective.

    Args:
        same_weights: the run has a checkpoint of this step; if as many ranks wrote it, its weights and optimizer stay.

    Raises: UserError on every rank if a rank cannot write; earlier checkpoints remain.
    """
    accelerator = actor.accelerator
    folder = run / FOLDER
    path, temporary = folder / f"step_{state.step:06d}", folder / f".step_{state.step:06d}.partial"
    main, errors = accelerator.is_main_process, []
    files: list[tuple[str, dict]] = []
    reuses = same_weights and read_state(path)["processes"] == accelerator.num_processes
    reused = _weight_files(path) if reuses else {}

    def prepare() -> None:
        if main:
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir(parents=True)
            for name in reused:
                _link(path / name, temporary / name)

    def write() -> None:
        if not reused:
            actor.save(temporary)
        torch.save(random_states(), temporary / f"random_{accelerator.process_index}.pt")
        if main:
            world = {"processes": accelerator.num_processes, "zero3": actor.zero3}
            world["microbatch"] = actor.micro_batches.wanted
            counters = {name: value for name, value in vars(state).items() if name != "parts"}
            (temporary / STATE).write_text(json.dumps(counters | world))
            if state.parts:
                torch.save(state.parts, temporary / PARTS)
            dump_config(config, temporary / "config.yaml")
        files.extend(_finish_files(temporary, accelerator.process_index, reused))

    def publish() -> None:
        files_of_all = reused | dict(all_gather_objects(files, accelerator))
        if main:
            (temporary / MANIFEST).write_text(json.dumps(files_of_all, indent=1))
            for unsaved in (temporary / MANIFEST, *(p for p in temporary.rglob("*") if p.is_dir()), temporary):
                flush_to_disk(unsaved)
            replace_directory(temporary, path)
            flush_to_disk(folder)

    def succeeds_everywhere(action: Callable[[], None]) -> bool:
        try:
            action()
        except (OSError, RuntimeError, SafetensorError) as error:  # a full disk, as torch and safetensors report it
            errors.append(error)
        return all(all_gather_objects([not errors], accelerator))

    if not all(succeeds_everywhere(action) for action in (prepare, write, publish)):
        if main:
            shutil.rmtree(temporary, ignore_errors=True)
        raise disk_error(path, errors[0] if errors else RuntimeError("another rank failed"))
    if main:
        for old in [p for p in saved_steps(run) if step_of(p) <= state.step][: -config.checkpoint.keep]:
            shutil.rmtree(old, ignore_errors=True)
    accelerator.wait_for_everyone()
    return path


def _weight_files(path: Path) -> dict[str, dict]:
    """The entries of the manifest that Actor.save has written."""
    files = json.loads((path / MANIFEST).read_text())
    return {name: e for name, e in files.items() if name not in OF_STATE and not name.startswith("random_")}


def _link(file: Path, name: Path) -> None:
    """Give a file a second name, or copy it where the file system has no links."""
    name.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(file, name)
    except OSError:
        shutil.copyfile(file, name)


def _finish_files(folder: Path, rank: int, finished: Container[str]) -> list[tuple[str, dict]]:
    """Flush the files that this rank wrote to disk. Return (name, size and checksum) of each, for the manifest."""
    entries = []
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = str(file.relative_to(folder))
        writer = re.search(r"(?:pp_rank|random)_(\d+)", file.name)  # names of ZeRO-3's partitions and of random states
        if name not in finished and int(writer[1] if writer else 0) == rank:
            flush_to_disk(file)
            entries.append((name, _entry(file)))
    return entries


def _entry(file: Path) -> dict:
    """What the manifest says of a file."""
    with file.open("rb") as handle:
        return {"bytes": file.stat().st_size, "sha256": hashlib.file_digest(handle, "sha256").hexdigest()}


def find_resume(run: Path, resume: str) -> Path | None:
    """Find the checkpoint that --resume asks for: the newest undamaged one (auto), a path, or none (never).

    Puts right first what a kill has left of directories that were being replaced.

    Raises: UserError if the run directory holds a run that would be overwritten, or if the checkpoint is damaged.
    """
    if any((run / name).exists() for name in (FOLDER, "metrics.jsonl", "resumes.jsonl")):
        for folder in (run, run / FOLDER):
            recover_directories(folder)
    elif foreign := [name for name in REPLACED if (run / name).exists()]:
        raise UserError(f"{run}: is no run, but has {foreign[0]}, which a run replaces; change train.output_dir")
    own, origin, exported = saved_steps(run), _origin(run), (run / "model").exists()
    started = bool(own or exported or read_json_lines(run / "metrics.jsonl"))  # a start that fails takes no step
    if resume not in ("auto", "never"):
        path = Path(resume)
        if reason := damage(path):
            raise UserError(f"--resume: got {resume} ({reason}), expected auto, never, or the path of a checkpoint")
        if started and not is_own(path, run) and (origin is None or path.resolve() != origin.resolve()):
            raise UserError(f"--resume {resume}: {run} holds another run; choose a new train.output_dir")
        return path
    candidates = [origin, *own] if origin else own
    if resume == "never":
        if started:
            remedy = "continue it with --resume auto, or " if candidates or not exported else ""
            raise UserError(f"{run}: holds a run already; {remedy}change train.output_dir")
        return None
    for path in reversed(candidates):
        if not (reason := damage(path)):
            return path
        print(f"warning: {path} is damaged ({reason}); trying the checkpoint before it", file=sys.stderr)
    if candidates or exported:  # starting over would delete its record
        found = "no undamaged checkpoint" if candidates else "a finished run without a checkpoint"
        raise UserError(f"--resume auto: {run} has {found}; choose a new train.output_dir")
    if (run / "metrics.jsonl").exists():
        print(f"{run}: no checkpoint yet, starting over")
    return None


def is_own(checkpoint: Path, run: Path) -> bool:
    """Whether a checkpoint is among those of a run."""
    return checkpoint.resolve().parent == (run / FOLDER).resolve()


def _origin(run: Path) -> Path | None:
    """The checkpoint of another run with which this one began, if it did; its own are recorded relative to `run`."""
    for line in read_json_lines(run / "resumes.jsonl")[:1]:
        if not is_own(path := run / line["checkpoint"], run):
            return path
    return None


def load_checkpoint(actor: Actor, path: Path) -> RunState:
    """Restore the actor and the random states on any number of ranks. Collective.

    Raises: UserError if only one of the two runs uses ZeRO-3, or if the checkpoint does not fit this model.
    """
    state = read_state(path)
    world, zero3, _ = state.pop("processes"), state.pop("zero3"), state.pop("microbatch", None)
    if zero3 != actor.zero3:
        saved, current = ("under ZeRO-3" if value else "without ZeRO-3" for value in (zero3, actor.zero3))
        remedy = "use the launcher of that run, or start a new run from its exported model"
        raise UserError(f"{path}: was saved {saved}, this run is {current}; {remedy}")
    try:
        actor.load(path, world)
        random_file = path / f"random_{actor.accelerator.process_index}.pt"
        if random_file.exists():  # a rank that the saving run did not have keeps the random states of the seed
            restore_random_states(torch.load(random_file, weights_only=True))
        has_parts = (path / PARTS).exists()
        return RunState(**state, parts=torch.load(path / PARTS, weights_only=True) if has_parts else {})
    except UserError:
        raise
    except Exception as error:  # torch, safetensors, pickle and DeepSpeed raise no common class for bad files
        reason = next(iter(str(error).splitlines()), "")
        problem = f"cannot be loaded into this model ({type(error).__name__}: {reason:.200})"
        remedy = "resume with the model.name of that run, or from an earlier checkpoint by --resume PATH"
        raise UserError(f"{path}: {problem}; {remedy}") from error


def read_state(path: Path) -> dict:
    """Read state.json: RunState's fields, the number of processes, whether ZeRO-3 saved it, tokens of a micro-batch.

    Raises: UserError if the file is damaged.
    """
    with suppress(OSError, ValueError, AttributeError):
        state = json.loads((path / STATE).read_text())
        if {"step", "position", "processes", "zero3"} <= state.keys():
            return state
    raise UserError(f"{path / STATE}: damaged; resume from an earlier checkpoint by --resume PATH")


def export_model(actor: Actor, tokenizer, path: Path, records: Mapping[str, dict] | None = None) -> None:
    """Save the trained model as safetensors in model.dtype, as transformers and vLLM load it. Collective.

    With LoRA this is the merged model, and the adapter alone is saved next to it, as peft loads it: adapter/ for
    model/, best-adapter/ for best/.

    Args:
        records: JSON files to add, by name.
    """
    dtype = getattr(torch, actor.config.model.dtype)
    main = actor.accelerator.is_main_process
    weights = {name: tensor.to(dtype).cpu() for name, tensor in actor.weights() if main}  # other ranks only gather
    if main:
        write_model(actor.lm, weights, tokenizer, actor.config.model.dtype, path, records or {})
        if actor.adapter is not None:
            name = "adapter" if path.name == "model" else f"{path.name}-adapter"
            save_adapter(actor.adapter, path.with_name(name))
    actor.accelerator.wait_for_everyone()


def write_model(
    lm: torch.nn.Module, weights: Mapping[str, Tensor], tokenizer, dtype: str, path: Path, records: Mapping[str, dict]
) -> None:
    """Write a transformers model with these weights, its tokenizer and further JSON files as a directory."""
    with write_directory(path) as temporary:
        lm.save_pretrained(temporary, state_dict=dict(weights))
        settings = json.loads((temporary / "config.json").read_text())  # its dtype is the actor's, float32
        write_json(temporary / "config.json", settings | {"dtype": dtype})
        tokenizer.save_pretrained(temporary)
        for name, record in records.items():
            write_json(temporary / name, record)


def saved_steps(run: Path) -> list[Path]:
    """The checkpoints of a run, oldest first."""
    return sorted((p for p in (run / FOLDER).glob("step_*") if re.fullmatch(r"step_\d+", p.name)), key=step_of)


def step_of(checkpoint: Path) -> int:
    """The step of a checkpoint, by its name."""
    return int(checkpoint.name.removeprefix("step_"))


def saved_after(run: Path, step: int) -> list[Path]:
    """The checkpoints of later steps than `step`, oldest first."""
    return [path for path in saved_steps(run) if step_of(path) > step]


def damage(path: Path) -> str:
    """Describe what is wrong with a checkpoint's files, "" if nothing is."""
    if not (path / MANIFEST).is_file():
        return f"there is no {MANIFEST} in it"
    try:
        files = json.loads((path / MANIFEST).read_text())
        if not isinstance(files, dict) or STATE not in files:
            return f"{MANIFEST} does not name {STATE}"
        with ThreadPoolExecutor(max_workers=8) as pool:
            entries = zip(files.items(), pool.map(lambda name: _entry(path / name), files))
            wrong = [name for (name, expected), entry in entries if entry != expected]
    except (OSError, ValueError, TypeError) as error:
        return f"{type(error).__name__}: {error}"
    return f"{wrong[0]} is not what {MANIFEST} says" if wrong else ""


def flush_to_disk(path: Path) -> None:
    """Wait until a file, or the entries of a directory, are on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
