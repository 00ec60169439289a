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
x, y = point(3, 4)
assert (x, y) == (3, 4)
---
assert [point(1, 2)] == [(1, 2)]
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
assert dict(pairs('ab', [1, 2])) == {'a': 1, 'b': 2}
---
assert sum(squares(5)) == 30 and max(squares(3)) == 4 and sorted(squares(3), reverse=True) == [4, 1, 0]
---
import types
from collections.abc import Iterator
assert isinstance(squares(1), types.GeneratorType) and isinstance(pairs([], []), Iterator)
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
=== objects that are held
class Stack:
    def __init__(self, items=()): self.items = list(items)
    def push(self, x): self.items.append(x); return self
    def pop(self):
        if not self.items: raise IndexError('empty')
        return self.items.pop()
    def __len__(self): return len(self.items)
class Euro(float): pass
class Account:
    rate = 2
    def __init__(self, balance=0): self.balance = balance
    def deposit(self, n):
        if n <= 0: raise ValueError('amount must be positive')
        self.balance += n
        return self
    def price(self): return Euro(1.5)
    @property
    def cents(self): return self.balance * 100
    @cents.setter
    def cents(self, value): self.balance = value / 100
---
s = Stack([1]).push(2)
assert s.pop() == 2 and s.items == [1]
---
assert s.pop() == 1
try:
    s.pop()
except IndexError as error:
    assert str(error) == 'empty' and error.args == ('empty',)
else:
    assert False
---
a = Account(10)
assert a.deposit(5).deposit(1).balance == 16 and a.cents == 1600 and Account.rate == 2
---
a.cents = 500
assert a.balance == 5.0 and a.price() == 1.5 and a.price() + 1 == 2.5
---
import unittest
case = unittest.TestCase()
with case.assertRaises(ValueError):
    a.deposit(-1)
case.assertEqual(a.balance, 5.0)
---
assert vars(a) == {'balance': 5.0} and hasattr(a, 'rate') and not hasattr(a, 'fee') and a is not None
---
class Case(unittest.TestCase):
    def test_push(self):
        self.assertEqual(Stack().push(3).pop(), 3)
    def test_rate(self):
        self.assertTrue(Account.rate > 1)
result = unittest.TestResult()
unittest.defaultTestLoader.loadTestsFromTestCase(Case).run(result)
assert result.wasSuccessful() and result.testsRun == 2
=== subclasses of plain types as values
from collections import Counter, OrderedDict, defaultdict, namedtuple
from enum import IntEnum, StrEnum
from fractions import Fraction
Point = namedtuple('Point', 'x y')
class Level(IntEnum): LOW = 1
class Unit(StrEnum): KM = 'km'
class Stack(list): pass
class Bag(Counter): pass
class Name(str): pass
class Half(Fraction): pass
def values(): return [Point(1, 2), Level.LOW, Unit.KM, Stack([1]), Bag('aab'), Name('x'), Half(1, 2)]
def groups():
    d = defaultdict(list)
    d[Level.LOW].append(Name('a'))
    return d
---
assert values() == [(1, 2), 1, 'km', [1], {'a': 2, 'b': 1}, 'x', 0.5]
---
x, y = values()[0]
assert values()[0][1] == y == 2 and values()[1] + 1 == 2 and values()[3] + [2] == [1, 2] and f'{values()[2]}' == 'km'
---
assert groups() == {1: ['a']} and list(groups()) == [1] and isinstance(values()[4], Counter if False else dict)
=== changes in place with a result
def remove_duplicates(nums):
    nums[:] = sorted(set(nums))
    return len(nums)
def pop_all(items, *, into):
    into.extend(items)
    items.clear()
    return True
---
nums = [1, 1, 2, 3, 3]
k = remove_duplicates(nums)
assert k == 3
assert nums[:k] == [1, 2, 3]
---
def check(candidate):
    nums = [2, 2]
    if candidate(nums) == 1:
        assert nums == [2]
    else:
        assert False
check(remove_duplicates)
---
a, b = [1], [0]
assert pop_all(a, into=b)
assert a == [] and b == [0, 1]
=== views and iterators
class Table:
    def __init__(self): self.data = {'a': 1, 'b': 2}
    def keys(self): return self.data.keys()
    def values(self): return self.data.values()
    def items(self): return self.data.items()
def naturals():
    n = 0
    while True: yield (n := n + 1)
def pairs(a, b): return zip(a, b)
---
t = Table()
assert t.keys() == {'a', 'b'} and 'a' in t.keys() and list(t.keys()) == ['a', 'b'] and t.keys() & {'a'} == {'a'}
---
assert sum(t.values()) == 3 and t.items() == {('a', 1), ('b', 2)} and dict(t.items()) == {'a': 1, 'b': 2}
---
from itertools import islice
g = naturals()
assert next(g) == 1 and list(islice(g, 2)) == [2, 3] and next(g) == 4
---
assert dict(pairs('ab', [1, 2])) == {'a': 1, 'b': 2} and list(pairs([], [])) == []
""")
