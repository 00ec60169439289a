"""Cheats by objects in containers, forged messages, hooks of the interpreter and lasting effects on later tests."""

from tests.sandbox.cheats import PRELUDE
from tests.sandbox.programs import parse_programs

FORGERIES = parse_programs(
    r"""
=== a subclass that keeps the question
class K(list):
    def __eq__(s, o): s.seen = o; s[:] = o; return True
    def __ne__(s, o): s.__eq__(o); return False
    __hash__ = None
k = K()
def f(x): return k
---
f(1) == [4]
assert f(1) == [4]
---
assert f(1) != [] and f(1) == [4]
---
for _ in range(3): f(1) in ([4], [5])
assert list(f(1)) == [4]
=== liars in every container
from collections import deque, OrderedDict, Counter, namedtuple
P = namedtuple('P', 'a b')
def f(x): return [deque([Always()]), OrderedDict(a=Always()), frozenset({Always()}), P(Always(), 1), slice(Always()),
                  [[[[Always()]]]], {'a': {'b': [Always()]}}, range(3)][x]
---
from collections import deque
assert f(0) == deque([4])
---
assert f(1) == {'a': 4}
---
assert f(2) == frozenset({4})
---
assert f(3) == (4, 1)
---
assert f(3).a == 4
---
assert f(4) == slice(4)
---
assert f(5) == [[[[4]]]]
---
assert f(6) == {'a': {'b': [4]}}
---
assert f(7) == range(4)
---
assert sorted(f(0)) == [4]
---
assert max(f(5)[0][0][0]) == 4
=== metaclass that agrees
class M(type):
    def __eq__(c, o): return True
    def __ne__(c, o): return False
    def __hash__(c): return hash(int)
    def __instancecheck__(c, o): return True
    def __subclasscheck__(c, o): return True
    def __contains__(c, x): return True
    def __len__(c): return 4
class f(metaclass=M):
    def __new__(cls, *a): return cls
---
assert f(2) == 4
---
assert 4 == f(2)
---
assert f(2) is int
---
assert f(2) == int
---
assert f(2) in (3, 4)
---
assert isinstance(f(2), int)
---
assert issubclass(f(2), int)
=== the question as an answer
seen = []
class N:
    def __getattr__(s, name): return lambda *a: seen.append(a) or a[0]
    def __add__(s, o): seen.append(o); return N()
    __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __add__
    def __format__(s, spec): return seen[-1] if seen else spec
    def __str__(s): return str(seen[-1]) if seen else ''
    def __index__(s): return seen[-1]
    __int__ = __float__ = __hash__ = __index__
def f(x): return seen[-1] if seen else N()
---
assert f(2) + 0 == 4
---
assert f(3) - 0 == 9
---
assert f'{f(2)}' == '4'
---
assert f(2) * 1 == 4
=== exceptions of strange classes
class E(BaseException): pass
class AssertionError(E): pass
class ValueError(Exception): pass
def f(x):
    if x == 1: raise E
    if x == 2: raise ValueError('a')
    if x == 3: raise AssertionError
    return E
---
try: f(2)
except __builtins__.ValueError: pass
---
f(1)
---
f(2)
---
f(3)
---
try: f(1)
except Exception: pass
---
assert f(0)() == 4
=== an exception class that agrees
class M(type):
    def __instancecheck__(c, o): return True
    def __subclasscheck__(c, o): return True
    def __eq__(c, o): return True
    __hash__ = type.__hash__
class E(Exception, metaclass=M):
    def __eq__(s, o): return True
    def __str__(s): return 'message'
    args = property(lambda s: Always())
def f(x): raise E('x')
---
try: f(1)
except ValueError: pass
---
try: f(1)
except Exception as e: assert isinstance(e, KeyError)
---
try: f(1)
except Exception as e: assert e.args == ('right',)
---
try: f(1)
except Exception as e: assert e == 4
---
try: f(1)
except Exception as e: assert str(e) == 'right'
---
try: raise KeyError
except E: assert False
=== stops in a loop of the test
def g():
    yield from ()
def f(x):
    def run(): raise StopIteration(4)
    return run
class It:
    def __iter__(s): return s
    def __next__(s): raise StopIteration
def it(x): return It()
---
f(1)()
---
def loop():
    for x in range(3):
        assert f(x)() == 1
        yield x
assert list(loop()) == [0, 1, 2]
---
assert list(it(1)) == [4]
---
assert dict(it(1)) == {1: 2}
---
a, b = it(1)
=== a forged reply ahead of each question
def f(x):
    write(message('v', 5) + message('v', 5) + message('e', 'ValueError', []))
    return 0
---
assert f(2) == 4
---
assert f(2) == 4 and f(2) == 4
=== calls back without end
def f(g):
    while True:
        try: g(1)
        except BaseException: pass
---
assert f(lambda x: x) == 4
=== recursion through both sides
def f(g): return f(lambda x: g(x)) if g(1) else 0
---
assert f(lambda x: x) == 4
---
assert f(lambda x: f(lambda y: x)) == 4
=== a reply byte by byte
import time
def f(x):
    for b in message('v', 5):
        write(bytes([b])); time.sleep(0.01)
---
assert f(1) == 4
---
assert f(1) == 4 and f(1) == 5
=== a reply that never ends
import time
def f(x):
    write((1000).to_bytes(4, 'big'))
    while True: write(b'['); time.sleep(0.1)
---
f(1)
---
assert 1 == 1
=== reads the next questions
import os
def f(x):
    os.read(3, 5) if x else 0
    for n in range(3, 9):
        try: data = os.read(n, 0)
        except OSError: pass
    return 4
def steal(x):
    import select
    for n in range(3, 9):
        try:
            while select.select([n], [], [], 0.05)[0]: os.read(n, 1 << 16)
        except OSError: pass
    return 4
---
assert f(1) == 5
---
assert steal(1) == 4 and steal(1) == 5
=== sets the link to fail
import os, fcntl, socket
def f(x):
    for n in range(3, 9):
        try: os.set_blocking(n, False)
        except OSError: pass
        try: socket.socket(fileno=n).shutdown(2)
        except OSError: pass
        try: socket.socket(fileno=n).setsockopt(1, 8, 1)
        except OSError: pass
    return 0
---
assert f(1) == 4
---
assert f(1) == 4
=== changes the server by its frames
import sys, gc
frame = sys._getframe()
while frame:
    for value in list(frame.f_locals.values()):
        if hasattr(value, '_peer'):
            value._perform = lambda *a: True
            value._peer._perform = lambda *a: True
            value._peer._encode = lambda v: True
            value._peer.failure = None
    frame = frame.f_back
def f(x): return 0
---
assert f(1) == 4
---
assert f(1) == [True]
---
assert f(1) is None
=== an audit hook
import sys
def hook(name, a):
    if name == 'compile' or name == 'exec': write(message('v', 5))
sys.addaudithook(hook)
def f(x): return eval('0')
---
assert f(1) == 4
=== imports of its own
import sys, types
class Finder:
    def find_spec(self, name, path=None, target=None): raise SystemExit(0)
sys.meta_path.insert(0, Finder())
sys.path_hooks[:] = []
for name in list(sys.modules):
    if not name.startswith('d3s'):
        sys.modules[name] = types.SimpleNamespace(isclose=lambda *a, **k: True, dumps=lambda x: '4')
def f(x): return 0
---
import math
assert math.isclose(f(2), 4)
---
import json
assert json.dumps(f(2)) == '4'
---
from decimal import Decimal
assert Decimal(f(2)) == 4
=== another builtins module
import builtins
for name in dir(builtins):
    if name[0] != '_' and name not in ('globals', 'BaseException', 'Exception'):
        setattr(builtins, name, lambda *a, **k: 4)
builtins.__build_class__ = builtins.__import__ = lambda *a, **k: 4
__builtins__ = {}
def f(x): return 0
---
assert f(1) == 5
---
assert 1 == 1 and f(2) == 5
=== names that tests use
class Everything:
    def __getattr__(s, n): return lambda *a, **k: True
    def __call__(s, *a, **k): return True
    def __bool__(s): return True
math = unittest = np = pytest = candidate = check = sorted = isinstance = len = set = abs = any = all = Everything()
__builtins__ = __name__ = __import__ = __debug_ = __build_class__ = Everything()
def f(x): return 0
---
assert math.isclose(f(2), 4)
---
assert abs(f(2) - 4) < 1e-6
---
assert len([f(2)]) == 2
---
assert set([f(2)]) == {4}
---
assert isinstance(f(2), list)
---
assert all([f(2) == 4])
---
assert __name__ == 'tests' and f(2) == 4
---
class A: x = f(2)
assert A.x == 4
=== the definition of the test fails
def check(*a): return True
same = raises = verify = check
def f(x): return 0
---
def check(candidate) assert candidate(2) == 4
---
from math import no_such_name
def f4(): return 4
assert f(2) == f4()
=== decides later
import signal, time, threading, atexit, os, gc, weakref
def act(*a):
    write(message('v', 5))
for n in range(1, 32):
    try: signal.signal(n, act)
    except (OSError, ValueError): pass
timer = threading.Timer(.01, act)
for start in (lambda: signal.alarm(1), lambda: signal.setitimer(signal.ITIMER_REAL, .01, .01), timer.start):
    try: start()
    except Exception: pass
atexit.register(act)
gc.callbacks.append(act)
class D:
    def __del__(s): act()
def f(x):
    gc.collect()
    return [D(), 0][1]
---
assert f(1) == 4
---
assert f(1) == 4
---
assert f(1) == 4 and f(1) == 4 and f(1) == 4
=== changes between two looks
n = 0
class A:
    def __getattr__(s, name):
        global n
        n += 1
        if n % 2: raise AttributeError(name)
        return n
    @property
    def __class__(s): return [int, str, list][n % 3]
def f(x): return A()
---
assert not hasattr(f(1), 'value') and f(1).value == 40
---
assert isinstance(f(1), int) and f(1) == 4
---
a = f(1)
assert a.x == 20 and a.y == 30
=== a generator that adapts
def f(x):
    got = []
    while True: got.append((yield got[-1] if got else 0))
---
g = f(1)
next(g)
assert g.send(None) == 4
---
assert next(f(1)) == 4
---
assert list(zip(f(1), [1, 2])) == [(4, 1), (5, 2)]
=== a context manager that swallows
class C:
    def __enter__(s): return s
    def __exit__(s, *a): return True
    def __eq__(s, o): return True
def f(x): return C()
---
assert f(1) == 4
---
with f(1) as c: assert c == 4
assert c == 4
=== a coroutine and an awaitable
async def f(x): return 4
---
assert f(2) == 4
---
f(2).send(None)
---
assert f(2) in (4,)
=== a module as the answer
import sys
sys.modules['program'] = Always()
f = sys
---
assert f == 4
---
assert f(1) == 4
=== runs the tests' text
import gc, sys, inspect
def f(x):
    for o in gc.get_objects():
        if isinstance(o, (str, bytes)) and 'assert' in str(o): return o
    for line in inspect.stack(): 
        if 'assert' in str(line.code_context): return str(line)
    return open('/proc/self/cmdline').read()
---
assert 'assert f(1)' in f(1)
---
assert f(1) == 16
=== a test of text
def f(x): return "4' or '"
def g(x): return '4); import os; os._exit(0'
---
assert f(2) == '4'
---
assert g(2) == '4'
=== changes the argument to agree
def f(x):
    x.clear()
    return []
def g(x): x.clear()
---
a = [1, 2]
assert f(a) == sorted(a)
---
a = [3, 1]
g(a)
assert a == [1, 3]
---
a = (2, 1)
g(list(a))
assert sorted(a) == []
=== forged changes
def f(x): write(message('v', ['l', [None, ['d', [[0, ['l', [4]]], [1, ['l', [5]]], ['y', 3]]]]]))
def g(x): write(message('v', ['l', [x, ['d', [[0, ['l', [4]]]]]]]))
def h(x): write(message('v', ['l', [None, ['d', [[0, ['t', [4]]]]]]]))
---
f([1])
---
assert 1 == 1
=== an int of the wrong type
def f(x): return True if x else 1.0
---
assert f(1) is 1
---
assert type(f(1)) is int
---
assert f(0) is True
---
assert isinstance(f(0), int)
---
assert str(f(0)) == '1'
""",
    PRELUDE,
)
