r"""Generate the forms in which models print an answer: units, nouns, labels, decorations, letters of their choice.

The second part of benchmarks/verifier/generated_answers.py, whose header says what a generator returns.
"""

# ruff: noqa: SIM905 (word lists read best as one string)

import random

Drawn = tuple[str, list[str], list[str]]  # gold, equal answers, unequal answers


# ----------------------------------------------------------------------------------------- units and words after values

UNIT_SYMBOLS = ("m", "s", "kg", "N", "J", "V", "A", "C", "K", "Pa", "km", "mol", "eV", "min", "h", "cm", "GHz", "W")
IN_TEXT = (
    r"%s\text{ %s}",
    r"%s\,\text{%s}",
    r"%s\ \mathrm{%s}",
    r"%s~\mathrm{%s}",
    r"%s\mathrm{~%s}",
    r"%s \text{ %s}.",
    r"%s\;\textrm{%s}",
    r"%s\,{\rm %s}",
)


def _magnitude(r: random.Random) -> tuple[str, str]:
    """Draw two different numbers as models write them."""
    n, exponent = r.randint(2, 98), r.randint(3, 30)
    forms = (str(n), f"{n}.5", rf"\frac{{{n}}}{{101}}", rf"{n / 10:.1f} \times 10^{{-{exponent}}}", rf"{n}\sqrt{{2}}")
    index = r.randrange(len(forms))
    others = (
        str(n + 1),
        f"{n}.7",
        rf"\frac{{{n + 1}}}{{101}}",
        rf"{n / 10:.1f} \times 10^{{-{exponent + 1}}}",
        rf"{n}\sqrt{{3}}",
    )
    return forms[index], others[index]


def symbols_of_units(r: random.Random) -> Drawn:
    (value, other), (unit, wrong) = _magnitude(r), r.sample(UNIT_SYMBOLS, 2)
    gold = r.choice((value, r.choice(IN_TEXT) % (value, unit)))
    same = [value, *(form % (value, unit) for form in IN_TEXT)]
    differing = [form % (other, unit) for form in r.sample(IN_TEXT, 2)]
    return gold, same, differing + ([] if gold == value else [form % (value, wrong) for form in r.sample(IN_TEXT, 2)])


def products_of_units(r: random.Random) -> Drawn:
    (value, other), (a, b, c) = _magnitude(r), r.sample(UNIT_SYMBOLS, 3)
    p, q = r.randint(1, 3), r.randint(1, 3)
    top, bottom = (f"{unit}^{power}" if power > 1 else unit for unit, power in ((a, p), (b, q)))
    bottom_power = f"{b}^{{-{q}}}"
    same = [
        rf"{value}\,\mathrm{{{top}\,{bottom_power}}}",
        rf"{value}\ \text{{{top}/{bottom}}}",
        rf"{value}\,\mathrm{{{top}}}\cdot\mathrm{{{bottom_power}}}",
        rf"{value}\,\mathrm{{{a}}}^{{{p}}}\,\mathrm{{{b}}}^{{-{q}}}",
        rf"{value}\ \frac{{\text{{{a}}}^{p}}}{{\text{{{b}}}^{q}}}",
        rf"{value}\,\mathrm{{{top}}}/\mathrm{{{bottom}}}",
    ]
    wrong = [
        rf"{value}\,\mathrm{{{top}\,{b}^{{-{q + 1}}}}}",
        rf"{value}\ \text{{{top}/{c}}}",
        rf"{value}\,\mathrm{{{top}}}",
        rf"{other}\ \text{{{top}/{bottom}}}",
    ]
    return r.choice(same), [*same, value], wrong


NOUNS = (
    "apples, students, red marbles, people, children, different ways, distinct integers, eggs left, ordered "
    "pairs, cookies in total, months, square tiles, points, real roots, times, boxes, fish, positive integers, "
    "hours each, pages per day, solutions, dollars altogether, years old"
).split(", ")
CHANGES = (
    "squared, cubed, tenths, hundredths, thousandths, fifths, halves, thirds, factorial, wrong, incorrect, "
    "invalid, rejected, doubled, dozen, hundred, million, less, more or less, or 6, otherwise 6, unless it rains, "
    "is false, not, maybe, plus 1, minus 1, times 2, at most, i guess, fails, modulo 3, percent off, to 7, out of "
    "9, and 3, but not 4, if x > 0, no"
).split(", ")


