r"""Generate equality cases whose verdict follows from their construction, by kind of answer.

A generator draws a value and writes a gold answer, other spellings of the same value, and spellings of values one step
away. No case comes from a collection: the drawn value alone decides the verdict. Used by
tests/verifier/test_equivalence.py and benchmarks/verifier/compare.py.
"""

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction

from benchmarks.verifier.answer_forms import FORMS, Drawn


@dataclass(frozen=True)
class Case:
    kind: str
    gold: str
    answer: str
    equal: bool


def generated_answers(seed: int = 0, draws: int = 3) -> Iterator[Case]:
    """Yield the cases of `draws` values of every kind. A seed always yields the same cases."""
    for kind, make in KINDS.items():
        generator = random.Random(f"{seed} {kind}")
        for _ in range(draws):
            gold, same, other = make(generator)
            yield from (Case(kind, gold, answer, True) for answer in same)
            yield from (Case(kind, gold, answer, False) for answer in other)


# ------------------------------------------------------------------------------------------------------------- numbers


def frac(value: Fraction) -> str:
    r"""Write `\frac{a}{b}` with the sign in front, or an integer."""
    if value.denominator == 1:
        return str(value.numerator)
    return ("-" if value < 0 else "") + rf"\frac{{{abs(value.numerator)}}}{{{value.denominator}}}"


def draw_fraction(r: random.Random) -> Fraction:
    return Fraction(r.choice((-1, 1)) * r.randint(1, 40), r.choice((2, 3, 4, 5, 7, 8, 9, 12)))


def fractions(r: random.Random) -> Drawn:
    value = draw_fraction(r)
    n, d, k = value.numerator, value.denominator, r.randint(2, 5)
    same = [
        f"{n}/{d}",
        rf"\dfrac{{{n}}}{{{d}}}",
        rf"\frac{{{k * n}}}{{{k * d}}}",
        rf"\frac{{{-n}}}{{{-d}}}",
        f"({n})/({d})",
    ]
    return frac(value), same, [f"{n + 1}/{d}", f"{-n}/{d}", f"{n}/{d + 1}", rf"{n}\cdot {d + 1}"]


def mixed_numbers(r: random.Random) -> Drawn:
    whole, d = r.randint(1, 20), r.choice((3, 4, 5, 7, 8))
    n = r.choice([n for n in range(1, d) if math.gcd(n, d) == 1])
    gold = rf"{whole}\frac{{{n}}}{{{d}}}"
    same = [
        f"{whole * d + n}/{d}",
        f"{whole} {n}/{d}",
        rf"{whole}\tfrac{{{n}}}{{{d}}}",
        rf"{whole}+\frac{{{n}}}{{{d}}}",
    ]
    return gold, same, [f"{whole * n}/{d}", f"{whole + 1} {n}/{d}", rf"-{whole}\frac{{{n}}}{{{d}}}"]


def radicals(r: random.Random) -> Drawn:
    a, b, c = r.randint(2, 9), r.choice((2, 3, 5, 6, 7, 10)), r.randint(2, 9)
    gold = rf"\frac{{{a}\sqrt{{{b}}}}}{{{c}}}"
    same = [rf"\frac{{\sqrt{{{a * a * b}}}}}{{{c}}}", rf"\frac{{{a}}}{{{c}}}\sqrt{{{b}}}", f"{a}sqrt({b})/{c}",
            rf"\frac{{{a * b}}}{{{c}\sqrt{{{b}}}}}", rf"\sqrt{{{b}}}\cdot\frac{{{a}}}{{{c}}}",
            rf"\frac{{{a}\cdot {b}^{{1/2}}}}{{{c}}}"]  # fmt: skip
    other = [rf"\frac{{{a}\sqrt{{{b + 1}}}}}{{{c}}}", rf"\frac{{{a}\sqrt[3]{{{b}}}}}{{{c}}}", rf"-{gold}",
             f"{a * b**0.5 / c:.4f}"]  # fmt: skip
    return gold, same, other


