r"""Compare formulas, relations and sets with sympy, in the verifier's workers only.

A comparison may be slow, and its worker may be killed. Formulas are parsed by d3s/verifier/latex.py; expressions are
compared by d3s/verifier/identity.py.
"""

import re
from fractions import Fraction
from functools import reduce

import sympy
from sympy import I, S
from sympy.matrices import MatrixBase

from d3s.verifier.identity import equal_expressions, evaluate, opaque, proportional
from d3s.verifier.latex import UnreadableError, parse_formula
from d3s.verifier.quantities import FULL_PRECISION, claims, parse_quantity, rounds_to
from d3s.verifier.relations import interval_of
from d3s.verifier.structure import is_name, is_set_operation, parse_structure, split_relation, split_top

Link = tuple[sympy.Expr, str]  # `left sign right` as (left - right, sign), sign one of `=`, `\neq`, `<`, `\leq`
_REVERSED = {">": "<", r"\geq": r"\leq"}


def equal_formulas(gold: str, answer: str) -> bool:
    r"""Are two normalized formulas, relations or set expressions equal? A bare `\log` may mean base ten or base e.

    A gold text `\approx 1.41` asks whether the answer has this approximation.

    Raises UnreadableError when either cannot be parsed.
    """
    if gold.startswith(r"\approx"):
        return _is_near(gold.removeprefix(r"\approx"), answer)
    if is_set_operation(gold) or is_set_operation(answer) or r"\in " in gold + answer:
        left, right = to_set(gold), to_set(answer)
        return left == right or bool(left.symmetric_difference(right).is_empty)
    if _equal(gold, answer, natural_log=False):
        return True
    has_bare_log = re.search(r"\\log(?!\s*_)", gold + answer) is not None
    return has_bare_log and _equal(gold, answer, natural_log=True)


def to_set(text: str) -> sympy.Set:
    r"""Read a normalized answer as a set of numbers: unions, intersections, differences, intervals, `x \neq 5`."""
    for sign, combine in ((r"\setminus", sympy.Complement), (r"\cup", sympy.Union), (r"\cap", sympy.Intersection)):
        parts = split_top(text, sign)
        if len(parts) > 1:
            return reduce(combine, [to_set(part.strip()) for part in parts])
    text = text.strip()
    named = {r"\mathbb{R}": S.Reals, r"\mathbb{Z}": S.Integers, r"\mathbb{N}": S.Naturals, r"\mathbb{Q}": S.Rationals,
             r"\mathbb{C}": S.Complexes, r"\emptyset": S.EmptySet, r"\mathbb{R}^+": sympy.Interval.open(0, S.Infinity),
             r"\mathbb{R}^-": sympy.Interval.open(S.NegativeInfinity, 0), r"\mathbb{Z}^+": S.Naturals}  # fmt: skip
    if (name := re.sub(r"\{([-+])\}", r"\1", text).replace(" ", "")) in named:
        return named[name]
    structure = parse_structure(text)
    items, signs = structure.items, structure.signs
    if structure.kind == "union":
        return sympy.Union(*[to_set(item) for item in items])
    if structure.kind in ("set", "list"):
        return sympy.FiniteSet(*[_parse_real(item) for item in items])
    if structure.kind == "bracket" and len(items) == 2:
        start, end = (_parse_real(item) for item in items)
        if (start.is_infinite and structure.style[0] == "[") or (end.is_infinite and structure.style[1] == "]"):
            raise UnreadableError("infinity is no number")
        return sympy.Interval(start, end, structure.style[0] == "(", structure.style[1] == ")")
    if structure.kind == "relation":
        if (interval := interval_of(structure)) is not None:
            return to_set(interval)
        if is_name(items[0]) and len(items) == 2 and signs[0] in (r"\in", "="):
            is_value = (
                signs[0] == "=" and parse_structure(items[1]).kind == "formula" and not is_set_operation(items[1])
            )
            return sympy.FiniteSet(_parse_real(items[1])) if is_value else to_set(items[1])
        if is_name(items[0]) and signs == (r"\neq",):
            return sympy.Complement(S.Reals, sympy.FiniteSet(_parse_real(items[1])))
    raise UnreadableError("not a set")


def warm_up() -> None:
    """Load the grammar and sympy's lazy modules ahead of the first answer."""
    for gold, answer in ((r"\frac{\sqrt{2}}{2}x+1", r"1+x\sin(\pi/4)"), (r"(0,1)\cup(1,2)", r"(0,2)\setminus\{1\}")):
        equal_formulas(gold, answer)


