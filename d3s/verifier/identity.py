r"""Identity tests of two sympy expressions: exact constants, and values at fixed generic points.

Two formulas are equal when they are the same expression, or agree to 25 digits at several fixed generic points
(polynomial identity testing). Lower-case letters may be negative there; other names (`R`, `r_0`, `\omega`) stand for
positive quantities. Constants agree to 50 digits. Then the difference must vanish to more digits than all written
constants have together: closeness is no equality where both sides are exact.
"""

import random
import re

import sympy
from sympy import I, Rational, S
from sympy.core.function import AppliedUndef

from d3s.verifier.latex import GROWING, UnreadableError, written_digits

DIGITS = 25  # precision of the comparison at points
POINTS = 4  # agreeing points needed; in half of them all names are positive
ZERO_DIGITS = 100  # digits to which a difference must vanish, plus twice the digits of its constants
MAX_ZERO_DIGITS = 25_000
STEPS = (sympy.floor, sympy.ceiling, sympy.frac)
STEP_POINTS = 60  # of all sizes, because a step function is constant almost everywhere
INEXACT = (sympy.Integral, sympy.Sum, sympy.Product, sympy.Limit)  # evaluated by quadrature and extrapolation


def equal_expressions(left: sympy.Expr, right: sympy.Expr) -> bool:
    """Are two evaluated expressions identical, equal constants, or equal at generic points?"""
    if left == right:
        return not left.has(S.NaN, S.ComplexInfinity)
    if left.has(S.NaN, S.ComplexInfinity) or right.has(S.NaN, S.ComplexInfinity):
        return False
    if left.is_Rational and right.is_Rational:
        return False
    if left.has(S.Infinity, S.NegativeInfinity) or right.has(S.Infinity, S.NegativeInfinity):
        return sympy.simplify(left) == sympy.simplify(right)
    left, right = opaque(left), opaque(right)
    names = sorted(left.free_symbols | right.free_symbols, key=str)
    if not names:
        return _equal_constants(left, right)
    return _equal_at_points(left, right, names)


def proportional(left: sympy.Expr, right: sympy.Expr, positive: bool) -> bool:
    """Is the ratio of two expressions with names the same at all points, and above zero if `positive`?"""
    names = sorted(left.free_symbols | right.free_symbols, key=str)
    if not names:
        return False
    ratios, usable_points = [], []
    for point in points(names):
        a, b = evaluate(left, DIGITS + 10, point), evaluate(right, DIGITS + 10, point)
        if a is None or b is None:
            continue
        if abs(a) < Rational(1, 10**DIGITS) or abs(b) < Rational(1, 10**DIGITS):
            return False
        ratios.append(a / b)
        usable_points.append(point)
        if not _close(ratios[0], ratios[-1], DIGITS - 5):
            return False
        if len(ratios) >= POINTS + 1:
            break
    if len(ratios) < POINTS or (positive and not ratios[0] > 0):
        return False
    copies = {name: sympy.Dummy() for name in names}
    elsewhere = {copies[name]: value for name, value in usable_points[-1].items()}
    return _vanishes(left * right.xreplace(copies) - left.xreplace(copies) * right, usable_points[0] | elsewhere)


def opaque(e: sympy.Expr) -> sympy.Expr:
    """Replace undefined functions, and sums and integrals that could not be evaluated, by symbols of their own."""
    parts = e.atoms(AppliedUndef, sympy.Integral, sympy.Sum, sympy.Product, sympy.Limit)
    return e.xreplace(
        {part: sympy.Symbol(f"opaque{part}") for part in parts if part.free_symbols or isinstance(part, AppliedUndef)}
    )


def evaluate(e: sympy.Expr, digits: int, at: dict | None = None) -> sympy.Expr | None:
    """Evaluate to a finite complex number of `digits` digits; None if there is none."""
    try:
        value = e.evalf(digits, subs=at, maxn=400)
    except (MemoryError, RecursionError):
        raise
    except Exception:
        return None
    real, imaginary = value.as_real_imag()
    if not (real.is_Float or real.is_Rational) or not (imaginary.is_Float or imaginary.is_Rational):
        return None
    return value if real.is_finite and imaginary.is_finite else None


