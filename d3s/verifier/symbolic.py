r"""Formula against formula, with sympy. Imported by the verifier's workers only: it may be slow, and may be killed.

Formulas are read by d3s/verifier/latex.py. Two are equal when they are the same expression, or agree, to 25 digits,
at several fixed generic points (polynomial identity testing); lower-case letters may be negative there, other names
(`R`, `r_0`, `\omega`) stand for positive quantities. Constants agree to 50 digits. Then the difference must vanish to
more digits than all written constants have together: closeness is no equality where both sides are exact.
"""

import random
import re
from fractions import Fraction
from functools import reduce

import sympy
from sympy import I, Rational, S
from sympy.core.function import AppliedUndef
from sympy.matrices import MatrixBase

from d3s.verifier.latex import GROWING, UnreadableError, parse, written_digits
from d3s.verifier.quantities import FULL_PRECISION, quantity, rounds_to
from d3s.verifier.structure import interval_of, is_name, is_set_operation, shape, split_relation, split_top

DIGITS = 25  # precision of the comparison at points
POINTS = 4  # agreeing points needed; half of them positive
ZERO_DIGITS = 100  # to which a difference must vanish, and to twice as many more as its constants have
MAX_ZERO_DIGITS = 25_000
STEPS = (sympy.floor, sympy.ceiling, sympy.frac)
STEP_POINTS = 60  # a step function is constant almost everywhere; these points have all sizes
INEXACT = (sympy.Integral, sympy.Sum, sympy.Product, sympy.Limit)  # evaluated by quadrature and extrapolation


# ----------------------------------------------------------------------------------------------------------- comparison


def equal_formulas(gold: str, answer: str) -> bool:
    r"""Are two canonical formulas, relations or set expressions equal? A bare `\log` may mean base ten or base e.

    Raises UnreadableError when either cannot be read.
    """
    if is_set_operation(gold) or is_set_operation(answer) or r"\in " in gold + answer:
        return _equal_sets(gold, answer)
    found = _equal(gold, answer, natural_log=False)
    if not found and re.search(r"\\log(?!\s*_)", gold + answer):
        found = _equal(gold, answer, natural_log=True)
    return found


def _equal(gold: str, answer: str, natural_log: bool) -> bool:
    ours, theirs = split_relation(gold), split_relation(answer)
    if bool(ours[1]) != bool(theirs[1]):
        return False
    if ours[1]:
        return _equal_relations(ours, theirs, natural_log)
    left, right = parse(gold, natural_log), parse(answer, natural_log)
    if isinstance(left, (sympy.Set, sympy.Tuple)) or isinstance(right, (sympy.Set, sympy.Tuple)):
        return left == right
    left, right = _evaluated(left), _evaluated(right)
    if isinstance(left, MatrixBase) or isinstance(right, MatrixBase):
        same = isinstance(left, MatrixBase) and isinstance(right, MatrixBase) and left.shape == right.shape
        return same and all(equal_expressions(a, b) for a, b in zip(left, right))
    if equal_expressions(left, right):
        return True
    return _rounds(gold, right, answer, left)


def _evaluated(found: sympy.Basic | MatrixBase) -> sympy.Basic | MatrixBase:
    try:
        done = found.doit()
    except (MemoryError, RecursionError):
        raise
    except Exception:
        return found
    return done.as_explicit() if isinstance(done, sympy.MatrixExpr) and not done.free_symbols else done


def equal_expressions(left: sympy.Expr, right: sympy.Expr) -> bool:
    """Equality of two evaluated expressions: identical, equal constants, or equal at generic points."""
    if left == right:
        return not left.has(S.NaN, S.ComplexInfinity)
    if left.has(S.NaN, S.ComplexInfinity) or right.has(S.NaN, S.ComplexInfinity):
        return False
    if left.is_Rational and right.is_Rational:
        return False
    infinities = [e for e in (left, right) if e.has(S.Infinity, S.NegativeInfinity)]
    if infinities:
        return sympy.simplify(left) == sympy.simplify(right)
    left, right = _opaque(left), _opaque(right)
    names = sorted(left.free_symbols | right.free_symbols, key=str)
    if not names:
        return _equal_constants(left, right)
    return _equal_at_points(left, right, names)


def _opaque(e: sympy.Expr) -> sympy.Expr:
    """Functions without a definition, and whatever could not be evaluated, as names of their own."""
    parts = e.atoms(AppliedUndef, sympy.Integral, sympy.Sum, sympy.Product, sympy.Limit)
    return e.xreplace(
        {part: sympy.Symbol(f"opaque{part}") for part in parts if part.free_symbols or isinstance(part, AppliedUndef)}
    )


