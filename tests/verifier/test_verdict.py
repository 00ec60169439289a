"""Three-valued verdicts against Kleene's minimum and maximum; matching against all permutations."""

from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from d3s.verifier.verdict import MAX_UNORDERED, Comparison, Verdict, all_of, any_of, undecided

ORDER = {False: 0, None: 1, True: 2}
integers = st.lists(st.integers(0, 3), max_size=5)


def equal_mod_4(gold: str, answer: str) -> Verdict:
    return int(gold) % 4 == int(answer) % 4


def equal_texts_only(gold: str, answer: str) -> Verdict:
    return True if gold == answer else None


def comparison(full=equal_mod_4) -> Comparison:
    return Comparison(full=full, quick=equal_texts_only, formulas=undecided)


@given(st.lists(st.sampled_from([True, False, None]), max_size=6))
def test_all_of_is_the_minimum_any_of_the_maximum(verdicts: list[Verdict]) -> None:
    assert ORDER[all_of(verdicts)] == min((ORDER[verdict] for verdict in verdicts), default=2)
    assert ORDER[any_of(verdicts)] == max((ORDER[verdict] for verdict in verdicts), default=0)


def test_verdicts_are_taken_lazily() -> None:
    first, second = iter([False, True]), iter([True, False])
    assert (all_of(first), any_of(second)) == (False, True) and (list(first), list(second)) == ([True], [False])


@given(integers, integers, st.lists(st.integers(0, 2), min_size=5, max_size=5))
def test_any_order_agrees_with_all_permutations(golds: list[int], answers: list[int], shifts: list[int]) -> None:
    """Shifts by multiples of 4 make equal items differ as texts, so that the quick comparison misses them."""
    shifted = [str(answer + 4 * shift) for answer, shift in zip(answers, shifts)]
    expected = any(list(order) == golds for order in permutations(answers))
    assert comparison().in_any_order([*map(str, golds)], shifted) is expected


@given(integers, integers)
def test_order_counts_in_order(golds: list[int], answers: list[int]) -> None:
    texts = [*map(str, golds)], [*map(str, answers)]
    assert comparison().in_order(*texts) is (golds == answers)
    if len(golds) == len(answers):
        assert comparison().in_order(*texts, quick=True) is (True if golds == answers else None)


def test_unmatched_items_need_formulas() -> None:
    matching = comparison(full=equal_texts_only)
    assert matching.in_any_order(["1", "2"], ["2", "1"]) is True
    assert matching.in_any_order(["1", "x"], ["2x", "1"]) is None
    assert matching.in_any_order(["1", "x"], ["2x", "1", "1"]) is False


def test_long_lists_are_compared_in_order() -> None:
    numbers = [str(number) for number in range(MAX_UNORDERED + 1)]
    exact = comparison(full=lambda gold, answer: gold == answer)
    assert exact.in_any_order(numbers[:-1], numbers[-2::-1]) is True
    assert exact.in_any_order(numbers, numbers) is True and exact.in_any_order(numbers, numbers[::-1]) is False


def test_quick_matches_come_before_slow_ones() -> None:
    compared = []
    record = comparison(full=lambda *pair: compared.append(pair) or equal_mod_4(*pair))
    assert record.in_any_order(["1", "2", "7"], ["2", "3", "1"]) is True
    assert compared == [("7", "3")]
