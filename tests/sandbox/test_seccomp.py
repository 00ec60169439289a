"""The filter, executed by a small interpreter of classic BPF, against the rules that its tables state."""

import errno
import struct

import pytest

from d3s.sandbox import seccomp
from d3s.sandbox.seccomp import ABSENT, ALLOWED, ALLOWED_ON_X86, MACHINES, NO_EXECUTE, filter_program

ALLOW, KILL = 0x7FFF0000, 0x80000000
REFUSE, UNKNOWN = 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS
ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
# Calls that would reach out of the process, with their numbers on both machines.
FORBIDDEN = {
    "openat": (257, 56), "socket": (41, 198), "connect": (42, 203), "sendmsg": (46, 211), "clone": (56, 220),
    "execve": (59, 221), "kill": (62, 129), "tgkill": (234, 131), "ptrace": (101, 117), "memfd_create": (319, 279),
    "mount": (165, 40), "unshare": (272, 97), "shmget": (29, 194), "prctl": (157, 167), "ioctl": (16, 29),
    "fcntl": (72, 25), "dup": (32, 23), "pipe2": (293, 59), "setitimer": (103, 103), "prlimit64": (302, 261),
    "seccomp": (317, 277), "bpf": (321, 280), "io_uring_setup": (425, 425), "pidfd_open": (434, 434),
    "process_vm_writev": (311, 271), "personality": (135, 92), "pkey_mprotect": (329, 288), "getdents64": (217, 61),
    "newfstatat": (262, 79), "statx": (332, 291), "unlinkat": (263, 35), "chdir": (80, 49), "setuid": (105, 146),
    "vfork": (58, 58),  # vhangup on aarch64
}  # fmt: skip


def decide(machine: str, number: int, third: int = 0, arch: int | None = None) -> int:
    """Run the filter on one call."""
    data = struct.pack("=IIQ6Q", number, arch or ARCH[machine], 0, 0, 0, third, 0, 0, 0)
    steps = list(struct.iter_unpack("=HBBI", filter_program(machine)))
    place, value = 0, 0
    while True:
        code, if_true, if_false, constant = steps[place]
        place += 1
        if code == 0x06:
            return constant
        if code == 0x20:
            (value,) = struct.unpack_from("=I", data, constant)
            continue
        holds = {0x15: value == constant, 0x35: value >= constant, 0x45: bool(value & constant)}[code]
        place += if_true if holds else if_false


@pytest.mark.parametrize("machine", MACHINES)
def test_filter_allows_only_what_the_tables_name(machine):
    column = MACHINES[machine]
    allowed, no_execute, absent, forbidden = (
        {numbers[column] for numbers in table.values()} for table in (ALLOWED, NO_EXECUTE, ABSENT, FORBIDDEN)
    )
    assert (len(allowed), len(no_execute), len(absent)) == (len(ALLOWED), len(NO_EXECUTE), len(ABSENT))
    allowed |= set(ALLOWED_ON_X86.values()) if machine == "x86_64" else set()
    assert not forbidden & (allowed | no_execute | absent)
    for number in range(600):
        expected = ALLOW if number in allowed | no_execute else UNKNOWN if number in absent else REFUSE
        assert decide(machine, number, 3) == expected, number
        executable = REFUSE if number in no_execute else expected
        assert decide(machine, number, 4) == decide(machine, number, 7) == executable, number


def test_filter_kills_other_numberings():
    assert decide("x86_64", 0, arch=0x40000003) == KILL  # 32-bit x86
    assert decide("x86_64", 0x40000000) == KILL  # x32
    assert decide("aarch64", 63, arch=0x40000028) == KILL  # 32-bit ARM
    assert decide("x86_64", 63, arch=ARCH["aarch64"]) == KILL


def test_unknown_machines_and_calls_raise():
    with pytest.raises(KeyError):
        filter_program("riscv64")
    with pytest.raises(OSError, match=r"prctl\(9999\)"):
        seccomp.control_process(9999, 0)
