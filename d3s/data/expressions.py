"""Evaluate expressions of natural numbers with + - * and parentheses, without executing anything."""

import ast
import operator
import re

OPERATIONS = {"+": operator.add, "-": operator.sub, "*": operator.mul}
SYMBOLS = tuple(OPERATIONS)
NODES = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*"}
MAX_EXPRESSION = 100  # characters; also bounds the recursion depth and the size of the numbers


def evaluate_expression(text: str) -> tuple[int, list[int]] | None:
    """Evaluate an expression of natural numbers, + - * and parentheses, from its syntax tree.

    Returns: its value and the numbers in it, in their order; None if the text is not such an expression.
    """
    text = text.rstrip(" \t")
    if len(text) > MAX_EXPRESSION or not re.fullmatch(r"[0-9+\-*() \t]+", text):
        return None
    numbers: list[int] = []

    def value(node: ast.expr) -> int:
        if isinstance(node, ast.Constant):
            numbers.append(node.value)
            return node.value
        if not isinstance(node, ast.BinOp) or type(node.op) not in NODES:  # a sign, a power, a call, a tuple
            raise ValueError("not an expression of + - *")
        left = value(node.left)
        return OPERATIONS[NODES[type(node.op)]](left, value(node.right))

    plain = re.sub(r"(?<![0-9])0+(?=[0-9])", "", text.lstrip(" \t"))  # Python refuses 007
    try:
        return value(ast.parse(plain, mode="eval").body), numbers
    except (SyntaxError, ValueError):
        return None
