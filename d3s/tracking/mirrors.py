"""Mirrors of a run's metrics and evaluations: Weights & Biases, and TensorBoard event files.

Both have `log(numbers)`, where `step` is one of the numbers, and `close()`.
"""

import os
import secrets
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from d3s.common import UserError, make_directory, write_atomically, writing
from d3s.config.schema import TrackerConfig

Numbers = dict[str, float]
OFFLINE = "set WANDB_MODE=offline"


def check_mirrors(settings: TrackerConfig) -> None:
    """Check the mirrors that are on, before anything expensive. Imports wandb only where it sends.

    Raises: UserError if a package is not installed, or if W&B has no key or its server does not take it.
    """
    for name in settings.mirrors:
        if find_spec(name) is None:
            raise UserError(f"tracker.mirrors: the package {name} is not installed; run pip install {name}")
    if "wandb" in settings.mirrors and wandb_mode() == "online":
        import wandb

        with _wandb_errors():
            if not wandb.login(prompt=False):
                raise UserError(f"tracker.mirrors: wandb has no API key; run wandb login, or {OFFLINE}")


def wandb_mode() -> str:
    """What wandb does with a run, by its own variable: "online", "offline" and others."""
    return os.environ.get("WANDB_MODE", "online")


@contextmanager
def _wandb_errors() -> Iterator[None]:
    """Turn an error of wandb into one sentence."""
    import wandb

    try:
        yield
    except wandb.Error as error:
        reason = str(error).strip().partition("\n")[0].rstrip(".")
        raise UserError(f"tracker.mirrors: wandb: {reason}; correct it, or {OFFLINE}") from error


def metric_numbers(line: dict) -> Numbers:
    """The numbers of a line of metrics.jsonl. null, which stands for NaN and infinity, is left out."""
    return {key: value for key, value in line.items() if isinstance(value, int | float)}


def eval_numbers(line: dict) -> Numbers:
    """The numbers of a line of eval.jsonl, as eval/BENCHMARK/METRIC, and its step."""
    prefix = f"eval/{line.get('data', 'test')}/"
    return {"step": line["step"]} | {prefix + key: n for key, n in metric_numbers(line).items() if key != "step"}


class WandbMirror:
    """A wandb run that prints nothing. A resumed run keeps its id. Raises UserError if wandb cannot start it."""

    def __init__(self, directory: Path, config: dict, resume: bool) -> None:
        import wandb

        id_file = directory / "wandb_id"
        if not (resume and id_file.exists()):
            write_atomically(id_file, secrets.token_hex(4).encode())
        with _wandb_errors():
            self._run = wandb.init(
                project=os.environ.get("WANDB_PROJECT", "d3s"),
                name=directory.resolve().name,
                config=config,
                dir=str(directory),
                id=id_file.read_text(),
                resume="allow" if wandb_mode() == "online" else None,
                settings=wandb.Settings(silent=True, console="off", disable_git=True),
            )
        # wandb's own counter refuses the steps that a resumed run repeats
        self._run.define_metric("*", step_metric="step")

    def log(self, numbers: Numbers) -> None:
        self._run.log(numbers)

    def close(self) -> None:
        self._run.finish()


class TensorBoardMirror:
    """TensorBoard event files, one for each start of the run, with all numbers of a line in one event.

    A resumed run begins its file with the step after its checkpoint: TensorBoard then drops the points that earlier
    files have from that step on (`purge_step` of torch.utils.tensorboard, which would write from a thread of its own).

    Raises: UserError if the disk is full, also `log`.
    """

    def __init__(self, directory: Path, first_step: int) -> None:
        from tensorboard.compat.proto.event_pb2 import SessionLog
        from tensorboard.summary.writer.record_writer import RecordWriter

        make_directory(directory)
        # TensorBoard reads the files in the order of their names.
        self._path = directory / f"events.out.tfevents.{time.time():.6f}.{socket.gethostname()}"
        with writing(self._path):
            self._file = open(self._path, "wb")  # noqa: SIM115 (closed by `close`)
        self._records = RecordWriter(self._file)
        self._write(file_version="brain.Event:2")
        self._write(step=first_step, session_log=SessionLog(status=SessionLog.START))

    def log(self, numbers: Numbers) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = [Summary.Value(tag=tag, simple_value=number) for tag, number in numbers.items() if tag != "step"]
        self._write(step=numbers["step"], summary=Summary(value=values))

    def close(self) -> None:
        with suppress(OSError):  # of a full disk, which `log` has reported
            self._file.close()

    def _write(self, **fields: Any) -> None:
        from tensorboard.compat.proto.event_pb2 import Event

        with writing(self._path):
            self._records.write(Event(wall_time=time.time(), **fields).SerializeToString())
            self._file.flush()
