r"""Identity tests of two sympy expressions: exact constants, and values at fixed points (d3s/verifier/points.py).

Two formulas are equal when they are the same expression, or agree to 25 digits wherever both are real (polynomial
identity testing). Lower-case letters may be negative; other names (`R`, `r_0`, `\omega`) stand for positive quantities.
Constants agree to 50 digits. Then the difference must vanish to more digits than all written constants have together:
closeness is no equality where both sides are exact.
"""

from collections.abc import Iterator

import sympy
from sympy import I, Rational, S
from sympy.core.function import AppliedUndef

from d3s.verifier.latex import GROWING, UnreadableError, is_odd_root, written_digits
from d3s.verifier.points import STEPS, Point, domain, is_met, kinks, points

DIGITS = 25  # precision of the comparison at points
POINTS = 4  # agreeing points needed; a formula with kinks must agree at all
VANISHING = 6  # of the points, at most, at which the difference of two formulas with kinks must vanish
ZERO_DIGITS = 100  # digits to which a difference must vanish, plus twice the digits of its constants
MAX_ZERO_DIGITS = 25_000
TOLERANCE = Rational(1, 10**15)  # of the numbers that relate two arguments of steps, which are tested afterwards
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
    if not left.free_symbols | right.free_symbols:
        return _equal_constants(left, right)
    return _equal_at_points(left, right)


def proportional(left: sympy.Expr, right: sympy.Expr, positive: bool) -> bool:
    """Is the ratio of two expressions with names the same wherever both are real, and above zero if `positive`?"""
    names = left.free_symbols | right.free_symbols
    if not names:
        return False
    left, right = with_named_steps(*with_real_roots(left, right))
    tests_all = any(kinks(left, right))
    ratios: list[sympy.Expr] = []
    usable_points: list[Point] = []
    for point, a, b, counts in _values(left, right):
        zeros = [abs(value) < Rational(1, 10**DIGITS) for value in (a, b)]
        if not counts or all(zeros):
            continue
        if any(zeros):
            return False
        ratios.append(a / b)
        usable_points.append(point)
        if not _close(ratios[0], ratios[-1], DIGITS - 5):
            return False
        if len(ratios) > POINTS and not tests_all:
            break
    if len(ratios) < POINTS or (positive and not ratios[0] > 0):
        return False
    copies = {name: sympy.Dummy() for name in names}
    elsewhere = {copies[name]: value for name, value in usable_points[-1].items()}
    return _vanishes(left * right.xreplace(copies) - left.xreplace(copies) * right, usable_points[0] | elsewhere)


def opaque(e: sympy.Expr) -> sympy.Expr:
    """Replace undefined functions, and sums and integrals that could not be evaluated, by symbols of their own."""
    parts = e.atoms(AppliedUndef, sympy.Integral, sympy.Sum, sympy.Product, sympy.Limit)
    names = {part: sympy.Symbol(f"opaque{part}") for part in parts if part.free_symbols or part.has(AppliedUndef)}
    return e.xreplace(names)


def with_real_roots(*expressions: sympy.Expr) -> tuple[sympy.Expr, ...]:
    """Make odd roots of negative values real, unless the imaginary unit occurs."""
    if any(e.has(I) for e in expressions):
        return expressions
    return tuple(
        e.replace(
            lambda p: p.is_Pow and bool(p.base.free_symbols) and is_odd_root(p.exp),
            lambda p: sympy.sign(p.base) ** p.exp.p * sympy.Abs(p.base) ** p.exp,
        )
        for e in expressions
    )


def with_named_steps(*expressions: sympy.Expr) -> tuple[sympy.Expr, ...]:
    r"""Give each argument of a step that points cannot meet at its integers, such as \cos y, a name inside the steps.

    Arguments of which one is a rational multiple of the other, up to a constant, share a name. Expressions that are
    equal for all values of the names are equal; others may be equal too, which is not found.
    """
    if not any(e.has(*STEPS) for e in expressions):
        return expressions
    named: list[tuple[sympy.Expr, sympy.Symbol]] = []

    def rename(argument: sympy.Expr) -> sympy.Expr:
        if is_met(argument):
            return argument
        constant, rest = sympy.expand(argument).as_coeff_Add()
        factor, core = rest.primitive() if rest.is_Add else rest.as_coeff_Mul()
        for other, name in named:
            scale, shift = _line(core, other)
            if scale and equal_expressions(core, scale * other + shift):
                return factor * (scale * name + shift) + constant
        named.append((core, sympy.Symbol(f"opaque{len(named)}step")))
        return factor * named[-1][1] + constant

    def is_step(e: sympy.Basic) -> bool:
        return isinstance(e, (sympy.floor, sympy.ceiling))

    floors = (e.replace(sympy.Mod, lambda a, b: a - b * sympy.floor(a / b)) for e in expressions)
    floors = (e.replace(sympy.frac, lambda a: a - sympy.floor(a)) for e in floors)
    return tuple(e.replace(is_step, lambda step: step.func(rename(step.args[0]))) for e in floors)


