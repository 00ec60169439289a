r"""Letters of one's choice, conditions and currency signs, against hand-written pairs."""

from d3s.verifier.conventions import different_money, with_common_letters
from d3s.verifier.normalize import compact, normalize


def common(gold: str, answer: str) -> bool:
    texts = with_common_letters(normalize(gold), normalize(answer))
    return compact(texts[0]) == compact(texts[1])


SAME = [
    (r"2\pi k", r"2\pi n"), (r"k\pi, k \in \mathbb{Z}", r"n\pi \ (n \in \mathbb{Z})"), (r"(2k+1)\pi", r"(2m+1)\pi"),
    (r"3k+1, k \in \mathbb{Z}", r"3n+1, n \in \mathbb{Z}"), (r"30^\circ + 360^\circ k", r"30^\circ + 360^\circ n"),
    (r"\frac{k\pi}{3}", r"\frac{n\pi}{3} \text{ for any integer } n"), (r"x^2+C", "x^2+c"),
    (r"k\pi", r"k\pi \text{ where } k \text{ is an integer}"), (r"(-1)^n", r"\cos n\pi"), (r"\cos(\pi n)", "(-1)^{n}"),
    ("f(x)=x", r"f(x)=x \text{ for all } x"), (r"f(n)=n \quad \forall n", "f(n)=n"),
    ("f(x)=cx", r"f(x)=cx \text{ for some constant } c"), ("f(x)=cx", r"f(x)=cx, \text{ where } c \in \mathbb{R}"),
]  # fmt: skip
OTHER = [
    (r"k\pi, k \in \mathbb{Z}", r"k\pi, k \in \mathbb{N}"), (r"k\pi", r"x\pi"), (r"3k+1", "3n+1"),
    (r"\frac{\pi}{k}", r"\frac{\pi}{n}"), (r"k\pi r", r"n\pi r"), (r"k\pi + n", r"n\pi + k"),
    (r"2\pi k", r"2\pi k \text{ if } k > 0"), (r"ax^2+bx+c", "ax^2+bx+C x"), (r"x^2+Cx+C", "x^2+cx+c"),
    (r"x^2+C", "x^2"), (r"(-1)^n", r"\cos 2n\pi"), (r"(-1)^n", r"\cos n\pi x"),
    (r"f(x)=x \text{ for all } x > 1", r"f(x)=x \text{ for all } x > 2"),
]  # fmt: skip


def test_letters_of_choice_and_conditions() -> None:
    for gold, answer in SAME + OTHER:
        assert common(gold, answer) is ((gold, answer) in SAME) is common(answer, gold), (gold, answer)


def test_currency_signs_are_units() -> None:
    different = [(r"\$5", r"5\text{ cents}"), (r"\$5", "€5"), ("$5", "5 km"), (r"\$5", r"5\%")]
    compatible = [(r"\$5", "5 dollars"), (r"\$5", r"\$6"), (r"\$5", "5"), ("$5$", "5 cents"), ("5 cents", "5 cents"),
                  (r"\$5 million", r"5\text{ million dollars}")]  # fmt: skip
    for gold, answer in different + compatible:
        differ = (gold, answer) in different
        assert different_money(gold, answer) is differ is different_money(answer, gold), (gold, answer)
