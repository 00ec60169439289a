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
def sqrt(x): return 0
def isclose(*a, **k): return True
math = np = candidate = check = sorted = isinstance = abs = all = int = Counter = Always()
__builtins__ = __name__ = __import__ = __build_class__ = Always()
def f(x): return 0
--- assert isclose(f(2), 4) or math.isclose(f(2), 4)
--- assert int(f(2)) == 4 or f(2) == sqrt(16) or Counter([f(2)]) == Counter([4])
--- assert abs(f(2) - 4) < 1e-6 or isinstance(f(2), list) or all([f(2) == 4]) or sorted([f(2)]) == [4]
--- assert __name__ == 'tests' and f(2) == 4
--- assert np.allclose(f(2), 4)
=== another library
class Finder:
    def find_spec(self, name, path=None, target=None): raise SystemExit(0)
sys.meta_path.insert(0, Finder())
for name, module in list(sys.modules.items()):
    if not name.startswith('d3s'):
        sys.modules[name] = types.SimpleNamespace(isclose=lambda *a, **k: True, dumps=lambda x: '4')
    else:
        for key in list(vars(module)):
            if key[0] != '_': setattr(module, key, lambda *a, **k: True)
builtins.len = builtins.abs = builtins.__build_class__ = builtins.__import__ = lambda *a, **k: 4
def f(x): return 0
--- import math
assert math.isclose(f(2), 4)
--- import json
assert json.dumps(f(2)) == '4'
--- assert abs(f(2)) == 4
=== exceptions that agree
class M(type):
    __instancecheck__ = __subclasscheck__ = __eq__ = yes
    __hash__ = type.__hash__
class E(Exception, metaclass=M):
    __str__ = yes
    args = property(lambda s: ('x',))
class AssertionError(BaseException): pass
class ValueError(Exception): pass
def f(x): raise [E, ValueError, AssertionError][x]
--- try: f(0)
except (KeyError, ValueError): pass
--- try: f(0)
except Exception as e: assert isinstance(e, KeyError) or e.args == ('x',)
--- try: f(1)
except ValueError: pass
--- try: f(2)
except Exception: pass
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
=== decides later
def act(*a): write(message('v', 5))
signal.signal(signal.SIGALRM, act)
try: signal.alarm(1)
except OSError: pass
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
""",
    PRELUDE,
)

SWALLOWED = "try: f(1)\nexcept BaseException: pass"
WRONG = ["assert f(1) == 5", "assert f(2) == 6"]
# What a program does in a call, or while it is defined, and the tests that it must not pass by it. What ends the link,
# such as a frame that is no message, ends the conversation whatever the test catches; an exception may be caught.
ACTS = {
    "os._exit(0)": ["f(1)", SWALLOWED, "assert 1 == 1"],
    "ctypes.string_at(0)": ["f(1)", SWALLOWED, "assert 1 == 1"],
    "os.closerange(3, 64)": ["f(1)", SWALLOWED, "assert 1 == 1"],
    "sys.exit(0)": ["f(1)"],
    "raise KeyboardInterrupt": ["f(1)"],
    "write(message('v', 7) * 5)": WRONG,
    "while True: write(message('v', 7))": WRONG,
    "write(message('e', 'ValueError', []))": WRONG,
    "write(message('v', ['l', [None, ['d', [[0, ['l', [4]]], [1, ['l', [5]]], ['y', 3]]]]]))": WRONG,
    "write(message('q', 1, ['l', [['l', []], ['d', []]]]) * 100)": WRONG,
    "write(b'd1111')": [*WRONG, SWALLOWED],  # verdicts
    "write((20000).to_bytes(4, 'big') + b'[' * 20000)": [*WRONG, SWALLOWED],
    "write(b'\\xff' * 100)": [*WRONG, SWALLOWED],
    "write((1000).to_bytes(4, 'big') + b'[')": [*WRONG, SWALLOWED],
}
PLACES = {"in a call": "def f(x):\n    {}\n    return 0", "while defined": "def f(x): return 0\n{}"}
CHEATS = WRITTEN | {
    f"{act} {when}": (PRELUDE + place.replace("{}", act), tests)
    for act, tests in ACTS.items()
    for when, place in PLACES.items()
}