def counted_nouns(r: random.Random) -> Drawn:
    value, noun = str(r.randint(2, 90)), r.choice(NOUNS)
    same = [
        rf"{value} \text{{ {noun}}}",
        f"{value} {noun}",
        rf"{value}~\mathrm{{{noun.split()[0]}s}}".replace("ss}", "s}"),
    ]
    changes = r.sample(CHANGES, 6)
    other = [rf"{value}\text{{ {words}}}" for words in changes] + [f"{value} {words}" for words in changes]
    return value, same, [*other, rf"\text{{not }} {value}", rf"\text{{more than }} {value}"]


def money(r: random.Random) -> Drawn:
    n = r.randint(2, 90)
    same = [str(n), rf"\${n}", f"{n} dollars", rf"{n}\text{{ dollars}}", rf"\${n}.00", f"${n}", rf"{n}\text{{ USD}}"]
    other = [rf"{n}\text{{ cents}}", f"{n} cents", f"€{n}", rf"{n}\text{{ euros}}", rf"{n}\text{{ km}}", rf"\${n + 1}"]
    return rf"\${n}", same, other


def number_words(r: random.Random) -> Drawn:
    units = "one two three four five six seven eight nine".split()
    tens = "twenty thirty forty fifty sixty seventy eighty ninety".split()
    t, u = r.randrange(8), r.randrange(9)
    n = 10 * (t + 2) + u + 1
    same = [f"{tens[t]}-{units[u]}", rf"\text{{{tens[t]} {units[u]}}}", rf"\text{{{tens[t].title()}-{units[u]}}}"]
    return (
        str(n),
        same,
        [f"{tens[t - 1]}-{units[u]}", f"{tens[t]}", f"{units[u]}-{tens[t]}", rf"\text{{{tens[t]} or {units[u]}}}"],
    )


# ----------------------------------------------------------------------------------------- what an answer is printed in


def labels_of_choices(r: random.Random) -> Drawn:
    (value, other), letter = _magnitude(r), r.choice("ABCDE")
    labels = (
        r"\textbf{(%s) }%s",
        r"\textbf{(%s)}\ %s",
        "(%s) %s",
        r"\text{(%s) }%s",
        r"\mathrm{(%s)}\ %s",
        r"\text{%s. } %s",
    )
    same = [label % (letter, value) for label in labels]
    return value, same, [*(label % (letter, other) for label in labels), rf"\textbf{{({letter})}}"]


DECORATIONS = (
    r"%s\tag{1}",
    r"\color{red}{%s}",
    r"{\color{blue}%s}",
    r"\textcolor{red}{%s}",
    r"%s \blacksquare",
    r"%s\ \square",
    "%s ∎",
    r"%s\quad\blacksquare",
    r"\therefore %s",
    r"\Rightarrow %s",
    r"%s \checkmark",
    r"\hspace{1cm} %s",
    r"%s\label{a}",
    r"\ensuremath{%s}",
    r"\tag{*} %s",
    r'"%s"',
    r"\text{Total: } %s",
    r"\color[rgb]{1,0,0}{%s}",
)


def decorations(r: random.Random) -> Drawn:
    value, other = _magnitude(r)
    return value, [form % value for form in DECORATIONS], [form % other for form in r.sample(DECORATIONS, 6)]


# ---------------------------------------------------------------------------------------------- letters of one's choice


def free_integers(r: random.Random) -> Drawn:
    d, m = r.choice((3, 4, 6)), r.randint(1, 3)
    letter, name = r.sample("klmn", 2)
    gold = rf"\frac{{\pi}}{{{d}}}+{2 * m}{letter}\pi"
    same = [
        rf"\frac{{\pi}}{{{d}}}+{2 * m}{name}\pi",
        rf"\frac{{\pi}}{{{d}}}+{2 * m}\pi {name}",
        rf"x=\frac{{\pi}}{{{d}}}+{2 * m}{name}\pi, {name}\in\mathbb{{Z}}",
        rf"\frac{{\pi}}{{{d}}}+{2 * m}{name}\pi \text{{ for any integer }} {name}",
        rf"{2 * m}{name}\pi + \frac{{\pi}}{{{d}}} \text{{ where }} {name} \text{{ is an integer}}",
    ]
    other = [
        rf"\frac{{\pi}}{{{d}}}+{2 * m}x\pi",
        rf"\frac{{\pi}}{{{d}}}+{2 * m + 1}{name}\pi",
        rf"\frac{{\pi}}{{{d}}}+{2 * m}\pi",
        rf"\frac{{\pi}}{{{d + 1}}}+{2 * m}{name}\pi",
        rf"\frac{{\pi}}{{{d}}}+\frac{{{2 * m}\pi}}{{{name}}}",
    ]
    return gold, same, other


