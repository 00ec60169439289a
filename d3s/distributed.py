"""Ranks: divide problems, gather objects, compare what each has chosen, end the run if one is missing."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Tensor

from d3s.common import UserError

UNLIMITED_PHASES = ("start", "generate", "evaluate")  # without communication, so they may take any time
MANY = 2**16  # numbers in which ranks are compared one by one
REPORT_DELAY_S = 5  # time for one rank to report before the other waiting ranks do


def no_response(phase: str, ranks: list[int], limit_s: float) -> str:
    """That ranks did not come to a phase."""
    names = ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(map(str, ranks))
    return f"phase {phase}: {names} did not respond within train.collective_timeout_s = {limit_s:g} s"


def ranks_per_node() -> int:
    """The ranks of a node in a launch over several nodes of several ranks each, else 0."""
    size, ranks = (int(os.environ.get(name, "1")) for name in ("LOCAL_WORLD_SIZE", "WORLD_SIZE"))
    return size if 1 < size < ranks else 0


@contextmanager
def first_of_node_first(accelerator: Accelerator) -> Iterator[bool]:
    """Run the block on the first rank of every node, then on the others; yields whether this is a first one.

    The others, and in the end all ranks, wait for the first ranks for as long as it takes: a download may outlast the
    limit of a collective operation.
    """
    first = accelerator.is_local_main_process
    node, nodes = (int(os.environ.get(name, n)) for name, n in (("GROUP_RANK", "0"), ("GROUP_WORLD_SIZE", "1")))
    keys = [f"first of node {i} is done" for i in range(nodes)]  # torchrun and accelerate number the nodes
    store = torch.distributed.distributed_c10d._get_default_store().clone() if accelerator.num_processes > 1 else None
    if store and not first:
        store.wait([keys[node]], timedelta(days=365))
    yield first
    if store and first:
        store.set(keys[node], "")
    if store:
        store.wait(keys, timedelta(days=365))


def shard(count: int, accelerator: Accelerator, engine_size: int) -> tuple[range, range]:
    """Divide `count` problems among the ranks.

    The ranks of one engine, engine_size consecutive ones by tensor parallelism, must all request the same problems
    from it, while each problem is accounted for by one rank. With an engine for every rank the two ranges are the same.

    Returns: the problems that this rank's engine samples, and those of them that this rank accounts for.
    """
    engine, position = divmod(accelerator.process_index, engine_size)
    sampled = range(engine, count, accelerator.num_processes // engine_size)
    return sampled, sampled[position::engine_size]


def all_gather_objects(items: list[Any], accelerator: Accelerator) -> list[Any]:
    """Concatenate the lists of all ranks, in rank order, on every rank. Collective."""
    if accelerator.num_processes == 1:
        return list(items)
    with phase("exchange"):
        return list(chain.from_iterable(gather_object([items])))


ALONE = "a rule must depend on its arguments alone, also for random numbers"


def require_equal(what: str, chosen: Tensor | list, accelerator: Accelerator, remedy: str = ALONE) -> None:
    """Require that all ranks have chosen the same: bool of any shape, a list, or nearly the same numbers. Collective.

    Raises: UserError on all ranks.
    """
    if accelerator.num_processes > 1 and not _are_equal(chosen, accelerator):
        raise UserError(f"{what}: ranks have different results; {remedy}")


def _are_equal(chosen: Tensor | list, accelerator: Accelerator) -> bool:
    if isinstance(chosen, Tensor) and chosen.is_floating_point():  # CPUs of other kinds differ in the last bits
        values = chosen.float().flatten()
        if len(values) > MANY:  # of tokens: compared by one sum, which other values change
            values = (values.double() @ torch.arange(len(values), dtype=torch.float64).square().cos())[None].float()
        ranks = np.stack(all_gather_arrays(values.numpy(), accelerator))
        return bool((np.abs(ranks - ranks[0]) <= 1e-3 * np.abs(ranks).max()).all())
    content = np.packbits(chosen.numpy()).tobytes() if isinstance(chosen, Tensor) else repr(chosen).encode()
    return len(set(all_gather_objects([sha256(content).hexdigest()], accelerator))) == 1


def all_gather_arrays(array: np.ndarray, accelerator: Accelerator) -> list[np.ndarray]:
    """The arrays of all ranks, one-dimensional and of one type, in rank order, on every rank. Collective.

    They travel as they are: objects are pickled, and copied twice more where they arrive.
    """
    if accelerator.num_processes == 1:
        return [array]
    sizes = all_gather_objects([len(array)], accelerator)
    if not any(sizes):  # a step that keeps no rollout; not every backend gathers nothing
        return [array] * len(sizes)
    padded = torch.zeros(max(sizes), dtype=torch.from_numpy(array).dtype)
    padded[: len(array)] = torch.from_numpy(array)
    received = padded.new_empty(len(sizes), max(sizes), device=accelerator.device)
    with phase("exchange"):
        torch.distributed.all_gather(list(received), padded.to(accelerator.device))
    return [row[:size] for row, size in zip(received.cpu().numpy(), sizes)]


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Report a phase to the watchdog. Phases may be nested; all ranks must go through the same ones."""
    outer = watchdog.phase if watchdog else ""
    heartbeat(name)
    yield
    heartbeat(outer)


