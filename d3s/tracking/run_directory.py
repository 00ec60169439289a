"""Run directory: a lock against a second run, what a resumed run may change and sets aside."""

import fcntl
import json
import os
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

from d3s.common import JsonLines, UserError, to_jsonable, write_json, writing
from d3s.config.load import dump_config, load_config
from d3s.config.schema import Config
from d3s.tracking.fingerprint import differences, flat_options, machine_name

LOCK = ".lock"
MACHINE = "machine.json"  # the processes, their hardware, and the fingerprint
# A resumed run may change where and how fast it computes, and what it measures and writes. A name without a dot is a
# configuration section.
CHANGEABLE = {
    "model.compile", "model.gradient_checkpointing",
    "rollout.servers", "rollout.enforce_eager", "rollout.sleep", "rollout.max_logprob_gap",
    "reward.timeout_s", "reward.workers", "reward.memory_mb",
    "train.output_dir", "train.steps", "train.max_tokens_per_microbatch", "train.collective_timeout_s",
    "train.profile_steps", "eval", "checkpoint", "tracker",
}  # fmt: skip
# These too, except with rollout.seeds: engine, where what is sampled depends on which responses share a batch.
BATCHING = {
    "rollout.max_num_seqs", "rollout.tensor_parallel_size", "rollout.gpu_memory_utilization", "rollout.kv_cache_gb",
}  # fmt: skip


@contextmanager
def lock_run_directory(run: Path, option: str = "train.output_dir") -> Iterator[None]:
    """Make the directory that `option` names and hold its lock; remove it again if nothing was written to it.

    The operating system releases the lock of a killed run.

    Raises: UserError if the directory cannot be written, or another run holds the lock.
    """
    with writing(run, f"choose another {option}"):
        run.mkdir(parents=True, exist_ok=True)
        lock = open(run / LOCK, "a+")  # noqa: SIM115 (held as long as the run)
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            holder = lock.read().strip() or "another process"
            remedy = f"wait until it ends, or choose another {option}"
            raise UserError(f"{run}: in use by {holder}; {remedy}") from None
        except OSError as error:  # some network file systems do not support locks
            print(f"warning: {run}: cannot be locked ({error.strerror}); do not start a second run in it", flush=True)
        lock.truncate(0)
        lock.write(f"process {os.getpid()} on {socket.gethostname()}")
        lock.flush()
        try:
            yield
        finally:
            with suppress(OSError):  # the directory was removed during the run
                if [path.name for path in run.iterdir()] == [LOCK]:
                    (run / LOCK).unlink()
                    run.rmdir()


def set_aside(run: Path, later: list[Path], step: int) -> None:
    """Move the checkpoints after `step`, from which the run goes on, and the models of that line to abandoned_N/.

    Kept in place they would be taken for newer ones than those that follow. Raises UserError if that is impossible.
    """
    if not later:
        return
    folder = next(path for n in count(1) if not (path := run / f"abandoned_{n}").exists())
    best = run / "best" / "evaluation.json"
    of_line = ["model", "adapter"]
    if best.exists() and json.loads(best.read_text())["step"] > step:
        of_line += ["best", "best-adapter"]
    models = [path for name in of_line if (path := run / name).exists()]
    with writing(folder):
        folder.mkdir()
        for name in ("metrics.jsonl", "eval.jsonl"):
            if (run / name).exists():
                shutil.copyfile(run / name, folder / name)
        for path in (*models, *reversed(later)):  # after a kill the newest that is left belongs to the old line
            path.rename(folder / path.name)
    names = ", ".join(path.name for path in (*later, *models))
    print(f"the run goes on from step {step}; what came after it is set aside in {folder}: {names}", flush=True)


def changed_settings(checkpoint: Path, config: Config) -> dict[str, tuple[Any, Any]]:
    """Return the settings that differ between a checkpoint and `config`: {"section.key": (old, new)}.

    Raises: UserError if the settings of the checkpoint cannot be read.
    """
    path = checkpoint / "config.yaml"
    try:
        saved = load_config([path])
    except UserError as error:
        remedy = "resume with the version that wrote it"
        raise UserError(f"{path}: does not match this version of d3s ({error}); {remedy}") from error
    return differences(*(flat_options(options) for options in (saved, config)))


def check_resume(checkpoint: Path, done: int, config: Config) -> list[str]:
    """Return one line for each setting that a run changes, which is resumed after `done` steps.

    Raises: UserError if a setting changes that a run must keep, or if train.steps is below the steps already done.
    """
    changes = changed_settings(checkpoint, config)
    changeable = CHANGEABLE if config.rollout.seeds == "engine" else CHANGEABLE | BATCHING
    if fixed := {key: pair for key, pair in changes.items() if not {key, key.partition(".")[0]} & changeable}:
        listed = ", ".join(f"{key}: got {new!r}, expected {old!r}" for key, (old, new) in fixed.items())
        raise UserError(
            f"{checkpoint}: made with other settings ({listed}); resume with the old ones, or start a new run with "
            "another train.output_dir and a model of the old run as model.name: RUN/model, or RUN/models/step_N, which "
            "eval.py --run RUN --step N makes from a checkpoint"
        )
    if config.train.steps < done:
        expected = f"expected at least {done}, the steps done in {checkpoint}"
        raise UserError(f"train.steps: got {config.train.steps}, {expected}")
    lines = [f"resumed with {key} {new!r}, before {old!r}" for key, (old, new) in changes.items()]
    if "train.steps" in changes:
        lines.append(f"from step {done} on, N, K and the learning rate follow a run of {config.train.steps} steps")
    return lines


def record_settings(
    config: Config, checkpoint: Path | None, state: Any, changed: dict[str, tuple[str, str]], processes: int
) -> None:
    """Write config.yaml and machine.json. A run that resumes `checkpoint` also appends its changes to resumes.jsonl.

    A resumed run that takes no further step writes none of them.

    Args:
        state: the RunState with which the run begins, with its own fingerprint.
        changed: contents whose hashes differ from those of the checkpoint, (old, new).

    Raises: UserError if the disk is full.
    """
    run = config.train.output_dir
    if checkpoint:
        if state.step >= config.train.steps and (run / "config.yaml").exists():
            return
        changes = {k: {"old": a, "new": b} for k, (a, b) in (changed_settings(checkpoint, config) | changed).items()}
        path, home = checkpoint.resolve(), run.resolve()
        path = path.relative_to(home) if path.is_relative_to(home) else path  # so that the directory may be moved
        line = {"time": time.strftime("%Y-%m-%d %H:%M:%S"), "checkpoint": str(path), "step": state.step}
        with JsonLines(run / "resumes.jsonl") as file:
            file.append(to_jsonable(line | {"changed": changes}))
    else:
        (run / "resumes.jsonl").unlink(missing_ok=True)  # of a start that took no step
    write_json(run / MACHINE, {"processes": processes, "machine": machine_name(), "content": state.fingerprint})
    with writing(run / "config.yaml"):
        dump_config(config, run / "config.yaml")
