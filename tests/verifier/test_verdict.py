"""Three-valued verdicts against Kleene's minimum and maximum; matching against all permutations."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from d3s.verifier.verdict import MAX_UNORDERED, Comparison, Verdict, all_of, any_of, undecided

ORDER = {False: 0, None: 1, True: 2}
verdict_lists = st.lists(st.sampled_from([True, False, None]), max_size=6)
integers = st.lists(st.integers(0, 3), max_size=5)


def equal_mod_4(gold: str, answer: str) -> Verdict:
    return int(gold) % 4 == int(answer) % 4


def equal_texts_only(gold: str, answer: str) -> Verdict:
    return True if gold == answer else None


def comparison(full=equal_mod_4, quick=equal_texts_only) -> Comparison:
    return Comparison(full=full, quick=quick, formulas=undecided)


@given(verdict_lists)
def test_all_of_is_the_minimum_any_of_the_maximum(verdicts: list[Verdict]) -> None:
    assert ORDER[all_of(verdicts)] == min((ORDER[verdict] for verdict in verdicts), default=2)
    assert ORDER[any_of(verdicts)] == max((ORDER[verdict] for verdict in verdicts), default=0)


def test_verdicts_are_taken_lazily() -> None:
    def verdicts(last: bool):
        yield last
        raise AssertionError("one verdict too many")

    assert all_of(verdicts(False)) is False
    assert any_of(verdicts(True)) is True


@given(integers, integers, st.lists(st.integers(0, 2), min_size=5, max_size=5))
def test_any_order_agrees_with_all_permutations(golds: list[int], answers: list[int], shifts: list[int]) -> None:
    """Shifts by multiples of 4 make equal items differ as texts, so that the quick comparison misses them."""
    shifted = [str(answer + 4 * shift) for answer, shift in zip(answers, shifts)]
    expected = any(list(order) == golds for order in permutations(answers))
    assert comparison().in_any_order(map(str, golds), shifted) is expected


@given(integers, integers)
def test_order_counts_in_order(golds: list[int], answers: list[int]) -> None:
    texts = [str(gold) for gold in golds], [str(answer) for answer in answers]
    assert comparison().in_order(*texts) is (golds == answers)
    if len(golds) == len(answers):
        assert comparison().in_order_quick(*texts) is (True if golds == answers else None)


@pytest.mark.parametrize(
    ("golds", "answers", "verdict"),
    [(["1", "2"], ["2", "1"], True), (["1", "x"], ["2x", "1"], None), (["1", "x"], ["2x", "1", "1"], False)],
)
def test_unmatched_items_need_formulas(golds: list[str], answers: list[str], verdict: Verdict) -> None:
    assert comparison(full=equal_texts_only).in_any_order(golds, answers) is verdict


def test_long_lists_are_compared_in_order() -> None:
    numbers = [str(number) for number in range(MAX_UNORDERED + 1)]
    exact = comparison(full=lambda gold, answer: gold == answer)
    assert exact.in_any_order(numbers[:-1], numbers[-2::-1]) is True
    assert exact.in_any_order(numbers, numbers) is True
    assert exact.in_any_order(numbers, numbers[::-1]) is False


def test_quick_matches_come_before_slow_ones() -> None:
    compared = []

    def record(gold: str, answer: str) -> Verdict:
        compared.append((gold, answer))
        return equal_mod_4(gold, answer)

    assert comparison(full=record).in_any_order(["1", "2", "7"], ["2", "3", "1"]) is True
    assert compared == [("7", "3")]
