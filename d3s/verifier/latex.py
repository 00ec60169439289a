r"""Parse LaTeX into unevaluated sympy expressions: unambiguous names, bounded sizes.

Used by the verifier's workers. latex2sympy2_extended parses the LaTeX. Raw text never reaches sympy's own string
parser, which would execute code. The size of a formula is checked before anything evaluates it: a constant part of more
than about 5,000 digits is refused.
"""

import math
import re
from functools import lru_cache

import sympy
from antlr4.atn.PredictionMode import PredictionMode
from latex2sympy2_extended.latex2sympy2 import ConversionConfig, _Latex2Sympy
from sympy import I, Rational
from sympy.functions.elementary.hyperbolic import HyperbolicFunction
from sympy.matrices import MatrixBase

from d3s.verifier.notation import GREEK

MAX_LENGTH = 1_500  # characters of one formula
MAX_NESTING = 50
MAX_DIGIT_RUN = 1_000
MAX_LOG10 = 5_000.0  # of any intermediate value
EXACT_LOG10 = 40.0  # below which powers and factorials are evaluated to bound what contains them
MAX_NODES = 1_500
MAX_TERMS = 5_000  # of a finite sum or product
OF_MANY_TERMS = sympy.Sum, sympy.Product, sympy.Integral, sympy.Limit
GROWING = (sympy.Pow, sympy.exp, HyperbolicFunction)  # values may be far larger than their arguments


class UnreadableError(Exception):
    """The text is not a formula, or the formula is too large to evaluate."""