def _equal_constants(left: sympy.Expr, right: sympy.Expr) -> bool:
    values = [_number(e, 60) for e in (left, right)]
    if values[0] is None or values[1] is None:
        return sympy.simplify(left - right) == 0
    return _close(values[0], values[1], 50) and _vanishes(left - right)


def _vanishes(difference: sympy.Expr, at: dict | None = None) -> bool:
    """Is a difference that is close to zero not certainly different from zero?

    evalf raises its precision until it has found a digit of the difference, or has spent the digits allowed here.
    """
    if difference.has(*INEXACT):
        return True
    parts = sympy.preorder_traversal(difference) if at else ()
    grows = any(isinstance(p, GROWING) and (p.exp if p.is_Pow else p).free_symbols for p in parts)
    digits = ZERO_DIGITS + 2 * written_digits(difference.xreplace(at) if grows else difference)
    if digits > MAX_ZERO_DIGITS:
        raise UnreadableError("too many digits")
    # Again at full precision: from low precision sympy finds \ln(1 + 10^{-150}) to be exactly 0.
    values = (difference.evalf(precision, subs=at, maxn=digits) for precision in (5, digits))
    return not any(
        part.is_nonzero and (part.is_Rational or (part.is_Float and part._prec > 1))
        for value in values
        for part in value.as_real_imag()
    )


def _number(e: sympy.Expr, digits: int, at: dict | None = None) -> sympy.Expr | None:
    """A finite complex number, or None."""
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


def _close(a: sympy.Expr, b: sympy.Expr, digits: int) -> bool:
    size = max(abs(a), abs(b))
    return bool(abs(a - b) <= size * Rational(1, 10**digits)) or bool(size < Rational(1, 10 ** (digits + 5)))


def _step_points(names: list[sympy.Symbol]) -> list[dict[sympy.Symbol, sympy.Rational]]:
    """Points of all sizes up to 1,000,000, for formulas with floor or ceiling; `k` to `n` stand for integers."""
    out = []
    for index in range(STEP_POINTS):
        draw = random.Random(index)
        size = 10 ** (1 + index % 6)
        point = {}
        for name in names:
            value = Rational(draw.randrange(size) * 997 + draw.randrange(1, 997), 997)
            point[name] = sympy.floor(value) if re.fullmatch(r"[k-nN]", name.name) else value
        out.append(point)
    return out


def points(names: list[sympy.Symbol]) -> list[dict[sympy.Symbol, sympy.Rational]]:
    """Fixed generic points, the same in every process: first positive ones, then ones where lower-case letters are
    negative."""
    out = []
    for index in range(12):
        draw = random.Random(index)
        point = {}
        for name in names:
            value = Rational(draw.randrange(300, 2_900) * 2 + 1, 997 if index < 8 else 4_001)
            may_be_negative = index % 2 == 1 and re.fullmatch(r"[a-z]", name.name)
            point[name] = -value if may_be_negative else value
        out.append(point)
    return out


def _equal_at_points(left: sympy.Expr, right: sympy.Expr, names: list[sympy.Symbol]) -> bool:
    """Equal wherever both are real (or anywhere, when the imaginary unit occurs); undecided without enough such
    points."""
    complex_valued = left.has(I) or right.has(I)
    steps = left.has(*STEPS) or right.has(*STEPS)
    needed = STEP_POINTS if steps else POINTS
    agreed = agreed_off_reals = 0
    for point in _step_points(names) if steps else points(names):
        a, b = _number(left, DIGITS + 10, point), _number(right, DIGITS + 10, point)
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


def _rounds(gold: str, answer_value: sympy.Expr, answer: str, gold_value: sympy.Expr) -> bool:
    """A decimal gold answer accepts an exact value that rounds to it; a decimal of full precision stands for the
    exact one."""
    decimal, exact = (quantity(gold), quantity(answer)), (answer, gold)
    for written, source, value, digits in zip(decimal, exact, (answer_value, gold_value), (0, FULL_PRECISION)):
        if (
            re.search(r"\.[0-9]", source)
            or written is None
            or written.step is None
            or written.digits < digits
            or value.free_symbols
        ):
            continue
        number = _number(value, 40)
        if number is not None and not number.has(I) and rounds_to(Fraction(str(number)), written):
            return True
    return False


# --------------------------------------------------------------------------------------------------- relations and sets