def multiples_of_pi(r: random.Random) -> Drawn:
    value = draw_fraction(r)
    n, d = value.numerator, value.denominator
    gold = frac(value) + r"\pi" if d == 1 else rf"\frac{{{n}\pi}}{{{d}}}"
    same = [rf"\frac{{{n}}}{{{d}}}\pi", f"{n}π/{d}", rf"{n}\pi/{d}", rf"\pi\cdot\frac{{{n}}}{{{d}}}", f"{n}*pi/{d}"]
    return gold, same, [rf"\frac{{{n + d}}}{{{d}}}\pi", rf"\frac{{{n}\pi^2}}{{{d}}}", f"{n}/{d}", f"{3.14 * n / d:.2f}"]


def large_numbers(r: random.Random) -> Drawn:
    value = r.randint(10_000, 99_999_999)
    gold = str(value)
    same = [
        f"{value:,}",
        f"{value:,}".replace(",", "{,}"),
        f"{value:,}".replace(",", r"\,"),
        f"{value}.0",
        rf"\${value:,}",
    ]
    return gold, same, [str(value + 1), str(value * 10), f"{value:,}"[:-1], f"{value}.5", str(-value)]


def scientific(r: random.Random) -> Drawn:
    digits, exponent = r.randint(101, 999), r.randint(4, 30) * r.choice((-1, 1))
    mantissa = f"{digits // 100}.{digits % 100:02d}"
    gold = rf"{mantissa} \times 10^{{{exponent}}}"
    same = [f"{mantissa}e{exponent}", rf"{mantissa}\cdot 10^{{{exponent}}}", f"{mantissa}*10^({exponent})",
            rf"{digits}\times 10^{{{exponent - 2}}}"]  # fmt: skip
    other = [rf"{mantissa} \times 10^{{{exponent + 1}}}", f"{mantissa[:-2]}e{exponent}", mantissa,
             rf"{mantissa} \times 10^{{{-exponent}}}"]  # fmt: skip
    return gold, same, other


def percentages(r: random.Random) -> Drawn:
    value = r.randint(3, 97)
    same = [str(value), f"{value} %", f"{value} percent", rf"{value}\text{{ percent}}", f"{value / 100}"]
    return rf"{value}\%", same, [rf"{value + 1}\%", rf"0.{value:02d}\%", str(value * 100)]


def money_and_units(r: random.Random) -> Drawn:
    value, unit = (
        r.randint(2, 90),
        r.choice(("cm", "m", "kg", "hours", "square inches", "cubic units", "miles per hour")),
    )
    gold = rf"{value}\text{{ {unit}}}"
    same = [str(value), f"{value} {unit}", rf"{value}\ \mathrm{{{unit}}}", f"{value}.0"]
    return gold, same, [str(value + 1), rf"{value}\text{{ seconds}}", f"{value} or {value + 1} {unit}", f"{unit}"]


def degrees(r: random.Random) -> Drawn:
    value = r.choice((15, 30, 36, 40, 72, 108, 144))
    same = [str(value), f"{value}°", rf"{value}^{{\circ}}", f"{value} degrees", frac(Fraction(value, 180)) + r"\pi"]
    return rf"{value}^\circ", same, [str(value + 1), rf"{180 - value + 5}^\circ", rf"\frac{{{value}}}{{180}}"]


def bases(r: random.Random) -> Drawn:
    base = r.randint(3, 9)
    digits = str(r.randint(1, base - 1)) + "".join(str(r.randrange(base)) for _ in range(3))
    same = [rf"{digits}_{{{base}}}", rf"({digits})_{base}", rf"{digits}_{{\text{{{NUMBER_WORDS[base]}}}}}"]
    return f"{digits}_{base}", same, [digits, f"{digits}_{base + 1}", f"1{digits}_{base}", str(int(digits, base))]


