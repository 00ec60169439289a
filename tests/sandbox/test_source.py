"""Which names of tests are the program's, and what becomes of their statements."""

import fractions
import math
import os

import pytest

from d3s.sandbox.source import EVALUATE, IDENTITY, SETTLE, compile_test, split_names


@pytest.mark.parametrize(
    ("tests", "names", "given"),
    [
        (["assert f(2) == 4"], {"f"}, {}),
        (["import math\nx = 1", "assert math.isclose(f(x), 4)"], {"f"}, {}),
        (["assert math.isclose(f(2), 4)"], {"f"}, {"math": math}),
        (["assert isclose(f(2), 4)"], {"f"}, {"isclose": math.isclose}),
        (["half = Fraction(1, 2)", "assert f(2) == half"], {"f"}, {"Fraction": fractions.Fraction}),
        (["assert gcd(4, 6) == 2"], {"gcd"}, {}),  # is tested itself
        (["assert isclose(sqrt(4), 2.0)"], {"sqrt"}, {"isclose": math.isclose}),
        (["x = 4", "assert abs(sqrt(x) - 2) < 1e-9 and isclose(sqrt(9), 3)"], {"sqrt"}, {"isclose": math.isclose}),
        (
            ["def check(candidate):\n    assert isclose(candidate(4), 2)\ncheck(sqrt)"],
            {"sqrt"},
            {"isclose": math.isclose},
        ),
        (["assert gcd(gcd(4, 6), 2) == 2"], {"gcd"}, {}),
        (["xs = [2, 3]", "assert prod(xs) == 6", "assert mean2(xs) == 2.5"], {"prod", "mean2"}, {}),
        (["for a, b in [(4, 6)]: assert gcd(a, b) == 2", "assert lcm(4, 6) == 12"], {"gcd", "lcm"}, {}),
        (["from solution import f, sqrt  # both\nassert f(2) == sqrt(16)"], {"f"}, {"sqrt": math.sqrt}),
        (["assert gcd(4, 6) == floor(2.5)"], {"gcd"}, {"floor": math.floor}),
        (["half = Fraction(1, 2)\nassert sqrt(4) == 2"], {"sqrt"}, {"Fraction": fractions.Fraction}),
        (["assert gcd(4, 6) == 2 and lcm(4, 6) == 12"], {"gcd", "lcm"}, {}),
        (["assert gcd(4, 6) == 2 and lcm_of(4, 6) == 12"], {"gcd", "lcm_of"}, {}),
        (["x = 6", "assert gcd(4, x) == f(x)"], {"f"}, {"gcd": math.gcd}),
        (["assert queue(2) == [0] and code.upper() == 'A'"], {"queue", "code"}, {}),  # no attributes of these modules
        (["def check(candidate):\n    assert candidate(1) == 2\ncheck(double)"], {"double"}, {}),
        (["for i in range(3):\n    with open(i) as g: h = lambda y: y + g\n    assert f(i, h)"], {"f"}, {}),
        (["try: f(1)\nexcept ValueError as e: assert e", "class A(B): x = e2"], {"f", "B", "e2"}, {}),
        (["assert np.allclose(f(1), 1)"], {"f"}, {}),  # never the program's
        (["f(", "assert g(1)"], {"g"}, {}),
        (["assert sum(10, 15) == 6", "assert len([sum(1, 2)]) == 1"], {"sum"}, {}),  # hides a builtin
        (["assert sum(10, 15) == f(6)", "assert len([1]) == 1"], {"f"}, {}),
        (["assert len(os.environ) < 9"], set(), {"os": os}),
        ([], set(), {}),
    ],
)
def test_names_that_nobody_defines_are_the_program_s(tests, names, given):
    assert split_names(tests) == (names, given)


def test_statements_begin_with_settling():
    lines = []
    scope = {SETTLE: lambda: lines.append("settle"), "note": lines.append}
    test = "'text'\nfrom __future__ import annotations\nnote(1)\nif note(2) or True:\n    note(3)\n"
    test += "def f():\n    'doc'\n    return note(4)\nf()\nassert f.__doc__ == 'doc' and __doc__ == 'text'"
    exec(compile_test(test, 1), scope)
    assert lines == ["settle", 1, "settle", 2, "settle", 3, *["settle"] * 3, 4, "settle"]


def test_identity_and_evaluation_are_replaced():
    seen: list = []
    scope = {SETTLE: int, IDENTITY: lambda value: seen.append(value) or value, EVALUATE: lambda *_: seen.append("eval")}
    test = "a = [1]\nb = a\nassert a is b is not [] and a is not None\neval(a)\neval('1')\nexec(a, {})"
    exec(compile_test(test, 1), scope)
    assert seen == [[1], [1], [], "eval", "eval"]
    with pytest.raises(SyntaxError):
        compile_test("f(", 1)
