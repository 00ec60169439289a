"""Programs that answer their tests, with the kinds of values and constructs that test sets use."""

from tests.sandbox.programs import parse_programs

HONEST = parse_programs(r"""
=== names that LeetCode imports
class Solution:
    def smallest(self, matrix: List[List[int]], k: int) -> Optional[int]:
        return nsmallest(k, chain.from_iterable(matrix))[-1] if matrix else None
    def common(self, words): return Counter(words).most_common(1)[0][0] if words else math.inf
--- assert Solution().smallest([[1, 5, 9], [10, 11, 13]], 3) == 9 and Solution().smallest([], 1) is None
--- assert Solution().common(['b', 'a', 'b']) == 'b' and Solution().common([]) == float('inf')
=== values
import math
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from enum import IntEnum, StrEnum
from fractions import Fraction
Point = namedtuple('Point', 'x y')
class Level(IntEnum): LOW = 1
class Unit(StrEnum): KM = 'km'
class Stack(list): pass
class Bag(Counter): pass
class Half(Fraction): pass
class Pair:
    def __init__(self, a, b): self.a, self.b = a, b
def values(): return [Point(1, 2), Level.LOW, Unit.KM, Stack([1]), Bag('aab'), Half(1, 2), deque(range(5), maxlen=3)]
def groups(): d = defaultdict(list); d[Level.LOW].append(Unit.KM); return d
def circle(r): return 2 * math.pi * r
def spread(pairs, n): return max(p.b for p in pairs) - min(p.a for p in pairs) + n
--- from collections import *
assert values() == [(1, 2), 1, 'km', [1], {'a': 2, 'b': 1}, 0.5, deque([2, 3, 4])]
x, y = values()[0]
assert values()[0][1] == y == 2 and values()[1] + 1 == 2 and values()[3] + [2] == [1, 2] and f'{values()[2]}' == 'km'
assert groups() == {1: ['km']} and list(groups()) == [1] and isinstance(values()[4], dict)
--- assert math.isclose(circle(10), 62.830000000000005, rel_tol=0.001) and abs(circle(1) - 2 * math.pi) < 1e-9
--- assert spread([Pair(5, 24), Pair(15, 25), Pair(27, 40), Pair(50, 60)], 4) == 59
=== iterators and views
def views(): d = {'a': 1, 'b': 2}; return d.keys(), d.values(), d.items()
def naturals():
    n = 0
    while True: yield (n := n + 1)
def pairs(a, b): return zip(a, b)
def total(xs): return sum(xs)
--- import itertools, types
from collections.abc import Iterator
g = naturals()
assert next(g) == 1 and list(itertools.islice(g, 2)) == [2, 3] and next(g) == 4
assert isinstance(naturals(), types.GeneratorType) and isinstance(pairs([], []), Iterator)
assert dict(pairs('ab', [1, 2])) == {'a': 1, 'b': 2} and list(pairs([], [])) == []
keys, values, items = views()
assert keys == {'a', 'b'} and 'a' in keys and list(keys) == ['a', 'b'] and keys & {'a'} == {'a'}
assert sum(values) == 3 and items == {('a', 1), ('b', 2)} and dict(items) == {'a': 1, 'b': 2}
--- assert total(x * x for x in range(4)) == 14 and total({1: 2}.values()) == 2 and total(iter([3])) == 3
assert total(range(5)) == 10 and total(map(int, '12')) == 3 and total(reversed([2])) == total(filter(None, [0, 2])) == 2
=== functions as arguments
import functools
def apply(f, xs): return [f(x) for x in xs]
def convert(x, kind): return x if isinstance(x, kind) else kind(x)
def safe(f):
    try: return f()
    except ValueError as e: return str(e)
def compose(*fs): return lambda x: functools.reduce(lambda y, f: f(y), reversed(fs), x)
class Bus:
    def __init__(self): self.handlers = {}
    def on(self, name, f): self.handlers.setdefault(name, []).append(f)
    def emit(self, name, *a, **k): return [f(*a, **k) for f in self.handlers.get(name, [])]
add = functools.partial(lambda a, b: a + b, 1)
@functools.lru_cache(maxsize=None)
def fib(n): "Fibonacci."; return n if n < 2 else fib(n - 1) + fib(n - 2)
--- assert apply(len, ['a', 'bb']) == [1, 2] and apply(str.upper, 'ab') == ['A', 'B'] and convert('4', int) == 4
assert apply(math.floor, [1.5]) == [1] and apply(lambda x: (x, [x]), [1]) == [(1, [1])] and add(2) == 3
--- seen = []
apply(seen.append, [1, 2])
def bad(): raise ValueError('no')
assert seen == [1, 2] and safe(bad) == 'no'
assert compose(str, lambda x: x + 1, abs)(-3) == '4'
--- bus, got = Bus(), []
bus.on('x', lambda a, b=0: got.append((a, b)))
bus.emit('x', 1, b=2)
fs = apply(lambda x: x, [len, lambda x: x])
assert got == [(1, 2)] and fs[0]('ab') == 2 and fs[1](5) == 5
--- assert fib(80) == 23416728348467685 and fib.__name__ == 'fib' and fib.__doc__ == 'Fibonacci.' and callable(fib)
=== objects that are held
class Heap(list):
    def push(self, x): self.append(x); self.sort(); return self
class Account:
    rate = 2
    def __init__(self, balance=0): self.balance = balance
    def deposit(self, n): self.balance += range(1, 9).index(n) + 1; return self
    cents = property(lambda self: self.balance * 100, lambda self, value: setattr(self, 'balance', value / 100))
--- h = Heap([2])
h.push(1)
assert h.push(3).pop() == 3 and h.pop(0) == 1
try: Heap().pop()
except IndexError as error: assert 'empty' in str(error) and error.args == ('pop from empty list',)
else: assert False
--- import unittest
a, case = Account(10), unittest.TestCase()
assert a.deposit(5).deposit(1).balance == 16 and a.cents == 1600 and Account.rate == 2
a.cents = 500
with case.assertRaises(ValueError): a.deposit(-1)
case.assertEqual(a.balance, 5.0)
assert vars(a) == {'balance': 5.0} and hasattr(a, 'rate') and not hasattr(a, 'fee') and a is not None
--- class Case(unittest.TestCase):
    def test_push(self): self.assertEqual(Heap().push(3).pop(), 3)
result = unittest.defaultTestLoader.loadTestsFromTestCase(Case).run(unittest.TestResult())
assert result.wasSuccessful() and result.testsRun == 1
=== the library
import hashlib, random, xml.dom.minidom, sqlite3, uuid, secrets, logging, pickle, tempfile, argparse, pathlib
from concurrent import futures
from datetime import datetime, timedelta, date, timezone
try: import numpy as np
except ImportError: np = None
def tag(s): return xml.dom.minidom.parseString(s).documentElement.tagName
def sql(): return sqlite3.connect(':memory:').execute('select sum(a) from (select 1 as a union select 2)').fetchone()
def ids(s): return len(str(uuid.uuid4())), len(secrets.token_hex(4)), random.choice([2]), hashlib.md5(s).digest()[0], np
def log(): logging.basicConfig(level=logging.INFO); return logging.getLogger('x').info('hello') is None
class Point: x = 3
def copied(): return pickle.loads(pickle.dumps(Point())).x
def args():
    parser = argparse.ArgumentParser()
    parser.add_argument('--n', type=int, default=3)
    return parser.parse_args(['--n', '5']).n
def path(s): return pathlib.PurePath(s).suffix, str(pathlib.Path('a') / 'b')
def encoded(s): return s.encode('shift_jis'), 'é'.encode('cp437'), s.encode('utf-16-le')
def full():
    try: return bytearray(1 << 40)
    except MemoryError: return 'full'
def parse(s, d): return datetime.strptime(s, '%d %b %Y'), date(d.year + d.month // 12, d.month % 12 + 1, 1)
def utc(): return datetime(2020, 5, 17, 1, 2, 3, 4, tzinfo=timezone(timedelta(hours=2), 'X'))
def now(): return datetime.now(), date.today()
--- assert tag('<a/>') == 'a' and sql() == (3,) and ids(b'a') == (36, 8, 2, 12, None) and log() and copied() == 3
assert args() == 5 and path('a/b.txt') == ('.txt', 'a/b') and encoded('日') == (b'\x93\xfa', b'\x82', b'\xe5e')
assert full() == 'full'
--- from datetime import *
assert parse('17 May 2020', date(2020, 12, 31)) == (datetime(2020, 5, 17), date(2021, 1, 1))
assert utc() == datetime(2020, 5, 16, 23, 2, 3, 4, tzinfo=timezone.utc) and utc().isoformat().endswith('+02:00')
assert now()[0].date() == now()[1] and abs(now()[0] - datetime.now()) < timedelta(hours=15)
=== output and input
import sys, io
from contextlib import redirect_stdout
input = iter(['3', '4', 'end']).__next__
def ask(): return int(input()) + int(input())
def shout(s): print(s.upper(), end='', flush=True); sys.stdout.write('x'); sys.stderr.write('y')
def captured(f, *a):
    out = io.StringIO()
    with redirect_stdout(out): f(*a)
    return out.getvalue()
def rest(): return sys.stdin.read()
print('module loaded', file=sys.stderr)
if __name__ == '__main__':
    print(ask(), input())
    exit()
--- assert ask() == 7
assert shout('a') is None and captured(shout, 'b') == 'Bx' and rest() == ''
--- print(ask.__name__, rest())
=== attributes, defaults and identity
from collections import defaultdict, namedtuple
from enum import Enum, IntEnum
Point = namedtuple('Point', 'x y')
class Color(Enum): RED = 1
class Level(IntEnum): LOW = 1
class Vector(tuple):
    def norm(self): return sum(x * x for x in self) ** 0.5
class Node:
    def __init__(self, value, next=None): self.value, self.next = value, next
class Bag:
    def __init__(self): self.items, self.counts = [], {}
    def total(self): return sum(self.items) + sum(self.counts.values())
history = []
def logged(): return len(history)
def point(): return Point(1, 2)
def span(p): return p.y - p.x
def kinds(): return Color.RED, Level.LOW
def vector(): return Vector([3, 4])
def tally(xs, kind):
    d = defaultdict(kind)
    for x in xs: d[x] += kind(1)
    return d
def nested(): return defaultdict(lambda: defaultdict(list))
def default_of(d, key): return d[key]
def reverse(head):
    last = None
    while head: head.next, last, head = last, head, head.next
    return last
def first(node): return node
def adder(n): return lambda x: x + n
--- assert point() == (1, 2) and point().y == 2 and point()._asdict() == {'x': 1, 'y': 2} and span(point()) == 1
assert point()._replace(x=5).x == 5 and vector().norm() == 5.0 and vector() == (3, 4) and len({point(), (1, 2)}) == 1
--- import copy, json
color, level = kinds()
assert color.name == 'RED' and color.value == 1 and level.name == 'LOW' and level + 1 == 2 and color is Color.RED
assert copy.deepcopy(point()) == (1, 2) and json.dumps([point(), level]) == '[[1, 2], 1]'
--- from collections import defaultdict
assert tally('aab', int) == {'a': 2, 'b': 1} and tally('a', int)['z'] == 0 and nested()['x']['y'] == []
assert default_of(defaultdict(list), 1) == [] and default_of(defaultdict(lambda: 7), 1) == 7
--- b = Bag()
b.items.append(3)
b.items += [4]
b.counts['k'] = 1
assert b.total() == 8 and b.items == [3, 4]
history.append(1)
assert logged() == 1
--- head = reverse(Node(1, Node(2)))
values, node = [], head
while node:
    values.append(node.value)
    node = node.next
assert values == [2, 1] and head and head != None and first(head) is head
--- assert callable(adder) and callable(adder(1)) and adder(1)(2) == 3 and not callable(vector())
=== captured output
def shout(s): print(s.upper())
def fail(): print('a'); raise ValueError
--- import io, sys
from contextlib import redirect_stdout, suppress
from unittest.mock import patch
shout('before')
with redirect_stdout(io.StringIO()) as out:
    shout('b')
    print('c')
    with suppress(ValueError): fail()
assert out.getvalue() == 'B\nc\na\n'
with patch('sys.stdout', new_callable=io.StringIO) as out: shout('d')
assert out.getvalue() == 'D\n'
=== an event loop
import asyncio
async def pipe(n):
    queue = asyncio.Queue(2)
    async def produce():
        for i in range(n): await queue.put(i)
    async def consume(): return [await queue.get() for _ in range(n)]
    return (await asyncio.gather(produce(), consume()))[1]
async def late():
    try: await asyncio.wait_for(asyncio.sleep(9), 0.01)
    except asyncio.TimeoutError: return 'late'
def pipe_all(n): return asyncio.run(pipe(n))
def is_late(): return asyncio.new_event_loop().run_until_complete(late())
--- assert pipe_all(5) == [0, 1, 2, 3, 4] and is_late() == 'late'
=== in pieces
LIMIT = 3
def f(x): return x + LIMIT
--- x = LIMIT
--- assert f(x) == 6
LIMIT = 9
assert f(0) == 3
--- for i in range(3):
    with_i = f(2) + i
    assert with_i == 5 + i
class Case:
    def run(self): return f(2)
assert Case().run() == 5
assert [f(2) for _ in range(3)] == [5] * 3 and (lambda: f(2))() == 5 and {k: f(2) for k in 'ab'} == {'a': 5, 'b': 5}
--- global_value = None
def set_it():
    global global_value
    global_value = f(2)
set_it()
from math import *
assert global_value == 5 and sqrt(f(1)) == 2.0
try: assert f(2) == 6
except AssertionError: pass
else: raise ValueError
""")