_CONVERSION = ConversionConfig(interpret_as_mixed_fractions=False, lowercase_symbols=False)
_ACCENTED = re.compile(
    r"\\(dot|ddot|hat|bar|vec|tilde|overline|mathcal|mathbb|widehat|mathscr|mathfrak|text|overrightarrow|angle|triangle)\s*"
    r"\{?\s*([A-Za-z]{1,12})\s*\}?(?:_(?:\{([^{}]{1,20})\}|([0-9A-Za-z])))?"
)
_SUBSCRIPT = re.compile(r"(?<!\\lim)(?<!\\sum)(?<!\\int)(?<!\\prod)(?<!\\log)_\s*\{([^{}]*(?:\{[^{}]*\}[^{}]*)?)\}")
_VECTOR_NAME = re.compile(r"_\{(?:vec|overrightarrow|hat[ijk]\})")
_PRIMED = re.compile(
    r"((?:\\[A-Za-z]+|[A-Za-z]))(?:_(?:\{([0-9A-Za-z]*)\}|([0-9A-Za-z])))?(?:\^\{?\s*((?:\\prime\s*)+|'+)\}?|('+))"
)
_PRIME = re.compile(r"\\prime|'")
_GROUP = r"(?:\{(?:[^{}]|\{[^{}]*\})*\}|[0-9A-Za-z])"
_OPERATOR = re.compile(
    rf"\\(?:begin|end)\s*\{{[^{{}}]*\}}|\\(?!(?:{'|'.join(GREEK)})(?![A-Za-z]))[A-Za-z]+(?:\s*[_^]\s*{_GROUP}){{0,2}}"
)
_SUBSCRIPTS = re.compile(rf"_\s*{_GROUP}")
# A number after what it would multiply is no product: `1 2`, `\sqrt{7}1`, `x2`, but `(n-2) 2^n` is one.
_MISPLACED_NUMBER = re.compile(r"[0-9] +[0-9]|[})A-Za-z]\s*[0-9]+(?![0-9^])")
# latex2sympy reads I as the imaginary unit, \gamma as Euler's constant, and fails on e_1: here they are ordinary names.
_RESERVED_NAME = re.compile(
    r"(_\{[^{}]*\}|\\(?:begin|end)\s*\{[^{}]*\}|\\(?!gamma(?![A-Za-z])|Gamma(?![A-Za-z]))[A-Za-z]+)"
    r"|(\\gamma|\\Gamma(?!\s*\()|I|[eE](?=_))(?:_\{([^{}]*)\}|_([0-9A-Za-z]))?"
)
# latex2sympy reads `dx` as a differential everywhere; it is a product except in integrals and derivatives.
_DIFFERENTIAL = re.compile(r"\\i*int(?![A-Za-z])|\\frac\s*\{\s*(?:d|\\partial)|d\s*[A-Za-z]\s*/\s*d")
_LETTER_D = re.compile(
    r"(_\{[^{}]*\}|_[A-Za-z]|\\(?:begin|end)\s*\{[^{}]*\}|\\[A-Za-z]+)|d(?=\s*(?:[A-Za-z(]|\\[A-Za-z]))"
)
_MIXED = re.compile(r"(?<![0-9.^_])([0-9]+)\s*\\frac\{([0-9]+)\}\{([0-9]+)\}")
_FUNCTION = r"\\(?:ln|log|exp|(?:arc)?(?:sin|cos|tan|cot|sec|csc)h?)(?![A-Za-z])"
_ATOM = (
    rf"(?:[0-9.]++|[A-Za-z]|\\(?:pi|{'|'.join(GREEK)})(?![A-Za-z])|\\frac\s*{_GROUP}\s*{_GROUP}"
    rf"|\\sqrt\s*(?:\[[^\[\]]*\]\s*)?{_GROUP}|\|[^|]*\|)!?(?:\s*[_^]\s*{_GROUP}){{0,2}}"
)
_REWRITES = [(re.compile(pattern), replacement) for pattern, replacement in (
    (r"(?<![0-9_^])([0-9]{1,3})((?:[, ][0-9]{3})+)(?![0-9])", lambda m: m[1] + re.sub("[, ]", "", m[2])),
    (r"\{((?:[^{}\\]|\\(?!choose))++)\\choose\s([^{}]++)\}", r"\\binom{\1}{\2}"),
    (r"^((?:[^{}\\]|\\(?!choose))++)\\choose([^{}]++)$", r"\\binom{\1}{\2}"),
    (r"(?:\{\})?[_^]\{?([0-9]{1,4})\}?\s*C\s*_\{?([0-9]{1,4})\}?(?![0-9])", r"\\binom{\1}{\2}"),
    (r"^\s*([0-9]{1,4})\s*C\s*([0-9]{1,4})\s*$", r"\\binom{\1}{\2}"),
    (r"(?<![A-Za-z\\])C\s*\(\s*([0-9]{1,4})\s*,\s*([0-9]{1,4})\s*\)", r"\\binom{\1}{\2}"),
    (  # `\ln 3/\ln 2` is a quotient of functions, `\ln 2\cdot 3` a product: the sign ends an argument without brackets
        rf"({_FUNCTION}(?:\s*[_^]\s*{_GROUP}){{0,2}})\s*(\{{[^{{}}]*\}}|{_ATOM}(?:\s*{_ATOM})*+)"
        rf"(?=\s*(?:/\s*[0-9.]*\s*{_FUNCTION}|{_FUNCTION}|\\cdot(?![A-Za-z])|\\times(?![A-Za-z])|\*))",
        r"(\1(\2))",
    ),
    (r"\\p?b?mod(?![A-Za-z])", r"\\mod "),
    (r"\\exp\s*\{", r"e^{"),
    (r"(?<!matrix\})\^\s*(?:T|\{\s*T\s*\})", r"^{(T)}"),  # a power, but of a matrix
    (r"\\log\s*_\s*(?:e(?![A-Za-z])|\{\s*e\s*\})", r"\\ln "),
    (r"(?<![A-Za-z\\])([A-Za-z]|[0-9]+)\s*!(?=\s*\^)", r"(\1!)"),
    (r"([0-9])[eE]([-+]?[0-9]{1,4})(?![0-9A-Za-z])", r"\1\\cdot 10^{\2}"),
    (r"(\\(?:pi|alpha|beta|gamma|epsilon|lambda|mu|nu|rho|sigma|tau|omega|Delta|Omega|hbar))\s*\(", r"\1\\cdot("),
    (r"\\%|%", r" \\cdot \\frac{1}{100}"),
    (r"(?<![\^_])([0-9])\s*\(|\)\s*\(", lambda m: f"{m[1] or ')'}\\cdot("),
    (r"(?<![_^])([0-9])\s*\\frac", r"\1\\cdot\\frac"),
    (r"\\(sin|cos|tan|cot|sec|csc)\s*\^\s*\{?\s*-1\s*\}?", r"\\arc\1 "),
    (r"(?<![A-Za-z\\])(sin|cos|tan|log|ln)(?![A-Za-z])", r"\\\1 "),
)]  # fmt: skip
# `C_5^2`, `A_5^2`, `{}_5P_2` in formulas without names: beside one, C_5 may be a constant of integration
_CHOSEN = re.compile(
    r"(?<![A-Za-z\\])([CA])_(?:\{([0-9]{2,4})\}|([2-9]))\s*\^(?:\{([0-9]{1,4})\}|([0-9]))"
    r"|(?:\{\})?_\{?([0-9]{1,4})\}?\s*P\s*_\{?([0-9]{1,4})\}?(?![0-9])"
)
# Read as something else by latex2sympy: dots, `n!!` (not `(n!)!`), two exponents (an error of TeX, with two readings),
# a derivative `(x^2)'`, a product of two vectors, which does not commute.
_ARROW = r"\\(?:vec|overrightarrow|hat)\s*(?:\{[^{}]*\}|[A-Za-z])"
_MISREAD = re.compile(
    r"\\dots|!\s*!|\^\s*(?:\{[^{}]*\}|[0-9A-Za-z])\s*\^"
    r"|(?:[)\]]|(?<!_)\{[^{}]*\}|\}\})\s*(?:'|\^\s*\{?\s*(?:'|\\prime))"
    rf"|{_ARROW}\s*\\times\s*{_ARROW}"
)
_NAME = re.compile(r"(?<![A-Za-z\\])[A-Za-z]")
_TRIGONOMETRIC = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)")


