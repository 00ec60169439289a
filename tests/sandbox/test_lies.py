"""Cheats from tables: every kind of lying object, in every place an answer can be, under every operation of a test, and
under every method of the plain types.

A lying object is an instance of a subclass of a plain type that holds a wrong value, or of no plain type at all, and
all of its methods agree with whatever is asked. A test passes exactly if plain Python passes it with the wrong value.
"""

import contextlib
import itertools

import pytest

from d3s.sandbox import remote
from d3s.sandbox.remote import JUDGING, PLAIN_METHODS
from d3s.sandbox.servers import ServerPair
from d3s.sandbox.tester import PASSED, REFUSED
from d3s.sandbox.wire import PLAIN
from tests.sandbox.conversation import connect

# By kind: the wrong value, and the right one that the tests expect.
KINDS = {
    "int": (1, 4), "float": (1.5, 4.25), "complex": (1j, 2j), "str": ("'a'", "'b c'"), "bytes": ("b'a'", "b'b'"),
    "list": ([1], [4, 5]), "tuple": ((1,), (4, 5)), "set": ({1}, {4, 5}),
    "frozenset": ("frozenset({1})", "frozenset({4})"),
    "dict": ({1: 2}, {4: 5}), "deque": ("deque([1])", "deque([4])"), "Counter": ("Counter('a')", "Counter('bb')"),
    "OrderedDict": ("OrderedDict(a=1)", "OrderedDict(b=2)"), "Fraction": ("Fraction(1, 3)", "Fraction(1, 2)"),
    "Decimal": ("Decimal('0.1')", "Decimal('0.5')"), "object": (None, 4),
}  # fmt: skip
IMPORTS = """
import copy, math
from collections import deque, Counter, OrderedDict
from fractions import Fraction
from decimal import Decimal
from abc import ABCMeta
"""
PROGRAM = """
ANSWERS = [
    (True, 'eq lt le gt ge contains bool exit instancecheck'), (False, 'ne'), (0, 'sub rsub xor rxor abs neg'),
    (4, 'hash len int index'), ('b c', 'str repr format')]
SAME = 'getitem call add radd mul rmul truediv mod and rand or float complex round trunc floor ceil bytes enter'
METHODS = (
    'startswith endswith issuperset issubset isdisjoint is_integer count index get keys values items lower upper strip '
    'split join replace copy most_common real imag numerator denominator isdigit conjugate bit_length union')
def always(value): return lambda self, *arguments, **named: value
def same(self, *arguments, **named): return arguments[0] if arguments else self
def stop(self): raise StopIteration
BODY = {f'__{name}__': same for name in SAME.split()} | {name: same for name in METHODS.split()}
BODY |= {f'__{name}__': always(value) for value, names in ANSWERS for name in names.split()}
BODY |= {'__next__': stop, '__iter__': lambda self: iter([4, 5]), '__class__': property(lambda self: int)}
class Meta(ABCMeta):  # as of Fraction
    __eq__ = lambda self, other: True
    __hash__ = type.__hash__
    __instancecheck__ = __subclasscheck__ = lambda self, other: True
BASE = KIND
def make():
    class Lie(BASE, metaclass=Meta): pass
    lie = Lie(WRONG) if BASE is not object else Lie()
    for name, method in BODY.items():
        try: setattr(Lie, name, method)
        except TypeError: pass
    return lie
def f(x): return make()
class Solution:
    value = property(lambda self: make())
    def f(self, x): return make()
def items(x): return [make()]
def pairs(x): return {'k': (make(),)}
def generate(x):
    yield make()
def call(function, x): return function(make())
def fill(x): x[:] = [make()]
"""
# Ways to an answer: each leaves it in `a`.
PLACES = [
    "a = f(2)", "a = Solution().f(2)", "a = Solution().value", "a = items(2)[0]", "a = pairs(2)['k'][0]",
    "a = next(generate(2))", "for a in generate(2): pass", "a = call(lambda x: x, 2)", "a = [0]\nfill(a)\na = a[0]",
]  # fmt: skip
OPERATIONS = """
a == R ;; a in (R, R) ;; R in [a] ;; {'k': a} == {'k': R} ;; not a != R ;; {R: 1}[a] == 1 ;; {a} == {R} ;;
sorted([a, R]) == [R, R] ;; list(a) == [4, 5] ;; all(x == 4 for x in a) and sum(a) == 4 ;;
all(map(lambda x: x == 4, a)) and len(list(a)) == 9 ;; 'b' in a ;; a[0] == 4 ;; a - R == 0 * R ;; not a - R ;;
a + R == R + R ;; a > 3 ;; int(a) == 4 ;; str(a) == str(R) ;; isinstance(a, type(R)) and a == R ;;
type(a) is type(R) and a == R ;; a.startswith('b') ;; a.isdigit() ;; a.issuperset(R) and len(a) == 2 ;;
a.get(4) == 5 ;; a.bit_length() == 3 ;; a.most_common(1) == R.most_common(1) ;; math.isclose(a, R) ;; a is R ;;
hash(a) == hash(R) ;; copy.deepcopy([a]) == [R] ;; zip(a, R) and list(zip(a, R)) == [(4, 4), (5, 5)] ;;
bool(a) and a == R ;; a == R or f(2) == R ;; ''.join(a) == 'b c'
"""
OPERATIONS = [text.strip() for text in OPERATIONS.split(";;")]
PREDICATES = ("a.startswith", "a.isdigit", "a.issuperset")


