r"""Answers in words, against hand-written verdicts, times of the day and proportions of integers."""

from fractions import Fraction
from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from d3s.verifier.normalize import normalize
from d3s.verifier.words import equal_words, without_choice_letter

times = st.tuples(st.integers(1, 12), st.integers(0, 59), st.sampled_from(["am", "pm"]))
ratio_terms = st.lists(st.one_of(st.integers(0, 9), st.integers(60, 90)), min_size=2, max_size=4)  # no minutes


def verdict(gold: str, answer: str) -> bool | None:
    return equal_words(normalize(gold), normalize(answer))


def test_choice_letters_in_any_form() -> None:
    for gold in ("C", "(C)", r"\text{C}", r"\textbf{(C)}", "c", "C.", r"\text{(C)}\ 12", "(C) red"):
        for answer in ("C", "c", "(C)", "C)", r"\text{C}", r"\mathrm{(C)}", "C: 12", "(c) red"):
            assert verdict(gold, answer) is True, (gold, answer)
        for answer in ("D", "(D)", "D) 12", "(C) or (D)", "(C), (D)"):
            assert verdict(gold, answer) is False, (gold, answer)


@given(times, times)
def test_times_are_equal_by_hour_minute_and_half(gold: tuple, answer: tuple) -> None:
    texts = ["{}:{:02d} {}".format(*time) for time in (gold, answer)]
    assert verdict(*texts) is (gold == answer)
    without_half = f"{gold[0]}:{gold[1]:02d}"
    assert verdict(without_half, texts[0]) is True and verdict(texts[0], without_half) is False


@given(ratio_terms, ratio_terms, st.integers(1, 9))
def test_ratios_are_equal_up_to_a_factor(gold: list[int], answer: list[int], factor: int) -> None:
    """The ratio of two terms to the first ones decides; of terms that are all zero there is none."""
    texts = [":".join(map(str, terms)) for terms in (gold, answer, [factor * term for term in gold])]
    assert equal_words(texts[0], texts[2]) is any(gold)
    if gold[0] and answer[0]:
        shares = [[Fraction(term, terms[0]) for term in terms] for terms in (gold, answer)]
        assert equal_words(*texts[:2]) is (shares[0] == shares[1])


TEXTS = {
    True: [
        ("12:00 pm", "noon"), ("12:00 am", "midnight"), ("7 p.m.", "7:00 PM"), ("7:00", "07:00"),
        (r"\text{Friday}", "friday"), (r"\text{the red ball}", "red ball"), (r"\text{June 5}", "June 5th"),
        ("no solution", r"\emptyset"), ("DNE", "does not exist"), ("all real numbers", r"\mathbb{R}"),
        (r"\text{isn't}", "isn't"), (r"\text{(C)}\ 12", "12"), (r"\text{(C)}\ 12", "12.0"), ("(C) blue", "blue"),
        ("(E)", "e"),
    ],
    False: [
        ("ABC", "ACB"), (r"\text{east}", r"\text{west}"), (r"\text{east}", "5"), (r"\text{June 5}", "June 6"),
        ("no solution", "all real numbers"), (r"\text{(C)}\ 12", "13"), ("E", "e"),
    ],
    None: [("ab", "ba"), ("xyz", "zyx"), ("mgRT", "RTmg"), ("x+1", "1+x"), ("abcd", "dcba"), ("5", "x"), ("e", "E"),
           ("i", "I")],
}  # fmt: skip


def test_texts_and_times_are_equal_products_left_open() -> None:
    for expected, pairs in TEXTS.items():
        assert [pair for pair in pairs if verdict(*pair) is not expected] == []


def test_lists_of_words() -> None:
    """Letters in their alphabetical order, labeled items, and items joined by `and` have no order; other lists have."""
    ordered = ("Alice, Bob", "red, blue, green", "A, C, B", "first, second")
    for text in ("A, C, D", "x rises, y falls", "Ann 5, Bob 7", "I, II, IV", "red, blue and green", *ordered):
        items = text.replace(" and", ",").split(", ")
        for order in permutations(items):
            answer = ", ".join(order[:-1]) + (" and " if "and" in text else ", ") + order[-1]
            expected = list(order) == items or text not in ordered
            assert verdict(rf"\text{{{text}}}", rf"\text{{{answer}}}") is expected, answer


statements = st.lists(st.booleans(), min_size=2, max_size=4)
NUMBERED = ("profit {}", "minimum at ({}, 2)", "between {} and 4", "loss: {}", "falls on ({},9)")


@given(statements, statements, st.data())
def test_truth_of_statements_is_compared_in_order(gold: list[bool], answer: list[bool], data: st.DataObject) -> None:
    def written(values: list[bool]) -> str:
        names = data.draw(st.sampled_from([("False", "True"), ("F", "T"), (r"\text{false}", r"\text{true}")]))
        label = data.draw(st.sampled_from(["%s", "({}) %s", "{}: %s", "{}. %s"]))
        items = [label.format("ABCD"[i]) % names[value] for i, value in enumerate(values)]
        has_labels.append("{}" in label)
        order = data.draw(st.permutations(range(len(items)))) if "{}" in label else range(len(items))
        orders.append(list(order))
        return ", ".join(items[i] for i in order)

    has_labels: list[bool] = []
    orders: list[list[int]] = []
    texts = written(gold), written(answer)
    if all(has_labels):
        assert verdict(*texts) is (gold == answer)
    else:
        shown = [[values[i] for i in order] for values, order in zip((gold, answer), orders)]
        assert verdict(*texts) is (shown[0] == shown[1])


@given(st.sampled_from(NUMBERED), st.sampled_from(["1", "-1", "1.5", "-1.5", "15", "1 5"]),
       st.sampled_from(["1", "-1", "1.5", "-1.5", "15", "1 5"]))  # fmt: skip
def test_numbers_in_texts_keep_sign_and_decimals(text: str, gold: str, answer: str) -> None:
    assert verdict(*(rf"\text{{{text.format(number)}}}" for number in (gold, answer))) is (gold == answer)


def test_letters_out_of_order_are_an_arrangement() -> None:
    for letters in ("abc", "bcd", "wxyz"):
        for order in map("".join, permutations(letters)):
            assert verdict(order, order) is not False and verdict(letters, order) is not False
            assert order == letters or verdict(order, letters) is False


def test_several_choices_are_no_choice() -> None:
    for answer in ("(B) but maybe (C)", r"\text{B. Also C is right}", r"\text{B) C) D)}", "B: A, C, D", "(B) or C"):
        assert verdict("B", answer) is False, answer
    assert verdict("B", "(B) P(A) = 1") is True


def test_label_of_a_choice_is_removed() -> None:
    for label in (r"\textbf{(D) }%s", r"\textbf{(D)}\ %s", "(D) %s", "D. %s", r"\text{D) }%s", r"\mathbf{(D)}\;%s"):
        for value in ("17", r"\frac{1}{2}", r"2\sqrt{3}"):
            text = normalize(label % value)
            assert without_choice_letter("3", text).strip() == value and without_choice_letter("D", text) == text
    for text in ("17", "(D)", "(D)+17", "(D)(x+1)", "D", "(d) 17", "(D) or (E)", "x(D) 17"):
        assert without_choice_letter("17", text) == text