# Scripts that print the sum of the numbers in a line of standard input.
SUM = "sum(map(int, {}.split()))"
READERS = [
    "os.read(0, 1 << 16)", "os.read(0, os.fstat(0).st_size)", "sys.__stdin__.read()", "sys.stdin.buffer.raw.read()",
    "open(0).read()", "open('/dev/stdin', 'rb').read()", "io.open(0, 'rb').read()", "os.fdopen(0).readline()",
    "io.BufferedReader(io.FileIO(0)).read()", "' '.join(fileinput.input())", "os.read(sys.stdin.fileno(), 99)",
]  # fmt: skip
WRITERS = [
    "os.write(1, str({}).encode())", "open(1, 'w').write(str({}))", "print({}, file=sys.__stdout__)",
    "os.write(sys.stdout.fileno(), str({}).encode())", "print({}); os._exit(0)", "print({}); assert sys.argv[1:] == []",
    "sys.stdout.mode == 'w' and io.FileIO(1, 'w').write(str({}).encode())",
    "t = threading.Thread(target=lambda: print({})); t.start(); t.join(); assert not t.is_alive()",
    "threading.stack_size(1 << 26); threading.Thread(target=lambda: print({}), daemon=True).start()",
    "with futures.ThreadPoolExecutor(4) as pool: print(*pool.map(lambda x: x, [{}]))",
]  # fmt: skip
IMPORTS = "import fileinput, io, os, sys, threading\nfrom concurrent import futures\n"
SCRIPTS = [f"{IMPORTS}print({SUM.format(reader)})" for reader in READERS]
SCRIPTS += [IMPORTS + writer.format(SUM.format("input()")) for writer in WRITERS]
