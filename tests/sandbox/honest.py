"""Programs that answer their tests, with the kinds of values and constructs that test sets use."""

from tests.sandbox.programs import parse_programs

HONEST = parse_programs(r"""
=== a check function
def add(a, b): return a + b
---
METADATA = {}


def check(candidate):
    assert candidate(1, 2) == 3
    assert candidate('a', 'b') == 'ab'
---
check(add)
=== sets and tuples
def f(a, b): return tuple(set(a) & set(b)), frozenset(a)
---
assert set(f((3, 4, 5), (5, 4, 10))[0]) == set((4, 5))
---
assert f([1], [1]) == ((1,), {1})
=== floats
import math
def f(r): return math.pi * r * r
def g(): return [float('nan'), float('inf'), -0.0, 0.1]
---
import math
assert math.isclose(f(2), 12.56637, abs_tol=0.001)
---
assert abs(f(1) - 3.14159) < 1e-4
---
assert math.isnan(g()[0]) and g()[1] > 1e308 and g()[3] == 0.1
---
assert round(f(3), 2) == 28.27
=== big integers
def f(n): return 1 if n < 2 else n * f(n - 1)
---
import math
assert f(500) == math.factorial(500)
---
assert f(25) == 15511210043330985984000000
---
assert f(900) % 1000003 == math.factorial(900) % 1000003
=== unicode
def f(s): return s[::-1]
def größe(s): return len(s)
---
assert f('añ😀') == '😀ña'
---
assert größe('日本') == 2
---
assert f('\ud800') == '\ud800'
=== a class
class Stack:
    def __init__(self): self.items = []
    def push(self, x): self.items.append(x)
    def pop(self):
        if not self.items: raise IndexError('empty')
        return self.items.pop()
    def __len__(self): return len(self.items)
    def __repr__(self): return f'Stack({self.items})'
---
s = Stack(); s.push(1); assert s.pop() == 1
---
s.push('a')
assert len(s) == 1 and s.items == ['a']
---
assert repr(s) == "Stack(['a'])"
assert str(s) == f'{s}' == repr(s)
---
assert isinstance(s, Stack) and s
---
s.pop()
try:
    s.pop()
except IndexError as error:
    assert str(error) == 'empty'
else:
    assert False
---
s.items = [5]
assert s.pop() == 5
assert not s
=== a subclass of Decimal
from decimal import Decimal
class Euro(Decimal): pass
def price(): return Euro("0.5")
def twice(x): return x * 2
---
assert price() == Decimal("0.5")
---
class Cent(Decimal): pass
assert twice(Cent("1.5")) == 3
=== subclasses of containers
from collections import OrderedDict
class LRU(OrderedDict):
    def __init__(self, size):
        super().__init__()
        self.size = size
    def put(self, k, v):
        self[k] = v
        self.move_to_end(k)
        if len(self) > self.size: self.popitem(last=False)
class Stack(list):
    def peek(self): return self[-1]
---
c = LRU(2); c.put(1, 1); c.put(2, 2); c.put(3, 3)
assert c == {2: 2, 3: 3} and 1 not in c and list(c) == [2, 3]
---
s = Stack([1, 2]); s.append(7)
assert s.peek() == 7 and s == [1, 2, 7] and s[1:] == [2, 7] and 7 in s
---
assert isinstance(s, list)
=== collections
from collections import Counter, defaultdict, deque, OrderedDict, namedtuple
P = namedtuple('P', 'x y')
def count(s): return Counter(s)
def group(s):
    d = defaultdict(list)
    for c in s: d[c].append(c)
    return d
def queue(n): return deque(range(n), maxlen=3)
def point(x, y): return P(x, y)
---
from collections import Counter, deque
assert count('aab') == Counter('aab') == {'a': 2, 'b': 1}
---
assert count('aab').most_common(1) == [('a', 2)]
---
assert group('aa') == {'a': ['a', 'a']}
---
assert queue(5) == deque([2, 3, 4])
---
p = point(1, 2)
assert p == (1, 2) and p.x == 1 and p[1] == 2
---
x, y = point(3, 4)
assert (x, y) == (3, 4)
---
assert [point(1, 2)] == [(1, 2)]
=== operators of objects
class Vec:
    def __init__(self, x, y): self.x, self.y = x, y
    def __add__(self, o): return Vec(self.x + o.x, self.y + o.y)
    def __mul__(self, k): return Vec(self.x * k, self.y * k)
    __rmul__ = __mul__
    def __eq__(self, o): return isinstance(o, Vec) and (self.x, self.y) == (o.x, o.y)
    def __hash__(self): return hash((self.x, self.y))
    def __abs__(self): return (self.x**2 + self.y**2) ** .5
    def __neg__(self): return Vec(-self.x, -self.y)
    def __lt__(self, o): return abs(self) < abs(o)
    def __iadd__(self, o):
        self.x += o.x
        return self
---
assert Vec(1, 2) + Vec(3, 4) == Vec(4, 6)
---
assert Vec(1, 2) * 3 == Vec(3, 6) == 3 * Vec(1, 2)
---
assert (Vec(1, 2) * 3).x == 3
---
assert abs(Vec(3, 4)) == 5.0 and -Vec(1, 2) == Vec(-1, -2)
---
assert len({Vec(1, 2), Vec(1, 2)}) == 1
---
assert Vec(1, 2) != Vec(2, 1) and Vec(1, 2) != (1, 2)
---
assert sorted([Vec(3, 4), Vec(0, 1)])[0] == Vec(0, 1)
---
assert [Vec(1, 2)] == [Vec(1, 2)]
---
v = Vec(1, 1)
w = v
v += Vec(2, 0)
assert v is w and w.x == 3
---
assert sum([Vec(1, 1)], Vec(0, 0)) == Vec(1, 1)
=== exceptions
class MyError(ValueError):
    def __init__(self, code):
        super().__init__(f'code {code}')
        self.code = code
class Deep(MyError): pass
def f(x):
    if x < 0: raise Deep(x)
    if x == 0: raise ZeroDivisionError('zero')
    if x > 9: raise __import__('json').JSONDecodeError('bad', 'doc', 0)
    return x
---
try:
    f(-1)
except ValueError:
    pass
else:
    assert False
---
try:
    f(-1)
except MyError as e:
    assert e.code == -1 and str(e) == 'code -1' and isinstance(e, Deep)
else:
    assert False
---
try:
    f(0)
except ZeroDivisionError as e:
    assert e.args == ('zero',)
else:
    assert False
---
import json
try:
    f(10)
except json.JSONDecodeError:
    pass
else:
    assert False
---
assert issubclass(Deep, MyError) and issubclass(MyError, ValueError)
---
assert Deep(3).code == 3
---
import contextlib
with contextlib.suppress(MyError):
    f(-1)
    assert False
=== generators
def squares(n):
    for i in range(n): yield i * i
def echo():
    got = None
    while True: got = yield got
def pairs(a, b): return zip(a, b)
---
assert list(squares(4)) == [0, 1, 4, 9]
---
g = squares(2)
assert next(g) == 0 and next(g) == 1
---
try:
    next(g)
except StopIteration:
    pass
else:
    assert False
---
e = echo()
next(e)
assert e.send(5) == 5
---
assert dict(pairs('ab', [1, 2])) == {'a': 1, 'b': 2}
---
assert sum(squares(5)) == 30 and max(squares(3)) == 4 and sorted(squares(3), reverse=True) == [4, 1, 0]
---
import types
from collections.abc import Iterator
assert isinstance(squares(1), types.GeneratorType) and isinstance(pairs([], []), Iterator)
=== a number with a name
class Meters(int): pass
def length(): return Meters(5)
---
assert length() + 1 == 6 and 2 * length() == 10 and length() % 2 == 1 and -length() == -5 and length() ** 2 == 25
---
assert divmod(length(), 2) == (2, 1) and divmod(12, length()) == (2, 2) and float(length()) == 5
=== an abstract class
from abc import ABC, abstractmethod
class Shape(ABC):
    @abstractmethod
    def area(self): ...
class Square(Shape):
    def __init__(self, side): self.side = side
    def area(self): return self.side ** 2
    @property
    def double(self): return 2 * self.side
    @classmethod
    def unit(cls): return cls(1)
---
try:
    Shape()
except TypeError:
    pass
else:
    assert False
---
assert Square(3).area() == 9 and Square(3).double == 6 and Square.unit().area() == 1 and issubclass(Square, Shape)
---
assert hasattr(Square(1), 'side') and not hasattr(Square(1), 'other') and Square(1).__class__.__name__ == 'Square'
=== closures
def adder(n): return lambda x: x + n
def counter():
    n = 0
    def up():
        nonlocal n
        n += 1
        return n
    return up
def compose(f, g): return lambda x: f(g(x))
---
assert adder(3)(4) == 7
---
c = counter()
c()
assert c() == 2 and counter()() == 1
---
assert compose(adder(1), adder(2))(3) == 6
---
assert compose(lambda x: x * 2, lambda x: x + 1)(3) == 8
=== functions as arguments
def apply(f, xs): return [f(x) for x in xs]
def fold(f, xs, start):
    for x in xs: start = f(start, x)
    return start
def total(xs): return sum(xs)
def safe(f):
    try: return f()
    except ValueError as e: return str(e)
---
assert apply(len, ['a', 'bb']) == [1, 2]
---
assert apply(str.upper, 'ab') == ['A', 'B']
---
import operator
assert fold(operator.add, [1, 2], 0) == 3
---
assert apply(lambda x: (x, [x]), [1]) == [(1, [1])]
---
seen = []
apply(seen.append, [1, 2])
assert seen == [1, 2]
---
assert total(x * x for x in range(4)) == 14
---
assert total({1: 2}.values()) == 2 and total(iter([3])) == 3
---
assert apply(int, ['4']) == [4]
---
def bad(): raise ValueError('no')
assert safe(bad) == 'no'
=== dataclasses and enums
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import List, Optional
@dataclass(order=True)
class Item:
    name: str
    tags: List[str] = field(default_factory=list)
    price: Optional[float] = None
class Color(Enum):
    RED = 1
class Level(IntEnum):
    LOW = 1
def level(): return Level.LOW
---
assert Item('a') == Item('a', []) and Item('a').tags == []
---
assert Item('a', price=2.5).price == 2.5
---
assert repr(Item('a')) == "Item(name='a', tags=[], price=None)"
---
assert Item('a') < Item('b')
---
assert Color.RED == Color.RED and Color(1) is Color.RED and Color.RED.value == 1 and Color.RED.name == 'RED'
---
assert level() == 1 and level() + 1 == 2 and level().name == 'LOW' and [level()] == [1] and level() < 2
=== numbers of the library
from fractions import Fraction
from decimal import Decimal
from datetime import *
def third(): return Fraction(1, 3)
def price(): return Decimal('0.10') * 3
def day(n): return date(2024, 2, 28) + timedelta(days=n)
def moment(s): return datetime.strptime(s, '%Y-%m-%d %H:%M')
def zone(): return datetime(2020, 1, 1, tzinfo=timezone.utc)
---
from fractions import Fraction
assert third() == Fraction(1, 3) and third() * 3 == 1
---
from decimal import Decimal
assert price() == Decimal('0.30')
---
import datetime
assert day(2) == datetime.date(2024, 3, 1)
---
assert moment('2020-01-02 03:04') == datetime.datetime(2020, 1, 2, 3, 4)
---
assert zone().utcoffset() == datetime.timedelta(0)
---
assert day(1) - day(0) == datetime.timedelta(1)
=== the library
import re, itertools, functools, heapq, bisect, string, json, hashlib, random, statistics, os.path
import xml.etree.ElementTree as ET, asyncio
from collections import abc
from concurrent import futures
@functools.lru_cache(maxsize=None)
def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)
def words(s): return re.findall(r'\w+', s)
def perms(s): return [''.join(p) for p in itertools.permutations(s)]
def smallest(xs, n): return heapq.nsmallest(n, xs)
def digest(s): return hashlib.md5(s.encode()).hexdigest()
def tag(s): return ET.fromstring(s).tag
def mean(xs): return statistics.mean(xs)
def load(s): return json.loads(s)
def pick(xs): return random.choice(xs)
---
assert fib(80) == 23416728348467685
---
assert words('a b') == ['a', 'b']
---
assert perms('ab') == ['ab', 'ba']
---
assert smallest([3, 1, 2], 2) == [1, 2]
---
assert digest('a') == '0cc175b9c0f1b6a831c399e269772661'
---
assert tag('<a/>') == 'a' and mean([1, 2, 3]) == 2
---
assert load('{"a": [1, null]}') == {'a': [1, None]}
---
assert pick([1, 2]) in [1, 2]
=== bytes and complex
def f(b): return bytes(reversed(b)), bytearray(b)
def roots(a): return [complex(0, a), a + 0j]
---
assert f(b'ab') == (b'ba', bytearray(b'ab'))
---
assert roots(2) == [2j, 2]
---
assert f(bytes(range(256)))[1][255] == 255
=== prints
def f(x):
    print('result', x)
    return x
print('x' * 100000)
---
assert f(1) == 1
---
print(f(2))
=== deep recursion
import sys
sys.setrecursionlimit(100000)
def depth(n): return 0 if n == 0 else 1 + depth(n - 1)
---
assert depth(20000) == 20000
=== a guard
def f(): return 1
if __name__ == '__main__':
    print(f(), input())
    exit()
---
assert f() == 1
=== a missing package
try:
    import numpy as np
except ImportError:
    np = None
def f(): return np is None
---
assert f() is True
=== types as values
def f(x): return type(x)
def g(t): return t()
---
assert f(1) is int
---
assert g(list) == []
=== linked nodes
class Node:
    def __init__(self, v, next=None): self.v, self.next = v, next
def reverse(n):
    last = None
    while n: n.next, last, n = last, n, n.next
    return last
---
a = Node(1, Node(2))
b = a.next
assert reverse(a) is b and b.next is a and a.next is None and b.v == 2
=== a context manager
class C:
    log = []
    def __enter__(self): self.log.append('in'); return self
    def __exit__(self, *e): self.log.append('out')
---
with C() as c:
    assert c.log == ['in']
assert c.log == ['in', 'out']
=== globals of both sides
LIMIT = 3
def f(x): return x + LIMIT
---
x = LIMIT
---
assert f(x) == 6
---
LIMIT = 9
assert f(0) == 3
=== a caught memory error
def f():
    try: return bytearray(1 << 40)
    except MemoryError: return 'full'
---
assert f() == 'full'
""")
