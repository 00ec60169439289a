"""Proxies over a real conversation in one process: who compares and computes what, by the questions that are asked."""

import socket
import threading

import pytest

from d3s.sandbox import tester as module
from d3s.sandbox.remote import Remote
from d3s.sandbox.solver import Solver
from d3s.sandbox.tester import CRASHED, DEFINED, FAILED, MEMORY, PASSED, REFUSED
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


def connect(program: str) -> tuple[module.Tester, bytes]:
    ours, theirs = socket.socketpair()

    def solve() -> None:
        with theirs:
            try:
                Solver(theirs.fileno()).run(program)
            except Broken:
                return

    threading.Thread(target=solve, daemon=True).start()
    tester = module.Tester(ours.detach())
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


MADE = """
class Span:
    def __init__(self, a, b): self.a, self.b = a, b
    def __contains__(self, x): return self.a <= x < self.b
    def __mul__(self, k): return Span(self.a * k, self.b * k)
    def __len__(self): return self.b - self.a
    def __float__(self): return 1.5
    def __round__(self, digits=None): return 2
    def __eq__(self, other): return True
def span(): return Span(0, 9)
"""


def test_objects_that_the_test_made_are_asked():
    tester, _ = connect(MADE)
    made, answer = tester.namespace["Span"](1, 3), tester.namespace["span"]()
    assert (
        2 in made and 3 not in made and len(made * 3) == 6 and 8 in made * 3 and float(made) == 1.5 and round(made) == 2
    )
    for use in (lambda: 2 in answer, lambda: len(answer * 3), lambda: float(answer), lambda: round(answer)):
        with pytest.raises(TypeError):
            use()
    assert made != 4 and answer != 4


def test_containers_are_added_by_the_tester():
    program = "class L(list): pass\nclass S(set):\n    def __sub__(self, other): return S()\ndef f(): return L([1])\n"
    tester, _ = connect(program + "def s(): return S([1])")
    f, s = tester.namespace["f"], tester.namespace["s"]
    assert f() + [2] == [1, 2] and [0] + f() == [0, 1] and f() * 2 == [1, 1]  # noqa: RUF005
    assert s() | {2} == {1, 2}
    with pytest.raises(TypeError):
        len(s() - {1})


CHANGE = """
def change(x): x.clear()
def both(x):
    x.clear()
    return x
def named(*, x): x.append(x[0])
def nothing(x): return None
"""


def test_calls_without_a_result_change_their_arguments():
    tester, _ = connect(CHANGE)
    for argument in ([1], {1: 2}, {1}, bytearray(b"a")):
        alias = argument
        tester.namespace["change"](argument)
        assert len(argument) == 0 and alias is argument
    numbers, functions = [1], [len, lambda: 1]
    assert tester.namespace["both"](numbers) == [] and numbers == [1]
    tester.namespace["named"](x=numbers)
    assert numbers == [1, 1]
    tester.namespace["nothing"](functions)
    assert functions[0] is len and functions[1]() == 1


@pytest.mark.parametrize("reply", [5, [1], [None, {9: 1}], [None, {"x": 1}], [None, 3], None])
def test_other_replies_to_a_call_end_the_conversation(reply):
    tester, _ = connect("def f(x): return 1")
    tester.namespace["f"] = tester.namespace["f"]  # asked before the next line
    tester.store.ask = lambda *arguments: reply
    assert tester.run("try: f(1)\nexcept BaseException: pass", 0) == CRASHED


def test_modules_of_the_program_are_not_used():
    tester, _ = connect("class math:\n    isclose = lambda *a: True\ndef queue(x): return x\nstring = 'abc'")
    assert tester.run("assert math.isclose(1, 2)", 0) == FAILED
    assert tester.run("assert math.isclose(1, 1) and queue(3) == 3 and string.upper() == 'ABC'", 0) == PASSED


def test_exceptions_keep_position_file_and_cause():
    program = "import json\ndef load(s): return json.loads(s)\ndef find(): raise FileNotFoundError(2, 'No', 'name')\n"
    tester, _ = connect(
        program + "def chain():\n    try: 1 / 0\n    except ZeroDivisionError as e: raise KeyError from e"
    )
    with pytest.raises(ValueError) as error:
        tester.namespace["load"]("[1,")
    assert error.value.pos == 3
    with pytest.raises(OSError) as error:
        tester.namespace["find"]()
    assert (error.value.errno, error.value.filename) == (2, "name")
    with pytest.raises(KeyError) as error:
        tester.namespace["chain"]()
    assert isinstance(error.value.__cause__, ZeroDivisionError)
