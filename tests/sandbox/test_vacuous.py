"""Tests that say nothing: each kind of them, as text and over a real conversation, against ones that do."""

import pytest

from d3s.sandbox.runner import run_tests
from d3s.sandbox.vacuous import vacuous

RIGHT, WRONG = "def f(x): return 2 * x", "def f(x): return 0"
# A check as it stands in a test, and the ways in which a test may hold it; `!` where nothing runs it.
CHECKS = {"assert f(3) == 6": "assert", "if f(3) != 6: raise ValueError": "raise"}
HOLDERS = {
    "pytest": "def test_f():\n    {}",
    "pytest class": "class TestF:\n    def test_f(self):\n        {}",
    "unittest": "import unittest\nclass Case(unittest.TestCase):\n    def test_f(self):\n        {}",
    "main": "if __name__ == '__main__':\n    {}",
    "unittest.main": "import unittest\nclass F(unittest.TestCase):\n    def test_f(self):\n        {}\n"
    "if __name__ == '__main__':\n    unittest.main()",
    "parametrize": "import pytest\n@pytest.mark.parametrize('x, y', [(3, 6), pytest.param(4, 8)])\n"
    "def test_f(x, y):\n    assert f(x) == y",
    "fixture": "import pytest\n@pytest.fixture\ndef six():\n    return f(3)\ndef test_f(six):\n    assert six == 6",
    "approx": "import pytest\ndef test_f():\n    assert f(3) == pytest.approx(6 + 1e-9)\n    {}",
    "ignored result": "import unittest\nclass F(unittest.TestCase):\n    def test_f(self):\n        {}\n"
    "unittest.TextTestRunner(open('/dev/null', 'w') if 0 else None).run(F('test_f'))",
    "called": "def check(candidate):\n    {}\ncheck(f)",
    "decorated": "def twice(function):\n    function()\n    return function\n@twice\ndef check():\n    {}",
    "inherited": "class Contract:\n    def test_f(self):\n        {}\nclass TestF(Contract):\n"
    "    def test_zero(self): assert f(0) == 0",
    "class in a class": "class TestF:\n    def test_zero(self): assert f(0) == 0\n"
    "    class TestMore:\n        def test_f(self):\n            {}",
    "class with parameters": "import pytest\n@pytest.mark.parametrize('x', [3])\nclass TestF:\n"
    "    def test_f(self, x):\n        {}",
    "under if": "import sys\nif sys.version_info > (3,):\n    def test_f():\n        {}",
    "async": "import pytest\n@pytest.mark.asyncio\nasync def test_f():\n    {}",
    "cached": "import functools\n@functools.lru_cache\ndef test_f():\n    {}",
    "own base": "from unittest import TestCase as Base\nclass Shared(Base): pass\nclass More(Shared):\n"
    "    def test_f(self):\n        {}",
    "mentioned": "def test_f():\n    {}\nprint(test_f.__name__)",
    "own runner": "def test_f():\n    {}\nfor test in (test_f,):\n    try: test()\n    except Exception: failed = 1",
    "setup": "class TestF:\n    def setup_method(self, method): self.x = 3\n    def test_f(self):\n"
    "        assert f(self.x) == 6",
    "automatic fixture": "import pytest\nclass TestF:\n    @pytest.fixture(autouse=True)\n"
    "    def begin(self): self.x = 3\n    def test_f(self):\n        assert f(self.x) == 6",
    "fixture of a class": "import pytest\nclass TestF:\n    @pytest.fixture\n    def x(self): return 3\n"
    "    def test_f(self, x):\n        assert f(x) == 6",
    "skipped beside": "import pytest\n@pytest.mark.skip(reason='later')\ndef test_never(): assert f(3) == 7\n"
    "def test_f():\n    {}",
    "skipped method beside": "import unittest\nclass F(unittest.TestCase):\n    @unittest.skip('later')\n"
    "    def test_a(self): self.assertEqual(f(3), 7)\n    def test_f(self):\n        {}",
    "captured": "def test_f(capsys):\n    print(f(3))\n    assert capsys.readouterr().out == '6\\n'",
    "exit": "import pytest, sys\ndef test_f():\n    {}\nif __name__ == '__main__':\n"
    "    sys.exit(pytest.main([__file__]))",
    "import of the program": "from solution import f\ndef test_f():\n    {}",
    "raises": "import pytest\ndef test_f():\n    with pytest.raises(TypeError) as info: f(None) == 1\n"
    "    assert info.type is TypeError and info.match('NoneType')\n    {}",
    "!only defined": "def check(candidate):\n    {}",
    "!helper class": "class Helper:\n    def check(self):\n        {}",
    "!other main": "if __name__ == 'tests':\n    {}",
    "!never": "for i in []:\n    {}",
}