@lru_cache(maxsize=4096)
def parse_formula(text: str, natural_log: bool = False) -> sympy.Basic | MatrixBase:
    """Parse a normalized formula into a sympy object, not yet evaluated. Raises UnreadableError."""
    if len(text) > MAX_LENGTH or _nesting(text) > MAX_NESTING or re.search(rf"[0-9]{{{MAX_DIGIT_RUN}}}", text):
        raise UnreadableError("too long")
    if not text.replace("°", "").isascii() or _MISREAD.search(text):
        raise UnreadableError("not a formula")
    source = _to_latex2sympy(text, natural_log)
    if re.search(r"[0-9]\s*_|\\end\s*\{\w+\}\s*[0-9]", source) or _MISPLACED_NUMBER.search(
        _SUBSCRIPTS.sub("", _OPERATOR.sub("+", source))
    ):
        raise UnreadableError("misplaced number")
    formula = _parse_latex(source)
    if not isinstance(formula, (sympy.Basic, MatrixBase)):
        raise UnreadableError("not a formula")
    _check_size(formula)
    return _with_constants(formula)


class _Parser(_Latex2Sympy):
    """latex2sympy's parser without two of its readings.

    It adds a fraction to an integer before it, also to a binomial coefficient (`\\binom{4}{2}\\frac{1}{2}`), and takes
    the common divisor of two names for 1, that of polynomials.
    """

    def convert_postfix_list(self, arr, i=0):
        first = self.convert_postfix(arr[i])
        last = i == len(arr) - 1
        if isinstance(first, list) and len(first) == 1 and not last:  # d/dx before what it derives
            return sympy.Derivative(self.convert_postfix_list(arr, i + 1), first[0])
        if last or not isinstance(first, (sympy.Expr, MatrixBase)):
            return first
        rest = self.convert_postfix_list(arr, i + 1)
        is_matrix = any(getattr(factor, "is_Matrix", False) for factor in (first, rest))
        return (self.mat_mul_flat if is_matrix else self.mul_flat)(first, rest)

    def handle_gcd_lcm(self, f, args):
        if any(arg.free_symbols for arg in args):
            return sympy.Function(f)(*sorted(args, key=sympy.default_sort_key))
        return super().handle_gcd_lcm(f, args)


