"""Verdicts over a real conversation, and what a test sees of arguments that the program changed."""

import pytest

from d3s.sandbox.tester import CRASHED, FAILED, MEMORY, PASSED, REFUSED, same_output
from tests.sandbox.conversation import connect

PROGRAM = """
def f(x): return x
def sum(a, b=6): return 6
def pair(x): return Pair(x)
def change(node, name):
    try:
        before = getattr(node, name)
        setattr(node, name, 2)
        return before
    except AttributeError:
        return 'no'
def clear(x): x.clear()
def cleared(x):
    x.clear()
    return x
def fill(grid, *, done):
    grid[0][0] = 1
    done += grid.pop()
def size(x):
    x[:] = sorted(set(x))
    return len(x)
"""
VERDICTS = [
    ("assert f(1) == 1", PASSED),
    ("assert f(1) == 2", FAILED),
    ("f(", FAILED),
    ("raise KeyboardInterrupt", FAILED),
    ("f({object()})", REFUSED),
    ("try: f(object())\nexcept BaseException: pass", REFUSED),
    ("class A: pass\na = A()\nassert f(a) is a and f([a])[0] is a", PASSED),  # objects of the tests return as they are
    ("class Node:\n  def __init__(self, x): self.x = x\n  def show(self): return self.x\nn = Node(1)\n"
     "assert change(n, 'x') == 1 and n.x == 2 and change(n, 'y') == 'no' and change(n, 'show') == 'no'", PASSED),
    ("class Pair:\n  def __init__(self, x): self.x = x\nassert pair(4).x == 4 and type(pair(4)) is Pair", PASSED),
    ("compile = f\nassert compile('4') == '4'\nassert eval(f('4')) == 4", REFUSED),
    ("assert list(map(eval, f(['4']))) == [4]", REFUSED), ("run = exec\nrun(f('y = 4'), {})", REFUSED),
    ("from builtins import eval\nassert eval(f('4')) == 4", REFUSED),
    ("import builtins\nassert builtins.eval(f('4')) == 4", REFUSED), ("import pickle\nassert f(1) == 1", REFUSED),
    ("from code import interact\nassert f(1) == 1", REFUSED),
    ("import re\nassert re.compile(f('a')).match('a')", PASSED),
    ("import operator\na = [1]\nassert f(a) == a and operator.is_not(f(a), a)", REFUSED),
    ("a = [1]\nb = f(a)\nassert b == a and b is not a", REFUSED), ("a = [1]\nassert a is not f([2])", PASSED),
    ("import unittest\na = [1]\nunittest.TestCase().assertIsNot(f(a), a)", REFUSED),
    ("import unittest\na = (1,)\nunittest.TestCase().assertIs(a, a)\nassert f(a) == a", PASSED),
    ("x = []\nx.append(x)\nf(x)", REFUSED),
    ("f(1); raise MemoryError", MEMORY),
    ("assert f(lambda x: x + 1)(1) == 2", PASSED),
    ("assert list(f(iter([1, 2]))) == [1, 2] and list(f(x for x in 'ab')) == ['a', 'b']", PASSED),
    ("assert eval('1 + 1') == 2 and eval(f('1 + 1')) == 2", REFUSED),
    ("g = f(iter([1, 2]))\nassert next(g) == 1\ng.send(4)", REFUSED),  # what it yields could depend on it
    # A builtin is the program's if it is tested itself.
    ("assert sum(10, 15) == 6", PASSED),
    ("assert sum([1, 2]) == f(6)", FAILED),
    ("try: missing\nexcept NameError: pass\nassert f(1) == 1", PASSED),
    # The next statement sees changes of arguments; in this one the program must not decide about the right side.
    ("x = [1]; y = x\nclear(x)\nassert x == y == [] and x is y", PASSED),
    ("x = [[0], [2]]; y = []\nfill(x, done=y)\nassert (x, y) == ([[1]], [2])", PASSED),
    ("x = [2, 1, 2]\nk = size(x)\nassert x[:k] == [1, 2]", PASSED),
    ("for x in ({1: 2}, {3}, bytearray(b'a'), Counter('a'), deque([4])):\n  clear(x)\n  assert not x", PASSED),
    ("x = [1]\nassert clear(x) is None and x == []", PASSED),
    ("x = [2, 1, 2]\nif size(x) == 2:\n    assert x == [1, 2]\nelse:\n    assert 0", PASSED),
    ("def check(f):\n    x = [2, 2]\n    f(x)\n    assert x == [2]\ncheck(size)", PASSED),
    ("x = [1, 2]\nassert cleared(x) == sorted(x)", FAILED),
    ("x = [1, 2]\nassert cleared(x) == x", FAILED),
    ("x = (1, [2])\nassert size([x, x]) == 1 and x == (1, [2])", FAILED),  # a list cannot be in a set
]  # fmt: skip


@pytest.mark.parametrize(("test", "verdict"), VERDICTS)
def test_verdict_of_one_test(test, verdict):
    assert connect(PROGRAM, test).run(test, 1) == verdict


@pytest.mark.parametrize("reply", [5, "ab", [None, {9: 1}], [None, {"x": 1}], [None, 3]])
def test_other_replies_to_a_call_end_the_conversation(reply):
    tester = connect("def f(x): return 1")
    tester.namespace["f"] = tester.namespace["f"]  # asked before the next line
    tester.ask = lambda *request: reply
    assert tester.run("try: f(1)\nexcept BaseException: pass", 1) == CRASHED
    assert tester.run("assert 1 == 1", 2) == CRASHED


@pytest.mark.parametrize(
    ("output", "expected", "same"),
    [
        ("1\n", "1", True), ("1 2  \n3\n\n", "1 2\n3", True), ("1\r\n2\r\n", "1\n2\n", True), ("", "\n", True),
        ("1", "2", False), ("1 2", "1  2", False), ("\n1", "1", False), ("1.0", "1", False), (1, "1", False),
    ],
)  # fmt: skip
def test_outputs_are_compared_by_lines(output, expected, same):
    assert same_output(output, expected) is same