def heartbeat(name: str = "") -> None:
    """Report progress to the watchdog, in phase `name` or in the current one."""
    if watchdog:
        watchdog.heartbeat(name or watchdog.phase)


class Watchdog:
    """Ends this process if other ranks are missing or the launcher is gone, instead of waiting forever.

    Every rank counts the phases that it enters and writes count and phase into the launcher's store. A rank that waits
    too long waits for the ranks with lower counts.
    """

    def __init__(self, limit_s: float, rank: int, ranks: int, store: Any) -> None:
        """Report the phase "start". `store` is a torch.distributed.Store, or has its `set`, `get` and `check`."""
        self._limit_s = limit_s
        self._rank, self._ranks, self._store = rank, ranks, store
        self._state = ("start", 0, 0.0)  # phase, count, start time; one tuple, as the thread reads it at any moment
        self._launcher = os.getppid() if "TORCHELASTIC_RUN_ID" in os.environ else None
        self.heartbeat("start")

    def start(self) -> None:
        """Start the thread that checks this process about once a second."""
        threading.Thread(target=self._run, name="watchdog", daemon=True).start()

    @property
    def phase(self) -> str:
        """The current phase of this rank."""
        return self._state[0]

    def heartbeat(self, phase: str) -> None:
        """Report that this rank enters `phase`."""
        count = self._state[1] + 1
        self._state = (phase, count, time.monotonic())
        self._store.set(f"heartbeat{self._rank}", f"{count} {phase}")

    def expired(self) -> bool:
        """Whether this rank has been in a phase with communication for longer than the limit."""
        phase, _, since = self._state
        return phase not in UNLIMITED_PHASES and time.monotonic() - since > self._limit_s

    def missing_ranks(self) -> tuple[list[int], str]:
        """Find the ranks that have entered fewer phases than this one. Return them and the error message."""
        phase, count, _ = self._state
        missing, seen = [], []
        for rank in range(self._ranks):
            their_count, their_phase = self._read(f"heartbeat{rank}", "0 start").split(" ", 1)
            seen.append(f"{their_phase} at {self._read(f'location{rank}', 'an unknown line')}")
            if int(their_count) < count:
                missing.append(rank)
        if missing:
            places = ", ".join(seen[rank] for rank in missing)
            return missing, f"{no_response(phase, missing, self._limit_s)} (last seen in {places})"
        limit = f"within train.collective_timeout_s = {self._limit_s:g} s"
        places = ", ".join(f"rank {rank} in {place}" for rank, place in enumerate(seen))
        return missing, f"phase {phase}: no rank made progress {limit} ({places})"

    def _run(self) -> None:
        main = threading.main_thread().ident
        while True:
            time.sleep(min(1.0, self._limit_s / 10))
            if self._launcher not in (None, os.getppid()):
                os._exit(1)  # a killed launcher ends no rank, and they would keep writing next to a resumed run
            frame = sys._current_frames()[main]
            self._store.set(f"location{self._rank}", f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}")
            if self.expired():
                missing, message = self.missing_ranks()
                if missing and self._rank != min(set(range(self._ranks)) - set(missing)):
                    time.sleep(REPORT_DELAY_S)  # the first waiting rank reports for all
                print(f"error: {message}", file=sys.stderr, flush=True)
                os._exit(1)

    def _read(self, key: str, default: str) -> str:
        return self._store.get(key).decode() if self._store.check([key]) else default


watchdog: Watchdog | None = None  # one per process, like its process group; None with a single rank


def watch_ranks(limit_s: float, accelerator: Accelerator) -> None:
    """Start the watchdog of this process."""
    global watchdog
    store = torch.distributed.distributed_c10d._get_default_store().clone()  # its own connection
    watchdog = Watchdog(limit_s, accelerator.process_index, accelerator.num_processes, store)
    watchdog.start()
