"""Honest programs in the styles that people write: classes, recursion, the library, long test lists, large values."""

from tests.sandbox.programs import parse_programs

STYLES = parse_programs(r"""
=== properties and methods of the class
class Celsius:
    count = 0
    def __init__(self, t=0):
        self.t = t
        Celsius.count += 1
    @property
    def t(self): return self._t
    @t.setter
    def t(self, value):
        if value < -273.15: raise ValueError('below absolute zero')
        self._t = value
    @classmethod
    def parse(cls, s): return cls(float(s[:-1]))
    @staticmethod
    def convert(c): return c * 9 / 5 + 32
---
c = Celsius(5)
c.t = 20
assert c.t == 20 and Celsius.convert(100) == 212.0 and c.convert(0) == 32
---
assert Celsius.parse('21.5C').t == 21.5
---
for bad in (-300, -1000):
    try:
        c.t = bad
    except ValueError as e:
        assert str(e) == 'below absolute zero'
    else:
        raise AssertionError
---
assert Celsius.count == 2
=== builtin exceptions with messages
def f(kind):
    if kind == 'key': return {}['k']
    if kind == 'index': return [][0]
    if kind == 'zero': return 1 / 0
    if kind == 'type': return 1 + 'a'
    if kind == 'attribute': return (1).x
    if kind == 'name': return nothing
    if kind == 'recursion': return f(kind)
    if kind == 'os': raise FileNotFoundError(2, 'No such file', 'name')
    if kind == 'unicode': return b'\xff'.decode()
    if kind == 'assert': assert False, 'wrong'
    if kind == 'stop': return next(iter([]))
    if kind == 'overflow': return 2.0 ** 10000
    if kind == 'exit': raise SystemExit(3)
    return int(kind)
---
try: f('seven')
except ValueError as e: assert str(e) == "invalid literal for int() with base 10: 'seven'"
---
try: f('key')
except KeyError as e: assert e.args[0] == 'k' and repr(e) == "KeyError('k')"
---
try: f('unicode')
except UnicodeDecodeError as e: assert e.start == 0 and e.object == b'\xff'
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
=== deep recursion in default limits
def total(n): return 0 if n == 0 else n + total(n - 1)
def nest(n): return [] if n == 0 else [nest(n - 1)]
def depth(x): return 1 + max(map(depth, x), default=0)
---
assert total(950) == 451725
---
assert depth(nest(90)) == 91
---
assert nest(3) == [[[[]]]]
---
try: total(10**6)
except RecursionError: pass
else: assert False
=== deep recursion
import sys
sys.setrecursionlimit(10**6)
class Node:
    def __init__(self, v, next=None): self.v, self.next = v, next
    def length(self): return 1 if self.next is None else 1 + self.next.length()
def build(n):
    head = None
    for i in range(n): head = Node(i, head)
    return head
def ackermann(m, n):
    if m == 0: return n + 1
    return ackermann(m - 1, 1) if n == 0 else ackermann(m - 1, ackermann(m, n - 1))
def total(n): return 0 if n == 0 else n + total(n - 1)
---
assert build(10000).length() == 10000
---
assert ackermann(2, 300) == 603
---
assert total(50000) == 1250025000
=== unicode of all kinds
def rev(s): return s[::-1]
def é(x): return {'naïve': 'ü', 'emoji': '👩‍👩‍👧', 'nul': 'a\0b', 'mixed': 'a\u0301'}[x]
def count(s): return {c: s.count(c) for c in s}
def words(s): return s.split()
def up(s): return s.upper(), s.casefold(), s.title()
---
assert rev('日本語') == '語本日' and é('nul') == 'a\x00b' and é('emoji') == '👩‍👩‍👧' and len(é('emoji')) == 5
---
assert count('ááb') == {'á': 2, 'b': 1} and words('a\u2003b\u00a0c') == ['a', 'b', 'c']
---
assert up('straße') == ('STRASSE', 'strasse', 'Straße') and up('ǆ')[2] == 'ǅ'
---
import unicodedata
assert unicodedata.normalize('NFC', é('mixed')) == 'á'
=== sets and dictionaries
def graph(): return {('a', 1): {2, 3}, ('b', frozenset({1})): set(), None: (), True: 1.5}
def invert(d): return {v: k for k, v in d.items()}
def powerset(s): return {frozenset(c for i, c in enumerate(s) if n >> i & 1) for n in range(2 ** len(s))}
def merge(a, b): return a | b
def views(d): return d.keys(), d.values(), d.items()
---
assert graph()[('a', 1)] == {3, 2} and graph()[None] == () and graph()[1] == 1.5 and len(graph()) == 4
---
assert invert({1: (2, 3), 'x': None}) == {(2, 3): 1, None: 'x'}
---
assert powerset([1, 2]) == {frozenset(), frozenset({1}), frozenset({2}), frozenset({1, 2})} and set() in powerset([])
---
assert merge({1: 2}, {1: 3, 4: 5}) == {1: 3, 4: 5} and merge({1}, {2}) == {1, 2}
---
assert list(merge({2: 1}, {1: 1})) == [2, 1]
---
assert list(views({1: 2})[0]) == [1] and set(views({1: 2})[2]) == {(1, 2)} and sorted(views({1: 2})[1]) == [2]
---
assert 1 in views({1: 2})[0] and len(views({1: 2})[1]) == 1
=== numbers
from fractions import Fraction
from decimal import Decimal, getcontext
import math, cmath, statistics
def frac(a, b): return Fraction(a, b) + Fraction(1, 3)
def money(s):
    getcontext().prec = 28
    return Decimal(s).quantize(Decimal('0.01'))
def roots(a, b, c):
    d = cmath.sqrt(b * b - 4 * a * c)
    return ((-b + d) / (2 * a), (-b - d) / (2 * a))
def big(n): return 7 ** n
def mean(xs): return statistics.mean(xs), statistics.median(xs), statistics.stdev(xs)
def special(): return float('inf'), -float('inf'), float('nan'), -0.0, 1e-320, 5e-324
---
from fractions import Fraction
from decimal import Decimal
import math, cmath
assert frac(1, 6) == Fraction(1, 2) == 0.5 and frac(1, 6).denominator == 2 and str(frac(1, 6)) == '1/2'
---
assert money('2.345') == Decimal('2.34') and str(money('2')) == '2.00' and type(money('1')) is Decimal
---
assert roots(1, 0, 1) == (1j, -1j) and roots(1, -3, 2) == (2, 1) and cmath.isclose(roots(1, 0, 1)[0], 1j)
---
assert big(1000) == 7 ** 1000 and big(1000) % 10 == 1 and len(str(big(100))) == 85 and big(3000).bit_length() == 8423
---
assert math.isclose(mean([1, 2, 3, 4])[2], 1.29099, rel_tol=1e-4) and abs(mean([1, 2])[0] - 1.5) < 1e-12
---
inf, minf, nan, zero, tiny, least = special()
assert inf > 1e308 and minf < 0 and nan != nan and math.copysign(1, zero) == -1 and 0 < least < tiny
---
assert round(mean([1, 2, 4])[0], 3) == 2.333 and int(mean([1, 2, 4])[1]) == 2 and mean([1, 3])[0] == 2
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
=== regular expressions
import re
PATTERN = re.compile(r'(?P<user>[\w.]+)@(?P<host>[\w.]+)')
def find(s): return PATTERN.findall(s)
def match(s): return re.match(r'(\d+)-(\d+)', s)
def pattern(): return PATTERN
def sub(s): return re.sub(r'\b(\w)', lambda m: m[1].upper(), s)
---
assert find('a@b, c.d@e.f') == [('a', 'b'), ('c.d', 'e.f')] and match('x') is None and sub('ab cd') == 'Ab Cd'
---
assert pattern().match('x@y').group('host') == 'y' and pattern().match('x@y').groupdict() == {'user': 'x', 'host': 'y'}
---
import re
assert re.fullmatch(r'\d{3}-\d{4}', '555-1234') and re.split(r'[,;]', 'a,b;c') == ['a', 'b', 'c']
=== algorithms
import heapq, bisect
from collections import deque, defaultdict, Counter
def dijkstra(graph, start):
    dist, heap = {start: 0}, [(0, start)]
    while heap:
        d, u = heapq.heappop(heap)
        for v, w in graph.get(u, {}).items():
            if d + w < dist.get(v, float('inf')):
                dist[v] = d + w
                heapq.heappush(heap, (d + w, v))
    return dist
def bfs(grid, a, b):
    queue, seen = deque([(a, 0)]), {a}
    while queue:
        (r, c), d = queue.popleft()
        if (r, c) == b: return d
        for p in ((r + 1, c), (r - 1, c), (r, c + 1), (r, c - 1)):
            if 0 <= p[0] < len(grid) and 0 <= p[1] < len(grid[0]) and not grid[p[0]][p[1]] and p not in seen:
                seen.add(p)
                queue.append((p, d + 1))
    return -1
def sieve(n):
    flags = bytearray([1]) * (n + 1)
    for p in range(2, int(n ** .5) + 1):
        if flags[p]: flags[p * p::p] = bytes(len(range(p * p, n + 1, p)))
    return [i for i in range(2, n + 1) if flags[i]]
def anagrams(ws):
    d = defaultdict(list)
    for w in ws: d[''.join(sorted(w))].append(w)
    return list(d.values())
def queens(n, row=0, cols=()):
    if row == n: return 1
    return sum(queens(n, row + 1, cols + (c,)) for c in range(n)
               if all(c != k and abs(c - k) != row - i for i, k in enumerate(cols)))
def top(words, k): return Counter(words).most_common(k)
def solve(board): return [row[::-1] for row in board]
---
assert dijkstra({'a': {'b': 1, 'c': 5}, 'b': {'c': 2}}, 'a') == {'a': 0, 'b': 1, 'c': 3}
---
assert bfs([[0, 1], [0, 0]], (0, 0), (1, 1)) == 2 and bfs([[0, 1], [1, 0]], (0, 0), (1, 1)) == -1
---
assert len(sieve(100000)) == 9592 and sieve(10) == [2, 3, 5, 7]
---
assert sorted(map(sorted, anagrams(['ab', 'ba', 'c']))) == [['ab', 'ba'], ['c']]
---
assert [queens(n) for n in (1, 2, 3, 4, 5, 6)] == [1, 0, 0, 2, 10, 4] and top('aab', 1) == [('a', 2)]
---
for n in range(50):
    assert solve([[n, n + 1]]) == [[n + 1, n]], n
=== negative assertions
def f(x): return None if x < 0 else [] if x == 0 else [x]
def g(x): return x > 1
---
assert f(-1) is None
---
assert not f(0) and f(0) is not None
---
assert f(1) != [2] and f(1) != 'a' and not f(1) == [3]
---
assert isinstance(f(1), list) and type(f(1)) is list and not isinstance(f(1), tuple) and type(f(-1)) is type(None)
---
assert g(2) is True and g(0) is False and g(2) and not g(1) and type(g(1)) == bool
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
=== random checks against a reference
def encode_cyclic(s):
    groups = [s[3 * i:min(3 * i + 3, len(s))] for i in range((len(s) + 2) // 3)]
    return ''.join(g[1:] + g[0] if len(g) == 3 else g for g in groups)
def decode_cyclic(s): return encode_cyclic(encode_cyclic(s))
---
def check(candidate):
    from random import randint, choice
    import string
    letters = string.ascii_lowercase
    for _ in range(100):
        s = ''.join(choice(letters) for i in range(randint(10, 20)))
        coded = encode_cyclic(s)
        assert candidate(coded) == s
check(decode_cyclic)
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
=== names of modules as names of functions
def queue(n): return list(range(n))
def string(s): return s * 2
class token:
    def __init__(self, kind): self.kind = kind
calendar = {'jan': 31}
code = 'abc'
---
assert queue(2) == [0, 1] and string('a') == 'aa' and token('x').kind == 'x' and calendar['jan'] == 31
---
assert code.upper() == 'ABC' and calendar.get('feb') is None and list(calendar.items()) == [('jan', 31)]
=== private names
_limit = 5
def __helper(x): return x + _limit
class Secret:
    def __init__(self): self.__x = 3
    def __get(self): return self.__x
---
assert _limit == 5 and Secret()._Secret__x == 3 and Secret()._Secret__get() == 3
---
assert __helper(1) == 6
=== a trie and a tree
class Trie:
    def __init__(self): self.root = {}
    def insert(self, word):
        node = self.root
        for ch in word: node = node.setdefault(ch, {})
        node['$'] = True
    def search(self, word):
        node = self.root
        for ch in word:
            if ch not in node: return False
            node = node[ch]
        return '$' in node
class BST:
    def __init__(self, value=None): self.value, self.left, self.right = value, None, None
    def insert(self, v):
        if self.value is None: self.value = v
        elif v < self.value: self.left = self.left or BST(); self.left.insert(v)
        else: self.right = self.right or BST(); self.right.insert(v)
        return self
    def walk(self):
        left, right = (side.walk() if side else [] for side in (self.left, self.right))
        return left + [self.value] + right
class TreeNode:
    def __init__(self, val=0, left=None, right=None): self.val, self.left, self.right = val, left, right
def max_depth(root): return 0 if root is None else 1 + max(max_depth(root.left), max_depth(root.right))
def invert(root):
    if root: root.left, root.right = invert(root.right), invert(root.left)
    return root
---
t = Trie()
for w in ('apple', 'app'): t.insert(w)
assert t.search('app') and not t.search('appl') and t.root['a']['p']['p']['$'] is True
---
b = BST()
for v in (5, 3, 8, 1): b.insert(v)
assert b.walk() == [1, 3, 5, 8] and b.left.value == 3 and b.right.left is None
---
root = TreeNode(1, TreeNode(2), TreeNode(3, TreeNode(4)))
assert max_depth(root) == 3 and max_depth(None) == 0 and invert(root).left.val == 3 and root.right.val == 2
---
root.left = TreeNode(9)
assert root.left.val == 9 and not root.left.right
=== long strings and lists
def repeat(s, n): return s * n
def upto(n): return list(range(n))
def table(n): return [[i * j for j in range(n)] for i in range(n)]
---
assert repeat('ab', 200000) == 'ab' * 200000 and len(repeat('x', 900000)) == 900000
---
assert upto(100000) == list(range(100000)) and sum(upto(150000)) == 11249925000
---
assert table(300)[299][299] == 89401 and len(table(200)) == 200
---
assert len(upto(10**6)) == 10**6
---
assert repeat('ab', 10**6) == 'ab' * 10**6 and repeat('é', 10**6) == 'é' * 10**6
---
assert len(repeat([1.5], 10**5)) == 10**5 and max(upto(500000)) == 499999
=== large integers
def fact(n):
    out = 1
    for i in range(2, n + 1): out *= i
    return out
def fib(n):
    a, b = 0, 1
    for _ in range(n): a, b = b, a + b
    return a
---
import math
assert fact(3000) == math.factorial(3000) and fib(90) == 2880067194370816120 and fib(10000) > 10 ** 2000
---
assert str(fact(50))[:5] == '30414'
---
import sys
sys.set_int_max_str_digits(0)
assert len(str(fact(3000))) == 9131
=== a reader of text
import io, csv, json, textwrap, string
def rows(s): return list(csv.reader(io.StringIO(s)))
def dicts(s): return list(csv.DictReader(io.StringIO(s)))
def dump(x): return json.dumps(x, sort_keys=True, indent=1)
def load(s): return json.loads(s)
def wrap(s): return textwrap.wrap(s, 5)
def fill(**k): return string.Template('$a-$b').substitute(k)
---
assert rows('a,b\n"c,d",e\n') == [['a', 'b'], ['c,d', 'e']] and dicts('x,y\n1,2\n') == [{'x': '1', 'y': '2'}]
---
assert load(dump({'b': [1, None, True], 'a': 1.5})) == {'a': 1.5, 'b': [1, None, True]}
---
assert wrap('aaa bbb') == ['aaa', 'bbb']
---
assert fill(a=1, b='x') == '1-x'
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
=== a main guard
import sys
def main(argv=None): return len(argv or [])
if __name__ == "__main__":
    sys.exit(main(sys.argv))
---
assert main([1, 2]) == 2 and main() == 0
=== type hints
from __future__ import annotations
from typing import *
import typing
class Node(TypedDict):
    v: int
    next: Node | None
Number = Union[int, float]
def f(x: Optional[Dict[str, Tuple[int, ...]]] = None, *a: Callable[[int], str], **k: Literal['a']) -> Number: return 1
def make(v: int) -> Node: return {'v': v, 'next': None}
x: Final = 3
y: ClassVar[int]
---
assert f() == 1 and make(3) == {'v': 3, 'next': None} and x == 3
---
assert 'return' in f.__annotations__ and f.__defaults__ == (None,)
=== match statements and new syntax
def kind(x):
    match x:
        case int() | float() if x < 0: return 'negative'
        case 0: return 'zero'
        case [a, *rest]: return f'list of {1 + len(rest)}'
        case {'k': v}: return v
        case str(s): return s[::-1]
        case _: return None
def walrus(xs): return [y for x in xs if (y := x * x) > 3]
def only(a, /, b, *, c=1): return a, b, c
async def later(): return 5
def run(c):
    try: c.send(None)
    except StopIteration as stop: return stop.value
---
assert [kind(x) for x in (-1, 0, [1, 2], {'k': 3}, 'ab', None)] == ['negative', 'zero', 'list of 2', 3, 'ba', None]
---
assert walrus([1, 2, 3]) == [4, 9] and only(1, b=2) == (1, 2, 1) and run(later()) == 5
---
try: only(a=1, b=2)
except TypeError: pass
else: assert False
=== imports in several lines
from concurrent import (
    futures,
)
from xml.etree import (
    ElementTree as ET,
)
from collections import (OrderedDict,
                         deque)
import os.path, \
    email.message
from importlib import import_module
from urllib import parse as p, robotparser
def f(s): return ET.fromstring(s).attrib
def g(s): return p.quote(s), p.parse_qs('a=1')
def h(): return import_module('json').dumps(1)
---
assert f('<a b="c"/>') == {'b': 'c'} and g('a b') == ('a%20b', {'a': ['1']})
---
assert h() == '1'
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
=== a program that takes time
import time
def wait(): 
    start = time.perf_counter()
    time.sleep(0.05)
    return time.perf_counter() - start
def heavy(): return sum(i * i for i in range(200000))
---
assert 0.04 < wait() < 5 and heavy() == 2666646666700000
=== a simulation with a seed
import random
def roll(seed, n):
    r = random.Random(seed)
    return [r.randint(1, 6) for _ in range(n)]
def shuffled(xs):
    random.seed(1)
    xs = xs[:]
    random.shuffle(xs)
    return xs
---
assert roll(0, 3) == roll(0, 3) and len(set(roll(1, 100))) == 6 and sorted(shuffled([1, 2, 3])) == [1, 2, 3]
---
import random
assert roll(42, 5) == [random.Random(42).randint(1, 6)] + roll(42, 5)[1:]
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
=== locks without threads
import threading
from concurrent.futures import ThreadPoolExecutor, as_completed
class Counter:
    def __init__(self): self.n, self.lock, self.local = 0, threading.RLock(), threading.local()
    def inc(self):
        with self.lock: self.n += 1
---
c = Counter()
for _ in range(3): c.inc()
assert c.n == 3
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