class _FastParser(_Parser):
    """latex2sympy's parser with ANTLR's SLL prediction: several times faster; fails where the results would differ."""

    def create_parser(self, latex_str: str):
        parser = super().create_parser(latex_str)
        parser._interp.predictionMode = PredictionMode.SLL
        return parser


def _parse_latex(source: str) -> object:
    """Parse with the fast parser, then with the default one where that fails."""
    for parser in (_FastParser, _Parser):
        try:
            return parser(config=_CONVERSION).parse(source)
        except (MemoryError, RecursionError):
            raise
        except Exception as error:
            reason = str(error)[:200]
    raise UnreadableError(reason)


def _nesting(text: str) -> int:
    depth = deepest = 0
    for c in text:
        if c in "{([":
            depth += 1
            deepest = max(deepest, depth)
        elif c in "})]":
            depth -= 1
    return deepest


def _to_latex2sympy(text: str, natural_log: bool) -> str:
    """Rewrite a normalized formula for latex2sympy: every compound name becomes one letter with one subscript."""
    if "°" in text:
        radians_or_number = r"(\\frac{\1 \\pi}{180})" if _TRIGONOMETRIC.search(text) else r"\1"
        text = re.sub(r"([0-9.]+)\s*°", radians_or_number, text).replace("°", "")
    text = re.sub(r"\s+(?=[_^])", "", text)
    text = _SUBSCRIPT.sub(lambda m: f"_{{{_plain_subscript(m[1])}}}", text)
    text = _PRIMED.sub(lambda m: _name(m[1], (m[2] or m[3] or "") + "prime" * len(_PRIME.findall(m[4] or m[5]))), text)
    text = _ACCENTED.sub(lambda m: f" {m[2][0]}_{{{m[1]}{m[2]}{_plain_subscript(m[3] or m[4] or '')}}} ", text)
    text = _RESERVED_NAME.sub(lambda m: m[1] or f" {_name('X', m[2].strip(chr(92)) + (m[3] or m[4] or ''))} ", text)
    text = _MIXED.sub(lambda m: rf"({m[1]}+\frac{{{m[2]}}}{{{m[3]}}})" if int(m[2]) < int(m[3]) else m[0], text)
    if not _DIFFERENTIAL.search(text):
        text = _LETTER_D.sub(lambda m: m[1] or r"{d}\cdot ", text)
    if "_" in text and not _NAME.search(_CHOSEN.sub("", text)):
        text = _CHOSEN.sub(_count, text)
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text)
    if natural_log:
        text = re.sub(r"\\log(?!\s*_)", r"\\ln ", text)
    return text


def _count(match: re.Match[str]) -> str:
    """Write a number of combinations or, after A or P, of arrangements as a formula."""
    total, chosen = match[2] or match[3] or match[6], match[4] or match[5] or match[7]
    if int(chosen) > int(total):
        return match[0]
    return rf"\binom{{{total}}}{{{chosen}}}" + ("" if match[1] == "C" else rf" \cdot ({chosen}!)")


def _name(letter: str, subscript: str) -> str:
    return f"{letter}_{{{subscript}}}"


def _plain_subscript(text: str) -> str:
    r"""Remove the formatting of a subscript: `\text{red}` -> `red`, `n-k-1` stays."""
    return re.sub(r"\\(?:text|mathrm|rm)|[\\{}\s]", "", text)


