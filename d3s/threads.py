"""Choose the threads of torch and vLLM by the cores that this process may use and the size of the model."""

import os
from pathlib import Path

PARAMETERS_PER_THREAD = 10**7  # below it a thread waits longer for the others than it computes
chosen: str | None = None  # what choose_threads has set


def usable_cores(root: Path = Path("/")) -> int:
    """Cores of this process: those of its affinity, at most the CPU quota of its control groups (versions 1 and 2).

    Args:
        root: where proc and sys are mounted.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([cores, *(int(quota) for quota in _quotas(root))]))


def _quotas(root: Path) -> list[float]:
    """The cores that each control group from that of this process upwards allows; none without a limit."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    quotas = []
    for line in lines:
        _, controllers, name = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        for mount in ("sys/fs/cgroup", f"sys/fs/cgroup/{controllers}", "sys/fs/cgroup/cpu", "sys/fs/cgroup/unified"):
            # inside a container the name may be that of the host, and only the mount itself be there
            for folder in {root / mount / part for part in [".", *_upwards(name.strip("/"))]}:
                quotas += _quota(folder)
    return quotas


def _upwards(name: str) -> list[str]:
    parts = name.split("/")
    return ["/".join(parts[: i + 1]) for i in range(len(parts)) if ".." not in parts]


def _quota(folder: Path) -> list[float]:
    """The limit of one control group, in cores."""
    for files in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
        try:
            quota, period = " ".join((folder / file).read_text() for file in files).split()
            return [int(quota) / int(period)] if int(quota) > 0 else []
        except (OSError, ValueError, ZeroDivisionError):  # not there, or "max"
            continue
    return []


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
    own = max(1, usable_cores() // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    threads = own if parameters is None else max(1, min(own, parameters // PARAMETERS_PER_THREAD))
    torch.set_num_threads(threads)
    os.environ["OMP_NUM_THREADS"] = chosen = str(threads)  # for processes that are started from here
    return threads
