"""The parser of expressions, against Python's own evaluation."""

import re
import string

from hypothesis import given, settings
from hypothesis import strategies as st

from d3s.data.expressions import evaluate_expression


@st.composite
def expressions(draw):
    """(text, the numbers in it), with random spaces and parentheses."""

    def build(depth):
        if depth == 0 or draw(st.booleans()):
            number = draw(st.integers(0, 30))
            return str(number), [number]
        (a, left), (b, right) = build(depth - 1), build(depth - 1)
        text = f"{a}{draw(st.sampled_from(['+', '-', '*', ' + ', '* ']))}{b}"
        return (f"({text})" if draw(st.booleans()) else text), left + right

    return build(3)


@given(expressions())
@settings(deadline=None)
def test_expression_values_match_python(expression):
    text, numbers = expression
    if len(text) > 100:
        assert evaluate_expression(text) is None
    else:
        value, used = evaluate_expression(text)
        assert value == eval(text)  # an expression that this test has built
        assert used == numbers


@given(st.text(alphabet="0123456789+-*() /._eE^x\n\\{}" + string.ascii_letters, max_size=120))
@settings(deadline=None, max_examples=400)
def test_expression_parser_accepts_no_more_than_python(text):
    parsed = evaluate_expression(text)
    if parsed is not None:
        assert re.fullmatch(r"[0-9+\-*() \t]+", text)
        spelled = re.sub(r"(?<![0-9])0+(?=[0-9])", "", text.strip())  # Python refuses 007
        assert parsed[0] == eval(spelled)