def _line(value: sympy.Expr, other: sympy.Expr) -> tuple[sympy.Expr, sympy.Expr]:
    """Return the rationals a and b that make `value` equal a * `other` + b at two places, (0, 0) without such."""
    names = sorted(value.free_symbols | other.free_symbols, key=str)
    places = [{name: Rational(613 + 89 * i + shift, 997) for i, name in enumerate(names)} for shift in (0, 41)]
    values = [evaluate(e, DIGITS, place) for e in (value, other) for place in places]
    if None in values or values[2] == values[3] or any(value.has(I) for value in values):
        return S.Zero, S.Zero
    slope = (values[0] - values[1]) / (values[2] - values[3])
    line = [sympy.nsimplify(e, rational=True, tolerance=TOLERANCE) for e in (slope, values[0] - slope * values[2])]
    return line[0], line[1]


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


def _equal_constants(left: sympy.Expr, right: sympy.Expr) -> bool:
    values = [evaluate(e, 60) for e in (left, right)]
    if values[0] is None or values[1] is None:
        return sympy.simplify(left - right) == 0
    return _close(values[0], values[1], 50) and _vanishes(left - right)


def _equal_at_points(left: sympy.Expr, right: sympy.Expr) -> bool:
    """Are two expressions equal wherever both are real, or anywhere when the imaginary unit occurs?

    Expressions that are real nowhere must agree as complex numbers. Without enough points, `simplify` decides.
    """
    left, right = with_named_steps(*with_real_roots(left, right))
    tests_all = any(kinks(left, right))
    agreed: list[Point] = []
    off_reals: list[tuple[Point, sympy.Expr, sympy.Expr]] = []
    for point, a, b, counts in _values(left, right):
        if not counts:
            off_reals.append((point, a, b))
        elif not _close(a, b, DIGITS):
            return False
        else:
            agreed.append(point)
        if len(agreed) >= POINTS and not tests_all:
            break
    if len(agreed) < POINTS:
        agreed += [point for point, a, b in off_reals if _close(a, b, DIGITS)]
    if len(agreed) < POINTS:
        return sympy.simplify(left - right) == 0
    shown = agreed[:: len(agreed) // VANISHING + 1] if tests_all else agreed[-1:]
    return all(_vanishes(left - right, point) for point in shown)


def _values(left: sympy.Expr, right: sympy.Expr) -> Iterator[tuple[Point, sympy.Expr, sympy.Expr, bool]]:
    """Yield each point at which both expressions have a value, the values, and whether a difference there counts."""
    complex_valued = left.has(I) or right.has(I)
    positive = domain(left, right)
    for point in points(left, right):
        a, b = (evaluate(_resolved(e, point), DIGITS + 10, point) for e in (left, right))
        if a is not None and b is not None:
            real = not (a.has(I) or b.has(I)) and all(_is_positive(term, point) for term in positive)
            yield point, a, b, complex_valued or real


def _is_positive(term: sympy.Expr, at: Point) -> bool:
    value = evaluate(_resolved(term, at), 15, at)
    return value is not None and bool(value.is_extended_positive)


def _resolved(e: sympy.Expr, at: Point) -> sympy.Expr:
    """Evaluate steps, signs, maxima and minima exactly, where evalf is slow."""
    return e.xreplace({part: part.xreplace(at) for part in e.atoms(*STEPS, sympy.sign, sympy.Max, sympy.Min)})


def _vanishes(difference: sympy.Expr, at: dict | None = None) -> bool:
    """Is a difference that is close to zero equal to zero, as far as the digits allowed here can show?

    evalf raises its precision until it finds a nonzero digit or has used up these digits. A sum, product, integral or
    limit counts as zero, because evalf computes it only approximately.
    """
    if difference.has(*INEXACT):
        return True
    if difference.has(sympy.binomial):  # evalf of \binom{2n}{n} - \frac{(2n)!}{n!^2} leaves a rest
        difference = sympy.gammasimp(difference.rewrite(sympy.gamma))
    difference = _resolved(difference, at) if at else difference
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
