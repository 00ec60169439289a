"""Programs that try to touch what is outside the sandbox, or to exhaust it.

A program may use CANARY (path of a file), FOLDER (of the canary), PORT (of a listener on the loopback) and VICTIM (id
of a process). What it does is bounded even where the confinement fails: small writes, one child that ends at once,
traffic on the loopback.
"""

from d3s.sandbox.seccomp import ABSENT, ALLOWED, ALLOWED_ON_X86, NO_EXECUTE
from tests.sandbox.programs import parse_lines

# Bodies of functions that return True where the sandbox leaks. `~` begins a line after one that ends in a colon.
OUTSIDE = parse_lines(r"""
read a file: return len(open(CANARY).read()) > 0
read the environment: return len(open('/proc/self/environ', 'rb').read()) > 0
read the parent's memory: import os; return bool(open(f'/proc/{os.getppid()}/mem', 'rb'))
read by stdin: return bool(open('/dev/stdin').read() or open('/proc/self/fd/0'))
write a file: open(CANARY, 'w').write('x'); return True
write a database: import sqlite3; sqlite3.connect(FOLDER + '/db').execute('create table t (a)'); return True
use a temporary file: import tempfile; tempfile.NamedTemporaryFile(prefix='d3s-attack', delete=False); return True
use shared memory: open('/dev/shm/d3s-attack', 'w').close(); return True
remove a file: import os; os.remove(CANARY); return True
link a file: import os; os.symlink(CANARY, FOLDER + '/link'); return True
make a folder: import os; os.mkdir(FOLDER + '/made'); return True
list a folder: import os; return bool(os.listdir('/'))
import a package: import numpy; return True
import a written module: import sys; sys.path.insert(0, FOLDER); import planted; return True
open a library: import ctypes; return bool(ctypes.CDLL('libthread_db.so.1'))
map a file: import mmap; return bool(mmap.mmap(3, 4096))
connect: import socket; socket.create_connection(('127.0.0.1', PORT), 0.2); return True
send: import socket as s; return s.socket(s.AF_INET, s.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', PORT)) > 0
bind an abstract socket: import socket as s; s.socket(s.AF_UNIX).bind(chr(0) + 'd3s-attack'); return True
look a name up: import socket; return bool(socket.gethostbyname('localhost'))
fork by spawn: import os; return os.posix_spawn('/bin/true', ['true'], {}) > 0
replace itself: import os; os.execv('/bin/true', ['true'])
start a thread: import threading; threading.Thread(target=int).start(); return True
kill a process: import os; os.kill(VICTIM, 9); return True
kill the parent: import os; os.kill(os.getppid(), 9); return True
kill by descriptor: import os; return os.pidfd_open(VICTIM) >= 0
lower a priority: import os; os.setpriority(os.PRIO_PROCESS, VICTIM, 19); return True
become root: import os; os.setuid(0); return True
read another limit: import resource; return bool(resource.prlimit(VICTIM, resource.RLIMIT_AS))
set a timer: import signal; signal.setitimer(signal.ITIMER_REAL, 9); return True
get executable memory: import mmap; return bool(mmap.mmap(-1, 4096, prot=7))
open by number: return call(257, 56, -100, CANARY.encode(), 0, 0)
remove by number: return call(263, 35, -100, CANARY.encode(), 0)
link by number: return call(265, 37, -100, CANARY.encode(), -100, (CANARY + 'l').encode(), 0)
signal by number: return call(62, 129, VICTIM, 0)
fork: import os
~if os.fork() == 0: os._exit(0)
~return True
vfork: import ctypes, os; n = ctypes.CDLL(None).vfork()
~if n == 0: os._exit(0)
~return n > 0
write through a descriptor: import os; done = 0
~for number in range(3, 64):
~    try: done += os.pwrite(number, b'1', 0)
~    except OSError: pass
~return done > 0
open a socket of any family: import ctypes; c = ctypes.CDLL(None)
~families = (1, 1), (1, 2), (2, 1), (2, 2), (2, 3), (10, 1), (16, 3), (17, 3), (38, 5), (40, 1), (44, 3)
~return any(c.socket(family, kind, 0) >= 0 for family, kind in families)
protect for execution: import ctypes, mmap; page = mmap.mmap(-1, 4096)
~address = ctypes.addressof(ctypes.c_char.from_buffer(page))
~return ctypes.CDLL(None).mprotect(ctypes.c_void_p(address), 4096, 7) == 0
make any other call: import ctypes, errno; call = ctypes.CDLL(None, use_errno=True).syscall
~for number in OTHERS:
~    ctypes.set_errno(0)
~    done = call(number, 0, 0, 0, 0, 0, 0) != -1
~    if done or ctypes.get_errno() not in (errno.EPERM, errno.ENOSYS): return True
""")
# The filter ends the process at the first call of another numbering.
ENDING = parse_lines(r"""
ask for the other numbering: import ctypes, os; return ctypes.CDLL(None).syscall(0x40000000 + 39) == os.getpid()
open by the other numbering: import ctypes; return ctypes.CDLL(None).syscall(0x40000000 + 2, b'/', 0) >= 0
""")
WHILE_DEFINED = [
    "open(CANARY, 'a').write('x')",
    "import os\nif os.fork() == 0:\n    os._exit(0)",
    "import antigravity",  # opens a browser
    "import venv.__main__\nimport unittest.__main__",
]
# Of x86-64: fork and vfork would double this process where the filter fails; uretprobe and uprobe, which the kernel
# keeps from filters, end it.
LEFT_OUT = {57, 58, 335, 336}
NAMED = [{numbers[c] for table in (ALLOWED, NO_EXECUTE, ABSENT) for numbers in table.values()} for c in (0, 1)]
NAMED[0] |= set(ALLOWED_ON_X86.values()) | LEFT_OUT
# Every number that the filter does not allow: what fails with another error than its own was executed.
OTHERS = [sorted(set(range(470)) - named) for named in NAMED]
PRELUDE = f"""
import ctypes, os
MACHINE = ['x86_64', 'aarch64'].index(os.uname().machine)
OTHERS = {OTHERS}[MACHINE]
def call(*numbers_and_arguments):
    return ctypes.CDLL(None).syscall(numbers_and_arguments[MACHINE], *numbers_and_arguments[2:]) >= 0
def alive(): return True
"""
# Programs that define f, which runs into a limit; `A` is the class of an object.
EXHAUSTION = parse_lines(r"""
loop: while True: pass
sleep: import time; time.sleep(60)
wait for a lock: import threading; x = threading.Lock(); x.acquire(); x.acquire()
wait for input: import os; return [os.read(n, 1) for n in (0, 3)]
ignore signals: import signal
~for n in range(1, 32):
~    try: signal.signal(n, signal.SIG_IGN)
~    except OSError: pass
~while True:
~    try:
~        while True: pass
~    except BaseException: pass
allocate at once: return len(bytearray(4 << 30)) > 0
allocate in pieces: return [bytes(16 << 20) for _ in range(128)]
map memory: import mmap; return bool(mmap.mmap(-1, 4 << 30))
grow a dict: return len({i: str(i) for i in range(1 << 26)})
shift an integer: return (1 << (1 << 34)).bit_length()
decompress a bomb: import zlib; data = zlib.compress(bytes(64 << 20))
~return sum(len(zlib.decompress(data)) for _ in [0] * 1000) > 0
match for ever: import re; return re.match('(a+)+$', 'a' * 60 + 'b') is None
hash for long: import hashlib; return hashlib.pbkdf2_hmac('sha512', b'', b'', 1 << 30)
recurse without end: import sys; sys.setrecursionlimit(1 << 30); g = lambda n: g(n + 1) + 1; return g(0)
recurse in C: import sys; sys.setrecursionlimit(1 << 30); A.__getattr__ = lambda s, n: getattr(s, n); return A().x
recurse in repr: import sys; sys.setrecursionlimit(1 << 30); x = []
~for _ in range(1 << 20): x = [x]
~return repr(x)
parse deeply: import json; return json.loads('[' * (1 << 20))
parse deep source: return eval('-' * (1 << 17) + '1') and eval('[' * 5000)
print without end: while True: print('x' * 10000)
give a large text: return 'x' * (64 << 20)
give a large integer: return 1 << 100_000_000
sleep when freed: import time; A.__del__ = lambda s: time.sleep(60); A(); return 1
""")
# Programs that are exhausting only together with their test.
EXHAUSTING = {
    "nest the source": ("x = " + "(" * 5000 + "1" + ")" * 5000, "assert x == 1"),
    "import everything": ("import asyncio, xml.dom.minidom, email.mime.text, sqlite3\n" * 50 + "1 / 0", "assert True"),
    "generate without end": ("def f():\n    while True: yield 1", "list(f())"),
    "generate objects without end": ("class A: pass\ndef f():\n    while True: yield A()", "list(f())"),
    "give a large range": ("def f(): return range(10**12)", "list(f())"),
    "grow what the test keeps": ("def f(kept): kept.extend(range(1 << 18))", "kept = []\nwhile True: f(kept)"),
    "give back a large change": ("def f(x): x.append('y' * (1 << 26))", "x = []\nf(x)\nassert x"),
    "give a large fraction": ("from fractions import *\ndef f(): return Fraction(3**400_000, 7)", "f() ** 9**9"),
}
