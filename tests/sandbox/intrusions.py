"""More programs that try to touch what is outside: raw system calls, descriptors, sockets of all families, processes.

They use the names of attacks.py, and are bounded where the confinement fails: one child that ends at once, traffic on
the loopback, small writes.
"""

from d3s.sandbox.seccomp import ABSENT, ALLOWED, ALLOWED_ON_X86, NO_EXECUTE
from tests.sandbox.attacks import outside, raw_call

ENDS = {57, 58}  # fork and vfork of x86-64, which would double this process where the filter fails
NAMED = [
    {numbers[column] for table in (ALLOWED, NO_EXECUTE, ABSENT) for numbers in table.values()} for column in (0, 1)
]
NAMED[0] |= set(ALLOWED_ON_X86.values()) | ENDS
NUMBERS = [sorted(set(range(470)) - named) for named in NAMED]
# Every number that the filter does not allow: what fails with another error than its own was executed.
RAW_CALLS = {
    "every other system call": outside(
        "import ctypes, errno, os",
        "call = ctypes.CDLL(None, use_errno=True).syscall",
        f"numbers = {{'x86_64': {NUMBERS[0]}, 'aarch64': {NUMBERS[1]}}}[os.uname().machine]",
        "for number in numbers:",
        "    ctypes.set_errno(0)",
        "    done = call(number, 0, 0, 0, 0, 0, 0) != -1",
        "    if done or ctypes.get_errno() not in (errno.EPERM, errno.ENOSYS): return True",
    ),
    "vfork": outside("import ctypes, os", "n = ctypes.CDLL(None).vfork()", "if n == 0: os._exit(0)", "return n > 0"),
    "fork by spawn": outside("import os", "return os.posix_spawn('/bin/true', ['true'], {}) > 0"),
    "openat": raw_call("openat", 257, 56, "-100", "CANARY.encode()", "0", "0"),
    "unlink": raw_call("unlinkat", 263, 35, "-100", "CANARY.encode()", "0"),
    "hard link": raw_call("linkat", 265, 37, "-100", "CANARY.encode()", "-100", "(CANARY + 'l').encode()", "0"),
    "signal by number": raw_call("kill", 62, 129, "VICTIM", "0"),
    "own a signal": outside("import fcntl", "return fcntl.fcntl(3, 8, VICTIM) == 0"),
    "map from a file": outside("import mmap", "return bool(mmap.mmap(3, 4096))"),
    "protect for execution": outside(
        "import ctypes, mmap",
        "page = mmap.mmap(-1, 4096)",
        "address = ctypes.addressof(ctypes.c_char.from_buffer(page))",
        "return ctypes.CDLL(None).mprotect(ctypes.c_void_p(address), 4096, 7) == 0",
    ),
    "the 32-bit numbering": outside("import ctypes", "return ctypes.CDLL(None).syscall(0x40000000 + 2, b'/', 0) >= 0"),
}
SOCKETS = {
    f"a socket of family {family}, type {kind}": outside(
        "import ctypes", f"return ctypes.CDLL(None).socket({family}, {kind}, 0) >= 0"
    )
    for family, kind in ((1, 1), (1, 2), (2, 1), (2, 2), (2, 3), (10, 1), (16, 3), (17, 3), (38, 5), (40, 1), (44, 3))
}
LIBRARY = {
    "a thread pool": outside(
        "from concurrent.futures import ThreadPoolExecutor",
        "with ThreadPoolExecutor(1) as pool: return pool.submit(int).result(0.2) == 0",
    ),
    "a terminal": outside("import pty", "return bool(pty.openpty())"),
    "a database file": outside(
        "import sqlite3", "sqlite3.connect(FOLDER + '/db').execute('create table t (a)')", "return True"
    ),
    "a log file": outside("import logging", "logging.FileHandler(FOLDER + '/log').emit(None)", "return True"),
    "an event loop": outside(
        "import asyncio",
        "asyncio.run(asyncio.wait_for(asyncio.open_connection('127.0.0.1', PORT), 0.2))",
        "return True",
    ),
    "the own memory": outside("return bool(open('/proc/self/mem', 'r+b'))"),
    "the system's settings": outside("open('/proc/self/oom_score_adj', 'w').write('0')", "return True"),
    "a path through stdin": outside("return bool(open('/dev/stdin').read() or open('/proc/self/fd/0'))"),
    "a code object": outside("return bool(eval(compile('open(CANARY)', '', 'eval')))"),
    "a loader": outside("import importlib.util", "return bool(importlib.util.find_spec('planted', [FOLDER]))"),
}
INTRUSIONS = {**RAW_CALLS, **SOCKETS, **LIBRARY}

GREEDY = {
    "grow a dict": ("def f(): return len({i: str(i) for i in range(1 << 26)})", ["f()"]),
    "shift an integer": ("def f(): return (1 << (1 << 34)).bit_length()", ["f()"]),
    "recurse in repr": (
        "import sys\nsys.setrecursionlimit(1 << 30)\ndef f():\n    x = []\n"
        "    for _ in range(1 << 20): x = [x]\n    return repr(x)",
        ["assert f()"],
    ),
    "parse deeply": ("import json\ndef f(): return json.loads('[' * (1 << 20))", ["f()"]),
    "parse deep source": ("def f(): return eval('-' * (1 << 17) + '1') and eval('[' * 5000)", ["assert f() == 2"]),
    "hash for long": ("import hashlib\ndef f(): return hashlib.pbkdf2_hmac('sha512', b'', b'', 1 << 30)", ["f()"]),
    "wait for a lock": ("import threading\ndef f():\n    x = threading.Lock(); x.acquire(); x.acquire()", ["f()"]),
    "wait for input": ("import os\ndef f(): return [os.read(n, 1) for n in (0, 3)]", ["f()"]),
    "sleep when freed": (
        "import time\nclass A:\n    def __del__(s): time.sleep(60)\ndef f(): return A() and 0",
        ["assert f() == 1"],
    ),
    "answer forever in pieces": (
        "class A:\n    def __iter__(s): return s\n    def __next__(s): return 'x' * 99999\ndef f(): return A()",
        ["kept = []\nfor x in f(): kept.append(x)"],
    ),
    "grow what the test keeps": ("def f(kept): kept.extend(range(1 << 18))", ["kept = []\nwhile True: f(kept)"]),
    "give back a large change": ("def f(x): x.append('y' * (1 << 26))", ["x = []\nf(x)\nassert x"]),
    "a large timedelta": (
        "from fractions import Fraction\ndef f(): return Fraction(3 ** 400_000, 7 ** 300_000)",
        ["f() ** 9 ** 9"],
    ),
}
