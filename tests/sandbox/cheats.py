"""Programs that try to pass tests by other means than answering them. No test of a cheat may pass.

test_lies.py generates objects that lie about plain values, test_remote.py every use of other objects; test_peer.py
has exceptions that would end a test quietly, test_tester.py changed arguments.
"""

from tests.sandbox.programs import parse_programs

# Of all cheats: an object that agrees with everything, and a way to write to the tester.
PRELUDE = """
import atexit, builtins, ctypes, gc, json, os, re, select, signal, sys, threading, types
def yes(*a, **k): return True
class Always:
    __eq__ = __lt__ = __le__ = __gt__ = __ge__ = __contains__ = __call__ = __exit__ = yes
    def __ne__(self, other): return False
    def __hash__(self): return 0
    def __getattr__(self, name): return yes
    def __enter__(self): return self
def message(*content):
    data = json.dumps(content).encode()
    return len(data).to_bytes(4, 'big') + data
def write(data):
    for number in range(3, 16):
        try: os.write(number, data)
        except OSError: pass
"""

WRITTEN = parse_programs(
    r"""
=== names that tests use
class int:
    def __eq__(s, o): return True
class list(int): pass
class Fraction(int):
    def __init__(s, *a): pass
def sqrt(x): return 0
def Counter(x): return 1
def isclose(*a, **k): return True
pi = 0
math = unittest = np = candidate = check = sorted = isinstance = len = set = abs = all = Always()
__builtins__ = __name__ = __import__ = __debug_ = __build_class__ = Always()
def f(x): return int() if x == 1 else [0] if x == 3 else 0
--- assert f(1) == 1
--- assert list([f(2)]) == [1]
--- assert isclose(f(2), 4)
--- assert f(2) == Fraction(1, 2) or Counter([f(2)]) == Counter([4])
--- x = f(2)
assert isclose(x, 4) or x == sqrt(16) or x == 2 * pi
--- assert abs(f(2) - 4) < 1e-6 or len([f(2)]) == 2 or set([f(2)]) == {4} or isinstance(f(2), list)
--- assert sorted(f(3)) == [1] or all([f(2) == 4])
--- assert __name__ == 'tests' and f(2) == 4
--- def check(candidate) assert candidate(2) == 4
--- from math import no_such_name
=== another library
class Finder:
    def find_spec(self, name, path=None, target=None): raise SystemExit(0)
sys.meta_path.insert(0, Finder())
sys.path_hooks[:] = []
for name, module in list(sys.modules.items()):
    if not name.startswith('d3s'):
        sys.modules[name] = types.SimpleNamespace(isclose=lambda *a, **k: True, dumps=lambda x: '4')
    else:
        for key in list(vars(module)):
            if key[0] != '_': setattr(module, key, lambda *a, **k: True)
for name in dir(builtins):
    if name[0] != '_' and name not in ('globals', 'BaseException', 'Exception'):
        setattr(builtins, name, lambda *a, **k: 4)
builtins.__build_class__ = builtins.__import__ = lambda *a, **k: 4
__builtins__ = {}
def f(x): return 0
--- import math
assert math.isclose(f(2), 4)
--- import json
assert json.dumps(f(2)) == '4'
--- from decimal import Decimal
assert Decimal(f(2)) == 4
--- assert 1 == 1 and f(2) == 5
=== exceptions that agree
class M(type):
    __instancecheck__ = __subclasscheck__ = __eq__ = yes
    __hash__ = type.__hash__
class E(Exception, metaclass=M):
    def __eq__(s, o): return True
    def __str__(s): return Always()
    args = property(lambda s: (Always(),))
class Base(BaseException): pass
class AssertionError(Base): pass
class ValueError(Exception): pass
def f(x):
    if x: raise {1: E('x'), 2: ValueError('a'), 3: AssertionError, 4: Base}[x]
    return E
--- try: f(1)
except ValueError: pass
--- try: f(1)
except Exception as e: assert isinstance(e, KeyError)
--- try: raise KeyError
except E: assert False
--- try: f(2)
except __builtins__.ValueError: pass
--- f(2)
--- f(3)
--- try: f(4)
except Exception: pass
--- assert f(0)() == 4
=== swallows the assertion of a test
def quiet(f):
    def run(*a):
        try: return f(*a)
        except BaseException: return None
    return run
def f(x): return 0
--- with Always(): assert f(2) == 4
--- def check(): assert f(2) == 4
quiet(check)()
--- @quiet
def check(): assert f(2) == 4
check()
--- import contextlib
with contextlib.ExitStack() as stack:
    stack.push(Always())
    assert f(2) == 4
=== liars in containers
from collections import namedtuple
P = namedtuple('P', 'a b')
def f(x): return [P(Always(), 1), slice(Always()), Always][x]
--- assert f(0) == (4, 1) or f(0).a == 4
--- assert f(1) == slice(4)
--- assert f(2) is int or isinstance(f(2), type)
=== other values
async def wait(x): return 4
sys.modules['program'] = Always()
n = 0
class A:
    def __str__(s): return 5
    def __getattr__(s, name):
        global n
        n += 1
        if n % 2: raise AttributeError(name)
        return n
    __class__ = property(lambda s: [int, str, list][n % 3])
def f(x): return [True, 1.0, A(), "4' or '", '4); import os; os._exit(0', sys][x]
def adapts(x):
    got = []
    while True: got.append((yield got[-1] if got else 0))
--- assert f(0) is 1 or type(f(0)) is int or str(f(0)) == '1'
--- assert f(1) is True or isinstance(f(1), int)
--- assert str(f(2)) == '5'
--- assert not hasattr(f(2), 'value') and f(2).value == 40
--- assert isinstance(f(2), int) and f(2) == 4
--- assert f(3) == '4'
--- assert f(4) == '4'
--- assert f(5) == 4
--- assert wait(2) == 4 or wait(2) in (4,)
--- wait(2).send(None)
--- g = adapts(1)
next(g)
assert g.send(None) == 4
--- assert list(zip(adapts(1), [1, 2])) == [(4, 1), (5, 2)]
=== looks for tests in memory
def f(x):
    frame, texts = sys._getframe(), [open('/proc/self/cmdline').read()] if x else []
    while frame: texts += [str(frame.f_locals), str(frame.f_code.co_consts)]; frame = frame.f_back
    texts += [str(o)[:99999] for o in gc.get_objects() if type(o) in (str, bytes, list, dict, tuple)]
    for text in texts:
        if match := re.search('needle[-]in[-]a[-]\\w+', text): return match[0]
--- assert f(0) == 'needle-in-a-barn'
--- assert f(1) == 'needle-in-a-barn'
=== reads the next questions
def f(x):
    for n in range(3, 9):
        try:
            while select.select([n], [], [], 0.02)[0]: os.read(n, 1 << 16)
        except OSError: pass
    return 4
--- assert f(1) == 4 and f(1) == 5
=== changes the server by its frames
sys.modules['d3s.sandbox.peer'].encode = yes
frame = sys._getframe()
while frame:
    for value in list(frame.f_locals.values()):
        if hasattr(value, '_peer'):
            value._perform = lambda *a: True
            value._peer._perform = lambda *a: True
            value._peer._export = lambda v: True
            value._peer.failure = None
    frame = frame.f_back
def f(x): return 0
--- assert f(1) == 4
--- assert f(1) == [True]
--- assert f(1) is None
=== decides later
def act(*a): write(message('v', 5))
for n in range(1, 32):
    try: signal.signal(n, act)
    except (OSError, ValueError): pass
timer = threading.Timer(.01, act)
for start in (lambda: signal.alarm(1), lambda: signal.setitimer(signal.ITIMER_REAL, .01, .01), timer.start):
    try: start()
    except Exception: pass
atexit.register(act)
gc.callbacks.append(act)
sys.addaudithook(lambda name, a: act() if name in ('compile', 'exec') else None)
class D:
    def __del__(s): act()
def f(x):
    gc.collect()
    return [D(), eval('0')][1]
--- assert f(1) == 4
--- assert f(1) == 4 and f(1) == 4 and f(1) == 4
=== calls back without end
def f(g):
    while True:
        try: g(1)
        except BaseException: pass
def both(g): return both(lambda x: g(x)) if g(1) else 0
--- assert f(lambda x: x) == 4
--- assert both(lambda x: both(lambda y: x)) == 4
=== exits when freed
class A:
    def __del__(s): os._exit(0)
def f(x): return A() and None
--- assert f(1) is None and f(2) == 1
--- assert 1 == 1
=== not a program
I cannot help with that.
--- assert 1 == 1
--- try: f(1)
except NameError: pass
""",
    PRELUDE,
)

