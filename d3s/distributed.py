"""The processes of a run: how they start, how they pass each other Python objects, and what ends them when one is
missing."""

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import chain
from pathlib import Path
from typing import Any

import torch
import torch.distributed
from accelerate import Accelerator
from accelerate.utils import InitProcessGroupKwargs, gather_object, set_seed

from d3s.common import UserError
from d3s.config.schema import Config

ALONE = ("start", "generate", "evaluate")  # phases of a rank's own work, which may take as long as they take


def start_accelerator(config: Config) -> Accelerator:
    """The accelerate environment that this process was launched in; on CPUs ranks talk over gloo. The watch begins."""
    global _watch
    on_cpu = not torch.cuda.is_available()
    if on_cpu:
        os.environ.setdefault("DS_ACCELERATOR", "cpu")  # also transformers imports DeepSpeed, which asks
    limit = timedelta(seconds=config.train.collective_timeout_s + 60)  # the watch, which knows names, comes first
    group = InitProcessGroupKwargs(backend="gloo" if on_cpu else "nccl", timeout=limit)
    handlers = [group] if "RANK" in os.environ else []
    if on_cpu and os.environ.get("ACCELERATE_USE_DEEPSPEED") == "true":
        import deepspeed

        # else it compiles, at start, an operator that training never uses
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    precision = {"float32": "no", "bfloat16": "bf16"}[config.model.dtype]
    accelerator = Accelerator(mixed_precision=precision, kwargs_handlers=handlers)
    plugin = getattr(accelerator.state, "deepspeed_plugin", None)
    if plugin is not None:
        plugin.deepspeed_config["train_micro_batch_size_per_gpu"] = 1  # micro-batches are counted in tokens here
        plugin.deepspeed_config["gradient_clipping"] = config.optim.max_grad_norm
        if precision == "bf16":  # the sum over many micro-batches does not survive bfloat16
            plugin.deepspeed_config["data_types"] = {"grad_accum_dtype": "fp32"}
    set_seed(config.train.seed)
    ranks, size = accelerator.num_processes, config.rollout.tensor_parallel_size
    if ranks % size:
        raise UserError(f"rollout.tensor_parallel_size is {size}, must divide the number of processes, {ranks}")
    if ranks > 1:
        _watch = Watchdog(config.train.collective_timeout_s)
    return accelerator


def shard(count: int, accelerator: Accelerator, config: Config) -> tuple[range, range]:
    """Which of `count` problems this rank's engine samples, and which of those this rank answers for.

    Ranks that are one engine by tensor parallelism, neighbours, must all ask it for the same; each problem is still
    some one rank's. Where every rank has its own engine the two are the same.
    """
    size = config.rollout.tensor_parallel_size
    engine, place = divmod(accelerator.process_index, size)
    sampled = range(engine, count, accelerator.num_processes // size)
    return sampled, sampled[place::size]


def all_gather_objects(items: list[Any], accelerator: Accelerator) -> list[Any]:
    """The lists of all ranks, one after the other, on every rank."""
    if accelerator.num_processes == 1:
        return list(items)
    with phase("exchange"):
        return list(chain.from_iterable(gather_object([items])))


@contextmanager
def phase(name: str) -> Iterator[None]:
    """What this rank is at, for the watch; phases may be nested. All ranks go through the same ones."""
    before = _watch.phase if _watch else ""
    heartbeat(name)
    yield
    heartbeat(before)


def heartbeat(name: str = "") -> None:
    """Tells the watch that this rank goes on, in the phase named or in the same one."""
    if _watch:
        _watch.heartbeat(name or _watch.phase)


class Watchdog:
    """Ends this process when others are missing, or when the launcher has gone, instead of waiting for ever.

    Every rank counts the phases that it goes through and lays count and name into the launcher's store. A rank that
    waits too long finds those that have counted less than itself: they are the ones it waits for.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._rank, self._ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
        self._store = torch.distributed.distributed_c10d._get_default_store().clone()  # a connection of its own
        self._at = ("start", 0, 0.0)  # phase, count, since when; one value, as the thread reads it at any moment
        self._launcher = os.getppid() if "TORCHELASTIC_RUN_ID" in os.environ else None
        self.heartbeat("start")
        threading.Thread(target=self._look, name="watch", daemon=True).start()

    @property
    def phase(self) -> str:
        """What this rank is at."""
        return self._at[0]

    def heartbeat(self, phase: str) -> None:
        """This rank is now at `phase`."""
        count = self._at[1] + 1
        self._at = (phase, count, time.monotonic())
        self._store.set(f"watch{self._rank}", f"{count} {phase}")

    def _look(self) -> None:
        main = threading.main_thread().ident
        while True:
            time.sleep(min(1.0, self._limit_s / 10))
            if self._launcher not in (None, os.getppid()):
                os._exit(1)  # it was killed and ended no rank; they would run on, beside the run that is resumed
            phase, count, since = self._at
            frame = sys._current_frames()[main]
            self._store.set(f"place{self._rank}", f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}")
            if phase not in ALONE and time.monotonic() - since > self._limit_s:
                behind, sentence = self._judge(phase, count)
                if behind and self._rank != min(set(range(self._ranks)) - set(behind)):
                    time.sleep(5)  # one speaks for all that wait
                print(f"error: {sentence}", file=sys.stderr, flush=True)
                os._exit(1)

    def _judge(self, phase: str, count: int) -> tuple[list[int], str]:
        """The ranks that have not come as far as this one, and what is to be said."""
        at, behind = [], []
        for rank in range(self._ranks):
            theirs, name = self._read(f"watch{rank}", "0 start").split(" ", 1)
            at.append(f"rank {rank} (at {name}, {self._read(f'place{rank}', 'nowhere yet')})")
            if int(theirs) < count:
                behind.append(rank)
        head, limit = f"phase {phase}: ", f"train.collective_timeout_s is {self._limit_s:g}"
        if not behind:
            return behind, f"{head}no rank made progress for {self._limit_s:g} s, {', '.join(at)}; {limit}"
        missing = ", ".join(at[i] for i in behind)
        return behind, f"{head}{missing} did not respond within {self._limit_s:g} s; {limit}"

    def _read(self, key: str, default: str) -> str:
        return self._store.get(key).decode() if self._store.check([key]) else default


_watch: Watchdog | None = None  # of this process, as its process group is; None where there is one rank
