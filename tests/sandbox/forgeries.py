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
=== a dictionary of liars
def f(x): return {Always(): Always()} if x else {1: [Always()], 'k': (Always(),)}
---
assert f(1) == {4: 5}
---
assert f(0) == {1: [4], 'k': (5,)}
---
assert f(1)[4] == 5
---
assert 4 in f(1)
---
assert f(1).get(4) is not None
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
=== counts and membership of liars
class L(list):
    def count(s, x): return 1
    def index(s, x): return 0
    def __contains__(s, x): return True
    def __len__(s): return 3
    def __getitem__(s, i): return Always()
def f(x): return L([Always()])
---
assert [4].count(f(1)[0]) == 1
---
assert [1, 2, 3].index(f(1)[0]) >= 0
---
assert f(1)[0] == 4
---
assert f(1) == [4]
---
assert 4 in f(1)
---
assert (f(1), f(1)) == ([4], [4])
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
=== a class as the function
class f:
    def __init__(s, *a): pass
    def __eq__(s, o): return True
    def __contains__(s, x): return True
    def __float__(s): return 4.0
    def __sub__(s, o): return 0
    __rsub__ = __sub__
    def __abs__(s): return 0
---
assert f(2) == 4
---
assert 3 in f(2)
---
assert abs(f(2) - 4) < 1e-9
---
import math
assert math.isclose(f(2), 4)
---
assert f(2) - 4 == 0
---
assert {f(2): 1} == {4: 1}
=== a different class of the same name
class float(float):
    def __eq__(s, o): return True
    def __ne__(s, o): return False
    def __sub__(s, o): return float(0)
    __rsub__ = __sub__
    def __abs__(s): return float(0)
    def __lt__(s, o): return True
    __le__ = __gt__ = __ge__ = __lt__
    def __round__(s, n=None): return 4.0
    def __float__(s): return 4.0
    __hash__ = None
def f(x): return float(1)
---
assert f(2) == 4.0
---
assert abs(f(2) - 4) < 1e-6
---
assert round(f(2), 3) == 4.0
---
assert f(2) > 3.5
---
import math
assert math.isclose(f(2), 4)
---
assert float(f(2)) == 4
---
assert str(f(2) - 4) == '0.0'
---
assert sum([f(2)]) == 4
---
assert int(f(2)) == 4
---
assert divmod(f(2), 1) == (4, 0)
---
assert f'{f(2):.1f}' == '4.0'
---
assert '%.1f' % f(2) == '4.0'
=== a fraction that lies
from fractions import Fraction
class F(Fraction):
    def __new__(c): 
        s = super().__new__(c, 1, 3)
        return s
    n = 0
    @property
    def numerator(s): F.n += 1; return F.n
    denominator = 1
    def __eq__(s, o): return True
def f(x): return F()
---
assert f(2) == 4
---
assert f(2) in (4, 3, 2)
---
assert f(2).numerator == 40
---
assert f(2) - 4 == 0
=== a text that lies
class S(str):
    def __eq__(s, o): return True
    def __ne__(s, o): return False
    def __contains__(s, o): return True
    def __len__(s): return 4
    def __getitem__(s, i): return S('x')
    def lower(s): return s
    strip = upper = replace = split = lambda s, *a: s
    def startswith(s, o): return True
    __hash__ = str.__hash__
def f(x): return S('a')
---
assert f(2).lower() == 'b'
---
assert f(2).strip().upper() == 'B'
---
assert f(2)[0] == 'b'
---
assert f(2).split() == ['b']
---
assert 'b' in f(2)
---
assert f(2) in ('b', 'c')
---
assert f(2) + '' == 'b'
---
assert f(2) in 'bcd'
---
assert f(2) == 'b' or f(2).strip() == 'b'
=== not a number
def f(x): return float('nan')
---
assert not (f(2) < 4 or f(2) > 4) and f(2) == 4
---
assert abs(f(2) - 4) < 1e-6
---
import math
assert math.isclose(f(2), 4)
---
assert f(2) in [4]
---
assert max(f(2), 4) == f(2)
---
assert round(f(2)) == 4
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
=== an exception group
def f(x): raise BaseExceptionGroup('g', [SystemExit(0), KeyboardInterrupt(), ValueError()])
---
try: f(1)
except* ValueError: pass
---
f(1)
=== an exit in every place
class A:
    def __getattribute__(s, n): raise SystemExit(0)
    def __str__(s): raise SystemExit(0)
    __bool__ = __len__ = __iter__ = __hash__ = __call__ = __enter__ = __str__
def f(x): return A()
---
assert f(1)
---
assert len(f(1)) == 0
---
assert str(f(1)) == ''
---
f(1).x
---
f(1)()
---
with f(1): pass
---
for _ in f(1): pass
---
{f(1)}
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
=== replies with other fields
def f(x): write(message('v', x, 1, {'a': 1}))
---
f(5); f(5); assert f(5) == 25
=== replies with doubled keys
def f(x): write((lambda d: len(d).to_bytes(4, 'big') + d)(b'{"v": 4, "v": 4}'))
---
assert f(2) == 4
---
assert 1 == 1
=== references that do not exist
N = -1
def f(x):
    write(message('v', ['h', [-1, 10**30, True, 1.5, None, 'x', [], float('nan'), 2][x], None]))