NUMBER_WORDS = "zero one two three four five six seven eight nine ten".split()  # noqa: SIM905


def factorials(r: random.Random) -> Drawn:
    n, k = r.randint(6, 14), r.randint(2, 4)
    gold = rf"\binom{{{n}}}{{{k}}}"
    same = [
        str(math.comb(n, k)),
        rf"\frac{{{n}!}}{{{k}!{n - k}!}}",
        rf"\binom{{{n}}}{{{n - k}}}",
        rf"{{{n} \choose {k}}}",
    ]
    return gold, same, [str(math.comb(n, k) + 1), rf"\frac{{{n}!}}{{{n - k}!}}", rf"\binom{{{n}}}{{{k + 1}}}+1"]


def logarithms(r: random.Random) -> Drawn:
    a, b = r.sample((2, 3, 5, 6, 7, 10), 2)
    gold = rf"\log_{{{a}}} {b}"
    same = [
        rf"\frac{{\ln {b}}}{{\ln {a}}}",
        rf"\log_{a}({b})",
        rf"\frac{{1}}{{\log_{{{b}}} {a}}}",
        rf"\log_{{{a * a}}} {b * b}",
    ]
    return gold, same, [rf"\log_{{{b}}} {a}", rf"\frac{{\ln {a}}}{{\ln {b}}}", rf"\ln\frac{{{b}}}{{{a}}}"]


def trigonometry(r: random.Random) -> Drawn:
    k = r.randint(2, 6)
    same = [rf"2\sin {k}x\cos({k}x)", rf"2\cos {k}x\sin {k}x", f"2*sin({k}x)*cos({k}x)", rf"\sin({2 * k} x)"]
    return rf"\sin {2 * k}x", same, [rf"\sin {2 * k + 1}x", rf"\cos {2 * k}x", rf"2\sin {2 * k}x", rf"\sin^2 {2 * k}x"]


def complex_numbers(r: random.Random) -> Drawn:
    a, b = r.randint(-9, 9) or 1, r.randint(2, 9)
    same = [
        f"{b}i{a:+d}",
        rf"{a}+{b}\text{{i}}",
        rf"{a}+{b}\mathrm{{i}}",
        rf"{a}+{b}\textbf{{i}}",
        f"{a}+i*{b}",
        rf"z={a}+{b}i",
    ]
    return f"{a}+{b}i", same, [f"{a}-{b}i", f"{b}{a:+d}i" if a != b else "i", f"{a}+{b}", f"({a},{b})", f"{a}+{b}j+1"]


# ---------------------------------------------------------------------------------------------------------- structures


def intervals(r: random.Random) -> Drawn:
    a, b = sorted(r.sample(range(-9, 10), 2))
    gold = f"[{a},{b})"
    same = [rf"\left[{a}, {b}\right)", rf"{a} \le x < {b}", rf"x\in[{a},{b})", rf"{b} > x \geq {a}", f"[{a}.0,{b})"]
    return gold, same, [f"({a},{b})", f"[{a},{b}]", f"[{a},{b + 1})", rf"{a} < x < {b}", f"({a},{b}]"]


def unions(r: random.Random) -> Drawn:
    a, b = sorted(r.sample(range(-9, 10), 2))
    gold = rf"(-\infty,{a}) \cup ({b},\infty)"
    same = [rf"({b},\infty)\cup(-\infty,{a})", rf"x<{a} \text{{ or }} x>{b}", rf"(-\infty,{a})\cup({b},+\infty)",
            rf"\mathbb{{R}}\setminus[{a},{b}]"]  # fmt: skip
    return gold, same, [rf"(-\infty,{a}]\cup({b},\infty)", f"({a},{b})", rf"(-\infty,{b})\cup({a},\infty)"]