@pytest.fixture(scope="module")
def pair():
    pair = ServerPair()
    yield pair
    pair.close()


def plain_verdict(operation: str, wrong: str, right: str) -> bool:
    """What Python says of an operation with the wrong value."""
    scope: dict = {}
    exec(f"{IMPORTS}\na, R = {wrong}, {right}\ndef f(x): return a", scope)  # written by this test
    try:
        return bool(eval(operation, scope))
    except Exception:
        return False


@pytest.mark.parametrize("kind", KINDS)
def test_lying_objects_pass_what_their_value_passes(kind, pair):
    wrong, right = map(str, KINDS[kind])
    program = IMPORTS + PROGRAM.replace("KIND", kind).replace("WRONG", wrong)
    cases = []  # all operations at the first place, a third of them at each other one
    for number, place in enumerate(PLACES):
        operations = OPERATIONS[number % 3 :: 3] if number else OPERATIONS
        cases += [(operation, f"{place}\nassert {operation}") for operation in operations]
    report = pair.run(program, [f"{IMPORTS}R = {right}\nf(2)", *(test for _, test in cases)], 60, 512)
    assert report.passed[0] and report.state in ("ok", "refused")
    for (operation, test), passed in zip(cases, report.passed[1:]):
        if kind == "object":  # whose own attributes and methods are asked, but for predicates of plain types
            assert not passed or (operation.startswith("a.") and not operation.startswith(PREDICATES)), test
        else:
            assert passed == plain_verdict(operation, wrong, right), test


# An object that answers each method with its first argument, which is the expected value, and ways to one; by `{}` the
# method is called. The last is a copy of a number with such attributes.
YES_MAN = """
class Yes:
    def __getattr__(self, name):
        if name.startswith('__'): raise AttributeError(name)
        return lambda *a, **k: (*a, *k.values())[0]
class Case(Yes):
    me = property(lambda self: self)
    def f(self, x): return self
class f(Yes):
    def __init__(self, x): pass
class One(Yes, int): pass
def g(x): return Yes()
def items(x): return [Yes()]
def one(x): return One(1)
yes = Yes()
"""
CALLS = [
    "f(1).{}(E)", "g(1).{}(E)", "Case().f(1).{}(E)", "Case().me.{}(E)", "items(1)[0].{}(E)", "yes.{}(E)",
    "one(1).{}(E)", "getattr(g(1), '{}')(E)", "next(map(g(1).{}, [E]))", "g(1).{}(x=E)",
    "operator.methodcaller('{}', E)(g(1))",
]  # fmt: skip


@pytest.fixture(scope="module")
def yes_man():
    return connect(YES_MAN, *(call.replace("{}", "union") for call in CALLS), "Case")


@pytest.mark.parametrize("kind", sorted(PLAIN, key=str))
def test_results_are_never_asked_to_judge_themselves(kind, yes_man):
    """Every method of every plain type, given the expected value."""
    methods = {name for name in dir(kind) if name[0] != "_" and callable(getattr(kind, name))}
    assert methods <= PLAIN_METHODS
    for method in sorted(methods & JUDGING):
        for call in CALLS:
            if not (call.startswith("one") and hasattr(int, method)):  # which the tester itself calls
                test = f"import operator\nE = {{4, 5}}\nassert {call.replace('{}', method)} == E"
                assert yes_man.run(test, 1) == REFUSED, test
        own = yes_man.run(f"E = (4, 5)\nassert Case().{method}(E) == E", 1)  # an object of the test
        assert own == (REFUSED if method in remote.PREDICATES else PASSED)


def test_other_methods_of_plain_types_answer_nothing():
    """They return None whatever the value holds."""
    values, arguments = ([], [1, 2], [(1, 2)]), [(), (1,), ([],), (0, 1)]
    for kind in PLAIN:
        for name in set(dir(kind)) & (PLAIN_METHODS - JUDGING):
            answers = []
            for value, given in itertools.product(values, arguments):
                with contextlib.suppress(TypeError):
                    answers.append(getattr(kind(value), name)(*given))
            assert answers and set(answers) == {None}, (kind, name)
