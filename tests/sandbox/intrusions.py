"""More programs that try to touch what is outside: raw system calls, descriptors, sockets of all families, processes.

They use the names of attacks.py, and are bounded where the confinement fails: one child that ends at once, traffic on
the loopback, small writes.
"""

from tests.sandbox.attacks import outside, raw_call

BUFFER = "ctypes.create_string_buffer(256)"
RAW_CALLS = {
    "vfork": outside("import ctypes, os", "n = ctypes.CDLL(None).vfork()", "if n == 0: os._exit(0)", "return n > 0"),
    "fork by number": outside(
        "import ctypes, os", "n = ctypes.CDLL(None).syscall(57)", "if n == 0: os._exit(0)", "return n > 0"
    ),
    "fork by spawn": outside("import os", "return os.posix_spawn('/bin/true', ['true'], {}) > 0"),
    "execveat": raw_call("execveat", 322, 281, "-100", "b'/bin/true'", "None", "None", "0"),
    "creat": outside("import ctypes", "return ctypes.CDLL(None).creat((FOLDER + '/c').encode(), 0o600) >= 0"),
    "openat": raw_call("openat", 257, 56, "-100", "CANARY.encode()", "0", "0"),
    "open a handle": raw_call("open_by_handle_at", 304, 265, "-100", BUFFER, "0"),
    "make a node": raw_call("mknodat", 259, 33, "-100", "(FOLDER + '/node').encode()", "0o10600", "0"),
    "unlink": raw_call("unlinkat", 263, 35, "-100", "CANARY.encode()", "0"),
    "rename by number": raw_call(
        "renameat2", 316, 276, "-100", "CANARY.encode()", "-100", "(CANARY + 'x').encode()", "0"
    ),
    "hard link": raw_call("linkat", 265, 37, "-100", "CANARY.encode()", "-100", "(CANARY + 'l').encode()", "0"),
    "change an owner": raw_call("fchownat", 260, 54, "-100", "CANARY.encode()", "65534", "65534", "0"),
    "set an attribute": raw_call("setxattr", 188, 5, "CANARY.encode()", "b'user.a'", "b'1'", "1", "0"),
    "set the times": raw_call("utimensat", 280, 88, "-100", "CANARY.encode()", "None", "0"),
    "change the root": raw_call("chroot", 161, 51, "b'/tmp'"),
    "change the folder": raw_call("chdir", 80, 49, "b'/tmp'"),
    "read a link": raw_call("readlinkat", 267, 78, "-100", "b'/proc/self/exe'", BUFFER, "200"),
    "statx": raw_call("statx", 332, 291, "-100", "CANARY.encode()", "0", "0x7ff", BUFFER),
    "access": raw_call("faccessat", 269, 48, "-100", "CANARY.encode()", "0"),
    "list a descriptor": raw_call("getdents64", 217, 61, "0", BUFFER, "200"),
    "watch files": raw_call("inotify_init1", 294, 26, "0"),
    "watch all files": raw_call("fanotify_init", 300, 262, "0", "0"),
    "make an event": raw_call("eventfd2", 290, 19, "0", "0"),
    "make a timer": raw_call("timerfd_create", 283, 85, "1", "0"),
    "make a signal descriptor": raw_call("signalfd4", 289, 74, "-1", BUFFER, "8", "0"),
    "make an epoll": raw_call("epoll_create1", 291, 20, "0"),
    "make a pair": raw_call("socketpair", 53, 199, "1", "1", "0", BUFFER),
    "open a message queue": raw_call("mq_open", 240, 180, "b'/d3s-attack'", "0o102", "0o600", "None"),
    "attach shared memory": raw_call("shmat", 30, 196, "0", "None", "0"),
    "remove shared memory": raw_call("shmctl", 31, 195, "0", "0", "None"),
    "open a pidfd": raw_call("pidfd_open", 434, 434, "VICTIM", "0"),
    "send by pidfd": raw_call("pidfd_send_signal", 424, 424, "0", "0", "None", "0"),
    "write a process": raw_call("process_vm_writev", 311, 271, "VICTIM", "0", "0", "0", "0", "0"),
    "compare processes": raw_call("kcmp", 312, 272, "VICTIM", "VICTIM", "0", "0", "0"),
    "signal by number": raw_call("kill", 62, 129, "VICTIM", "0"),
    "signal a thread": raw_call("tgkill", 234, 131, "VICTIM", "VICTIM", "0"),
    "signal the parent": raw_call("kill", 62, 129, "os.getppid()", "0"),
    "signal the group": raw_call("kill", 62, 129, "0", "0"),
    "queue a signal": raw_call("rt_sigqueueinfo", 129, 138, "VICTIM", "0", BUFFER),
    "own a signal": outside("import fcntl", "return fcntl.fcntl(3, 8, VICTIM) == 0"),
    "performance counters": raw_call("perf_event_open", 298, 241, BUFFER, "0", "-1", "-1", "0"),
    "set limits of another": raw_call("prlimit64", 302, 261, "VICTIM", "7", "None", BUFFER),
    "set own limits": raw_call("setrlimit", 160, 164, "7", BUFFER),
    "be nice": outside("import os", "return os.nice(1) > 0"),
    "choose a processor": outside("import os", "os.sched_setaffinity(VICTIM, {0})", "return True"),
    "choose a scheduler": raw_call("sched_setscheduler", 144, 119, "VICTIM", "3", BUFFER),
    "set the io priority": raw_call("ioprio_set", 251, 30, "1", "VICTIM", "0x6000"),
    "change personality": raw_call("personality", 135, 92, "0x0040000"),
    "read registers": raw_call("arch_prctl", 158, 400, "0x1003", BUFFER),
    "be traced": raw_call("ptrace", 101, 117, "0", "0", "0", "0"),
    "be dumpable": raw_call("prctl", 157, 167, "4", "1", "0", "0", "0"),
    "outlive the parent": raw_call("prctl", 157, 167, "1", "0", "0", "0", "0"),
    "loosen the filter": raw_call("seccomp", 317, 277, "1", "0", BUFFER),
    "lock memory": raw_call("mlockall", 151, 230, "1"),
    "make keys": raw_call("add_key", 248, 217, "b'user'", "b'd3s'", "b'x'", "1", "-3"),
    "set the clock": raw_call("adjtimex", 159, 171, BUFFER),
    "set the name": raw_call("sethostname", 170, 161, "b'x'", "1"),
    "set groups": raw_call("setgroups", 116, 159, "0", "None"),
    "set capabilities": raw_call("capset", 126, 91, BUFFER, BUFFER),
    "read the log": raw_call("syslog", 103, 116, "3", BUFFER, "100"),
    "swap": raw_call("swapoff", 168, 225, "b'/none'"),
    "enter a namespace": raw_call("setns", 308, 268, "0", "0"),
    "move a mount": raw_call("open_tree", 428, 428, "-100", "b'/'", "0"),
    "write by vector": raw_call("pwritev", 296, 70, "3", "None", "0", "0", "0"),
    "send a file": raw_call("sendfile", 40, 71, "1", "0", "None", "1"),
    "splice": raw_call("splice", 275, 76, "0", "None", "1", "None", "1", "0"),
    "double a descriptor": raw_call("dup", 32, 23, "1"),
    "control a device": raw_call("ioctl", 16, 29, "0", "0x5401", BUFFER),
    "send a descriptor": raw_call("sendmsg", 46, 211, "3", BUFFER, "0"),
    "receive a descriptor": raw_call("recvmsg", 47, 212, "3", BUFFER, "0x40"),
    "secret memory": raw_call("memfd_secret", 447, 447, "0"),
    "map from a file": outside("import mmap", "return bool(mmap.mmap(3, 4096))"),
    "protect for execution": outside(
        "import ctypes, mmap",
        "page = mmap.mmap(-1, 4096)",
        "address = ctypes.addressof(ctypes.c_char.from_buffer(page))",
        "return ctypes.CDLL(None).mprotect(ctypes.c_void_p(address), 4096, 7) == 0",
    ),
    "the 32-bit numbering": outside("import ctypes", "return ctypes.CDLL(None).syscall(0x40000000 + 2, b'/', 0) >= 0"),
    "a number out of range": outside("import ctypes", "return ctypes.CDLL(None).syscall(100_000) >= 0"),
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
    "a low-level thread": outside("import _thread", "_thread.start_new_thread(int, ())", "return True"),
    "a process pool": outside(
        "from concurrent.futures import ProcessPoolExecutor",
        "with ProcessPoolExecutor(1) as pool: return pool.submit(int).result(0.2) == 0",
    ),
    "a queue of processes": outside("import multiprocessing", "multiprocessing.Queue().put(1)", "return True"),
    "a terminal": outside("import pty", "return bool(pty.openpty())"),
    "a database file": outside(
        "import sqlite3", "sqlite3.connect(FOLDER + '/db').execute('create table t (a)')", "return True"
    ),
    "a shelf": outside("import shelve", "shelve.open(FOLDER + '/shelf')['a'] = 1", "return True"),
    "a log file": outside("import logging", "logging.FileHandler(FOLDER + '/log').emit(None)", "return True"),
    "an archive": outside(
        "import zipfile", "zipfile.ZipFile(FOLDER + '/z.zip', 'w').writestr('a', 'b')", "return True"
    ),
    "a copy": outside("import shutil", "shutil.copy(CANARY, FOLDER + '/copy')", "return True"),
    "a tree of files": outside("import os", "return any(files for _, _, files in os.walk('/'))"),
    "a glob": outside("import glob", "return bool(glob.glob('/*'))"),
    "a mapped file": outside("import mmap, os", "return bool(mmap.mmap(os.open(CANARY, 2), 0))"),
    "a web server": outside("import http.server", "http.server.HTTPServer(('127.0.0.1', 0), None)", "return True"),
    "a secure connection": outside(
        "import ssl, socket", "ssl.create_default_context().wrap_socket(socket.socket())", "return True"
    ),
    "a mail": outside("import smtplib", "smtplib.SMTP('127.0.0.1', PORT, timeout=0.2)", "return True"),
    "an event loop": outside(
        "import asyncio",
        "asyncio.run(asyncio.wait_for(asyncio.open_connection('127.0.0.1', PORT), 0.2))",
        "return True",
    ),
    "a descriptor of the parent": outside("import os", "return bool(os.listdir(f'/proc/{os.getppid()}/fd'))"),
    "the own memory": outside("return bool(open('/proc/self/mem', 'r+b'))"),
    "the own maps": outside("return bool(open('/proc/self/maps').read())"),
    "the system's settings": outside("open('/proc/self/oom_score_adj', 'w').write('0')", "return True"),
    "a path through stdin": outside("return bool(open('/dev/stdin').read() or open('/proc/self/fd/0'))"),
    "a null byte in a path": outside("return bool(open('/etc/passwd\\0.txt'))"),
    "a code object": outside("return bool(eval(compile('open(CANARY)', '', 'eval')))"),
    "a low-level open": outside("import io, _io", "return bool(_io.FileIO(CANARY))"),
    "a loader": outside("import importlib.util", "return bool(importlib.util.find_spec('planted', [FOLDER]))"),
    "a reader of sources": outside("import linecache", "return bool(linecache.getlines(CANARY))"),
    "a core": outside("import os, signal", "os.kill(os.getpid(), signal.SIGABRT)", "return True"),
}
INTRUSIONS = {**RAW_CALLS, **SOCKETS, **LIBRARY}

