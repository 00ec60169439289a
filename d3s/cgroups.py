"""The control groups (Linux, versions 1 and 2) that limit this process."""

from pathlib import Path


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
