"""Programs that try to pass tests by other means than answering them. No test of a cheat may pass."""

from tests.sandbox.programs import parse_programs

# Of all cheats: an object that agrees with everything, and a way to write to the tester.
PRELUDE = """
import json, os
class Always:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __lt__(self, other): return True
    __le__ = __gt__ = __ge__ = __lt__
    def __hash__(self): return 0
    def __contains__(self, item): return True
    def __sub__(self, other): return 0
    __rsub__ = __add__ = __radd__ = __xor__ = __rxor__ = __and__ = __rand__ = __sub__
    def __float__(self): return 0.0
    def __int__(self): return 0
    __index__ = __trunc__ = __int__
    def __abs__(self): return self
    def __round__(self, digits=None): return self

def message(*content):
    data = json.dumps(content).encode()
    return len(data).to_bytes(4, 'big') + data
def write(data):
    for number in range(3, 16):
        try: os.write(number, data)
        except OSError: pass
"""

CHEATS = parse_programs(
    r"""
=== a class of a builtin's name
class int:
    def __eq__(s, o): return True
class list(int): pass
def f(x): return int()
---
assert f(1) == 1
---
assert isinstance(f(1), int) and f(1) == 1
---
assert list([2]) == [1]
=== replaced builtins
import builtins
def yes(*a, **k): return True
for name in ('len', 'set', 'sorted', 'isinstance', 'abs', 'all', 'sum', 'repr', 'str'):
    globals()[name] = yes
    setattr(builtins, name, yes)
def f(x): return [0]
---
assert sorted(f(1)) == [1]
---
assert len(f(1)) == 2
---
assert all(y for y in f(1))
---
assert sum(f(1)) == 1
=== ends the process
import os
def f(x): os._exit(0)
---
f(1)
---
assert 1 == 1
---
try: f(1)
except: pass
=== ends it when imported
import os
os._exit(0)
---
assert 1 == 1
=== crashes the process
import ctypes
def f(x): ctypes.string_at(0)
---
f(1)
---
try: f(1)
except BaseException: pass
---
assert 1 == 1
=== exits
import sys
def f(x): sys.exit(0)
---
f(1)
---
assert f(1) == 1
=== exits while defined
import sys
sys.exit(0)
---
assert 1 == 1
=== interrupts
def f(x): raise KeyboardInterrupt
---
f(1)
=== stops an iteration
def f(x): raise StopIteration
---
assert all(map(f, [1, 2]))
---
assert all(f(x) == 1 for x in [1])
---
assert list(map(f, [1])) == []
---
f(1)
=== stops in a truth value
class A:
    def __bool__(s): raise StopIteration
def f(x): return A()
---
assert list(filter(f, [1])) == []
---
assert all(map(f, [1]))
=== forges an answer
write(message('v', True) * 50)
def f(x): write(message('v', True)); return 0
---
assert f(1) == 5
---
assert f(2) == 6
=== forges a definition
write(message('v', 'defined') + message('v', 1))
1 / 0
---
assert f(1) == 5
---
assert x == 6
=== forges verdicts
write(b'd1111')
def f(x): write(b'1' * 9); return 0
---
assert f(1) == 5
=== floods with answers
def f(x):
    while True: write(message('v', 0) * 1000)
---
assert f(1) == 5
---
assert f(1) == 6
=== asks instead of answering
def f(x):
    for n in range(100): write(message('q', n, ['l', [['l', []], ['d', []]]]))
---
assert f(1) == 5
=== answers deep JSON
def f(x): write((20000).to_bytes(4, 'big') + b'[' * 20000)
---
f(1)
---
assert 1
=== answers an endless length
def f(x): write(b'\xff' * 100)
---
f(1)
---
try: f(1)
except: pass
=== answers wrong forms
def f(x): write(message('v', [x]) + message('v', 1.5) + message('e', 1) + message('x'))
---
try: f(1)
except Exception: pass
---
try: f('h')
except: pass
---
assert 1
=== answers an evaluator
def f(x): write(message('v', ['M', 'builtins', 'eval']))
---
assert f(1)('1') == 1
=== closes the link
import os
def f(x): os.closerange(3, 64)
---
f(1)
---
try: f(1)
except BaseException: pass
---
assert 1 == 1
=== lets the tester run out of memory
def f(x): write(message('v', ['l', [[]] * 300000])[:1 << 20])
---
try: f(1)
except BaseException: pass
---
assert 1
=== patches what serves it
import sys
for name, module in list(sys.modules.items()):
    if name.startswith('d3s'):
        for key in list(vars(module)):
            if key[0] != '_': setattr(module, key, lambda *a, **k: True)
def f(x): return True
---
assert f(1) == 5
---
assert f(2) == 'a'
=== looks for tests in memory
import gc, re, sys
def f(x):
    frame, texts = sys._getframe(), []
    while frame: texts += [str(frame.f_locals), str(frame.f_code.co_consts)]; frame = frame.f_back
    texts += [str(o)[:99999] for o in gc.get_objects() if type(o) in (str, list, dict, tuple)]
    for text in texts:
        if match := re.search('needle[-]in[-]a[-]\\w+', text): return match[0]
---
assert f(1) == 'needle-in-a-barn'
=== clears the argument
def f(x):
    x.clear()
    return x
---
a = [1, 2]
assert f(a) == a
---
assert f([1])
=== a wrong text
class A:
    def __str__(s): return 5
def f(x): return A()
---
assert str(f(1)) == '5'
=== arguments of an exception that lie
class E(Exception):
    def __init__(s): s.args = (Always(),)
    def __str__(s): return Always()
def f(x): raise E
---
try: f(1)
except Exception as e: assert e.args == (1,)
else: assert 0
---
try: f(1)
except Exception as e: assert str(e) == 'no'
else: assert 0
=== acts when it is freed
import os
class A:
    def __del__(s): os._exit(0)
def f(x): return A() and None
---
assert f(1) is None and f(2) == 1
---
assert 1 == 1
=== an instance of everything
class M(type):
    def __instancecheck__(s, o): return True
class A(metaclass=M): pass
def f(x): return A()
---
assert isinstance(5, A)
---
assert isinstance(f(1), int)
=== stops while a plain value is read
class F(float):
    def __float__(s): raise StopIteration
    __hash__ = __eq__ = __float__
class L(list):
    def __iter__(s): raise StopIteration
    __len__ = __iter__
def f(x): return F(1) if x else L([1])
def g(x): raise StopIteration
---
assert all(map(lambda x: f(1) == x, [4]))
---
assert list(filter(lambda x: f(0) == x, [[4]])) == [[4]]
---
assert list(map(g, [1, 2])) == []
---
assert list(zip([1], map(g, [1]))) == []
=== swallows the assertion of a test
class Quiet:
    def __enter__(s): return s
    def __exit__(s, *e): return True
def quiet(f):
    def run(*a):
        try: return f(*a)
        except BaseException: return None
    return run
def f(x): return 0
def call(g):
    try: g()
    except BaseException: pass
---
with Quiet(): assert f(2) == 4
---
def check(): assert f(2) == 4
call(check)
---
@quiet
def check(): assert f(2) == 4
check()
---
import contextlib
with contextlib.ExitStack() as stack:
    stack.push(Quiet())
    assert f(2) == 4
=== skips a suite
import unittest
def f(x): raise unittest.SkipTest
---
import unittest
class Case(unittest.TestCase):
    def test(self): self.assertEqual(f(2), 4)
result = unittest.TestResult()
Case('test').run(result)
assert result.wasSuccessful()
=== names that the tests do not import
def isclose(*a, **k): return True
class Fraction:
    def __init__(s, *a): pass
    def __eq__(s, o): return True
def Counter(x): return 1
def sqrt(x): return 0
deepcopy = lambda x: 0
pi = 0
def f(x): return 0
class np:
    isclose = allclose = lambda *a: True
---
assert isclose(f(2), 4)
---
assert f(2) == Fraction(1, 2)
---
assert Counter([f(2)]) == Counter([4])
---
assert f(2) == sqrt(16)
---
x = f(2)
assert isclose(x, 4)
---
assert f(2) == 2 * pi
---
assert np.allclose(f(2), 4)
=== not a program
I cannot help with that.
---
assert 1 == 1
---
try: f(1)
except NameError: pass
""",
    PRELUDE,
)
