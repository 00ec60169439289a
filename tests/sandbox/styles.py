"""Honest programs in the styles that people write: classes, recursion, the library, long test lists, large values."""

from tests.sandbox.programs import parse_programs

STYLES = parse_programs(r"""
=== decorators and closures
import functools, time
def memo(f):
    cache = {}
    @functools.wraps(f)
    def inner(*a):
        if a not in cache: cache[a] = f(*a); inner.misses += 1
        return cache[a]
    inner.misses = 0
    return inner
def repeat(n):
    def deco(f):
        def inner(*a, **k): return [f(*a, **k) for _ in range(n)]
        return inner
    return deco
@memo
def slow(x):
    "Square."
    return x * x
@repeat(3)
def hi(name='x', *, end='!'): return name + end
@functools.lru_cache(maxsize=None)
def paths(r, c): return 1 if r == 0 or c == 0 else paths(r - 1, c) + paths(r, c - 1)
@functools.singledispatch
def show(x): return 'object'
@show.register
def _(x: int): return 'int'
add = functools.partial(lambda a, b: a + b, 1)
---
assert slow(3) == 9 and slow(3) == 9 and slow.misses == 1 and slow.__name__ == 'slow' and slow.__doc__ == 'Square.'
---
assert hi() == ['x!'] * 3 and hi('a', end='?') == ['a?', 'a?', 'a?']
---
assert show(1) == 'int' and show('a') == 'object' and callable(show)
=== dates
import datetime as dt
from datetime import datetime, timedelta, date, timezone, time
import calendar
def parse(s): return datetime.strptime(s, '%d %b %Y')
def days(a, b): return (b - a).days
def next_month(d): return date(d.year + d.month // 12, d.month % 12 + 1, 1)
def leap(y): return calendar.isleap(y)
def utc(): return datetime(2020, 5, 17, 1, 2, 3, 4, tzinfo=timezone(timedelta(hours=2), 'X'))
def now(): return datetime.now(), date.today(), dt.datetime.now(timezone.utc)
def clock(): return time(1, 2)
def week(d): return d.strftime('%A %d %B %Y'), d.isocalendar()[1], d.isoformat()
---
from datetime import date, datetime, timedelta, time, timezone
assert parse('17 May 2020') == datetime(2020, 5, 17) and days(date(2020, 1, 1), date(2020, 3, 1)) == 60
---
assert next_month(date(2020, 12, 31)) == date(2021, 1, 1) and leap(2000) and not leap(1900)
---
assert utc() == datetime(2020, 5, 16, 23, 2, 3, 4, tzinfo=timezone.utc) and utc().isoformat().endswith('+02:00')
---
assert now()[0].date() == now()[1] and clock() == time(1, 2) and abs(now()[0] - datetime.now()) < timedelta(hours=15)
---
assert week(date(2024, 2, 29)) == ('Thursday 29 February 2024', 9, '2024-02-29')
=== a HumanEval test
from typing import List
def has_close_elements(numbers: List[float], threshold: float) -> bool:
    ''' Check if two numbers are closer than the threshold
    >>> has_close_elements([1.0, 2.0], 0.5)
    False
    '''
    return any(abs(a - b) < threshold for i, a in enumerate(numbers) for b in numbers[:i])
---


METADATA = {
    'author': 'jt',
    'dataset': 'test'
}


def check(candidate):
    assert candidate([1.0, 2.0, 3.9, 4.0, 5.0, 2.2], 0.3) == True
    assert candidate([1.0, 2.0, 3.9, 4.0, 5.0, 2.2], 0.05) == False
    assert candidate([], 1) == False
    # Check some edge cases
    assert True, "This prints if this assert fails 2 (also good for debugging!)"

check(has_close_elements)
=== MBPP tests
def similar_elements(a, b): return tuple(set(a) & set(b))
def heap_queue_largest(nums, n):
    import heapq as hq
    return hq.nlargest(n, nums)
def is_not_prime(n): return n < 2 or any(n % i == 0 for i in range(2, int(n ** .5) + 1))
def circle(r): return 2 * 3.1415 * r
class Pair(object):
    def __init__(self, a, b):
        self.a = a
        self.b = b
def max_chain_length(arr, n):
    best = [1] * n
    for i in range(1, n):
        for j in range(i):
            if arr[i].a > arr[j].b and best[i] < best[j] + 1: best[i] = best[j] + 1
    return max(best)
---
assert set(similar_elements((3, 4, 5, 6), (5, 7, 4, 10))) == set((4, 5))
---
assert heap_queue_largest([25, 35, 22, 85, 14, 65, 75, 22, 58], 3) == [85, 75, 65]
---
assert is_not_prime(2) == False
---
import math
assert math.isclose(circle(10), 62.830000000000005, rel_tol=0.001)
---
assert max_chain_length([Pair(5, 24), Pair(15, 25), Pair(27, 40), Pair(50, 60)], 4) == 3
=== modules that the test takes from the program
import math, re, collections, itertools, random
def area(r): return math.pi * r * r
def counts(s): return collections.Counter(s)
---
assert math.isclose(area(1), math.pi) and abs(area(2) - 4 * math.pi) < 1e-9
---
assert counts('aab') == collections.Counter('aab') and list(itertools.chain([1], [2])) == [1, 2]
---
assert re.match('a+', 'aa')
---
assert 0 <= random.random() < 1 and math.floor(area(1)) == 3 and math.sqrt(4) == 2.0
=== output and input
import sys, io, builtins
from contextlib import redirect_stdout
input = iter(['3', '4', 'end']).__next__
def ask(): return int(input()) + int(input())
def shout(s):
    print(s.upper(), end='', flush=True)
    sys.stdout.write('x')
    sys.stderr.write('y')
def captured(f, *a):
    out = io.StringIO()
    with redirect_stdout(out): f(*a)
    return out.getvalue()
def rest(): return sys.stdin.read()
print('module loaded', file=sys.stderr)
---
assert ask() == 7
---
assert shout('a') is None and captured(shout, 'b') == 'Bx' and rest() == ''
---
print(ask.__name__)
=== the library at first use
import xml.dom.minidom, sqlite3, uuid, secrets, hashlib, html, logging, pickle, shelve, tempfile, random, struct, zlib
import platform, configparser, argparse, difflib, locale, gettext, timeit, doctest, unittest, pathlib, ipaddress, codecs
def dom(s): return xml.dom.minidom.parseString(s).documentElement.tagName
def sql():
    c = sqlite3.connect(':memory:')
    c.execute('create table t (a int)')
    c.executemany('insert into t values (?)', [(1,), (2,)])
    return c.execute('select sum(a) from t').fetchone()
def ids(): return len(str(uuid.uuid4())), len(secrets.token_hex(4)), len(str(uuid.uuid5(uuid.NAMESPACE_DNS, 'a'))[:8])
def log():
    logging.basicConfig(level=logging.INFO)
    logging.getLogger('x').info('hello')
    return True
class Point:
    def __init__(self, x): self.x = x
def copied(x): return pickle.loads(pickle.dumps(Point(x))).x
def args(): 
    parser = argparse.ArgumentParser()
    parser.add_argument('--n', type=int, default=3)
    return parser.parse_args(['--n', '5']).n
def path(s): return pathlib.PurePath(s).suffix, str(pathlib.Path('a') / 'b')
def speed(): return timeit.timeit('1 + 1', number=10) >= 0
def encoded(s): return s.encode('shift_jis'), codecs.encode('abc', 'rot13'), 'é'.encode('cp437'), s.encode('utf-16-le')
def ini():
    c = configparser.ConfigParser()
    c.read_string('[a]\nb = 1')
    return c['a'].getint('b')
---
assert dom('<a><b/></a>') == 'a'
---
assert sql() == (3,)
---
assert ids() == (36, 8, 8) and log() and copied(4) == 4
---
assert args() == 5 and path('a/b.txt') == ('.txt', 'a/b') and speed() and ini() == 1
---
assert encoded('日') == (b'\x93\xfa', 'nop', b'\x82', b'\xe5e')
=== callbacks
def compose(*fs):
    def inner(x):
        for f in reversed(fs): x = f(x)
        return x
    return inner
def sort_by(xs, key): return sorted(xs, key=key)
def retry(f, n):
    for _ in range(n):
        try: return f()
        except ValueError: pass
    return None
class Bus:
    def __init__(self): self.handlers = {}
    def on(self, name, f): self.handlers.setdefault(name, []).append(f)
    def emit(self, name, *a, **k): return [f(*a, **k) for f in self.handlers.get(name, [])]
def walk(tree, visit):
    visit(tree[0])
    for t in tree[1:]: walk(t, visit)
---
assert compose(str, lambda x: x + 1, abs)(-3) == '4' and sort_by(['bb', 'a'], key=len) == ['a', 'bb']
---
calls = []
def flaky():
    calls.append(1)
    if len(calls) < 3: raise ValueError
    return 'ok'
assert retry(flaky, 5) == 'ok' and len(calls) == 3
---
bus, got = Bus(), []
bus.on('x', lambda a, b=0: got.append((a, b)))
bus.emit('x', 1, b=2)
assert got == [(1, 2)]
---
seen = []
walk([1, [2, [3]], [4]], seen.append)
assert seen == [1, 2, 3, 4]
---
assert sort_by([(1, 'b'), (0, 'a')], key=lambda t: t[1])[0] == (0, 'a') and sort_by([3, 1], key=None) == [1, 3]
=== iterables as arguments
def total(xs): return sum(xs)
def first(it): return next(iter(it), None)
def pairs(a, b): return list(zip(a, b))
def types(*a): return [type(x).__name__ for x in a]
---
assert total(range(5)) == 10 and total(x for x in (1, 2)) == 3 and total({1: 2}.keys()) == 1
---
assert first(iter('ab')) == 'a'
---
assert pairs(map(str, [1]), reversed([2])) == [('1', 2)] and first([]) is None and total(filter(None, [0, 5])) == 5
---
assert types(1, 1.5, 'a', b'a', None, True, (), [], {}, set(), 1j, range(2)) == ['int', 'float', 'str', 'bytes',
    'NoneType', 'bool', 'tuple', 'list', 'dict', 'set', 'complex', 'range']
---
from collections import deque, Counter, OrderedDict, defaultdict
from fractions import Fraction
from decimal import Decimal
import datetime
assert types(deque(), Counter(), OrderedDict(), Fraction(1), Decimal(1), datetime.date.today()) == ['deque', 'Counter',
    'OrderedDict', 'Fraction', 'Decimal', 'date'] and total(array_like for array_like in deque([1, 2])) == 3
=== changes in place
def bubble_sort(xs):
    for i in range(len(xs)):
        for j in range(len(xs) - 1 - i):
            if xs[j] > xs[j + 1]: xs[j], xs[j + 1] = xs[j + 1], xs[j]
def rotate(m): m[:] = [list(r)[::-1] for r in zip(*m)]
def fill(grid, r, c):
    if 0 <= r < len(grid) and 0 <= c < len(grid[0]) and grid[r][c] == 0:
        grid[r][c] = 1
        for dr, dc in ((0, 1), (1, 0), (0, -1), (-1, 0)): fill(grid, r + dr, c + dc)
def count(words, *, into):
    for w in words: into[w] = into.get(w, 0) + 1
def same(xs): return xs
class Sorter:
    def sort(self, xs): xs.sort()
    @staticmethod
    def dedupe(s, q): s.discard(1); q.popleft(); q.append(9)
---
xs = [3, 1, 2]
bubble_sort(xs)
assert xs == [1, 2, 3]
---
m = [[1, 2], [3, 4]]
alias = m
assert rotate(m) is None and m == [[3, 1], [4, 2]] and alias is m
---
g = [[0, 1], [0, 0]]
fill(g, 0, 0)
assert g == [[1, 1], [1, 1]]
---
d = {'a': 1}
count(['a', 'b'], into=d)
assert d == {'a': 2, 'b': 1}
---
xs = ['b', 'a']
Sorter().sort(xs)
assert xs == ['a', 'b']
---
from collections import deque
s, q = {1, 2}, deque([1, 2])
Sorter.dedupe(s, q)
assert s == {2} and q == deque([2, 9])
---
fs = [len, lambda x: x]
bubble_sort([1])
assert same(fs)[0] is not None and fs[1](5) == 5
=== an event loop
import asyncio
from asyncio import Queue, gather
async def work(x):
    await asyncio.sleep(0.001)
    return x * 2
async def many(xs): return await gather(*(work(x) for x in xs))
async def produce(queue, n):
    for i in range(n): await queue.put(i)
    await queue.put(None)
async def consume(queue):
    out = []
    while (item := await queue.get()) is not None: out.append(item)
    return out
async def pipe(n):
    queue = Queue(2)
    return (await gather(produce(queue, n), consume(queue)))[1]
async def late():
    try: await asyncio.wait_for(asyncio.sleep(9), 0.01)
    except asyncio.TimeoutError: return 'late'
def solve(xs): return asyncio.run(many(xs))
def pipe_all(n): return asyncio.run(pipe(n))
def is_late(): return asyncio.new_event_loop().run_until_complete(late())
---
assert solve([1, 2]) == [2, 4] and solve([]) == []
---
assert pipe_all(5) == [0, 1, 2, 3, 4] and is_late() == 'late'
=== in pieces
x = 5
class A:
    def f(self): return x
a = A()
def g(): return a
---
for i in range(3):
    with_i = a.f() + i
    assert with_i == 5 + i
while x > 100: pass
---
def helper(n):
    return g().f() + n
assert helper(1) == 6
---
class Case:
    def run(self): return a.f()
assert Case().run() == 5
---
assert [a.f() for _ in range(3)] == [5] * 3 and (lambda: a.f())() == 5 and {k: a.f() for k in 'ab'} == {'a': 5, 'b': 5}
---
global_value = None
def set_it():
    global global_value
    global_value = a.f()
set_it()
assert global_value == 5
---
from math import *
assert sqrt(a.f() + 4) == 3.0
---
if a.f() == 5: pass
else: raise AssertionError('wrong')
---
try:
    assert a.f() == 6
except AssertionError:
    pass
else:
    raise ValueError
""")