def points(names: list[sympy.Symbol]) -> list[dict[sympy.Symbol, sympy.Rational]]:
    """Return fixed generic points, the same in every process. In every second one lower-case letters are negative."""
    drawn = []
    for index in range(12):
        generator = random.Random(index)
        point = {}
        for name in names:
            value = Rational(generator.randrange(300, 2_900) * 2 + 1, 997 if index < 8 else 4_001)
            may_be_negative = index % 2 == 1 and re.fullmatch(r"[a-z]", name.name)
            point[name] = -value if may_be_negative else value
        drawn.append(point)
    return drawn


def _step_points(names: list[sympy.Symbol]) -> list[dict[sympy.Symbol, sympy.Rational]]:
    """Return points of all sizes up to 1,000,000 for formulas with floor or ceiling. `k` to `n`, `N` are integers."""
    drawn = []
    for index in range(STEP_POINTS):
        generator = random.Random(index)
        size = 10 ** (1 + index % 6)
        point = {}
        for name in names:
            value = Rational(generator.randrange(size) * 997 + generator.randrange(1, 997), 997)
            point[name] = sympy.floor(value) if re.fullmatch(r"[k-nN]", name.name) else value
        drawn.append(point)
    return drawn


def _equal_constants(left: sympy.Expr, right: sympy.Expr) -> bool:
    values = [evaluate(e, 60) for e in (left, right)]
    if values[0] is None or values[1] is None:
        return sympy.simplify(left - right) == 0
    return _close(values[0], values[1], 50) and _vanishes(left - right)


def _equal_at_points(left: sympy.Expr, right: sympy.Expr, names: list[sympy.Symbol]) -> bool:
    """Are two expressions equal wherever both are real, or anywhere when the imaginary unit occurs?

    Without enough such points, `simplify` decides.
    """
    complex_valued = left.has(I) or right.has(I)
    steps = left.has(*STEPS) or right.has(*STEPS)
    needed = STEP_POINTS if steps else POINTS
    agreed = agreed_off_reals = 0
    for point in _step_points(names) if steps else points(names):
        a, b = evaluate(left, DIGITS + 10, point), evaluate(right, DIGITS + 10, point)
        if a is None or b is None:
            continue
        real = not a.has(I) and not b.has(I)
        if _close(a, b, DIGITS):
            agreed += 1 if real or complex_valued else 0
            agreed_off_reals += 1
            last = point
        elif real or complex_valued:
            return False
        if agreed >= needed:
            return _vanishes(left - right, point)
    if (agreed or agreed_off_reals >= POINTS) and not steps:
        return agreed + agreed_off_reals >= POINTS and _vanishes(left - right, last)
    return sympy.simplify(left - right) == 0


def _vanishes(difference: sympy.Expr, at: dict | None = None) -> bool:
    """Is a difference that is close to zero equal to zero, as far as the digits allowed here can show?

    evalf raises its precision until it finds a nonzero digit or has used up these digits. A sum, product, integral or
    limit counts as zero, because evalf computes it only approximately.
    """
    if difference.has(*INEXACT):
        return True
    parts = sympy.preorder_traversal(difference) if at else ()
    grows = any(isinstance(p, GROWING) and (p.exp if p.is_Pow else p).free_symbols for p in parts)
    digits = ZERO_DIGITS + 2 * written_digits(difference.xreplace(at) if grows else difference)
    if digits > MAX_ZERO_DIGITS:
        raise UnreadableError("too many digits")
    # Two precisions: at the low one alone, sympy takes \ln(1 + 10^{-150}) for exactly 0.
    values = (difference.evalf(precision, subs=at, maxn=digits) for precision in (5, digits))
    return not any(
        part.is_nonzero and (part.is_Rational or (part.is_Float and part._prec > 1))
        for value in values
        for part in value.as_real_imag()
    )


def _close(a: sympy.Expr, b: sympy.Expr, digits: int) -> bool:
    size = max(abs(a), abs(b))
    return bool(abs(a - b) <= size * Rational(1, 10**digits)) or bool(size < Rational(1, 10 ** (digits + 5)))