@pytest.mark.parametrize("check", CHECKS, ids=CHECKS.values())
@pytest.mark.parametrize("holder", HOLDERS)
def test_check_counts_where_it_runs(holder, check):
    test = HOLDERS[holder].replace("{}", check)
    right, wrong = (run_tests(program, [test]) for program in (RIGHT, WRONG))
    assert wrong.passed == [False] and wrong.reason.startswith("test 1")
    assert right.passed == [not holder.startswith("!")]
    if holder.startswith("!"):
        assert right.state == "refused" and "test 1, line 1: asks the program nothing" in right.reason


# By the line and reason that are found in the text; NOTHING is found when the test runs.
NOTHING = "asks the program nothing"
VACUOUS = {
    "x = 1\nf(1) == 2": (2, "comparison"),
    "f(1) == 2 and f(2) == 4": (1, "comparison"),
    "def test_f():\n    f(1) == 2": (2, "comparison"),
    "assert 1 == 1": (1, NOTHING),
    "import math\nassert math.pi > 3": (1, NOTHING),
    "\ndef g(x): return x\nassert g(1) == 1": (2, NOTHING),
    "from math import isclose, sqrt\nassert isclose(sqrt(4), 2.0)": (1, NOTHING),
    "f(1)": (1, "checks nothing"),
    "x = f(1)": (1, "checks nothing"),
    "def check(candidate):\n    assert candidate(1) == 2": (1, "checks nothing"),
    "import math\nx = 3": (1, "checks nothing"),
    "assert (f(1) == 3, 'twice one')": (1, "always true"),
    "assert [f(x) == 3 for x in range(3)]": (1, "always true"),
    "try:\n    assert f(1) == 3\nexcept AssertionError as e:\n    print(e)": (3, "caught"),
    "assert f(1) == 3 or True": (1, "always true"),
    "assert {'a': f(1) == 3}": (1, "always true"),
    "assert str(f(1) == 3)": (1, "always true"),
    "assert (r := f(1) == 3) is not None": (1, "always true"),
    "assert isinstance(f(1), object)": (1, "always true"),
    "f(1)\nassert True": (2, NOTHING),
    "r = f(1)\nassert 1 == 1": (2, NOTHING),
    "import unittest\nunittest.TestCase().assertTrue('f', f(1))": (2, "always true"),
    "from contextlib import suppress\nwith suppress(AssertionError):\n    assert f(1) == 3": (2, "suppressed"),
    "def test_f(): assert f(1) == 3\ntry: test_f()\nexcept Exception: pass": (3, "caught"),
    "assert f(": (1, "no Python"),
}
SOUND = [
    ["x = f(1)\nassert x == 2", "assert x + 1 == 3"],
    ["xs = [1]\nf(xs)\nassert xs", "assert len(xs) == 1"],
    ["def g(x): return f(x)\nassert g(1) == 2", "y = g(2)\nassert y == 4"],
    ["import unittest\nunittest.TestCase().assertEqual(f(1), 2)"],
    ["try: f(1)\nexcept ValueError: pass\nelse: raise AssertionError"],
    ["f(1); assert f(2) == 4"],
    ["try:\n    f('a', 1)\n    assert False\nexcept TypeError: pass"],
    ["assert isinstance(f(1), int) or f(1) == 2"],
    ["ok = True\ntry: assert f(1) == 2\nexcept AssertionError: ok = False\nassert ok"],
]


@pytest.mark.parametrize("test", VACUOUS)
def test_vacuous_texts_are_found_with_their_line(test):
    ((index, line, reason),) = vacuous([test])
    assert (index, line) == (0, VACUOUS[test][0]) and VACUOUS[test][1] in reason
    if VACUOUS[test][1] in (NOTHING, "comparison"):
        report = run_tests(RIGHT, [test])
        assert report.passed == [False] and report.state == "refused" and report.reason.startswith("test 1, line ")


def test_sound_texts_are_not_vacuous():
    for tests in SOUND:
        assert list(vacuous(tests)) == []
    for tests in SOUND[:1] + SOUND[2:4]:
        assert run_tests(RIGHT, tests).passed == [True] * len(tests)


@pytest.mark.parametrize(
    "test",
    [
        "assert f",
        "assert callable(f)",
        "assert hasattr(f, '__call__')",
        "assert f.__name__ == 'f'",
        "g = f\nassert g",
        "import f_that_is_not",
    ],
)
def test_names_alone_pay_nothing(test):
    report = run_tests(RIGHT, [test])
    assert report.passed == [False] and report.state == "refused" and report.reason.startswith("test 1")
