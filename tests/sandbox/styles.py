"""Honest programs in the styles that people write: classes, recursion, the library, long test lists, large values."""

from tests.sandbox.programs import parse_programs

STYLES = parse_programs(r"""
=== inheritance and dispatch
class Animal:
    kind = 'animal'
    def __init__(self, name): self.name = name
    def speak(self): raise NotImplementedError('subclass')
    def __str__(self): return f'{type(self).__name__}({self.name})'
class Dog(Animal):
    def speak(self): return f'{self.name} barks'
class Puppy(Dog):
    def __init__(self, name, age=1):
        super().__init__(name)
        self.age = age
    def speak(self): return super().speak() + ' softly'
---
assert Puppy('a').speak() == 'a barks softly'
---
d = Dog('rex')
assert d.speak() == 'rex barks' and d.name == 'rex' and str(d) == 'Dog(rex)' and d.kind == Dog.kind == 'animal'
---
assert isinstance(d, Dog) and isinstance(d, Animal) and not isinstance(d, Puppy)
---
assert issubclass(Puppy, Animal) and not issubclass(Animal, Dog) and isinstance(Dog, type)
---
try:
    Animal('x').speak()
    assert False, 'no exception'
except NotImplementedError as error:
    assert 'subclass' in str(error)
---
assert type(d) is Dog and type(d) == Dog and type(d) is not Animal and type(d).__name__ == 'Dog'
---
assert d.__class__.__name__ == 'Dog' and Dog.__name__ == 'Dog' and Dog.__bases__ == (Animal,)
---
assert [type(x).__name__ for x in (Dog('a'), Puppy('b'), 3)] == ['Dog', 'Puppy', 'int']
---
assert Puppy.__mro__[:3] == (Puppy, Dog, Animal) and isinstance(d, object)
---
assert hasattr(d, 'speak') and not hasattr(d, 'fly') and callable(d.speak) and getattr(d, 'fly', 7) == 7
---
assert vars(d) == {'name': 'rex'} and d.__dict__ == {'name': 'rex'}
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
---
del c._t
try: c.t
except AttributeError: pass
else: assert False
=== an interval with membership
class Interval:
    def __init__(self, a, b): self.a, self.b = a, b
    def __contains__(self, x): return self.a <= x < self.b
    def __len__(self): return self.b - self.a
    def __bool__(self): return self.b > self.a
    def __and__(self, o): return Interval(max(self.a, o.a), min(self.b, o.b))
    def __call__(self, t): return self.a + t * (self.b - self.a)
---
assert 5 in Interval(1, 10)
---
assert 10 not in Interval(1, 10)
---
assert len(Interval(1, 10)) == 9 and Interval(0, 1) and not Interval(3, 3)
---
both = Interval(0, 5) & Interval(3, 9)
assert (both.a, both.b) == (3, 5)
---
assert Interval(0, 10)(0.5) == 5.0
=== a matrix
class Matrix:
    def __init__(self, rows): self.rows = [list(r) for r in rows]
    def __matmul__(self, o):
        return Matrix([[sum(a * b for a, b in zip(r, c)) for c in zip(*o.rows)] for r in self.rows])
    def __mul__(self, k): return Matrix([[x * k for x in r] for r in self.rows])
    def __pow__(self, n):
        out = self
        for _ in range(n - 1): out = out @ self
        return out
    def __getitem__(self, ij): return self.rows[ij[0]][ij[1]] if isinstance(ij, tuple) else self.rows[ij]
    def __setitem__(self, ij, v): self.rows[ij[0]][ij[1]] = v
    def __delitem__(self, i): del self.rows[i]
    def __eq__(self, o): return self.rows == o.rows
    def __iter__(self): return iter(self.rows)
    def __len__(self): return len(self.rows)
---
m = Matrix([[1, 2], [3, 4]])
assert (m @ m).rows == [[7, 10], [15, 22]] and m[0, 1] == 2 and m[1] == [3, 4]
---
m[0, 0] = 9
assert m[0, 0] == 9 and m == Matrix([[9, 2], [3, 4]])
---
del m[0]
assert len(m) == 1 and list(m) == [[3, 4]] and [x for row in m for x in row] == [3, 4]
---
assert (Matrix([[1, 2]]) * 2)[0] == [2, 4]
---
assert list(Matrix([[1, 2]]) * 2) == [[2, 4]]
---
assert Matrix([[1, 1], [1, 0]]) ** 5 == Matrix([[8, 5], [5, 3]])
=== a bank account
class InsufficientFunds(Exception):
    def __init__(self, need, have):
        super().__init__(f'need {need}, have {have}')
        self.need, self.have = need, have
class Account:
    def __init__(self, balance=0): self.balance = balance; self.log = []
    def deposit(self, n):
        if n <= 0: raise ValueError('amount must be positive')
        self.balance += n
        self.log.append(('deposit', n))
        return self
    def withdraw(self, n):
        if n > self.balance: raise InsufficientFunds(n, self.balance)
        self.balance -= n
        self.log.append(('withdraw', n))
        return self
    def __iadd__(self, n): return self.deposit(n)
    def __lt__(self, o): return self.balance < o.balance
---
a = Account(10)
assert a.deposit(5).withdraw(3).balance == 12
---
assert a.log == [('deposit', 5), ('withdraw', 3)]
---
try:
    a.withdraw(100)
except InsufficientFunds as e:
    assert e.need == 100 and e.have == 12 and e.args == ('need 100, have 12',) and str(e) == 'need 100, have 12'
else:
    assert False
---
def raises(kind, f, *args):
    try:
        f(*args)
    except kind:
        return True
    return False
assert raises(ValueError, a.deposit, -1) and raises(InsufficientFunds, a.withdraw, 99)
---
a += 8
assert a.balance == 20
---
assert sorted([Account(3), Account(1)])[0].balance == 1 and max(Account(3), Account(1)).balance == 3
---
import unittest
case = unittest.TestCase()
with case.assertRaises(InsufficientFunds) as caught:
    a.withdraw(1000)
assert caught.exception.need == 1000
case.assertEqual(a.balance, 20)
---
e = InsufficientFunds(1, 2)
assert isinstance(e, Exception) and e.need == 1
try:
    raise e
except InsufficientFunds as again:
    assert again.have == 2
---
try:
    raise InsufficientFunds(3, 4)
except Exception as again:
    assert type(again).__name__ == 'InsufficientFunds' and type(again) is InsufficientFunds
=== chained exceptions
class ParseError(Exception): pass
def parse(s):
    try:
        return int(s)
    except ValueError as error:
        raise ParseError(s) from error
def group(): raise ExceptionGroup('many', [ValueError('a'), TypeError('b')])
---
try: parse('x')
except ParseError as error: assert error.args == ('x',) and isinstance(error.__cause__, ValueError)
else: assert False
---
try: group()
except* ValueError as errors: assert len(errors.exceptions) == 1
except* TypeError: pass
---
assert parse('12') == 12
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
for kind, error in {'key': KeyError, 'index': IndexError, 'zero': ZeroDivisionError, 'type': TypeError,
                    'attribute': AttributeError, 'name': NameError, 'recursion': RecursionError, 'os': OSError,
                    'unicode': UnicodeDecodeError, 'assert': AssertionError, 'overflow': OverflowError,
                    'seven': ValueError, 'exit': SystemExit}.items():
    try:
        f(kind)
    except error:
        pass
    else:
        assert False, kind
---
try: f('seven')
except ValueError as e: assert str(e) == "invalid literal for int() with base 10: 'seven'"
---
try: f('os')
except FileNotFoundError as e: assert e.errno == 2 and e.filename == 'name'
---
try: f('key')
except KeyError as e: assert e.args[0] == 'k' and repr(e) == "KeyError('k')"
---
try: f('unicode')
except UnicodeDecodeError as e: assert e.start == 0 and e.object == b'\xff'
---
try: f('exit')
except SystemExit as e: assert e.code == 3
=== errors as values
class Missing(KeyError): pass
def find(d, k): return d.get(k) if k in d else Missing(k)
def errors(): return [ValueError('a'), Missing]
---
assert find({'a': 1}, 'a') == 1 and isinstance(find({}, 'b'), KeyError) and isinstance(find({}, 'b'), Missing)
---
assert errors()[1] is Missing and str(errors()[0]) == 'a'
=== enumerations
from enum import Enum, IntEnum, Flag, StrEnum, auto
class Color(Enum):
    RED = 'r'
    GREEN = 'g'
    @classmethod
    def default(cls): return cls.RED
    def flip(self): return Color.GREEN if self is Color.RED else Color.RED
class Weekday(IntEnum):
    MON = 1
    TUE = 2
class Perm(Flag):
    R = auto()
    W = auto()
class Unit(StrEnum):
    KM = 'km'
def lookup(c): return {Color.RED: 1, Color.GREEN: 2}[c]
def names(): return [c.name for c in Color]
---
assert Color('r') is Color.RED and Color['GREEN'].value == 'g' and Color.default().flip() == Color.GREEN
---
assert names() == ['RED', 'GREEN'] and len(Color) == 2 and lookup(Color.RED) == 1
---
assert [c.value for c in Color] == ['r', 'g']
---
assert Color.RED != Color.GREEN and Color.RED in Color and Color.RED in [Color.RED] and {Color.RED: 5}[Color.RED] == 5
---
assert Weekday.TUE == 2 and Weekday.MON < Weekday.TUE and Weekday(1).name == 'MON' and int(Weekday.TUE) == 2
---
assert (Perm.R | Perm.W) & Perm.R == Perm.R and Perm.R in (Perm.R | Perm.W)
---
assert Unit.KM == 'km' and Unit.KM.upper() == 'KM' and f'{Unit.KM}' == 'km' and str(Unit.KM) == 'km'
---
try: Color('x')
except ValueError: pass
else: assert False
---
assert repr(Color.RED) == "<Color.RED: 'r'>" and str(Color.RED) == 'Color.RED'
---
from enum import Enum
assert isinstance(Color.RED, Enum) and issubclass(Color, Enum) and isinstance(Color.RED, Color)
=== dataclasses
from dataclasses import dataclass, field, asdict, astuple, replace, FrozenInstanceError
import dataclasses, typing
@dataclass(frozen=True, order=True)
class P:
    x: int
    y: int = 0
    def norm(self) -> float: return (self.x ** 2 + self.y ** 2) ** 0.5
@dataclass
class Inventory:
    name: str
    items: typing.List[P] = field(default_factory=list)
    total: int = field(init=False, default=0)
    def __post_init__(self): self.total = len(self.items)
def move(p: P, dx: int) -> P: return replace(p, x=p.x + dx)
def corners(): return {P(0, 0), P(1, 0), P(0, 0)}
---
assert P(3, 4).norm() == 5.0 and move(P(1, 2), 3) == P(4, 2) and P(1) < P(2) and P(1) <= P(1)
---
assert P(1, 2) in corners() or P(1, 0) in corners()
---
assert len(corners()) == 2 and corners() == {P(0, 0), P(1, 0)} and sorted(corners()) == [P(0, 0), P(1, 0)]
---
assert repr(P(1, 2)) == 'P(x=1, y=2)' and hash(P(1, 2)) == hash(P(1, 2)) and {P(1, 2): 'a'}[P(1, 2)] == 'a'
---
try:
    P(1).x = 5
except AttributeError:
    pass
else:
    assert False
---
i = Inventory('a', [P(1), P(2)])
assert i.total == 2 and i.items[1].x == 2 and i == Inventory('a', [P(1), P(2)]) and i.items == [P(1), P(2)]
=== named tuples
from collections import namedtuple
from typing import NamedTuple
Point = namedtuple('Point', ['x', 'y'])
class Employee(NamedTuple):
    name: str
    id: int = 3
    def label(self): return f'{self.name}#{self.id}'
def midpoint(a, b): return Point((a.x + b.x) / 2, (a.y + b.y) / 2)
def staff(): return [Employee('b'), Employee('a', 1)]
---
assert midpoint(Point(0, 0), Point(2, 4)) == Point(1.0, 2.0) == (1, 2)
---
assert Point(1, 2)._replace(x=5) == (5, 2) and Point(1, 2)._asdict() == {'x': 1, 'y': 2} and Point._fields == ('x', 'y')
---
assert Employee('a').label() == 'a#3' and Employee('a').id == 3 and tuple(Employee('a')) == ('a', 3)
---
assert sorted(staff())[0].name == 'a' and staff()[0] + (1,) == ('b', 3, 1) and len(staff()[0]) == 2
---
name, number = staff()[0]
assert name == 'b' and number == 3 and staff()[0][0] == 'b' and 'b' in staff()[0] and staff()[0].index(3) == 1
---
assert isinstance(Point(1, 2), tuple) and isinstance(Point(1, 2), Point) and {Point(1, 2): 1}[(1, 2)] == 1
---
assert midpoint((lambda p: p)(Point(1, 1)), Point(x=3, y=3)).x == 2 and max(staff(), key=lambda e: e.id).name == 'b'
=== abstract classes and protocols
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, Generic, TypeVar, overload
T = TypeVar('T')
class Shape(ABC):
    @property
    @abstractmethod
    def area(self) -> float: ...
class Circle(Shape):
    def __init__(self, r): self.r = r
    @property
    def area(self): return 3.0 * self.r ** 2
class Box(Generic[T]):
    def __init__(self, v: T): self.v = v
    def get(self) -> T: return self.v
class Row(Sequence):
    def __init__(self, *a): self.a = a
    def __getitem__(self, i): return self.a[i]
    def __len__(self): return len(self.a)
---
assert Circle(2).area == 12.0 and Box(3).get() == 3 and Box[int](4).v == 4
---
try:
    Shape()
except TypeError as e:
    assert 'abstract' in str(e)
else:
    assert False
---
assert list(Row(1, 2)) == [1, 2] and 2 in Row(1, 2) and Row(1, 2).index(2) == 1 and list(reversed(Row(1, 2))) == [2, 1]
---
from collections.abc import Iterable
assert isinstance(Row(1), Iterable)
=== context managers
from contextlib import contextmanager, ExitStack
log = []
@contextmanager
def tag(name):
    log.append(f'<{name}>')
    try:
        yield name.upper()
    except KeyError:
        log.append('caught')
    finally:
        log.append(f'</{name}>')
class Timer:
    def __enter__(self): self.open = True; return self
    def __exit__(self, kind, error, trace):
        self.open = False
        self.kind = kind
        return kind is ValueError
---
with tag('b') as t:
    assert t == 'B'
assert log == ['<b>', '</b>']
---
with tag('i'):
    raise KeyError
assert log[-2:] == ['caught', '</i>']
---
with Timer() as t:
    raise ValueError('suppressed')
assert t.open is False
---
try:
    with Timer() as t:
        raise OSError
except OSError:
    assert not t.open
else:
    assert False
=== iterators
class Countdown:
    def __init__(self, n): self.n = n
    def __iter__(self): return self
    def __next__(self):
        if self.n <= 0: raise StopIteration
        self.n -= 1
        return self.n + 1
class Tree:
    def __init__(self, v, *kids): self.v, self.kids = v, kids
    def __iter__(self):
        yield self.v
        for kid in self.kids: yield from kid
def primes():
    n = 2
    while True:
        if all(n % d for d in range(2, int(n ** .5) + 1)): yield n
        n += 1
def chunks(xs, n):
    for i in range(0, len(xs), n): yield xs[i:i + n]
---
assert list(Countdown(3)) == [3, 2, 1] and sum(Countdown(4)) == 10 and [*Countdown(2)] == [2, 1]
---
assert list(Tree(1, Tree(2, Tree(3)), Tree(4))) == [1, 2, 3, 4] and 3 in Tree(1, Tree(3))
---
import itertools
assert list(itertools.islice(primes(), 5)) == [2, 3, 5, 7, 11] and next(primes()) == 2
---
assert list(chunks([1, 2, 3], 2)) == [[1, 2], [3]] and list(map(len, chunks('abc', 2))) == [2, 1]
---
g = primes()
assert [next(g) for _ in range(3)] == [2, 3, 5] and next(g) == 7
g.close()
assert next(g, 'end') == 'end'
---
assert iter(g) is g and list(zip(Countdown(2), 'ab')) == [(2, 'a'), (1, 'b')]
---
a, *b = Countdown(3)
assert a == 3 and b == [2, 1] and tuple(enumerate(Countdown(1))) == ((0, 1),) and set(Countdown(2)) == {1, 2}
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
assert paths(16, 16) == 601080390 and paths.cache_info().hits > 0 and add(2) == 3
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
m = match('12-34')
assert m and m.groups() == ('12', '34') and m.group(1) == '12' and m[2] == '34' and m.span() == (0, 5)
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
=== lists of objects
class Task:
    def __init__(self, name, prio=0, deps=()): self.name, self.prio, self.deps = name, prio, list(deps)
    def __repr__(self): return f'Task({self.name!r})'
    def __eq__(self, o): return isinstance(o, Task) and self.name == o.name
    def __hash__(self): return hash(self.name)
def order(tasks): return sorted(tasks, key=lambda t: (-t.prio, t.name))
def by_name(tasks): return {t.name: t for t in tasks}
def unique(tasks): return set(tasks)
def tree(): return {'root': [Task('a'), (Task('b'), {'c': Task('c')})]}
---
ts = [Task('a', 1), Task('b', 3), Task('c', 1)]
assert [t.name for t in order(ts)] == ['b', 'a', 'c'] and order(ts)[0] is ts[1]
---
assert by_name(ts)['b'] == Task('b') and by_name(ts)['b'].prio == 3 and len(unique(ts + [Task('a')])) == 3
---
assert repr(order(ts)) == "[Task('b'), Task('a'), Task('c')]" and tree()['root'][1][1]['c'].name == 'c'
---
assert tree() == {'root': [Task('a'), (Task('b'), {'c': Task('c')})]} and Task('a') in ts and ts.index(Task('c')) == 2
---
import copy
t = copy.deepcopy(ts[0])
t.deps.append(1)
assert t == ts[0] and t is not ts[0] and ts[0].deps == []
=== an LRU cache
from collections import OrderedDict
class LRUCache:
    def __init__(self, capacity):
        self.capacity, self.data = capacity, OrderedDict()
    def get(self, key):
        if key not in self.data: return -1
        self.data.move_to_end(key)
        return self.data[key]
    def put(self, key, value):
        self.data[key] = value
        self.data.move_to_end(key)
        if len(self.data) > self.capacity: self.data.popitem(last=False)
    def __contains__(self, key): return key in self.data
    def __getitem__(self, key): return self.data[key]
    def __setitem__(self, key, value): self.put(key, value)
---
c = LRUCache(2)
c.put(1, 1); c.put(2, 2)
assert c.get(1) == 1
c.put(3, 3)
assert c.get(2) == -1 and c.get(3) == 3
---
assert 1 in c and 2 not in c
---
c['k'] = [1, 2]
assert c['k'] == [1, 2] and list(c.data) == [3, 'k']
---
try: c['none']
except KeyError: pass
else: assert False
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
=== comparisons and hashing
from functools import total_ordering
@total_ordering
class Version:
    def __init__(self, s): self.parts = tuple(map(int, s.split('.')))
    def __eq__(self, o): return self.parts == o.parts
    def __lt__(self, o): return self.parts < o.parts
    def __hash__(self): return hash(self.parts)
    def __format__(self, spec): return '-'.join(map(str, self.parts)) if spec == 'd' else str(self.parts)
class NoHash:
    def __eq__(self, o): return True
---
assert Version('1.2') < Version('1.10') and Version('1.2') >= Version('1.2')
---
assert max(Version('1'), Version('2')) == Version('2')
---
assert sorted(map(Version, ['2', '1.5', '1']), reverse=True)[0] == Version('2')
---
assert len({Version('1'), Version('1')}) == 1
---
assert f'{Version("1.2"):d}' == '1-2' and Version('1') != Version('2')
---
try: hash(NoHash())
except TypeError: pass
else: assert False
=== arithmetic of an own number
import math
class Rational:
    def __init__(self, n, d=1):
        if d == 0: raise ZeroDivisionError('denominator')
        g = math.gcd(n, d)
        self.n, self.d = n // g, d // g
    def _of(self, o): return o if isinstance(o, Rational) else Rational(o)
    def __add__(self, o): o = self._of(o); return Rational(self.n * o.d + o.n * self.d, self.d * o.d)
    __radd__ = __add__
    def __neg__(self): return Rational(-self.n, self.d)
    def __sub__(self, o): return self + -self._of(o)
    def __mul__(self, o): o = self._of(o); return Rational(self.n * o.n, self.d * o.d)
    def __truediv__(self, o): o = self._of(o); return Rational(self.n * o.d, self.d * o.n)
    def __eq__(self, o): o = self._of(o); return (self.n, self.d) == (o.n, o.d)
    def __lt__(self, o): o = self._of(o); return self.n * o.d < o.n * self.d
    def __float__(self): return self.n / self.d
    def __int__(self): return self.n // self.d
    def __repr__(self): return f'{self.n}/{self.d}'
    def __abs__(self): return Rational(abs(self.n), self.d)
    def __bool__(self): return self.n != 0
    def __round__(self, k=None): return round(self.n / self.d, k)
---
assert Rational(1, 2) + Rational(1, 3) == Rational(5, 6) and repr(Rational(2, 4)) == '1/2'
---
assert sum([Rational(1, 2), Rational(1, 2)]) == Rational(1) and Rational(1, 2) * 4 == Rational(2)
---
assert Rational(1, 2) - 1 == -Rational(1, 2) and abs(Rational(-1, 2)) == Rational(1, 2) and not Rational(0)
---
assert repr(Rational(3, 4) / 3) == '1/4' and (1 + Rational(1, 2)).n == 3
---
try: Rational(1, 0)
except ZeroDivisionError as e: assert str(e) == 'denominator'
else: assert False
---
assert float(Rational(1, 2)) == 0.5 and int(Rational(7, 2)) == 3
=== subclasses of plain types
class Stack(list):
    def push(self, x): self.append(x); return self
    @property
    def top(self): return self[-1]
class Attr(dict):
    __getattr__ = dict.__getitem__
    def __missing__(self, k): return k * 2
class Temp(float):
    def fahrenheit(self): return self * 9 / 5 + 32
class Name(str):
    def initials(self): return ''.join(w[0] for w in self.split())
class Bag(set):
    def put(self, x): self.add(x); return self
def stack(*a): return Stack(a)
---
assert stack(1, 2).push(3) == [1, 2, 3] and stack(1).top == 1 and stack(1) + [2] == [1, 2] and len(stack()) == 0
---
assert [0] + stack(1) == [0, 1] and stack(1) * 2 == [1, 1] and not stack() and sorted(stack(2, 1)) == [1, 2]
---
s = Stack([1])
s += [2]
assert s == [1, 2]
---
assert Attr(a=1).a == 1 and Attr()['x'] == 'xx' and Attr(a=1) == {'a': 1} and list(Attr(a=1).items()) == [('a', 1)]
---
assert Temp(100).fahrenheit() == 212.0 and Temp(1.5) == 1.5 and Temp(2) + 1 == 3 and round(Temp(1.26), 1) == 1.3
---
assert Name('ada lovelace').initials() == 'al' and Name('a') + 'b' == 'ab'
---
assert Name('x').upper() == 'X' and 'd' in Name('ad')
---
assert Bag().put(1) == {1} and Bag([1, 2]) - {1} == {2} and Bag([1]) | {2} == {1, 2}
---
assert 1 in Bag([1]) and len(Bag('ab')) == 2
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
---
import json
try: load('{')
except json.JSONDecodeError as e: assert e.pos == 1 and isinstance(e, ValueError)
else: assert False
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
=== metaclasses and descriptors
class Registry(type):
    known = {}
    def __new__(m, name, bases, body):
        cls = super().__new__(m, name, bases, body)
        m.known[name] = cls
        return cls
class Base(metaclass=Registry): pass
class Positive:
    def __set_name__(self, owner, name): self.name = '_' + name
    def __get__(self, obj, owner=None): return self if obj is None else getattr(obj, self.name)
    def __set__(self, obj, value):
        if value <= 0: raise ValueError(self.name)
        setattr(obj, self.name, value)
class Item(Base):
    price = Positive()
    __slots__ = ('_price',)
    def __init__(self, p): self.price = p
class Singleton:
    _one = None
    def __new__(cls):
        if cls._one is None: cls._one = super().__new__(cls)
        return cls._one
class Money:
    def __init_subclass__(cls, **k): cls.sub = k
class Euro(Money, code='EUR'): pass
class Dynamic:
    def __getattr__(self, name): return lambda *a: (name, a)
---
assert Registry.known['Item'] is Item and Item(3).price == 3
---
assert Singleton() is Singleton() and Euro.sub == {'code': 'EUR'}
---
try: Item(-1)
except ValueError as e: assert str(e) == '_price'
else: assert False
---
assert Dynamic().anything(1) == ('anything', (1,))
---
assert type(Item) is Registry and type('X', (), {'a': 1})().a == 1 and isinstance(Item, type) and type(type) is type
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
assert a is g() and a.f() == 5 and g() == a and not g() != a
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
