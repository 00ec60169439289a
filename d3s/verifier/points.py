r"""Points at which two formulas with names are compared: generic ones, and one in every cell between kinks.

A formula without kinks is analytic, so that few generic points decide. |g|, max, min, roots, logarithms and cases
change their branch where some g is zero. Along a line through a generic point these zeros are found, and a point is
taken on either side of each. Steps (floor, ceiling, mod) also meet integers, squares and the ends of their stairs.
"""

import itertools
import random
import re
from collections.abc import Iterator

import sympy
from sympy import Expr, Rational, Symbol
from sympy.functions.elementary.trigonometric import InverseTrigonometricFunction

from d3s.verifier.latex import GROWING

Point = dict[Symbol, Rational]

STEPS = (sympy.floor, sympy.ceiling, sympy.frac, sympy.Mod)
GENERIC = 24  # points without a relation to the formula; names are near 1 in the first half, of all sizes in the second
STEP_POINTS = 60
LINES = 6  # generic points from which kinks are searched, along each name
MAX_DEGREE = 8  # of a polynomial whose zeros are searched
MAX_BRANCHES = 8  # of one kink: |x| is x or -x inside another absolute value
FAST = (*GROWING, sympy.factorial, sympy.gamma, sympy.binomial)  # names in their arguments and exponents stay small
_SIGNED = re.compile(r"[a-z]|(?:opaque|derivative).*", re.DOTALL)  # other names stand for positive quantities
_INTEGER = re.compile(r"[k-nN]")  # in steps


def points(left: Expr, right: Expr) -> Iterator[Point]:
    """Yield fixed points for two expressions, each once and the same in every process: generic ones first."""
    seen = set()
    for point in _points(left, right):
        if (values := tuple(point.values())) not in seen:
            seen.add(values)
            yield point


def _points(left: Expr, right: Expr) -> Iterator[Point]:
    names = sorted(left.free_symbols | right.free_symbols, key=str)
    small = _small_names(left, right)
    has_steps = left.has(*STEPS) or right.has(*STEPS)
    for index in range(STEP_POINTS if has_steps else GENERIC):
        yield _step_point(index, names, small) if has_steps else _generic_point(index, names, small)
    signs, stairs = kinks(left, right)
    for index, name in itertools.product(range(LINES if signs or stairs else 0), names):
        base = _generic_point(index, names, small)
        for value in (*_between(signs, name, base, index), *_at_stairs(stairs, name, base)):
            if value > 0 or (_SIGNED.fullmatch(name.name) and value):
                point = base | {name: value}
                yield {n: sympy.floor(v) if _is_integer(n) else v for n, v in point.items()} if has_steps else point


def kinks(*expressions: Expr) -> tuple[list[Expr], list[Expr]]:
    """Return the terms whose sign chooses a branch of the expressions, and the terms that steps round."""
    signs: set[Expr] = set()
    stairs: set[Expr] = set()
    for part in itertools.chain(*map(sympy.preorder_traversal, expressions)):
        if isinstance(part, (sympy.Abs, sympy.sign, sympy.arg, sympy.Heaviside)):
            signs.add(part.args[0])
        elif isinstance(part, (sympy.Max, sympy.Min)):
            signs |= {a - b for a, b in itertools.combinations(part.args, 2)}
        elif isinstance(part, InverseTrigonometricFunction):
            signs |= {part.args[0] - 1, part.args[0] + 1, sympy.fraction(sympy.together(part.args[0]))[1]}
        elif isinstance(part, sympy.core.relational.Relational):
            signs.add(part.lhs - part.rhs)
        elif isinstance(part, sympy.Mod):
            stairs.add(part.args[0] / part.args[1])
        elif isinstance(part, STEPS):
            stairs.add(part.args[0])
    signs |= set(domain(*expressions))
    factors = {factor for term in signs for factor in sympy.Mul.make_args(term)}
    bases = {factor.base if factor.is_Pow and factor.exp.is_Integer else factor for factor in factors}
    signs |= bases | {base.args[0] - 1 for base in bases if isinstance(base, sympy.log)}
    return tuple(sorted((t for t in terms if t.free_symbols), key=str) for terms in (signs, stairs))


def is_met(argument: Expr) -> bool:
    """Do the points meet the values at which a step of this argument rises?

    They do for rational polynomials of integers, and for linear ones of any names and of further steps.
    """
    inner = {step: sympy.Dummy() for step in argument.atoms(*STEPS)}
    outer = argument.xreplace(inner)
    polynomial = outer.as_poly(*sorted(outer.free_symbols, key=str)) if outer.free_symbols else None
    if polynomial is None or not (polynomial.domain.is_QQ or polynomial.domain.is_ZZ):
        return not outer.free_symbols
    return polynomial.total_degree() <= 1 or (not inner and all(map(_is_integer, outer.free_symbols)))


def domain(*expressions: Expr) -> list[Expr]:
    """Return the terms that are positive inside the real domain of the expressions: under even roots and in logs."""
    terms = []
    for part in itertools.chain(*map(sympy.preorder_traversal, expressions)):
        if isinstance(part, sympy.log):
            terms.append(part.args[0])
        elif isinstance(part, sympy.Pow) and part.exp.is_Rational and part.exp.q % 2 == 0:
            terms.append(part.base)
        elif isinstance(part, (sympy.asin, sympy.acos)):
            terms.append(1 - part.args[0] ** 2)
    return [term for term in dict.fromkeys(terms) if term.free_symbols]


