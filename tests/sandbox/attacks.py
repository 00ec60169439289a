"""Programs that try to touch what is outside the sandbox, or to exhaust it.

A program may use CANARY (path of a file), FOLDER (of the canary), PORT (of a listener on the loopback) and VICTIM (id
of a process). What it does is bounded even where the confinement fails: small writes, one child, traffic on the
loopback.
"""

import textwrap


def outside(*lines: str) -> tuple[str, list[str]]:
    """A program whose `attack` returns True where the sandbox leaks, and the test that would then pass."""
    return "def attack():\n" + textwrap.indent("\n".join(lines), "    "), ["assert attack() is True"]


def raw_call(name: str, x86: int, aarch64: int, *arguments: str) -> tuple[str, list[str]]:
    """A program that makes a system call by number, and the test that passes if the kernel executed it."""
    lines = ["import ctypes, os", f"number = {{'x86_64': {x86}, 'aarch64': {aarch64}}}[os.uname().machine]"]
    lines += [f"return ctypes.CDLL(None).syscall(number, {', '.join(arguments)}) >= 0  # {name}"]
    return outside(*lines)


FILES = {
    "read a file": outside("return len(open(CANARY).read()) > 0"),
    "read the environment": outside("return len(open('/proc/self/environ', 'rb').read()) > 0"),
    "read the parent's memory": outside("import os", "return bool(open(f'/proc/{os.getppid()}/mem', 'rb'))"),
    "write a file": outside("open(CANARY, 'w').write('x')", "return True"),
    "append while defined": ("open(CANARY, 'a').write('x')\nx = 1", ["assert x == 1"]),
    "use a temporary file": outside(
        "import tempfile", "tempfile.NamedTemporaryFile(prefix='d3s-attack', delete=False)", "return True"
    ),
    "use shared memory": outside("open('/dev/shm/d3s-attack', 'w').close()", "return True"),
    "use a named semaphore": outside(
        "from multiprocessing import shared_memory",
        "shared_memory.SharedMemory('d3s-attack', create=True, size=16)",
        "return True",
    ),
    "remove a file": outside("import os", "os.remove(CANARY)", "return True"),
    "truncate a file": outside("import os", "os.truncate(CANARY, 0)", "return True"),
    "link a file": outside("import os", "os.symlink(CANARY, FOLDER + '/link')", "return True"),
    "make a folder": outside("import os", "os.mkdir(FOLDER + '/made')", "return True"),
    "list a folder": outside("import os", "return bool(os.listdir('/'))"),
    "ask for a file": outside("import os", "return os.stat(CANARY).st_size > 0"),
    "import a package": outside("import numpy", "return True"),
    "import a written module": outside("import sys", "sys.path.insert(0, FOLDER)", "import planted", "return True"),
    "write through a descriptor": outside(
        "import os",
        "done = 0",
        "for number in range(3, 64):",
        "    try: done += os.pwrite(number, b'1', 0)",
        "    except OSError: pass",
        "return done > 0",
    ),
    "open a library": outside("import ctypes", "return bool(ctypes.CDLL('libthread_db.so.1'))"),
    "start the browser joke": ("import antigravity\nx = 1", ["assert x == 1"]),
    "import what acts": ("import venv.__main__\nimport unittest.__main__\nx = 1", ["assert x == 1"]),
}
NETWORK = {
    "connect": outside("import socket", "socket.create_connection(('127.0.0.1', PORT), 0.2)", "return True"),
    "send a datagram": outside(
        "import socket",
        "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)",
        "return s.sendto(b'x', ('127.0.0.1', PORT)) > 0",
    ),
    "listen": outside("import socket", "socket.create_server(('127.0.0.1', 0))", "return True"),
    "connect to an abstract socket": outside(
        "import socket", "s = socket.socket(socket.AF_UNIX)", "s.bind(chr(0) + 'd3s-attack')", "return True"
    ),
    "make a pair of sockets": outside("import socket", "return bool(socket.socketpair())"),
    "open a web page": outside(
        "import urllib.request", "urllib.request.urlopen(f'http://127.0.0.1:{PORT}', timeout=0.2)", "return True"
    ),
    "look a name up": outside("import socket", "return bool(socket.gethostbyname('localhost'))"),
}
PROCESSES = {
    "fork": outside("import os", "if os.fork() == 0: os._exit(0)", "return True"),
    "fork while defined": ("import os\nif os.fork() == 0:\n    os._exit(0)\nx = 1", ["assert x == 1"]),
    "run a command": outside("import os", "return os.system('true') == 0"),
    "replace itself": outside("import os", "os.execv('/bin/true', ['true'])"),
    "start a thread": outside("import threading", "threading.Thread(target=int).start()", "return True"),
    "kill a process": outside("import os", "os.kill(VICTIM, 9)", "return True"),
    "kill the parent": outside("import os", "os.kill(os.getppid(), 9)", "return True"),
    "kill all": outside("import os", "os.kill(-1, 0)", "return True"),
    "kill by descriptor": outside("import os", "return os.pidfd_open(VICTIM) >= 0"),
    "lower a priority": outside("import os", "os.setpriority(os.PRIO_PROCESS, VICTIM, 19)", "return True"),
    "become root": outside("import os", "os.setuid(0)", "return True"),
    "raise a limit": outside("import resource", "resource.setrlimit(resource.RLIMIT_AS, (-1, -1))", "return True"),
    "read another limit": outside("import resource", "return bool(resource.prlimit(VICTIM, resource.RLIMIT_AS))"),
    "make a pipe": outside("import os", "return bool(os.pipe())"),
    "set a timer": outside("import signal", "signal.setitimer(signal.ITIMER_REAL, 9)", "return True"),
    "get executable memory": outside("import mmap", "return bool(mmap.mmap(-1, 4096, prot=7))"),
    "take the other numbering": outside(
        "import ctypes, os", "return ctypes.CDLL(None).syscall(0x40000000 + 39) == os.getpid()"
    ),
}
EXHAUSTION = {
    "loop": ("def f():\n    while True: pass", ["f()"]),
    "sleep": ("import time\ndef f(): time.sleep(60)", ["f()"]),
    "ignore signals": (
        "import signal\nfor n in range(1, 32):\n    try: signal.signal(n, signal.SIG_IGN)\n    except OSError: pass\n"
        "def f():\n    while True:\n        try:\n            while True: pass\n        except BaseException: pass",
        ["f()"],
    ),
    "swallow all exceptions": ("def f():\n    while True:\n        try: raise\n        except: pass", ["f()"]),
    "allocate at once": ("def f(): return len(bytearray(4 << 30)) > 0", ["assert f()"]),
    "allocate in pieces": (
        "def f():\n    kept = []\n    for _ in range(128): kept.append(bytes(16 << 20))\n    return True",
        ["assert f()"],
    ),
    "map memory": ("import mmap\ndef f(): return bool(mmap.mmap(-1, 4 << 30))", ["assert f()"]),
    "decompress a bomb": (
        "import zlib\ndef f():\n    data = zlib.compress(bytes(64 << 20))\n"
        "    return sum(len(zlib.decompress(data)) for _ in [0] * 1000) > 0",
        ["assert f()"],
    ),
    "match for ever": ("import re\ndef f(): return re.match('(a+)+$', 'a' * 60 + 'b') is None", ["assert f()"]),
    "recurse without end": (
        "import sys\nsys.setrecursionlimit(10**9)\ndef g(n): return g(n + 1) + 1\ndef f(): return g(0)",
        ["assert f()"],
    ),
    "recurse in C": (
        "import sys\nsys.setrecursionlimit(10**9)\nclass A:\n    def __getattr__(self, n): return getattr(self, n)\n"
        "def f(): return repr(A().x)",
        ["assert f()"],
    ),
    "nest the source": ("x = " + "(" * 5000 + "1" + ")" * 5000, ["assert x == 1"]),
    "print without end": ("def f():\n    while True: print('x' * 10000)", ["f()"]),
    "generate without end": ("def f():\n    while True: yield 1", ["list(f())"]),
    "generate objects without end": ("class A: pass\ndef f():\n    while True: yield A()", ["list(f())"]),
    "give a large range": ("def f(): return range(10**12)", ["list(f())"]),
    "give a large text": ("def f(): return 'x' * (64 << 20)", ["assert f()"]),
    "give a large integer": ("def f(): return 1 << 100_000_000", ["assert f()"]),
    "represent at length": (
        "class A:\n    def __repr__(self): return 'x' * (32 << 20)\ndef f(): return A()",
        ["assert repr(f())"],
    ),
    "import everything": (
        "import sys\n" + "import asyncio, xml.dom.minidom, unittest.mock, email.mime.text, sqlite3\n" * 50 + "1 / 0",
        ["assert True"],
    ),
}
