"""The control groups (Linux, versions 1 and 2) that limit this process."""

import os
from contextlib import suppress
from pathlib import Path

CPU_CACHE = 2**29  # bytes, the smallest KV cache on a CPU, unless rollout.kv_cache_gb has another number


def control_groups(root: Path, controller: str) -> set[Path]:
    """Folders of the groups of this process, and of those above them, that may limit `controller`.

    Inside a container the names may be those of the host; then only the mount itself is there, which is among them.

    Args:
        root: where proc and sys are mounted.
        controller: cpu or memory.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return set()
    folders = set()
    for line in lines:
        _, controllers, name = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        parts = [part for part in name.split("/") if part not in ("", "..")]
        for mount in (controllers, controller, "unified") if controllers else (".", "unified"):
            folders |= {root / "sys/fs/cgroup" / mount / "/".join(parts[:depth]) for depth in range(len(parts) + 1)}
    return folders


def numbers(folder: Path, *files: str) -> list[int]:
    """The numbers in these files of a group; [] if one is not there or says max, which is no limit."""
    try:
        return [int(number) for file in files for number in (folder / file).read_text().split()]
    except (OSError, ValueError):
        return []


def free_memory(root: Path = Path("/")) -> int | None:
    """Bytes that this process can still take, by the system and its control groups; None where neither says.

    The ranks of a node share them. The page cache of a group counts as free.
    """
    free = []
    with suppress(OSError):
        lines = (root / "proc/meminfo").read_text().splitlines()
        free += [1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
    for folder in control_groups(root, "memory"):
        for files in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):
            if found := numbers(folder, *files):
                free.append(max(0, found[0] - found[1] + _page_cache(folder)))
    return min(free) // int(os.environ.get("LOCAL_WORLD_SIZE", "1")) if free else None


def _page_cache(folder: Path) -> int:
    """Bytes of a control group that the kernel would give back."""
    with suppress(OSError):
        for line in (folder / "memory.stat").read_text().splitlines():
            if line.startswith("inactive_file "):
                return int(line.split()[1])
    return 0