def sets(r: random.Random) -> Drawn:
    items = [frac(draw_fraction(r)) for _ in range(r.randint(3, 5))]
    items = list(dict.fromkeys(items))
    mixed = r.sample(items, len(items))
    gold = ", ".join(items)
    listed = ", ".join(mixed[:-1])
    same = [", ".join(mixed), rf"\{{{gold}\}}", rf"{listed} \text{{ and }} {mixed[-1]}",
            rf"x \in \{{{', '.join(mixed)}\}}", "; ".join(mixed)]  # fmt: skip
    return gold, same, [", ".join(mixed[1:]), f"{gold}, 99", ", ".join([*mixed[1:], "99"])]


def solution_lists(r: random.Random) -> Drawn:
    pairs = r.sample([(a, b) for a in range(-5, 6) for b in range(-5, 6) if a != b], 3)
    written = [f"({a},{b})" for a, b in pairs]
    x, y, z = written
    same = [f"{z}, {x}, {y}", rf"\{{{y}, {z}, {x}\}}", f"[{z}, {y}, {x}]", f"({y}, {x}, {z})", f"{y}; {z}; {x}",
            rf"{y}, {x} \text{{ and }} {z}", rf"(x,y) \in \{{{y},{x},{z}\}}", f"(x,y)={y},{x},{z}"]  # fmt: skip
    turned = f"({pairs[0][1]},{pairs[0][0]})"
    other = [f"{turned}, {y}, {z}", f"{x}, {y}", f"{x}, {y}, ({pairs[2][0]},{pairs[2][1] + 1})",
             f"[{turned}, {y}, {z}]", f"{x}, {y}, {z}, (9,9)"]  # fmt: skip
    other = [text for text in other if turned not in (y, z) or turned not in text]
    return r.choice((f"{x}, {y}, {z}", rf"\{{{x},{y},{z}\}}", f"[{x},{y},{z}]")), same, other


def ordered_pairs_of_points(r: random.Random) -> Drawn:
    a, b, c, d = r.sample(range(10), 4)
    return f"(({a},{b}),({c},{d}))", [f"(({a}, {b}), ({c}, {d}))"], [f"(({c},{d}),({a},{b}))", f"(({b},{a}),({c},{d}))"]


def long_tuples(r: random.Random) -> Drawn:
    """A tuple of six products with permuted factors; the order of the tuple counts."""
    items = [_product(r) for _ in range(6)]
    gold = f"({', '.join(_written(r, item) for item in items)})"
    same = [f"({', '.join(_written(r, item) for item in items)})" for _ in range(3)]
    wrong = [list(items) for _ in range(2)]
    factors, number = wrong[0][2]
    wrong[0][2] = (factors, number + 1)
    wrong[1][0], wrong[1][1] = wrong[1][1], wrong[1][0]
    other = [
        f"({', '.join(_written(r, item) for item in row)})"
        for row, good in zip(wrong, (True, items[0] != items[1]))
        if good
    ]
    return gold, same, other


def _product(r: random.Random) -> tuple[list[str], int]:
    letters = r.sample("abcdmnpqxyz", 3)
    sums = [f"({r.choice('kuv')}{sign}{r.randint(1, 9)})" for sign in "+-"]
    return [*letters, *sums[: r.randint(0, 2)], *r.choice(([], [r"\sqrt{2}"], [r"\pi"], [r"\sqrt{3}"]))], r.randint(
        2, 9
    )


def _written(r: random.Random, product: tuple[list[str], int]) -> str:
    factors, number = product
    return str(number) + r.choice((" ", "")).join(r.sample(factors, len(factors)))


def matrices(r: random.Random) -> Drawn:
    a, b, c, d = (draw_fraction(r) for _ in range(4))
    rows = [[a, b], [c, d]]

    def written(rows: list[list[Fraction]], name: str, number: Callable[[Fraction], str] = frac) -> str:
        return rf"\begin{{{name}}}" + r" \\ ".join(" & ".join(map(number, row)) for row in rows) + rf"\end{{{name}}}"

    same = [written(rows, "bmatrix"), written(rows, "pmatrix", str), r"\left(" + written(rows, "matrix") + r"\right)"]
    other = [
        written([[a, b], [c, d + 1]], "pmatrix"),
        written([[a, c + 50], [b, d]], "pmatrix"),
        written([[a, b]], "pmatrix"),
    ]
    return written(rows, "pmatrix"), same, other


