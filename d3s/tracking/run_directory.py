"""The run directory: one run at a time, resumed with the settings that it was started with."""

import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from d3s.checkpoint import read_state
from d3s.common import UserError
from d3s.config.load import dump_config, load_config
from d3s.config.schema import Config

LOCK = ".lock"
# What a resumed run may change: where and how fast it computes, what it measures and writes. A name without a dot is
# a whole section.
FREE = {
    "model.gradient_checkpointing",
    "rollout.servers",
    "rollout.max_num_seqs",
    "rollout.tensor_parallel_size",
    "rollout.gpu_memory_utilization",
    "rollout.kv_cache_gb",
    "rollout.enforce_eager",
    "rollout.sleep",
    "rollout.max_logprob_gap",
    "reward.timeout_s",
    "reward.workers",
    "reward.memory_mb",
    "train.output_dir",
    "train.steps",
    "train.max_tokens_per_microbatch",
    "train.collective_timeout_s",
    "eval",
    "checkpoint",
    "tracker",
}
# With rollout.seeds: engine these decide which responses are sampled together, and so what is sampled.
BATCHING = {
    "rollout.max_num_seqs",
    "rollout.tensor_parallel_size",
    "rollout.gpu_memory_utilization",
    "rollout.kv_cache_gb",
}


@contextmanager
def claimed(run: Path) -> Iterator[None]:
    """Makes the run directory and holds its lock; a directory in which nothing was written goes again.

    The lock is the operating system's, so a run that was killed leaves none.

    Raises: UserError if the directory cannot be written, or another run holds it.
    """
    try:
        run.mkdir(parents=True, exist_ok=True)
        lock = open(run / LOCK, "a+")  # noqa: SIM115 (held as long as the run)
    except OSError as error:
        raise UserError(f"train.output_dir is {run}, which cannot be written ({error.strerror})") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            holder = lock.read().strip() or "another process"
            raise UserError(f"{run} is in use by {holder}; wait for it, or choose another train.output_dir") from None
        except OSError as error:  # some network file systems have no locks
            print(f"warning: {run} cannot be locked ({error.strerror}); start no second run in it", flush=True)
        lock.truncate(0)
        lock.write(f"process {os.getpid()} on {socket.gethostname()}")
        lock.flush()
        try:
            yield
        finally:
            with suppress(OSError):  # it was removed meanwhile
                if [path.name for path in run.iterdir()] == [LOCK]:
                    (run / LOCK).unlink()
                    run.rmdir()


def changed_settings(checkpoint: Path, config: Config) -> dict[str, tuple[Any, Any]]:
    """The settings in which a resumed run differs from its checkpoint: {"section.key": (old, new)}.

    Raises: UserError if those of the checkpoint cannot be read.
    """
    try:
        saved = load_config([checkpoint / "config.yaml"])
    except UserError as error:
        raise UserError(f"{checkpoint / 'config.yaml'} does not fit this version of d3s: {error}") from error
    old, new = saved.model_dump(mode="json"), config.model_dump(mode="json")
    return {
        f"{section}.{key}": (old[section][key], value)
        for section, values in new.items()
        for key, value in values.items()
        if old[section][key] != value
    }


def check_resume(checkpoint: Path, config: Config) -> list[str]:
    """A line for each setting that changes where a run is resumed.

    Raises: UserError if one of them would make it another run, or if there are more steps done than are to be.
    """
    changes, done = changed_settings(checkpoint, config), read_state(checkpoint)["step"]
    free = FREE - BATCHING if config.rollout.seeds == "engine" else FREE
    fixed = {key: pair for key, pair in changes.items() if not {key, key.partition(".")[0]} & free}
    if fixed:
        listed = ", ".join(f"{key} was {old!r} and is {new!r}" for key, (old, new) in fixed.items())
        raise UserError(
            f"{checkpoint} was made with other settings: {listed}; resume with the old ones, or start a new run: "
            "another train.output_dir, with model.name the exported model of the old run (RUN/model)"
        )
    if config.train.steps < done:
        raise UserError(f"train.steps is {config.train.steps}, but {checkpoint} has {done} steps done")
    lines = [f"resumed with {key} {new!r}, before {old!r}" for key, (old, new) in changes.items()]
    if "train.steps" in changes:
        lines.append(f"from step {done} on N, K and the learning rate follow a run of {config.train.steps} steps")
    return lines


def record_settings(run: Path, checkpoint: Path | None, config: Config) -> None:
    """Writes config.yaml. Where a run is resumed, resumes.jsonl gets a line with what has changed; where it takes no
    further step, both stay as they are. Raises: UserError if the disk does not take it."""
    try:
        if checkpoint:
            state = read_state(checkpoint)
            if state["step"] >= config.train.steps and (run / "config.yaml").exists():
                return
            changes = {
                key: {"old": old, "new": new} for key, (old, new) in changed_settings(checkpoint, config).items()
            }
            line = {"time": time.strftime("%Y-%m-%d %H:%M:%S"), "checkpoint": str(checkpoint), "step": state["step"]}
            with open(run / "resumes.jsonl", "a", encoding="utf-8") as file:
                file.write(json.dumps(line | {"changed": changes}) + "\n")
        dump_config(config, run / "config.yaml")
    except OSError as error:
        raise UserError(f"cannot write the settings into {run} ({error.strerror}); free some space") from error
