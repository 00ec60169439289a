"""Objects of the program in a test, over a real conversation: held, called, asked for attributes, nothing else."""

import pytest

from d3s.sandbox.remote import refusals
from d3s.sandbox.tester import PASSED, REFUSED
from tests.sandbox.conversation import connect

# Each of its operations says that all is well, and is noted.
PROGRAM = """
NAMES = ('eq ne lt le gt ge bool len iter next reversed contains getitem setitem delitem str repr format int float '
    'complex index round trunc floor ceil abs neg add radd sub rsub mul divmod pow and or enter exit')
asked = []
def note(name): return lambda self, *arguments: asked.append(name) or {}
Spy = type('Spy', (), {f'__{n}__': note(n) for n in NAMES.split()} | {'x': 1, 'me': lambda self: self})
spy, other = Spy(), Spy()
def f(x): return spy
"""
OPERATIONS = """
s == 4 ;; 4 == s ;; s == other ;; not s ;; len(s) ;; list(s) ;; for x in s: pass ;; 4 in s ;; s in [4] ;; [s] == [4] ;;
{s: 1} ;; [0, 1][s] ;; s[0] ;; del s.x ;; str(s) ;; f'{s}' ;; print(s) ;; hash(s) ;; float(s) ;; round(s) ;; -s ;;
s + 4 ;; sum([s, s]) ;; isinstance(s, int) ;; isinstance(1, Spy) ;; s.__class__ ;; s.__eq__(4) ;; Spy.__bases__ ;;
s.startswith('b') ;; hasattr(s, 'isupper') ;; type(s).__name__ ;; s is other ;; id(s) ;; dir(s) ;;
class A(Spy): pass ;; with s: pass ;; with contextlib.ExitStack() as stack: stack.enter_context(s) ;;
copy.deepcopy(s) ;; math.isclose(s, 4) ;; unittest.TestCase().assertEqual(s, 4) ;;
match s:/  case 4: pass ;; eval(s) ;; exec(f(1)) ;; s != 4 ;; s < 4 ;; bool(s) ;; next(s) ;; del s[0] ;; repr(s) ;;
int(s) ;; range(s) ;; divmod(s, 2) ;; abs(s) ;; issubclass(int, Spy) ;; type(s) is int ;; statistics.mean([s])
"""
OPERATIONS = [text.strip() for text in OPERATIONS.split(";;")]
IMPORTS = "import contextlib, copy, math, statistics, unittest"


@pytest.fixture(scope="module")
def tester():
    tester = connect(PROGRAM, *OPERATIONS)
    assert tester.run(f"{IMPORTS}\nspy.x", 1) == PASSED
    return tester


@pytest.mark.parametrize("operation", OPERATIONS)
def test_other_uses_of_objects_are_refused(operation, tester):
    """Even if the test catches everything. The program is not asked, the reason names the line."""
    for made in ("s = spy", "s = Spy()", "s = spy.me()", "s = f(1)"):
        body = "".join(f"    {line}\n" for line in operation.split("/"))
        assert tester.run(f"{made}\ntry:\n{body}except BaseException: pass", 7) == REFUSED
        assert refusals[0].startswith("test 7, line ") and int(refusals[0].split()[3][:-1]) >= 3
    assert tester.run("assert asked == []", 1) == PASSED


def test_objects_are_held_called_and_asked(tester):
    test = """
assert spy.x == 1 and spy.me().me().x == 1 and f(spy).x == 1
assert spy is not None and (spy, 1)[1] == 1 and hasattr(spy, 'x') and not hasattr(spy, 'y')
assert callable(f) and f.__name__ == 'f' and Spy.__doc__ is None and [spy, {'a': spy}][1]['a'].x == 1
spy.x = 5
assert spy.x == 5
"""
    assert tester.run(test, 1) == PASSED


def test_reply_with_same_object_is_another_one(tester):
    """So that no container of the library finds two answers identical."""
    assert tester.namespace["spy"] is not tester.namespace["spy"]
    assert tester.run("assert [spy] == [spy]", 1) == REFUSED
    assert tester.run("s = spy\nassert s.x and s in [s]", 1) == PASSED


def test_refusals_name_line_of_the_test():
    tester = connect(PROGRAM)
    assert tester.run("def helper(a):\n    x = spy.x\n    return a == 4\nhelper(4)", 1) == PASSED
    assert tester.run("x = 1\n\nassert helper(spy)", 2) == REFUSED
    assert refusals[0].startswith("test 1, line 3: __eq__ of an object of the program")
    assert tester.run("assert helper(4)", 3) == PASSED