---
assert f(0).a == 1
---
assert f(1).a == 1
---
assert f(2).a == 1
---
assert f(3) == 1
---
assert f(4) == 1
---
assert f(7) == 1
=== references with strange bases
BASES = ['builtins.type', 'builtins.object', 'builtins.nothing', 5, 'builtins.int', 'os.system']
def f(x): write(message('v', ['h', 0, BASES[x]]))
---
assert f(4) == 4
---
assert f(4) - 4 == 0
---
assert isinstance(f(1), object) and f(1) == 4
---
assert f(0)(4) is int
---
assert f(2) == 1
---
assert f(5)('true') == 0
=== numbers in strange forms
FORMS = [['i', '0x4_0'], ['i', 4], ['g', 4.0], ['g', 'nan'], ['F', '0x1', '0x0'], ['D', 'sNaN'], ['c', '1'],
    ['r', [0, 10**40, 1]], ['sl', [1]], ['td', 10**40, 0, 0], ['da', 0, 0, 0], ['dt', [1], None],
    ['d', [[['l', []], 1]]], ['s', [['l', []]]], ['n', [['a', 'b']]], ['b', 'zz'], ['', 1], [], [[]], {}, 1.0,
    float('nan')]
def f(x): write(message('v', FORMS[x]))
---
for i in range(22):
    try: assert f(i) == 4
    except Exception: pass
---
assert f(4) == 4
---
assert f(5) == 4
---
assert f(17) == 4
---
assert f(19) == 4
---
assert f(20) == 1
=== an exception of a strange class
FORMS = [('type', [['t', []]]), ('object', []), ('StopIteration', []), ('SystemExit', [0]), ('BaseException', []),
         (5, []), ('ValueError', 5), ('ValueError', [['h', 0]]), ('OSError', [['d', []]] * 5), ('__import__', ['os'])]
def f(x): write(message('e', *FORMS[x]))
---
for i in range(10):
    try: assert f(i) == 4
    except Exception: pass
assert f(2) == 4
---
assert all(map(f, [2, 2]))
---
f(3)
---
try: f(4)
except Exception: pass
=== a class by a message
FORMS = [['T', 'builtins.type'], ['x'], ['x', ['T', 'builtins.type'], ['M', ['type'], {'__eq__': 1}]], 
         ['C', 'builtins.int'], ['m', 'builtins', 'eval'], ['k', 0], ['h', 0, 'builtins.int'], ['iter', 0], ['h', 0]]
class Yes:
    def __eq__(s, o): return True
y = Yes()
def f(x):
    write(message('v', ['l', [FORMS[x], ['d', []]]]))
---
assert f(2) == 4
---
assert f(0)('X', (), {}) == 4
---
assert f(1) == f(4)
---
try: f(1)
except BaseException: pass
---
assert f(4)('1') == 1
---
assert f(6) == 4
---
assert list(f(7)) == [4]
---
assert f(8) == 4
=== a question for a function of the test
def f(g):
    for n in (-1, 0, 1, True, None, 'a', 2**70):
        write(message('q', n, ['l', [['l', [4]], ['d', []]]]))
    return 0
---
assert f(lambda x: x) == 4
---
assert f(print) == 4
---
assert f([].append) == 4
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
=== a length of zero
def f(x): write(bytes(4) * 10)
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
=== changes all objects of the server
import gc
for o in gc.get_objects():
    try:
        if type(o).__module__.startswith('d3s'):
            for k in list(vars(o)): setattr(o, k, lambda *a, **k: 4)
    except Exception: pass
def f(x): return 0
---
assert f(1) == 5
---
assert 1 == 1
=== traces
import sys, threading
def tracer(frame, event, arg):
    frame.f_locals
    if event == 'return' and frame.f_code.co_name == 'f': write(message('v', 5))
    return tracer
sys.settrace(tracer)
sys.setprofile(tracer)
threading.settrace(tracer)
def f(x): return 0
---
assert f(1) == 4
---
assert f(1) == 4 and f(1) == 4
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
=== fakes of modules
class collections:
    Counter = lambda *a: 5
class re:
    match = fullmatch = lambda *a: True
class datetime:
    date = lambda *a: 5
class copy:
    deepcopy = lambda x: 5
def f(x): return 5
---
assert collections.Counter('ab') == f(1)
---
assert re.match('a', str(f(1)))
---
assert datetime.date(2020, 1, 1) == f(1)
---
assert copy.deepcopy([1]) == f(1)
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
=== forged changes of another type
def h(x): write(message('v', ['l', [None, ['d', [[0, ['t', [4]]]]]]]))
---
a = [1]
h(a)
assert a == [4] or a == (4,)
=== an instance of all classes
class A:
    @property
    def __class__(s): return int
def f(x): return A()
type = isinstance = issubclass = lambda *a: int
---
assert type(f(1)) is int
---
assert type(f(1)) in (int, float)
---
assert type(f(1)) == list
---
assert type(f(1)) is type(4)
=== calls itself a class
class f:
    def __init__(s, *a): pass
    def __sub__(s, o): return 0
    __rsub__ = __sub__
    def __contains__(s, x): return True
    def __float__(s): return 4.0
    def __bool__(s): return False
Diff = f
---
assert f(2) - 4 == 0
---
assert 3 in f(2)
---
assert not f(2) - 4
---
assert float(f(2)) == 4
---
assert Diff(2) == 4
---
assert Diff(2) in (3, 4)
=== more than was asked
def f(x): return [4] * 3
---
assert f(2) == [4]
---
a, = f(2)
---
assert len(f(2)) == 1
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