def _with_constants(formula: sympy.Basic | MatrixBase) -> sympy.Basic | MatrixBase:
    """Make i the imaginary unit (unless it is a summation index), decimals exact and odd roots of negatives real.

    Derivatives become opaque names.
    """
    if isinstance(formula, MatrixBase):
        return formula.applyfunc(_with_constants)
    formula = formula.xreplace({a: size for a in formula.atoms(sympy.Abs) if (size := _size(a.args[0])) is not None})
    bound = {v for node in formula.atoms(sympy.Sum, sympy.Product, sympy.Integral) for v in node.variables}
    changes: dict = {s: I for s in formula.free_symbols if s.name == "i" and s not in bound}
    changes |= {f: Rational(str(f)) for f in formula.atoms(sympy.Float)}
    changes |= {d: sympy.Symbol(f"derivative{d}") for d in formula.atoms(sympy.Derivative)}
    formula = formula.xreplace(changes) if changes else formula
    odd_roots = (p for p in formula.atoms(sympy.Pow) if is_odd_root(p.exp) and not p.free_symbols)
    real_roots = {p: (-1) ** p.exp.p * (-p.base) ** p.exp for p in odd_roots if p.base.is_extended_negative}
    return formula.xreplace(real_roots) if real_roots else formula


def _size(inside: sympy.Basic) -> sympy.Expr | None:
    """What bars around it mean: the determinant of a square matrix, the length of a vector; None: absolute value."""
    if isinstance(inside, MatrixBase):
        return inside.det() if inside.is_square else sympy.sqrt(sum(x**2 for x in inside))
    if vectors := [name for name in inside.free_symbols if _VECTOR_NAME.search(name.name)]:
        factor, vector = sympy.expand(inside).as_independent(*vectors, as_Add=False)
        content, vector = vector.primitive() if vector.is_Add else (1, vector)
        vector = -vector if vector.could_extract_minus_sign() else vector
        return abs(content * factor) * sympy.Symbol(f"length{vector}")
    return None


def is_odd_root(exponent: sympy.Expr) -> bool:
    return bool(exponent.is_Rational and exponent.q > 1 and exponent.q % 2)


def _check_size(formula: sympy.Basic | MatrixBase) -> None:
    """Raise UnreadableError for too many parts, too many terms, or a constant part of too many digits."""
    parts = []
    for part in sympy.preorder_traversal(formula):
        parts.append(part)
        if len(parts) > MAX_NODES:
            raise UnreadableError("too large")
    for part in parts:
        if isinstance(part, (sympy.Sum, sympy.Product)):
            lengths = [upper - lower for _, lower, upper in part.limits]
            if any(length.is_Rational and length > MAX_TERMS for length in lengths):
                raise UnreadableError("too many terms")
        if isinstance(part, sympy.Expr) and part.args and not part.free_symbols:
            _log10(part)


def written_digits(e: sympy.Expr) -> int:
    """Bound the total number of decimal digits of the constants in an expression and of their powers."""
    parts = (p for p in sympy.preorder_traversal(e) if isinstance(p, sympy.Expr) and not p.free_symbols)
    return math.ceil(sum(_log10(p) for p in parts if p.is_Rational or isinstance(p, GROWING)))


def _log10(e: sympy.Basic) -> float:
    """Bound log10 of a constant and of its reciprocal from above. Raises UnreadableError above MAX_LOG10."""
    if e.is_Rational:
        bound = math.log10(max(abs(e.p), e.q))
    elif not e.args:
        bound = 1.0
    else:
        parts = [_log10(arg) for arg in e.args if isinstance(arg, sympy.Expr)]
        first = 10.0 ** min(parts[0], 300.0) if parts else 1.0  # |first argument|
        if isinstance(e, sympy.Pow):
            bound = max(parts[0], 0.1) * (abs(float(e.exp)) if e.exp.is_Rational else 10.0 ** min(parts[1], 300.0))
        elif isinstance(e, (sympy.exp, HyperbolicFunction)):
            bound = first / 2
        elif isinstance(e, (sympy.factorial, sympy.binomial, sympy.gamma, sympy.factorial2)):
            bound = first * max(1.0, parts[0])
        elif isinstance(e, (sympy.Mul, sympy.Add)):
            bound = sum(parts)
        else:
            bound = max(parts, default=1.0)
    if not bound <= MAX_LOG10:
        raise UnreadableError("too large")
    is_short = bound < EXACT_LOG10 and isinstance(e, (sympy.Pow, sympy.factorial)) and not e.has(*OF_MANY_TERMS)
    return _log10(value) if is_short and (value := e.doit()).is_Rational else bound  # of an exponent every digit counts
