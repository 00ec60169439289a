"""Confine the calling process for good: limits, privileges, Landlock, seccomp. Needs neither root nor namespaces.

Seccomp alone leaves no way to open a file or a socket; Landlock, where the kernel has it, is a second wall.
"""

import contextlib
import ctypes
import os
import resource
import signal
import struct
from dataclasses import dataclass

from d3s.sandbox import seccomp

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_KEEPCAPS = 1, 4, 8
CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 1, 2
NOBODY = 65534
CAPABILITIES = struct.pack("=Ii", 0x20080522, 0)  # header: _LINUX_CAPABILITY_VERSION_3, this process
STACK_BYTES = 64 << 20  # for deep recursion of honest programs
DESCRIPTORS = 16
CREATE_RULESET, RESTRICT_SELF = 444, 446  # landlock_create_ruleset, landlock_restrict_self; equal on both machines
GET_ABI = 1
FS_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}  # ABI: number of access rights to files; 16 from ABI 5 on


def limit_files() -> None:
    """Forbid growing any file. Works before imports, which only read."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


@dataclass(frozen=True)
class Walls:
    """What the fork server prepares once: Landlock's rules, None to do without it, and the seccomp filter."""

    rules: ctypes.Array | None
    filter: bytes


def confine(walls: Walls, memory_mb: int, cpu_s: int) -> None:
    """Take every right from this process that a program needs not.

    Args:
        memory_mb: address space in MiB, the interpreter's included.
        cpu_s: processor seconds after which the kernel ends the process, should the wall-clock limit fail.
    Raises: OSError if the kernel refuses a step that must not fail.
    """
    limit_files()
    _limit(resource.RLIMIT_AS, memory_mb << 20)
    _limit(resource.RLIMIT_CPU, cpu_s)
    _limit(resource.RLIMIT_NOFILE, DESCRIPTORS)
    hard = resource.getrlimit(resource.RLIMIT_STACK)[1]
    stack = STACK_BYTES if hard == resource.RLIM_INFINITY else min(STACK_BYTES, hard)
    resource.setrlimit(resource.RLIMIT_STACK, (stack, hard))
    become_nobody()
    if seccomp.libc.capset(CAPABILITIES, bytes(24)):
        raise OSError(ctypes.get_errno(), "capabilities cannot be dropped")
    _limit(resource.RLIMIT_NPROC, 0)  # after the change of user, whose processes it counts
    die_with_parent()
    seccomp.control_process(PR_SET_DUMPABLE, 0)
    seccomp.control_process(seccomp.PR_SET_NO_NEW_PRIVS, 1)
    if walls.rules is not None:
        _restrict_with_landlock(walls.rules)
    seccomp.install(walls.filter)


def die_with_parent() -> None:
    """Let the kernel kill this process when its parent ends."""
    seccomp.control_process(PR_SET_PDEATHSIG, signal.SIGKILL)


def _limit(kind: int, value: int) -> None:
    hard = resource.getrlimit(kind)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (value, value))


def become_nobody() -> None:
    """Give up root, if this process has it, before modules are imported that a program names.

    The right to read all files stays until `confine`: the standard library may lie in a home directory. A box that
    forbids the change of user leaves the other walls.
    """
    if os.geteuid() == 0:
        seccomp.control_process(PR_SET_KEEPCAPS, 1)
        with contextlib.suppress(OSError):
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
        for capability in (CAP_DAC_READ_SEARCH, CAP_DAC_OVERRIDE):  # the second one in a container without the first
            rights = struct.pack("=6I", 1 << capability, 1 << capability, 0, 0, 0, 0)
            if seccomp.libc.capset(CAPABILITIES, rights) == 0:
                break
        die_with_parent()  # which a change of user takes back


def landlock_rules() -> ctypes.Array | None:
    """Return a struct landlock_ruleset_attr with every access that this kernel's Landlock knows, None without it."""
    abi = seccomp.libc.syscall(CREATE_RULESET, None, ctypes.c_size_t(0), GET_ABI)
    if abi < 1:
        return None
    rights = [(1 << FS_RIGHTS.get(abi, 16)) - 1]  # to files
    if abi >= 4:
        rights.append(0b11)  # bind and connect of TCP
    if abi >= 6:
        rights.append(0b11)  # abstract Unix sockets, and signals to processes outside
    return (ctypes.c_uint64 * len(rights))(*rights)


def _restrict_with_landlock(rules: ctypes.Array) -> None:
    """Allow nothing of what the rules name. Raises OSError."""
    descriptor = seccomp.libc.syscall(CREATE_RULESET, rules, ctypes.c_size_t(ctypes.sizeof(rules)), 0)
    if descriptor < 0 or seccomp.libc.syscall(RESTRICT_SELF, descriptor, 0):
        number = ctypes.get_errno()
        raise OSError(number, f"Landlock: {os.strerror(number)}")
    os.close(descriptor)