def vectors(r: random.Random) -> Drawn:
    a, b, c = r.sample(range(-9, 10), 3)
    same = [
        f"({a}, {b}, {c})",
        rf"\left\langle {a}, {b}, {c}\right\rangle",
        rf"\begin{{pmatrix}}{a}\\{b}\\{c}\end{{pmatrix}}",
    ]
    return rf"\langle {a},{b},{c} \rangle", same, [f"({b},{a},{c})", rf"\langle {a},{b} \rangle", f"({a},{b},{c + 1})"]


def systems(r: random.Random) -> Drawn:
    a, b = r.sample(range(1, 30), 2)
    same = [f"x={a}, y={b}", f"y = {b}, x = {a}", rf"x={a} \text{{ and }} y={b}", f"(x,y)=({a},{b})",
            rf"\begin{{cases}}x={a}\\y={b}\end{{cases}}", f"({a},{b})"]  # fmt: skip
    return f"x={a}, y={b}", same, [f"x={b}, y={a}", f"({b},{a})", f"x={a}", f"x={a}, y={b + 1}", f"x={a}, z={b}"]


# ------------------------------------------------------------------------------------------------------------- algebra


def plus_minus(r: random.Random) -> Drawn:
    a, b = r.randint(1, 9), r.choice((2, 3, 5, 7))
    same = [rf"{a}+\sqrt{{{b}}}, {a}-\sqrt{{{b}}}", rf"\{{{a}-\sqrt{{{b}}}, {a}+\sqrt{{{b}}}\}}",
            rf"x={a}\pm\sqrt{{{b}}}",
            rf"x = {a}-\sqrt{{{b}}} \text{{ or }} x = {a}+\sqrt{{{b}}}"]  # fmt: skip
    other = [rf"{a}+\sqrt{{{b}}}", rf"-{a}\pm\sqrt{{{b}}}", rf"{a}\pm\sqrt{{{b + 1}}}", rf"{a}\pm {b}"]
    return rf"{a}\pm\sqrt{{{b}}}", same, other


def radical_sums(r: random.Random) -> Drawn:
    a, b, c = r.randint(2, 9), r.choice((2, 3, 5)), r.choice((6, 7, 10))
    same = [rf"\sqrt{{{c}}}-{a}\sqrt{{{b}}}", rf"-{a}\sqrt{{{b}}}+\sqrt{{{c}}}", rf"\sqrt{{{c}}}-\sqrt{{{a * a * b}}}",
            rf"\frac{{{c - a * a * b}}}{{\sqrt{{{c}}}+{a}\sqrt{{{b}}}}}"]  # fmt: skip
    other = [
        rf"{a}\sqrt{{{b}}}-\sqrt{{{c}}}",
        rf"\sqrt{{{c}}}+{a}\sqrt{{{b}}}",
        rf"\sqrt{{{c}}}-{a}",
        f"{c**0.5 - a * b**0.5:.5f}",
    ]
    return rf"\sqrt{{{c}}}-{a}\sqrt{{{b}}}", same, other


def integer_families(r: random.Random) -> Drawn:
    d, m = r.choice((3, 4, 5, 6)), r.randint(1, 2)
    gold = rf"\frac{{\pi}}{{{d}}}+{2 * m}k\pi, k \in \mathbb{{Z}}"
    same = [rf"{2 * m}k\pi+\frac{{\pi}}{{{d}}}, k\in\mathbb{{Z}}", rf"\frac{{\pi}}{{{d}}}+{2 * m}\pi k",
            rf"x = \frac{{\pi}}{{{d}}}+{2 * m}k\pi \ (k \in \mathbb{{Z}})"]  # fmt: skip
    other = [rf"\frac{{\pi}}{{{d}}}", rf"\frac{{\pi}}{{{d}}}+{2 * m + 1}k\pi, k \in \mathbb{{Z}}", rf"{2 * m}k\pi",
             rf"\frac{{\pi}}{{{d}}}+{2 * m}k\pi, k \in \mathbb{{N}}"]  # fmt: skip
    return gold, same, other


