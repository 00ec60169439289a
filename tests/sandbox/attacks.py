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
remove a file: import os; os.remove(CANARY); return True
list a folder: import os; return bool(os.listdir('/'))
import a written module: import sys; sys.path.insert(0, FOLDER); import planted; return True
open a library: import ctypes; return bool(ctypes.CDLL('libthread_db.so.1'))
map a file: import mmap; return bool(mmap.mmap(3, 4096))
connect: import socket; socket.create_connection(('127.0.0.1', PORT), 0.2); return True
replace itself: import os; os.execv('/bin/true', ['true'])
start a thread: import threading; threading.Thread(target=int).start(); return True
kill a process: import os; os.kill(VICTIM, 9); return True
lower a priority: import os; os.setpriority(os.PRIO_PROCESS, VICTIM, 19); return True
become root: import os; os.setuid(0); return True
read another limit: import resource; return bool(resource.prlimit(VICTIM, resource.RLIMIT_AS))
get executable memory: import mmap; return bool(mmap.mmap(-1, 4096, prot=7))
fork: import os
~if os.fork() == 0: os._exit(0)
~return True
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
WHILE_DEFINED = [
    "open(CANARY, 'a').write('x')",
    "import os\nif os.fork() == 0:\n    os._exit(0)",
    "import ctypes, os\nassert ctypes.CDLL(None).syscall(0x40000000 + 39) == os.getpid()",  # of another numbering
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
import os
OTHERS = {OTHERS}[['x86_64', 'aarch64'].index(os.uname().machine)]
def alive(): return True
"""
# Programs that define f, which runs into a limit; `A` is the class of an object.
EXHAUSTION = parse_lines(r"""
loop: while True: pass
sleep: import time; time.sleep(60)
wait for input: import os; return [os.read(n, 1) for n in (0, 3)]
ignore signals: import signal
~for n in {*range(1, 32)} - {9, 19}: signal.signal(n, signal.SIG_IGN)
~while True: pass
map memory: import mmap; return bool(mmap.mmap(-1, 4 << 30))
match for ever: import re; return re.match('(a+)+$', 'a' * 60 + 'b') is None
recurse without end: import sys; sys.setrecursionlimit(1 << 30); g = lambda n: g(n + 1) + 1; return g(0)
recurse in C: import sys; sys.setrecursionlimit(1 << 30); A.__getattr__ = lambda s, n: getattr(s, n); return A().x
print without end: while True: print('x' * 10000)
give a large text: return 'x' * (64 << 20)
sleep when freed: import time; A.__del__ = lambda s: time.sleep(60); A(); return 1
""")
# Programs that are exhausting only together with their test.
EXHAUSTING = {
    "nest the source": ("x = " + "(" * 5000 + "1" + ")" * 5000, "assert x == 1"),
    "import everything": ("import asyncio, xml.dom.minidom, email.mime.text, sqlite3\n" * 50 + "1 / 0", "assert True"),
    "generate without end": ("def f():\n    while True: yield 1", "list(f())"),
    "give a large range": ("def f(): return range(10**12)", "list(f())"),
    "grow what the test keeps": ("def f(kept): kept.extend(range(1 << 18))", "kept = []\nwhile True: f(kept)"),
    "give a large fraction": ("from fractions import *\ndef f(): return Fraction(3**400_000, 7)", "f() ** 9**9"),
}
