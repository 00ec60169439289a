"""Evaluate expressions of natural numbers with + - * and parentheses, without executing anything."""

import operator
import re

OPERATIONS = {"+": operator.add, "-": operator.sub, "*": operator.mul}
SYMBOLS = tuple(OPERATIONS)
MAX_EXPRESSION = 100  # characters; also bounds the recursion depth and the size of the numbers
TOKEN = re.compile(r"[ \t]*([0-9]+|[-+*()])")


def evaluate_expression(text: str) -> tuple[int, list[int]] | None:
    """Evaluate an expression of natural numbers, + - * and parentheses.

    Nothing is executed: the text is tokenized and parsed by recursive descent (a sum of products of atoms).

    Returns: its value and the numbers in it; None if the text is not such an expression.
    """
    tokens, position = [], 0
    text = text.rstrip(" \t")
    if len(text) > MAX_EXPRESSION:
        return None
    while position < len(text):
        match = TOKEN.match(text, position)
        if match is None:
            return None
        tokens.append(match[1])
        position = match.end()
    tokens.reverse()  # a stack with the next token on top
    numbers: list[int] = []
    try:
        value = _parse_sum(tokens, numbers)
    except ValueError:
        return None
    return None if tokens else (value, numbers)


def _parse_sum(tokens: list[str], numbers: list[int]) -> int:
    value = _parse_product(tokens, numbers)
    while tokens and tokens[-1] in "+-":
        value = OPERATIONS[tokens.pop()](value, _parse_product(tokens, numbers))
    return value


def _parse_product(tokens: list[str], numbers: list[int]) -> int:
    value = _parse_atom(tokens, numbers)
    while tokens and tokens[-1] == "*":
        tokens.pop()
        value *= _parse_atom(tokens, numbers)
    return value


def _parse_atom(tokens: list[str], numbers: list[int]) -> int:
    token = tokens.pop() if tokens else ""
    if token == "(":
        value = _parse_sum(tokens, numbers)
        if not tokens or tokens.pop() != ")":
            raise ValueError("missing closing parenthesis")
        return value
    if not token.isdigit():
        raise ValueError(f"got {token!r}, expected a number or an opening parenthesis")
    numbers.append(int(token))
    return numbers[-1]