def conics(r: random.Random) -> Drawn:
    a, b = r.sample(range(2, 8), 2)
    gold = rf"\frac{{x^2}}{{{a * a}}}+\frac{{y^2}}{{{b * b}}}=1"
    same = [f"{b * b}x^2+{a * a}y^2={a * a * b * b}", rf"\frac{{y^2}}{{{b * b}}}+\frac{{x^2}}{{{a * a}}}-1=0",
            rf"\left(\frac{{x}}{{{a}}}\right)^2 = 1-\left(\frac{{y}}{{{b}}}\right)^2"]  # fmt: skip
    other = [
        rf"\frac{{x^2}}{{{b * b}}}+\frac{{y^2}}{{{a * a}}}=1",
        f"{b * b}x^2-{a * a}y^2={a * a * b * b}",
        f"{b}x^2+{a}y^2=1",
    ]
    return gold, same, other


def lines(r: random.Random) -> Drawn:
    m, c = r.choice((-3, -2, 2, 3, 4)), r.randint(1, 9)
    same = [f"{c} + {m}x = y", f"{m}x - y + {c} = 0", f"y - {m}x = {c}", f"2y = {2 * m}x + {2 * c}", f"y-{c}={m}x"]
    return f"y = {m}x + {c}", same, [f"y = {m}x - {c}", f"y = {m + 1}x + {c}", f"x = {m}y + {c}", f"y = {-m}x + {c}"]


def polynomials(r: random.Random) -> Drawn:
    a, b, c = r.randint(1, 6), r.randint(1, 6), r.randint(2, 5)
    gold = f"{c}(x-{a})(x+{b})"
    same = [f"{c}(x+{b})(x-{a})", f"{c}x^2+{c * (b - a)}x-{c * a * b}", f"-{c * a * b}+{c * (b - a)}x+{c}x^2",
            f"-{c}({a}-x)(x+{b})", f"(x+{b})({c}x-{c * a})"]  # fmt: skip
    same = [text.replace("+-", "-") for text in same]
    return gold, same, [f"{c}(x+{a})(x-{b + 7})", f"{c}(x-{a})(x+{b})+1", f"(x-{a})(x+{b})", f"{c}(x-{a})(x+{b + 1})"]


def rational_functions(r: random.Random) -> Drawn:
    a, b = r.sample(range(1, 9), 2)
    gold = rf"\frac{{1}}{{x+{a}}}+\frac{{1}}{{x+{b}}}"
    same = [rf"\frac{{2x+{a + b}}}{{(x+{a})(x+{b})}}", rf"\frac{{{a + b}+2x}}{{x^2+{a + b}x+{a * b}}}",
            f"1/(x+{b}) + 1/(x+{a})"]  # fmt: skip
    return gold, same, [rf"\frac{{2x+{a + b + 1}}}{{(x+{a})(x+{b})}}", rf"\frac{{2}}{{2x+{a + b}}}", f"1/(x+{a})"]


def floors(r: random.Random) -> Drawn:
    k = r.randint(2, 9)
    low, high = r.sample((("floor", "lfloor", "rfloor"), ("ceil", "lceil", "rceil")), 2)
    inner = rf"\frac{{n}}{{{k}}}"
    gold = rf"\{low[1]} {inner} \{low[2]}"
    same = [rf"\operatorname{{{low[0]}}}\left({inner}\right)", rf"\text{{{low[0]}}}(n/{k})", f"{low[0]}(n/{k})",
            rf"\left\{low[1]} n/{k} \right\{low[2]}"]  # fmt: skip
    return gold, same, [f"{high[0]}(n/{k})", f"{low[0]}(n/{k + 1})", f"n/{k}", rf"\operatorname{{{high[0]}}}({inner})"]


