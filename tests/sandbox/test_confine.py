"""The walls one by one, in a forked process: limits, user, Landlock without seccomp, seccomp without Landlock."""

import os
import platform
import resource
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from d3s.sandbox import confine, seccomp

RULES = confine.landlock_rules()
MEMORY_MB = 1 << 20  # more than the address space of any process that runs this test
NOTHING = b"\x06\0\0\0\0\0\xff\x7f"  # a filter that allows all calls
LIMITS = {"FSIZE": 0, "CORE": 0, "NPROC": 0, "CPU": 20, "AS": MEMORY_MB << 20, "NOFILE": confine.DESCRIPTORS}


def confined(walls: confine.Walls | None, action: Callable[[], bool]) -> bool:
    """Whether `action` holds in a child, confined if there are walls."""
    child = os.fork()
    if child == 0:
        try:
            if walls is not None:
                os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # a test process has more descriptors open than the limit
                confine.confine(walls, MEMORY_MB, 20)
            os._exit(0 if action() else 1)
        finally:
            os._exit(2)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, 1)
    return code == 0


def refused(call: Callable[[], object]) -> bool:
    try:
        call()
    except PermissionError:
        return True
    return False


def test_filter_alone_refuses_files():
    walls = confine.Walls(None, seccomp.filter_program(platform.machine()))
    assert confined(walls, lambda: refused(Path("/etc/passwd").read_bytes))


@pytest.mark.skipif(RULES is None, reason="this kernel has no Landlock")
def test_landlock_alone_refuses_files():
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        file = Path(folder) / "file"
        assert confined(confine.Walls(RULES, NOTHING), lambda: refused(file.touch) and refused(lambda: os.listdir("/")))
        assert confined(confine.Walls(None, NOTHING), lambda: not refused(lambda: os.listdir("/")))


def test_limits_are_set():
    def limits_hold() -> bool:
        return all(resource.getrlimit(getattr(resource, f"RLIMIT_{k}")) == (v, v) for k, v in LIMITS.items())

    assert confined(confine.Walls(None, NOTHING), limits_hold)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_imports_run_as_nobody_who_reads():
    """Before a program's modules are imported: root is gone, files of root can be read, none can be made."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "file"
        file.write_text("text")
        file.chmod(0o600)

        def reads_only() -> bool:
            confine.become_nobody()
            reads = os.getuid() == confine.NOBODY and file.read_text() == "text"
            return reads and refused(lambda: os.symlink(file, Path(folder) / "link"))

        assert confined(None, reads_only)


def test_no_privileges_are_left():
    def no_capabilities() -> bool:
        status = Path("/proc/self/status").read_text().split()
        return all(int(status[status.index(f"Cap{kind}:") + 1], 16) == 0 for kind in ("Eff", "Prm"))

    walls = confine.Walls(None, NOTHING)
    assert confined(walls, no_capabilities)
    if os.geteuid() == 0:
        assert confined(walls, lambda: os.geteuid() != 0 and not os.getgroups() and refused(lambda: os.setuid(0)))