def free_formulas(r: random.Random) -> Drawn:
    """A letter of the problem is no free integer."""
    a, (letter, name) = r.randint(2, 9), r.sample("klmn", 2)
    gold = r.choice((f"{a}{letter}+1", rf"{letter}^{a}\pi", rf"\frac{{{a}\pi}}{{{letter}}}", rf"{letter}\pi r^2"))
    return gold, [gold], [gold.replace(letter, name).replace(rf"\p{name}", r"\pi")]


def alternating_signs(r: random.Random) -> Drawn:
    n = r.choice("klmn")
    forms = [rf"\cos {n}\pi", rf"\cos({n}\pi)", rf"\cos(\pi {n})", rf"\cos \pi {n}", rf"\cos{{{n}\pi}}"]
    wrong = [f"(-1)^{{{n}+1}}", rf"\sin {n}\pi", rf"\cos 2{n}\pi", rf"\cos {n}", rf"-\cos({n}\pi)"]
    return f"(-1)^{n}", [*forms, f"(-1)^{{{n}}}"], wrong


def integration_constants(r: random.Random) -> Drawn:
    body, other = r.choice(
        ((r"\frac{x^3}{3}", r"\frac{x^2}{3}"), (r"\sin x", r"\cos x"), ("x^2", "2x"), (r"\ln |x|", "x"))
    )
    gold = f"{body} + {r.choice('Cc')}"
    return gold, [f"{body}+C", f"{body}+c"], [body, f"{other}+C", f"{body}+2C", f"{body}-cx", f"{body}+D", f"C {body}"]


def conjunctions(r: random.Random) -> Drawn:
    a, b = sorted(r.sample(range(-9, 10), 2))
    low, high, is_open, is_short = r.choice((r"\ge", ">")), r.choice((r"\le", "<")), "([", ")]"
    gold = f"{is_open[low != '>']}{a},{b}{is_short[high != '<']}"
    same = [
        rf"x {low} {a} \text{{ and }} x {high} {b}",
        rf"x {high} {b} \text{{ and }} x {low} {a}",
        f"x {low} {a}, x {high} {b}",
        rf"x {low} {a} \land x {high} {b}",
    ]
    other = [
        rf"x {low} {a} \text{{ or }} x {high} {b}",
        rf"x {low} {a} \text{{ and }} y {high} {b}",
        f"x {low} {a}",
        rf"x {low} {a} \text{{ and }} x {high} {b + 1}",
        rf"x {high} {a} \text{{ and }} x {low} {b}",
    ]
    return gold, same, other


def piecewise_functions(r: random.Random) -> Drawn:
    a, (f, g) = r.randint(1, 9), r.sample(("x", "-x", "x^2", "2x+1", "0", r"\frac{x}{2}"), 2)
    rows = [(f, rf"x \ge {a}"), (g, f"x < {a}")]

    def written(rows: list[tuple[str, str]], row: str) -> str:
        return r"\begin{cases} " + r" \\ ".join(row % pair for pair in rows) + r" \end{cases}"

    forms = (
        r"%s & \text{if } %s",
        "%s, & %s",
        r"%s & %s",
        r"%s, & \text{for } %s",
        r"%s \text{ if } %s",
        r"%s, \quad \text{if } %s",
    )
    gold = written(rows, r.choice(forms))
    same = [written(rows, form) for form in forms] + [written(rows[::-1], form) for form in forms[:2]]
    swapped = [(g, rows[0][1]), (f, rows[1][1])]
    moved = [(f, rf"x \ge {a + 1}"), (g, f"x < {a + 1}")]
    return gold, same, [written(swapped, forms[0]), written(moved, forms[2]), written(rows[:1], forms[0]), f]


FORMS = (
    symbols_of_units, products_of_units, counted_nouns, money, number_words, labels_of_choices, decorations,
    free_integers, free_formulas, alternating_signs, integration_constants, conjunctions, piecewise_functions,
)  # fmt: skip