def _equal_relations(ours: tuple[list[str], list[str]], theirs: tuple[list[str], list[str]], natural_log: bool) -> bool:
    """Each link of the chains `lhs sign rhs` equivalent, in this order or in the reverse."""
    left, right = _links(*ours, natural_log), _links(*theirs, natural_log)
    if len(left) != len(right):
        return False
    return any(all(_equal_links(a, b) for a, b in zip(left, order)) for order in (right, right[::-1]))


def _links(sides: list[str], signs: list[str], natural_log: bool) -> list[tuple[sympy.Expr, str]]:
    """Every link as (difference, sign) with sign one of `=`, `\\neq`, `<`, `\\leq`."""
    out = []
    for a, sign, b in zip(sides, signs, sides[1:]):
        if sign not in ("=", r"\neq", "<", r"\leq", ">", r"\geq"):
            raise UnreadableError(sign)
        difference = _evaluated(parse(a, natural_log)) - _evaluated(parse(b, natural_log))
        out.append(
            (-difference if sign in (">", r"\geq") else difference, {">": "<", r"\geq": r"\leq"}.get(sign, sign))
        )
    return out


def _equal_links(ours: tuple[sympy.Expr, str], theirs: tuple[sympy.Expr, str]) -> bool:
    """Differences that are a constant multiple of each other, positive for an inequality; equations also after
    clearing fractions."""
    (left, sign), (right, other) = ours, theirs
    if sign != other or isinstance(left, MatrixBase) or isinstance(right, MatrixBase):
        return False
    left, right = _opaque(left), _opaque(right)
    if _constant_ratio(left, right, positive=sign in ("<", r"\leq")):
        return True
    if sign not in ("=", r"\neq"):
        return False
    left, right = (sympy.fraction(sympy.together(e))[0] for e in (left, right))
    return _constant_ratio(left, right, positive=False)


def _constant_ratio(left: sympy.Expr, right: sympy.Expr, positive: bool) -> bool:
    names = sorted(left.free_symbols | right.free_symbols, key=str)
    if not names:
        return False
    ratios, used = [], []
    for point in points(names):
        a, b = _number(left, DIGITS + 10, point), _number(right, DIGITS + 10, point)
        if a is None or b is None:
            continue
        if abs(a) < Rational(1, 10**DIGITS) or abs(b) < Rational(1, 10**DIGITS):
            return False
        ratios.append(a / b)
        used.append(point)
        if not _close(ratios[0], ratios[-1], DIGITS - 5):
            return False
        if len(ratios) >= POINTS + 1:
            break
    if len(ratios) < POINTS or (positive and not ratios[0] > 0):
        return False
    copies = {name: sympy.Dummy() for name in names}
    elsewhere = {copies[name]: value for name, value in used[-1].items()}
    return _vanishes(left * right.xreplace(copies) - left.xreplace(copies) * right, used[0] | elsewhere)


def _equal_sets(gold: str, answer: str) -> bool:
    left, right = to_set(gold), to_set(answer)
    return left == right or bool(left.symmetric_difference(right).is_empty)


def to_set(text: str) -> sympy.Set:
    r"""A canonical answer as a set of real numbers: unions, intersections, differences, intervals, `x \neq 5`."""
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
    found = shape(text)
    if found.kind == "union":
        return sympy.Union(*[to_set(item) for item in found.items])
    if found.kind in ("set", "list"):
        return sympy.FiniteSet(*[_real(item) for item in found.items])
    if found.kind == "bracket" and len(found.items) == 2:
        start, end = (_real(item) for item in found.items)
        return sympy.Interval(start, end, found.style[0] == "(", found.style[1] == ")")
    if found.kind == "relation":
        if (interval := interval_of(found)) is not None:
            return to_set(interval)
        if is_name(found.items[0]) and len(found.items) == 2 and found.signs[0] in (r"\in", "="):
            return to_set(found.items[1])
        if is_name(found.items[0]) and found.signs == (r"\neq",):
            return sympy.Complement(S.Reals, sympy.FiniteSet(_real(found.items[1])))
    raise UnreadableError("not a set")


def _real(text: str) -> sympy.Expr:
    value = parse(text)
    value = _evaluated(value) if not isinstance(value, MatrixBase) else value
    if not isinstance(value, sympy.Expr) or value.free_symbols or not value.is_extended_real:
        raise UnreadableError("not a real number")
    return value


def warm_up() -> None:
    """Load the grammar and sympy's lazy parts, so that the first answer does not pay for them."""
    for gold, answer in ((r"\frac{\sqrt{2}}{2}x+1", r"1+x\sin(\pi/4)"), (r"(0,1)\cup(1,2)", r"(0,2)\setminus\{1\}")):
        equal_formulas(gold, answer)
