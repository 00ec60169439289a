"""Seccomp filter of a sandboxed process: system call numbers, and the BPF program that allows them.

The filter is an allow-list for a CPython that has everything imported: memory, clocks, and bytes through descriptors
that are already open. No call opens a file, makes a socket, starts a process or thread, or signals one.
"""

import ctypes
import errno
import os
import struct

# name: (x86-64, aarch64), from arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h of Linux
ALLOWED = {
    "read": (0, 63), "write": (1, 64), "close": (3, 57), "fstat": (5, 80), "lseek": (8, 62),
    "munmap": (11, 215), "brk": (12, 214), "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139), "sched_yield": (24, 124), "mremap": (25, 216), "madvise": (28, 233),
    "nanosleep": (35, 101), "getpid": (39, 172), "exit": (60, 93), "uname": (63, 160), "getcwd": (79, 17),
    "gettimeofday": (96, 169), "getrusage": (98, 165), "sysinfo": (99, 179), "times": (100, 153),
    "getuid": (102, 174), "getgid": (104, 176), "geteuid": (107, 175), "getegid": (108, 177),
    "getppid": (110, 173), "sigaltstack": (131, 132), "gettid": (186, 178), "futex": (202, 98),
    "sched_getaffinity": (204, 123), "restart_syscall": (219, 128), "clock_gettime": (228, 113),
    "clock_getres": (229, 114), "clock_nanosleep": (230, 115), "exit_group": (231, 94), "pselect6": (270, 72),
    "ppoll": (271, 73), "getrandom": (318, 278),
}  # fmt: skip
ALLOWED_ON_X86 = {"poll": 7, "select": 23, "time": 201}  # aarch64 has only their successors
NO_EXECUTE = {"mmap": (9, 222), "mprotect": (10, 226)}  # allowed unless the third argument asks for PROT_EXEC
ABSENT = {"clone3": (435, 435), "openat2": (437, 437)}  # libraries take ENOSYS as "use the older call"

MACHINES = {"x86_64": 0, "aarch64": 1}  # column of the tables
AUDIT_ARCH = (0xC000003E, 0xC00000B7)
X32_BIT = 0x40000000  # of the x32 calls, which share AUDIT_ARCH_X86_64
PROT_EXEC = 4
ALLOW, DENY = 0x7FFF0000, 0x00050000  # SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO
KILL = 0x80000000  # SECCOMP_RET_KILL_PROCESS

LOAD, JUMP_EQUAL, JUMP_NOT_BELOW, JUMP_BITS, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
STEP_BYTES = 8  # struct sock_filter
NUMBER, ARCH, THIRD_ARGUMENT = 0, 4, 32  # offsets in struct seccomp_data; low half of an argument (little endian)

PR_SET_SECCOMP, SECCOMP_MODE_FILTER, PR_SET_NO_NEW_PRIVS = 22, 2, 38
libc = ctypes.CDLL(None, use_errno=True)


def filter_program(machine: str) -> bytes:
    """Return the filter as an array of struct sock_filter. Raises KeyError for a machine without numbers."""
    column = MACHINES[machine]
    steps = [(LOAD, 0, 0, ARCH), (JUMP_EQUAL, 1, 0, AUDIT_ARCH[column]), (RETURN, 0, 0, KILL), (LOAD, 0, 0, NUMBER)]
    allowed = [numbers[column] for numbers in ALLOWED.values()]
    if machine == "x86_64":
        steps += [(JUMP_NOT_BELOW, 0, 1, X32_BIT), (RETURN, 0, 0, KILL)]
        allowed += ALLOWED_ON_X86.values()
    for number in allowed:
        steps += [(JUMP_EQUAL, 0, 1, number), (RETURN, 0, 0, ALLOW)]
    for numbers in NO_EXECUTE.values():
        steps += [(JUMP_EQUAL, 0, 4, numbers[column]), (LOAD, 0, 0, THIRD_ARGUMENT), (JUMP_BITS, 0, 1, PROT_EXEC)]
        steps += [(RETURN, 0, 0, DENY | errno.EPERM), (RETURN, 0, 0, ALLOW)]
    for numbers in ABSENT.values():
        steps += [(JUMP_EQUAL, 0, 1, numbers[column]), (RETURN, 0, 0, DENY | errno.ENOSYS)]
    steps.append((RETURN, 0, 0, DENY | errno.EPERM))
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


class Program(ctypes.Structure):
    """struct sock_fprog."""

    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))


def control_process(option: int, value: int, pointer: ctypes.Structure | None = None) -> None:
    """Call prctl. Raises OSError."""
    last = ctypes.byref(pointer) if pointer else None
    if libc.prctl(option, ctypes.c_ulong(value), last, ctypes.c_ulong(0), ctypes.c_ulong(0)):
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}): {os.strerror(number)}")


def install(steps: bytes) -> None:
    """Put this process under a filter, for good. Needs PR_SET_NO_NEW_PRIVS. Raises OSError."""
    control_process(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, Program(len(steps) // STEP_BYTES, steps))