# ------------------------------------------------------------------------------------------- names, wrappers, and words


def _value(r: random.Random) -> tuple[str, str]:
    """Draw two different values."""
    n = r.randint(2, 60)
    return r.choice(((str(n), str(n + 1)), (rf"\frac{{{n}}}{{{61}}}", rf"\frac{{{n}}}{{{67}}}"),
                     (rf"{n}\sqrt{{2}}", rf"{n}\sqrt{{3}}"), (f"{n}x+1", f"{n}x-1")))  # fmt: skip


NAMES = (
    "x", "n", "f(x)", "f(g(2))", "f^{-1}(x)", "a_{10}", r"\theta", "|AB|", r"\angle ABC", r"\text{Area}",
    r"S_{\triangle ABC}", r"P(A \cap B)", r"\sin\theta", r"\cos A", r"\frac{dy}{dx}", "f'(x)", r"V_{\max}",
    r"\overline{AB}", "E[X]", r"\Delta x",
)  # fmt: skip


def named_values(r: random.Random) -> Drawn:
    name, (value, other) = r.choice(NAMES), _value(r)
    gold = f"{name} = {value}"
    return (
        gold,
        [value, f"{name}={value}", f"{value} = {name}"],
        [other, f"{name} = {other}", f"{value} = {other}", name],
    )


def approximations(r: random.Random) -> Drawn:
    digits = f"{r.randint(2, 60)}.{r.randint(1, 9)}{r.randint(1, 8)}"
    changed = digits[:-1] + str(int(digits[-1]) + 1)
    gold = r.choice((rf"\approx {digits}", rf"x \approx {digits}", rf"\text{{Area}} \approx {digits}", f"≈ {digits}",
                     rf"\text{{about }} {digits}"))  # fmt: skip
    same = [digits, rf"x \approx {digits}", rf"\approx {digits}", f"about {digits}"]
    return gold, same, [changed, f"{digits}5", rf"\approx {changed}", digits[:-1]]


def exact_with_decimal(r: random.Random) -> Drawn:
    n = r.choice((2, 3, 5, 6, 7, 10, 11))
    decimal, nearby = f"{n**0.5:.2f}", f"{n**0.5 + 0.01:.2f}"
    same = [rf"\sqrt{{{n}}}", decimal, rf"\frac{{{n}}}{{\sqrt{{{n}}}}}", rf"x = \sqrt{{{n}}}"]
    return (
        rf"\sqrt{{{n}}} \approx {decimal}",
        same,
        [nearby, frac(Fraction(decimal)), rf"\sqrt{{{n + 1}}}", decimal[:-1]],
    )


STYLES = (r"\textbf{%s}", r"\textit{%s}", r"\text{%s}", r"\mathbf{%s}", r"\boldsymbol{%s}", r"\mathrm{%s}", "**%s**",
          "*%s*", "__%s__", "`%s`", "$%s$", "***%s***")  # fmt: skip


def styled(r: random.Random) -> Drawn:
    value, other = r.choice(
        (("e", "i"), ("i", "e"), ("x", "y"), ("12", "13"), ("x+1", "x-1"), (r"\frac{1}{2}", r"\frac{1}{3}"))
    )
    styles = [style for style in STYLES if "\\" not in value or "text" not in style]
    gold = r.choice((value, r.choice(styles) % value))
    return gold, [style % value for style in styles], [style % other for style in r.sample(styles, 5)]