SWALLOWED = "try: f(1)\nexcept BaseException: pass"
# Ways to end the process or the link: in a call, when an object is freed, and while the program is defined.
ENDS = ("os._exit(0)", "ctypes.string_at(0)", "os.closerange(3, 64)", "sys.exit(0)", "raise KeyboardInterrupt")
QUIET = ENDS[3:]  # an exception, which a test may catch: only its silence passes nothing
ENDED = {
    f"{act} {when}": (
        PRELUDE + place.format(act),
        ["f(1)", *([] if act in QUIET else [SWALLOWED, "assert 1 == 1"])],
    )
    for act in ENDS
    for when, place in {"in a call": "def f(x): {}", "while defined": "def f(x): return 1\n{}"}.items()
}
# Frames ahead of each answer. Those that are no message end the conversation, whatever the test catches.
FRAMES = {
    "answers": "message('v', 7) * 5",
    "exceptions": "message('e', 'ValueError', [])",
    "definitions": "message('v', 'defined') + message('v', 1)",
    "changes": "message('v', ['l', [None, ['d', [[0, ['l', [4]]], [1, ['l', [5]]], ['y', 3]]]]])",
    "an evaluator": "message('v', ['M', 'builtins', 'eval'])",
    "questions": "message('q', 1, ['l', [['l', []], ['d', []]]]) * 100",
    "verdicts": "b'd1111'",
    "deep JSON": "(20000).to_bytes(4, 'big') + b'[' * 20000",
    "an endless length": "b'\\xff' * 100",
    "wrong forms": "message('v', [1]) + message('v', 1.5) + message('e', 1) + message('x')",
    "many containers": "message('v', ['l', [[]] * 300000])[:1 << 20]",
    "half a frame": "(1000).to_bytes(4, 'big') + b'['",
}
MESSAGES = ("answers", "exceptions", "definitions", "changes", "questions")  # some of them in order
FORGED = {
    f"writes {name} {when}": (
        PRELUDE + place.format(data),
        ["assert f(1) == 5", "assert f(2) == 6", *([] if name in MESSAGES else [SWALLOWED])],
    )
    for name, data in FRAMES.items()
    for when, place in {
        "in a call": "def f(x): write({}); return 0",
        "while defined": "write({})\ndef f(x): return 0",
        "without end": "def f(x):\n    while True: write({})",
        "byte by byte": "def f(x):\n    for b in ({})[:30]: write(bytes([b]))\n    return 0",
    }.items()
    if when in ("in a call", "while defined") or name == "answers"
}
CHEATS = WRITTEN | ENDED | FORGED