def _equal(gold: str, answer: str, natural_log: bool) -> bool:
    (gold_sides, gold_signs), (answer_sides, answer_signs) = split_relation(gold), split_relation(answer)
    if bool(gold_signs) != bool(answer_signs):
        return False
    if gold_signs:
        gold_links = _links(gold_sides, gold_signs, natural_log)
        return _equal_relations(gold_links, _links(answer_sides, answer_signs, natural_log))
    left, right = parse_formula(gold, natural_log), parse_formula(answer, natural_log)
    if isinstance(left, (sympy.Set, sympy.Tuple)) or isinstance(right, (sympy.Set, sympy.Tuple)):
        return left == right
    left, right = _done(left), _done(right)
    if isinstance(left, MatrixBase) or isinstance(right, MatrixBase):
        same_shape = isinstance(left, MatrixBase) and isinstance(right, MatrixBase) and left.shape == right.shape
        return same_shape and all(equal_expressions(a, b) for a, b in zip(left, right))
    if equal_expressions(left, right):
        return True
    return _equal_by_rounding(gold, right, answer, left)


def _done(formula: sympy.Basic | MatrixBase) -> sympy.Basic | MatrixBase:
    """Evaluate sums, integrals, limits and matrix expressions as far as sympy can."""
    try:
        value = formula.doit()
    except (MemoryError, RecursionError):
        raise
    except Exception:
        return formula
    return value.as_explicit() if isinstance(value, sympy.MatrixExpr) and not value.atoms(sympy.MatrixSymbol) else value


def _equal_by_rounding(gold: str, answer_value: sympy.Expr, answer: str, gold_value: sympy.Expr) -> bool:
    """Does an exact value round to the decimal on the other side?

    A gold decimal accepts an exact answer. An exact gold answer accepts a decimal of full precision only.
    """
    sides = ((gold, answer, answer_value, 0), (answer, gold, gold_value, FULL_PRECISION))
    for decimal, exact, value, digits in sides:
        written = parse_quantity(decimal)
        if written and written.step and written.digits >= digits and not re.search(r"\.[0-9]", exact):
            number = None if value.free_symbols else evaluate(value, 40)
            if number is not None and not number.has(I) and rounds_to(Fraction(str(number)), written):
                return True
    return False


def _is_near(claim: str, exact: str) -> bool:
    """Is a written number or formula an approximation of a formula? True where that has no real value to tell."""
    value = _real_value(exact)
    if value is None:
        return True
    if claimed := parse_quantity(claim.strip()):
        return claims(claimed, value)
    about = _real_value(claim)
    return about is not None and abs(about - value) <= abs(value) / 100


def _real_value(text: str) -> Fraction | None:
    """The value of a formula without names, to 40 digits; None for any other."""
    formula = _done(parse_formula(text))
    value = None if formula.free_symbols or not isinstance(formula, sympy.Expr) else evaluate(formula, 40)
    return None if value is None or value.has(I) else Fraction(str(value))


def _links(sides: list[str], signs: list[str], natural_log: bool) -> list[Link]:
    links = []
    for left, sign, right in zip(sides, signs, sides[1:]):
        if sign not in ("=", r"\neq", *_REVERSED, *_REVERSED.values()):
            raise UnreadableError(sign)
        difference = _done(parse_formula(left, natural_log)) - _done(parse_formula(right, natural_log))
        links.append((-difference, _REVERSED[sign]) if sign in _REVERSED else (difference, sign))
    return links


def _equal_relations(gold: list[Link], answer: list[Link]) -> bool:
    """Is each link of one chain equivalent to that of the other, in the same or in the reversed order?"""
    if len(gold) != len(answer):
        return False
    return any(all(_equal_links(a, b) for a, b in zip(gold, order)) for order in (answer, answer[::-1]))


def _equal_links(gold: Link, answer: Link) -> bool:
    """Is one difference a constant multiple of the other, positive for an inequality?

    The differences of equations are also compared after clearing fractions.
    """
    (left, sign), (right, answer_sign) = gold, answer
    if sign != answer_sign or isinstance(left, MatrixBase) or isinstance(right, MatrixBase):
        return False
    left, right = opaque(left), opaque(right)
    if proportional(left, right, positive=sign in ("<", r"\leq")):
        return True
    if sign not in ("=", r"\neq"):
        return False
    left, right = (sympy.fraction(sympy.together(e))[0] for e in (left, right))
    return proportional(left, right, positive=False)


def _parse_real(text: str) -> sympy.Expr:
    value = parse_formula(text)
    value = _done(value) if not isinstance(value, MatrixBase) else value
    if not isinstance(value, sympy.Expr) or value.free_symbols or not value.is_extended_real:
        raise UnreadableError("not a real number")
    return value