def choices(r: random.Random) -> Drawn:
    letter, wrong = r.sample("ABCD", 2)
    forms = [
        r"%s",
        "(%s)",
        r"\text{%s}",
        r"\textbf{(%s)}",
        r"\text{(%s)}",
        "**%s**",
        "*(%s)*",
        r"\mathbf{%s}",
        "%s.",
        "%s)",
    ]
    gold = r.choice(forms) % r.choice((letter, letter.lower()))
    same = [form % r.choice((letter, letter.lower())) for form in forms]
    other = [form % r.choice((wrong, wrong.lower())) for form in r.sample(forms, 4)]
    return gold, [*same, rf"\textbf{{({letter})}}\ 12"], [*other, f"({letter}) or ({wrong})", letter + wrong]


def described(r: random.Random) -> Drawn:
    value = r.choice((str(r.randint(2, 90)), frac(abs(draw_fraction(r)))))
    words = r.choice(("apples left", "apples are left", "students in the class", "ways to do it", "people in total",
                      "of the cake", "is the answer", "games per week"))  # fmt: skip
    gold = r.choice((f"{value} {words}", rf"{value} \text{{ {words}}}"))
    same = [value, rf"\frac{{{value}}}{{1}}", f"x = {value}"]
    return gold, same, [f"{value}7", f"{value} or 99", f"-{value}", rf"\text{{{words}}}", f"{value} + 1"]


def words(r: random.Random) -> Drawn:
    word, other = r.sample(
        ("Yes", "No", "east", "west", "Alice", "no solution", "infinitely many", "Tuesday", "increasing"), 2
    )
    same = [
        word,
        word.lower(),
        rf"\text{{{word}}}",
        rf"\mathrm{{{word}}}",
        f"{word}.",
        f"**{word}**",
        rf"\textbf{{{word.upper()}}}",
    ]
    return rf"\text{{{word}}}", same, [other, rf"\text{{{other}}}", rf"\text{{not {word}}}", f"{word} or {other}", "5"]


def ratios_of_three(r: random.Random) -> Drawn:
    a, b, c = r.sample(range(2, 10), 3)
    same = [f"{a} : {b} : {c}", f"{3 * a}:{3 * b}:{3 * c}", f"x:y:z = {a}:{b}:{c}"]
    return f"{a}:{b}:{c}", same, [f"{b}:{a}:{c}", f"{a}:{b}", f"{a}:{b}:{c + 1}", f"{a},{b},{c}"]


def set_words(r: random.Random) -> Drawn:
    kinds = [(r"\emptyset", r"\text{no solution}", r"\text{No solutions}", r"\varnothing"),
             (r"\mathbb{R}", r"(-\infty,\infty)", r"\text{all real numbers}", "all real numbers"),
             (r"\text{does not exist}", "DNE", r"\text{Does not exist.}", "does not exist")]  # fmt: skip
    spellings, others = r.sample(kinds, 2)
    return spellings[0], list(spellings), [*others, "0", "1"]


def ratios_and_times(r: random.Random) -> Drawn:
    a, b = r.sample((2, 3, 5, 7, 8), 2)
    same = [f"{a} : {b}", f"{2 * a}:{2 * b}", f"{a}/{b}", rf"\frac{{{a}}}{{{b}}}"]
    return f"{a}:{b}", same, [f"{b}:{a}", f"{a}:{b + 1}", str(a), f"{a},{b}"]


KINDS: dict[str, Callable[[random.Random], Drawn]] = {
    make.__name__.replace("_", " "): make
    for make in (
        fractions, mixed_numbers, radicals, multiples_of_pi, large_numbers, scientific, percentages,
        money_and_units, degrees, bases, factorials, logarithms, trigonometry, complex_numbers, intervals,
        unions, sets, solution_lists, ordered_pairs_of_points, long_tuples, matrices, lines, polynomials,
        rational_functions, floors, named_values, approximations, exact_with_decimal, styled, choices,
        described, words, ratios_and_times, vectors, systems, plus_minus, radical_sums, integer_families,
        conics, ratios_of_three, set_words, *FORMS,
    )
}  # fmt: skip
