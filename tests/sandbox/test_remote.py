"""Proxies over a real conversation in one process: who compares and computes what, by the questions that are asked."""

import socket
import threading

import pytest

from d3s.sandbox.remote import Remote
from d3s.sandbox.solver import Solver
from d3s.sandbox.tester import CRASHED, DEFINED, FAILED, MEMORY, PASSED, REFUSED, Tester
from d3s.sandbox.wire import Broken

PROGRAM = """
asked = []
class Spy:
    def __getattribute__(self, name):
        return object.__getattribute__(self, name)
    def note(name):
        def method(self, *arguments):
            asked.append((name, *arguments))
            return True
        return method
    __eq__, __ne__, __lt__, __gt__, __contains__ = map(note, ('eq', 'ne', 'lt', 'gt', 'contains'))
    __float__, __int__, __index__, __round__ = map(note, ('float', 'int', 'index', 'round'))
    __hash__ = object.__hash__
class Zero(float): pass
class Odd(Spy):
    def __sub__(self, other): return Zero(0)
    def __add__(self, other): return 4
    def __mul__(self, other): return Odd()
class Level(int):
    def __eq__(self, other): return True
    __hash__ = int.__hash__
    def __sub__(self, other): return 0
class Items(list):
    def __eq__(self, other): return True
spy, odd, level, items = Spy(), Odd(), Level(3), Items([1, 2])
class Failure(ValueError): pass
def fail(kind): raise kind
"""


def connect(program: str) -> tuple[Tester, bytes]:
    ours, theirs = socket.socketpair()

    def solve() -> None:
        with theirs:
            try:
                Solver(theirs.fileno()).run(program)
            except Broken:
                return

    threading.Thread(target=solve, daemon=True).start()
    tester = Tester(ours.detach())
    return tester, tester.definition()


@pytest.fixture
def tester():
    tester, state = connect(PROGRAM)
    assert state == DEFINED
    return tester


def test_plain_values_never_reach_the_program(tester):
    spy = tester.namespace["spy"]
    assert type(spy) is Remote
    assert not (spy == 4 or 4 == spy or spy in [4] or [spy] == [4] or {"a": spy} == {"a": 4})  # noqa: SIM300
    assert spy != 4 and (spy, 1) != (4, 1)
    for compare in (lambda: spy < 4, lambda: 4 > spy, lambda: float(spy), lambda: int(spy), lambda: [0][spy]):  # noqa: SIM300
        with pytest.raises(TypeError):
            compare()
    with pytest.raises(TypeError):
        4 in spy  # noqa: B015 (asks for items, of which there are none)
    assert tester.namespace["asked"] == []


def test_program_compares_its_own_objects(tester):
    spy = tester.namespace["spy"]
    assert spy == tester.namespace["odd"]
    assert tester.namespace["asked"][0][0] == "eq"
    assert spy is tester.namespace["spy"]


def test_results_of_mixed_arithmetic_tell_nothing(tester):
    odd = tester.namespace["odd"]
    difference = odd - 4
    uses = (bool, len, list, float, round, lambda x: x < 1, lambda x: x[0], lambda x: abs(x) < 1, lambda x: f"{x:.1f}")
    for use in uses:
        with pytest.raises(TypeError):
            use(difference)
    assert difference != 0 and (odd * 2) != 0
    with pytest.raises(TypeError, match="plain value"):
        odd + 4


def test_numbers_are_computed_by_the_tester(tester):
    level, items = tester.namespace["level"], tester.namespace["items"]
    assert level == 3 and level != 4 and level - 1 == 2 and 10 - level == 7 and level < 4 and [9, 8, 7, 6][level] == 6
    assert {3: "a"}[level] == "a" and isinstance(level, int) and f"{level:03d}" == "003"
    assert items == [1, 2] and items != [3] and isinstance(items, list)


def test_exception_classes_keep_their_bases(tester):
    failure = tester.namespace["Failure"]
    assert issubclass(failure, ValueError)
    with pytest.raises(failure):
        tester.namespace["fail"](failure)
    with pytest.raises(KeyError):
        tester.namespace["fail"](KeyError)
    with pytest.raises(RuntimeError, match="StopIteration"):
        tester.namespace["fail"](StopIteration)


def test_builtins_are_not_those_of_the_program():
    tester, _ = connect("def len(x): return 7\ndef f(): return [1]")
    assert tester.run("assert len(f()) == 1", 0) == PASSED
    with pytest.raises(KeyError):
        tester.namespace["len"]


@pytest.mark.parametrize(
    ("test", "verdict"),
    [
        ("assert f(1) == 1", PASSED),
        ("assert f(1) == 2", FAILED),
        ("f(", FAILED),
        ("import sys\nsys.exit()", FAILED),
        ("raise KeyboardInterrupt", FAILED),
        ("f(1, 2)", FAILED),
        ("class A: pass\nf(A())", REFUSED),
        ("class A: pass\ntry: f(A())\nexcept TypeError: pass", REFUSED),
        ("f(1); raise MemoryError", MEMORY),
        ("assert f(lambda x: x + 1)(1) == 2", PASSED),
    ],
)
def test_verdict_of_one_test(test, verdict):
    tester, _ = connect("def f(x): return x")
    assert tester.run(test, 0) == verdict


@pytest.mark.parametrize(("program", "state"), [("1 / 0", CRASHED), ("raise MemoryError", MEMORY), ("x = 1", DEFINED)])
def test_definition_names_the_state(program, state):
    assert connect(program)[1] == state


def test_lost_solver_fails_all_later_tests():
    tester, _ = connect("import threading\ndef f(): raise SystemExit")
    tester.peer.failure = EOFError()
    assert tester.run("assert 1 == 1", 0) == CRASHED
    assert tester.run("try: f()\nexcept BaseException: pass", 0) == CRASHED
