"""Programs that answer their tests, with the kinds of values and constructs that test sets use."""

from tests.sandbox.programs import parse_programs

HONEST = parse_programs(r"""
=== a HumanEval test
from typing import List
def has_close_elements(numbers: List[float], threshold: float) -> bool:
    ''' Check if two numbers are closer than the threshold
    >>> has_close_elements([1.0, 2.0], 0.5)
    False '''
    return any(abs(a - b) < threshold for i, a in enumerate(numbers) for b in numbers[:i])
---

METADATA = {
    'author': 'jt',
}

def check(candidate):
    assert candidate([1.0, 2.0, 3.9, 4.0, 5.0, 2.2], 0.3) == True
    assert candidate([1.0, 2.0, 3.9, 4.0, 5.0, 2.2], 0.05) == False, "This prints if this assert fails"

check(has_close_elements)
=== MBPP tests
import math, collections
def similar_elements(a, b): return tuple(set(a) & set(b))
def is_not_prime(n): return n < 2 or any(n % i == 0 for i in range(2, int(n ** .5) + 1))
def circle(r): return 2 * math.pi * r
def counts(s): return collections.Counter(s)
class Pair(object):
    def __init__(self, a, b): self.a, self.b = a, b
def spread(pairs, n): return max(p.b for p in pairs) - min(p.a for p in pairs) + n
--- assert set(similar_elements((3, 4, 5, 6), (5, 7, 4, 10))) == set((4, 5))
--- import math
assert is_not_prime(2) == False
assert math.isclose(circle(10), 62.830000000000005, rel_tol=0.001)
--- assert abs(circle(1) - 2 * math.pi) < 1e-9 and counts('aab') == collections.Counter('aab')
--- assert spread([Pair(5, 24), Pair(15, 25), Pair(27, 40), Pair(50, 60)], 4) == 59
=== collections
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from enum import IntEnum, StrEnum
from fractions import Fraction
Point = namedtuple('Point', 'x y')
class Level(IntEnum): LOW = 1
class Unit(StrEnum): KM = 'km'
class Stack(list): pass
class Bag(Counter): pass
class Half(Fraction): pass
def values(): return [Point(1, 2), Level.LOW, Unit.KM, Stack([1]), Bag('aab'), Half(1, 2), deque(range(5), maxlen=3)]
def groups(): d = defaultdict(list); d[Level.LOW].append(Unit.KM); return d
def count(s): return Counter(s)
--- from collections import *
assert values() == [(1, 2), 1, 'km', [1], {'a': 2, 'b': 1}, 0.5, deque([2, 3, 4])]
--- assert count('aab') == Counter('aab') == {'a': 2, 'b': 1} and count('aab').most_common(1) == [('a', 2)]
--- x, y = values()[0]
assert values()[0][1] == y == 2 and values()[1] + 1 == 2 and values()[3] + [2] == [1, 2] and f'{values()[2]}' == 'km'
assert groups() == {1: ['km']} and list(groups()) == [1] and isinstance(values()[4], dict)
=== iterators and views
def views(): d = {'a': 1, 'b': 2}; return d.keys(), d.values(), d.items()
def squares(n):
    for i in range(n): yield i * i
def naturals():
    n = 0
    while True: yield (n := n + 1)
def pairs(a, b): return zip(a, b)
def total(xs): return sum(xs)
--- assert list(squares(4)) == [0, 1, 4, 9] and sum(squares(5)) == 30 and sorted(squares(3), reverse=True) == [4, 1, 0]
--- g = squares(2)
assert next(g) == 0 and next(g) == 1
try: next(g)
except StopIteration: pass
else: assert False
--- import itertools, types
from collections.abc import Iterator
g = naturals()
assert next(g) == 1 and list(itertools.islice(g, 2)) == [2, 3] and next(g) == 4
assert isinstance(squares(1), types.GeneratorType) and isinstance(pairs([], []), Iterator)
assert dict(pairs('ab', [1, 2])) == {'a': 1, 'b': 2} and list(pairs([], [])) == []
keys, values, items = views()
assert keys == {'a', 'b'} and 'a' in keys and list(keys) == ['a', 'b'] and keys & {'a'} == {'a'}
assert sum(values) == 3 and items == {('a', 1), ('b', 2)} and dict(items) == {'a': 1, 'b': 2}
--- assert total(x * x for x in range(4)) == 14 and total({1: 2}.values()) == 2 and total(iter([3])) == 3
assert total(range(5)) == 10 and total(map(int, '12')) == 3 and total(reversed([2])) == total(filter(None, [0, 2])) == 2
=== functions as arguments
import functools
def apply(f, xs): return [f(x) for x in xs]
def fold(f, xs, start): return functools.reduce(f, xs, start)
def safe(f):
    try: return f()
    except ValueError as e: return str(e)
def sort_by(xs, key): return sorted(xs, key=key)
def compose(*fs): return lambda x: functools.reduce(lambda y, f: f(y), reversed(fs), x)
def types(*a): return [type(x).__name__ for x in a]
class Bus:
    def __init__(self): self.handlers = {}
    def on(self, name, f): self.handlers.setdefault(name, []).append(f)
    def emit(self, name, *a, **k): return [f(*a, **k) for f in self.handlers.get(name, [])]
add = functools.partial(lambda a, b: a + b, 1)
def counted(f):
    @functools.wraps(f)
    def inner(*a): inner.calls += 1; return f(*a)
    inner.calls = 0
    return inner
@counted
def square(x): "Square."; return x * x
@functools.lru_cache(maxsize=None)
def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)
@functools.singledispatch
def show(x): return 'object'
@show.register
def _(x: int): return 'int'
--- import operator
assert apply(len, ['a', 'bb']) == [1, 2] and apply(str.upper, 'ab') == ['A', 'B'] and apply(int, ['4']) == [4]
assert fold(operator.add, [1, 2], 0) == 3 and apply(lambda x: (x, [x]), [1]) == [(1, [1])] and add(2) == 3
--- seen = []
apply(seen.append, [1, 2])
def bad(): raise ValueError('no')
assert seen == [1, 2] and safe(bad) == 'no'
assert compose(str, lambda x: x + 1, abs)(-3) == '4' and sort_by(['bb', 'a'], key=len) == ['a', 'bb']
--- bus, got = Bus(), []
bus.on('x', lambda a, b=0: got.append((a, b)))
bus.emit('x', 1, b=2)
fs = apply(lambda x: x, [len, lambda x: x])
assert got == [(1, 2)] and fs[0]('ab') == 2 and fs[1](5) == 5
--- import datetime
assert types(deque(), Counter(), OrderedDict(), Fraction(1), Decimal(1), datetime.date.today(), 1, 1.5, 'a', b'a', None,
    True, (), [], {}, set(), 1j, range(2)) == ['deque', 'Counter', 'OrderedDict', 'Fraction', 'Decimal', 'date', 'int',
    'float', 'str', 'bytes', 'NoneType', 'bool', 'tuple', 'list', 'dict', 'set', 'complex', 'range']
--- assert square(3) == 9 and square.calls == 1 and square.__name__ == 'square' and square.__doc__ == 'Square.'
assert fib(80) == 23416728348467685 and show(1) == 'int' and show('a') == 'object' and callable(show)
=== objects that are held
class Stack:
    def __init__(self, items=()): self.items = list(items)
    def push(self, x): self.items.append(x); return self
    def pop(self): return self.items.pop()
class Euro(float): pass
class Heap(list):
    def push(self, x): self.append(x); self.sort(); return self
class Account:
    rate = 2
    def __init__(self, balance=0): self.balance = balance
    def deposit(self, n): self.balance += range(1, 9).index(n) + 1; return self
    def price(self): return Euro(1.5)
    cents = property(lambda self: self.balance * 100, lambda self, value: setattr(self, 'balance', value / 100))
--- s = Stack([1]).push(2)
assert s.pop() == 2 and s.items == [1] and s.pop() == 1
try: s.pop()
except IndexError as error: assert 'empty' in str(error) and error.args == ('pop from empty list',)
else: assert False
h = Heap([2])
h.push(1)
assert h.push(3).pop() == 3 and h.pop(0) == 1
--- a = Account(10)
assert a.deposit(5).deposit(1).balance == 16 and a.cents == 1600 and Account.rate == 2
a.cents = 500
assert a.balance == 5.0 and a.price() == 1.5 and a.price() + 1 == 2.5
--- import unittest
case = unittest.TestCase()
with case.assertRaises(ValueError): a.deposit(-1)
case.assertEqual(a.balance, 5.0)
assert vars(a) == {'balance': 5.0} and hasattr(a, 'rate') and not hasattr(a, 'fee') and a is not None
--- class Case(unittest.TestCase):
    def test_push(self): self.assertEqual(Stack().push(3).pop(), 3)
    def test_rate(self): self.assertTrue(Account.rate > 1)
result = unittest.defaultTestLoader.loadTestsFromTestCase(Case).run(unittest.TestResult())
assert result.wasSuccessful() and result.testsRun == 2
=== the library
import re, itertools, hashlib, random, json, os.path, calendar, xml.etree.ElementTree as ET, xml.dom.minidom, sqlite3
import uuid, secrets, logging, pickle, shelve, tempfile, argparse, timeit, doctest, pathlib, codecs, configparser
from collections import abc
from concurrent import futures
from datetime import datetime, timedelta, date, timezone, time
try: import numpy as np
except ImportError: np = None
def read(s): return re.findall(r'\w+', s), hashlib.md5(s.encode()).hexdigest(), json.loads('{"a": [1, null]}')
def tags(s): return ET.fromstring(s).tag, xml.dom.minidom.parseString(s).documentElement.tagName
def sql(): return sqlite3.connect(':memory:').execute('select sum(a) from (select 1 as a union select 2)').fetchone()
def ids(): return len(str(uuid.uuid4())), len(secrets.token_hex(4)), random.choice([2]), np
def log(): logging.basicConfig(level=logging.INFO); return logging.getLogger('x').info('hello') is None
class Point: x = 3
def copied(): return pickle.loads(pickle.dumps(Point())).x
def args():
    parser = argparse.ArgumentParser()
    parser.add_argument('--n', type=int, default=3)
    return parser.parse_args(['--n', '5']).n
def path(s): return pathlib.PurePath(s).suffix, str(pathlib.Path('a') / 'b')
def encoded(s): return s.encode('shift_jis'), codecs.encode('abc', 'rot13'), 'é'.encode('cp437'), s.encode('utf-16-le')
def full():
    try: return bytearray(1 << 40)
    except MemoryError: return 'full'
def parse(s, d): return datetime.strptime(s, '%d %b %Y'), date(d.year + d.month // 12, d.month % 12 + 1, 1)
def utc(): return datetime(2020, 5, 17, 1, 2, 3, 4, tzinfo=timezone(timedelta(hours=2), 'X'))
def now(): return datetime.now(), date.today(), time(1, 2)
--- assert read('a') == (['a'], '0cc175b9c0f1b6a831c399e269772661', {'a': [1, None]}) and ids() == (36, 8, 2, None)
--- assert sql() == (3,) and tags('<a/>') == ('a', 'a') and log() and copied() == 3 and full() == 'full'
assert args() == 5 and path('a/b.txt') == ('.txt', 'a/b') and encoded('日') == (b'\x93\xfa', 'nop', b'\x82', b'\xe5e')
--- from datetime import *
assert parse('17 May 2020', date(2020, 12, 31)) == (datetime(2020, 5, 17), date(2021, 1, 1))
assert utc() == datetime(2020, 5, 16, 23, 2, 3, 4, tzinfo=timezone.utc) and utc().isoformat().endswith('+02:00')
assert now()[0].date() == now()[1] and now()[2] == time(1, 2) and abs(now()[0] - datetime.now()) < timedelta(hours=15)
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
--- print(ask.__name__)
=== an event loop
import asyncio
from asyncio import Queue, gather
async def work(x): return await asyncio.sleep(0.001, x * 2)
async def many(xs): return await gather(*(work(x) for x in xs))
async def pipe(n):
    queue = Queue(2)
    async def produce():
        for i in range(n): await queue.put(i)
    async def consume(): return [await queue.get() for _ in range(n)]
    return (await gather(produce(), consume()))[1]
async def late():
    try: await asyncio.wait_for(asyncio.sleep(9), 0.01)
    except asyncio.TimeoutError: return 'late'
def solve(xs): return asyncio.run(many(xs))
def pipe_all(n): return asyncio.run(pipe(n))
def is_late(): return asyncio.new_event_loop().run_until_complete(late())
--- assert solve([1, 2]) == [2, 4] and solve([]) == []
assert pipe_all(5) == [0, 1, 2, 3, 4] and is_late() == 'late'
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
while x > 100: pass
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
if f(2) == 5: pass
else: raise AssertionError('wrong')
try: assert f(2) == 6
except AssertionError: pass
else: raise ValueError
""")