GREEDY = {
    "grow a list": (
        "def f():\n    kept = []\n    while len(kept) < 1 << 28: kept += [0] * 65536\n    return 1",
        ["f()"],
    ),
    "grow a dict": ("def f(): return len({i: str(i) for i in range(1 << 26)})", ["f()"]),
    "repeat a text": ("def f(): return len('x' * (1 << 34))", ["f()"]),
    "shift an integer": ("def f(): return (1 << (1 << 34)).bit_length()", ["f()"]),
    "format widely": ("def f(): return len(f'{1:>{1 << 33}}')", ["f()"]),
    "join many": ("def f(): return len(','.join('x' * 1000 for _ in range(1 << 24)))", ["f()"]),
    "take products": (
        "import itertools\ndef f(): return sum(1 for _ in itertools.product(range(99), repeat=9))",
        ["f()"],
    ),
    "sort for long": ("def f():\n    while True: sorted(range(1 << 16), key=lambda x: -x)", ["f()"]),
    "count up": ("import itertools\ndef f(): return sum(itertools.count())", ["f()"]),
    "multiply in C": ("def f(): return (3 ** 3_000_000) ** 9 % 7", ["f()"]),
    "print an integer": (
        "import sys\nsys.set_int_max_str_digits(0)\ndef f(): return len(str(7 ** 5_000_000))",
        ["f()"],
    ),
    "match nested": ("import re\ndef f(): return re.fullmatch('((a*)*)*b', 'a' * 64)", ["f()"]),
    "recurse in repr": (
        "import sys\nsys.setrecursionlimit(1 << 30)\ndef f():\n    x = []\n"
        "    for _ in range(1 << 20): x = [x]\n    return repr(x)",
        ["assert f()"],
    ),
    "recurse in comparison": (
        "import sys\nsys.setrecursionlimit(1 << 30)\ndef f():\n    x = y = ()\n"
        "    for _ in range(1 << 20): x, y = (x,), (y,)\n    return x == y",
        ["assert f() is None"],
    ),
    "unpickle a bomb": (
        "import pickle\ndef f(): return pickle.loads(b'((' * (1 << 18) + b'l' + b'.')",
        ["assert f() == 1"],
    ),
    "parse deeply": ("import json\ndef f(): return json.loads('[' * (1 << 20))", ["f()"]),
    "parse deep source": ("def f(): return eval('-' * (1 << 17) + '1') and eval('[' * 5000)", ["assert f() == 2"]),
    "define long": ("x = " + " + ".join(["1"] * 50_000) + "\ndef f(): return x", ["assert f() == 0"]),
    "hash for long": ("import hashlib\ndef f(): return hashlib.pbkdf2_hmac('sha512', b'', b'', 1 << 30)", ["f()"]),
    "sleep by select": ("import select\ndef f(): return select.select([], [], [], 60)", ["f()"]),
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
    "hash of a large number": ("def f(): return range(0, 1 << 80, 3)", ["assert sum(f()) == 1"]),
    "a large timedelta": (
        "from fractions import Fraction\ndef f(): return Fraction(3 ** 400_000, 7 ** 300_000)",
        ["f() ** 9 ** 9"],
    ),
}
