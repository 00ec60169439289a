"""Choose the threads of torch and vLLM by the cores that this process may use and the size of the model."""

import os
from pathlib import Path

from d3s.cgroups import control_groups, numbers

PARAMETERS_PER_THREAD = 10**7  # below it a thread waits longer for the others than it computes
chosen: str | None = None  # what choose_threads has set


def usable_cores(root: Path = Path("/")) -> int:
    """Cores of this process: those of its affinity, at most the CPU quota of its control groups.

    Args:
        root: where proc and sys are mounted.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for folder in control_groups(root, "cpu"):
        limit = numbers(folder, "cpu.max") or numbers(folder, "cpu.cfs_quota_us", "cpu.cfs_period_us")
        if len(limit) == 2 and min(limit) > 0:  # a quota of -1 is none
            cores = min(cores, limit[0] // limit[1])
    return max(1, cores)


def planned_threads(parameters: int | None) -> int:
    """The number of threads that choose_threads sets for a model; parameters None: unknown."""
    if (said := os.environ.get("OMP_NUM_THREADS")) not in (None, "", chosen):
        number = said.partition(",")[0].strip()
        return int(number) if number.isdecimal() else usable_cores()  # as torch decides
    own = max(1, usable_cores() // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    return own if parameters is None else max(1, min(own, parameters // PARAMETERS_PER_THREAD))


def choose_threads(parameters: int | None) -> int:
    """Set and return the threads of torch, and of vLLM in this process, unless OMP_NUM_THREADS says how many.

    A thread for PARAMETERS_PER_THREAD of the model, at most one a core; the ranks of a node share its cores.

    Args:
        parameters: of the model; None if they are unknown.
    """
    global chosen
    import torch

    if os.environ.get("OMP_NUM_THREADS") not in (None, "", chosen):
        return torch.get_num_threads()
    threads = planned_threads(parameters)
    torch.set_num_threads(threads)
    os.environ["OMP_NUM_THREADS"] = chosen = str(threads)  # for processes that are started from here
    return threads