def _small_names(*expressions: Expr) -> set[Symbol]:
    """Return the names in exponents, factorials and other terms that grow fast."""
    names: set[Symbol] = set()
    for part in itertools.chain(*map(sympy.preorder_traversal, expressions)):
        if isinstance(part, FAST):
            names |= part.exp.free_symbols if part.is_Pow else part.free_symbols
    return names


def _is_integer(name: Symbol) -> bool:
    return _INTEGER.fullmatch(name.name) is not None


def _generic_point(index: int, names: list[Symbol], small: set[Symbol]) -> Point:
    """All names are positive in every second point; each name that may be negative has its own sign in the others."""
    generator = random.Random(index)
    point = {}
    for name in names:
        if name in small:  # few digits, as a power of it is compared to all its digits
            value = Rational(13 * generator.randrange(6) + generator.randrange(1, 13), 13)
        elif index < GENERIC // 2:
            value = Rational(generator.randrange(300, 2_900) * 2 + 1, 997)
        else:
            value = Rational(generator.randrange(1_009, 10_090), 1_009) * Rational(10) ** generator.randrange(-3, 6)
        is_negative = index % 2 == 1 and generator.random() < 0.5 and _SIGNED.fullmatch(name.name)
        point[name] = -value if is_negative else value
    return point


def _step_point(index: int, names: list[Symbol], small: set[Symbol]) -> Point:
    """Sizes up to 1,000,000, both signs; all integers in every third point, squares in every ninth."""
    generator = random.Random(index)
    point = {}
    for name in names:
        value = Rational(generator.randrange(10 ** (1 if name in small else 1 + index % 6)))
        if index % 9 == 0:
            value = sympy.floor(sympy.sqrt(value)) ** 2
        elif index % 3 and not _is_integer(name):
            value += Rational(generator.randrange(1, 997), 997)
        is_negative = index % 4 == 1 and generator.random() < 0.7 and _SIGNED.fullmatch(name.name)
        point[name] = -value if is_negative else value
    return point


def _between(terms: list[Expr], name: Symbol, base: Point, line: int) -> list[Rational]:
    """Return one value of a name between each two zeros of the terms on a line through `base`, and beyond the outer.

    The number of the line sets the place between them, and the distance from each of more values for other terms.
    """
    ends = sorted({end for term in terms for end in _zeros(term, name, base)})
    if not ends:
        return []
    share, near = Rational(line + 1, LINES + 1), Rational(10) ** (line - 2)
    inner = [low + (high - low) * share for low, high in itertools.pairwise(ends)]
    outer = [ends[0] - 4 * share**2 * (1 + abs(ends[0])), ends[-1] + 4 * share**2 * (1 + abs(ends[-1]))]
    all_found = all(term.is_polynomial(name) for term in terms)
    return [*inner, *outer] if all_found else [*inner, *outer, *(end + d for end in ends for d in (near, -near))]


def _zeros(term: Expr, name: Symbol, base: Point) -> list[Rational]:
    """Return rational ends of intervals around the zeros of each polynomial branch of a term, multiple ones too."""
    ends = []
    for branch in _branches(term.xreplace({n: v for n, v in base.items() if n != name})):
        polynomial = branch.as_poly(name) if name in branch.free_symbols else None
        if polynomial is None or polynomial.degree() > MAX_DEGREE:
            continue
        if polynomial.domain.is_QQ or polynomial.domain.is_ZZ:
            ends += [end for interval, _ in polynomial.intervals(eps=Rational(1, 100)) for end in interval]
    return [Rational(end) for end in ends]


def _branches(term: Expr) -> list[Expr]:
    """Return a term without absolute values, maxima and minima: one for each choice of their branches."""
    branches = [sympy.fraction(sympy.together(term))[0]]
    while inner := next((b for b in branches if b.has(sympy.Abs, sympy.Max, sympy.Min)), None):
        part = next(iter(inner.atoms(sympy.Abs, sympy.Max, sympy.Min)))
        choices = part.args if isinstance(part, (sympy.Max, sympy.Min)) else (part.args[0], -part.args[0])
        branches.remove(inner)
        branches += [inner.xreplace({part: choice}) for choice in choices]
        if len(branches) > MAX_BRANCHES:
            return []
    return branches


def _at_stairs(terms: list[Expr], name: Symbol, base: Point) -> Iterator[Rational]:
    """Yield the values of a name at which a linear term is an integer, and one just below and above each."""
    for term in terms:
        line = term.xreplace({n: v for n, v in base.items() if n != name}).as_poly(name)
        if line is not None and line.degree() == 1 and all(c.is_Rational for c in line.all_coeffs()):
            slope, start = line.all_coeffs()
            for rounded in (-3, 0, 1, 4, sympy.floor(slope * base[name] + start)):
                end = (rounded - start) / slope
                yield from (end, end - Rational(1, 997), end + Rational(1, 997))
