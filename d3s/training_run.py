"""What the loops of train.py and train_sft.py share: the launch, the log, updates, what is due, stopping and saving."""

import resource
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from d3s.actor import Actor, NonFiniteError
from d3s.actor.actor import NON_FINITE_ADVICE
from d3s.actor.zero3 import size_of
from d3s.checkpoint import RunState, export_model, is_own, load_checkpoint, read_state, save_checkpoint, saved_after
from d3s.common import UserError
from d3s.config.schema import Config
from d3s.distributed import all_gather_objects, phase
from d3s.launch import start_accelerator
from d3s.loss import Largest
from d3s.packing import Batch
from d3s.policy import decoder_layers
from d3s.schedule import learning_rate
from d3s.tracking.fingerprint import CHANGED, Fingerprint
from d3s.tracking.run_directory import record_settings, set_aside
from d3s.tracking.stop_signals import StopSignals
from d3s.tracking.tracker import Tracker


class TrainingRun(StopSignals):
    """A run in a directory, to be stopped, saved and resumed. Loops derive from it and set actor and tokenizer."""

    actor: Actor
    tokenizer: Any
    state: RunState
    tracker: Tracker

    def __init__(self, config: Config, checkpoint: Path | None) -> None:
        """Join the launch. `checkpoint`, from which the run resumes, is read from the first rank alone."""
        self.config, self.run = config, config.train.output_dir
        self.accelerator = start_accelerator(config)
        self.checkpoint = all_gather_objects([checkpoint], self.accelerator)[0]
        self.began = read_state(self.checkpoint) if self.checkpoint else {}  # what the run was when it was saved
        self.seconds: dict[str, float] = {}  # of a step, by stage

    def _restore(self, evaluation_due: bool = False) -> None:
        """Restore the actor and the state from the checkpoint, or begin with a new state."""
        new = RunState(evaluation_due=evaluation_due)
        self.state = load_checkpoint(self.actor, self.checkpoint) if self.checkpoint else new
        own = self.checkpoint and is_own(self.checkpoint, self.run)
        self.saved = self.state.step if own else None  # the step of this run's newest checkpoint

    def _open_log(self, fingerprint: Fingerprint, changed: Iterable[str], **options: Any) -> None:
        """Set aside what came after the state, open the tracker, and warn of what changed since the checkpoint."""
        main = self.accelerator.is_main_process
        if main:
            set_aside(self.run, saved_after(self.run, self.state.step), self.state.step)
        self.tracker = Tracker(self.config, self.state.step, enabled=main, **options)
        self.state.fingerprint = fingerprint
        for name in changed:
            self.tracker.warn(f"changed/{name}", f"{name}: {CHANGED}")

    def _record_settings(self, changed: dict[str, tuple[str, str]]) -> None:
        if self.accelerator.is_main_process:
            record_settings(self.config, self.checkpoint, self.state, changed, self.accelerator.num_processes)

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        started = time.perf_counter()
        with phase(name), torch.profiler.record_function(name):  # a range in the traces of train.profile_steps
            yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - started

    def _update_actor(self, batch: Batch, generator: torch.Generator) -> tuple[list[dict[str, float | Largest]], float]:
        """Make the optimizer steps and count their tokens. Returns what Actor.update does, and the learning rate.

        Raises: UserError if a loss is not finite, after the weights before it are saved.
        """
        rate = learning_rate(self.state.step, self.config.train.steps, self.config.optim)
        try:
            with self._timed("update"):
                steps = self.actor.update(batch, rate, generator)
        except NonFiniteError as error:
            place = f"the weights before it are saved in {self.run / 'checkpoints'}; " if self._save_finished() else ""
            raise UserError(f"step {self.state.step + 1}: {error}; {place}{NON_FINITE_ADVICE}") from error
        if problem := self.actor.micro_batches.problem():
            self.tracker.warn(problem, problem)
        self.state.tokens_trained += int(batch.trained.sum())
        return steps, rate

    def _due(self, every: int) -> bool:
        return every > 0 and (self.state.step % every == 0 or self.state.step == self.config.train.steps)

    def _stopping(self) -> int:
        """The signal by which a rank is to stop, 0 without one. Collective."""
        return max(all_gather_objects([self.stop_signal], self.accelerator))

    def _stop(self, signal: int) -> int:
        """Save the finished steps. Returns the exit code of the signal."""
        step = self._save_finished()
        saved = f"after step {step}, which is saved; continue with --resume auto" if step else "before the first step"
        self.tracker.say(f"stopped {saved}")
        return 128 + signal

    def _save_finished(self) -> int:
        """Save the finished steps, if there are any. Returns their number."""
        if self.state.step:
            self._save()
        return self.state.step

    def _save(self) -> None:
        with self._timed("checkpoint"):
            same_weights = self.saved == self.state.step
            save_checkpoint(self.actor, self.state, self.config, self.run, same_weights=same_weights)
        self.saved = self.state.step

    def _export(self) -> None:
        with phase("checkpoint"):
            export_model(self.actor, self.tokenizer, self.run / "model")


def describe_size(lm: torch.nn.Module, compiled: bool = False) -> str:
    """The number of parameters, also under ZeRO-3, of trained ones if others are frozen; what is done with layers."""
    sizes = [(size_of(p), p.requires_grad) for p in lm.parameters()]
    total, trained = sum(size for size, _ in sizes), sum(size for size, needed in sizes if needed)
    recomputed = [layer.gradient_checkpointing for layer in decoder_layers(lm)]
    size = f"{total:,} parameters" + (f" ({trained:,} trained by LoRA)" if trained < total else "")
    size += f", {sum(recomputed)} of {len(recomputed)} layers recomputed" if any(recomputed) else ""
    return size + ", layers compiled when they first run" * compiled


# Not torch's own count: it includes the pool of a sleeping engine, whose memory the driver has back.
def memory_gb() -> float:
    """Memory of the GPU that is in use or reserved by torch's allocator; on a CPU, the peak of the process, GiB."""
    if torch.cuda.is_available():
        free, total = torch.cuda.mem_get_info()
        return (total - free) / 2**30
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
