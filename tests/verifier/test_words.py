r"""Answers in words, against hand-written verdicts, times of the day and proportions of integers."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from d3s.verifier.normalize import normalize
from d3s.verifier.words import equal_words, without_choice_letter, words_of

times = st.tuples(st.integers(1, 12), st.integers(0, 59), st.sampled_from(["am", "pm"]))
ratio_terms = st.lists(st.integers(0, 60), min_size=2, max_size=4)


def verdict(gold: str, answer: str) -> bool | None:
    return equal_words(normalize(gold), normalize(answer))


@pytest.mark.parametrize("gold", ["C", "(C)", r"\text{C}", r"\textbf{(C)}", "c", "C.", r"\text{(C)}\ 12", "(C) red"])
def test_choice_letters_in_any_form(gold: str) -> None:
    for answer in ("C", "c", "(C)", "C)", r"\text{C}", r"\mathrm{(C)}", "C: 12", "(c) red"):
        assert verdict(gold, answer) is True
    for answer in ("D", "(D)", "D) 12", "(C) or (D)", "(C), (D)"):
        assert verdict(gold, answer) is False


def test_text_of_a_choice_answers_it() -> None:
    assert verdict(r"\text{(C)}\ 12", "12") is True
    assert verdict(r"\text{(C)}\ 12", "12.0") is True
    assert verdict(r"\text{(C)}\ 12", "13") is False
    assert verdict("(C) blue", "blue") is True


def test_constants_are_not_choices() -> None:
    assert verdict("e", "E") is not True and verdict("E", "e") is not True
    assert verdict("i", "I") is not True
    assert verdict("(E)", "e") is True


@given(times, times)
def test_times_are_equal_by_hour_minute_and_half(gold: tuple, answer: tuple) -> None:
    texts = ["{}:{:02d} {}".format(*time) for time in (gold, answer)]
    assert verdict(*texts) is (gold == answer)
    without_half = f"{gold[0]}:{gold[1]:02d}"
    assert verdict(without_half, texts[0]) is True
    assert verdict(texts[0], without_half) is False


@given(ratio_terms, ratio_terms, st.integers(1, 9))
def test_ratios_are_equal_up_to_a_factor(gold: list[int], answer: list[int], factor: int) -> None:
    def ratio(terms: list[int], times: int = 1) -> str:
        return ":".join(str(times * term) for term in terms)

    if sum(map(bool, gold)) == len(gold):
        assert equal_words(ratio(gold), ratio(gold, factor)) is True
    same = len(gold) == len(answer) and any(gold) and any(answer)
    same = same and all(gold[0] * b == answer[0] * a for a, b in zip(gold, answer)) if gold[0] and answer[0] else None
    if same is not None:
        assert equal_words(ratio(gold), ratio(answer)) is bool(same)


@pytest.mark.parametrize(
    ("gold", "answer", "expected"),
    [
        ("12:00 pm", "noon", True), ("12:00 am", "midnight", True), ("7 p.m.", "7:00 PM", True),
        ("7:00", "07:00", True), (r"\text{Friday}", "friday", True), (r"\text{the parabola}", "parabola", True),
        (r"\text{June 5}", "June 5th", True), ("no solution", r"\emptyset", True), ("DNE", "does not exist", True),
        ("all real numbers", r"\mathbb{R}", True), (r"\text{isn't}", "isn't", True), ("ABC", "ACB", False),
        (r"\text{east}", r"\text{west}", False), (r"\text{east}", "5", False), (r"\text{June 5}", "June 6", False),
        ("no solution", "all real numbers", False), ("ab", "ba", None), ("xyz", "zyx", None), ("mgRT", "RTmg", None),
        ("x+1", "1+x", None), ("abcd", "dcba", None), ("5", "x", None),
    ],
)  # fmt: skip
def test_texts_and_times_are_equal_products_left_open(gold: str, answer: str, expected: bool | None) -> None:
    assert verdict(gold, answer) is expected


@pytest.mark.parametrize(
    ("text", "in_any_order"),
    [("A, C, D", True), ("Alice, Bob", True), ("red, blue, green", False), ("red, blue and green", True)],
)
def test_lists_of_words(text: str, in_any_order: bool) -> None:
    items = text.replace(" and", ",").split(", ")
    for order in permutations(items):
        answer = ", ".join(order[:-1]) + (" and " if "and" in text else ", ") + order[-1]
        assert verdict(rf"\text{{{text}}}", rf"\text{{{answer}}}") is (in_any_order or list(order) == items)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (r"\text{no solution}", ("no", "solution")), ("Evelyn", ("evelyn",)),
        (r"\text{the red ball}", ("red", "ball")), ("x+1", None), (r"\text{a}+b", None), (r"5 \text{cm}", None),
        (r"\sin x", None),
    ],
)  # fmt: skip
def test_words_of_an_answer(text: str, words: tuple[str, ...] | None) -> None:
    assert words_of(text) == words


@pytest.mark.parametrize(
    "label", [r"\textbf{(D) }%s", r"\textbf{(D)}\ %s", "(D) %s", "D. %s", r"\text{D) }%s", r"\mathbf{(D)}\;%s"]
)
def test_label_of_a_choice_is_removed(label: str) -> None:
    for value in ("17", r"\frac{1}{2}", r"2\sqrt{3}"):
        assert without_choice_letter("3", normalize(label % value)).strip() == value
        assert without_choice_letter("D", normalize(label % value)) == normalize(label % value)


@pytest.mark.parametrize("text", ["17", "(D)", "(D)+17", "(D)(x+1)", "D", "(d) 17", "(D) or (E)", "x(D) 17"])
def test_other_letters_are_no_label(text: str) -> None:
    assert without_choice_letter("17", text) == text
