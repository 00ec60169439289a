"""Metrics of samples, against draws one by one in exact fractions, and counts by hand."""

import argparse
import time
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from d3s.evaluation.estimators import majority, parse_ks, pass_at_k
from d3s.evaluation.files import Sample
from d3s.evaluation.results import metric_values, summarize


def test_pass_at_k_of_impossible_numbers_is_refused():
    for n, c, k in ((4, 2, 5), (4, 5, 2), (4, -1, 2), (4, 2, 0), (0, 0, 1)):
        with pytest.raises(ValueError, match=r"got .*, expected"):
            pass_at_k(n, c, k)


@given(st.integers(1, 3000), st.data())
def test_pass_at_k_is_rounded_once(n, data):
    c, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    failure = Fraction(1)
    for i in range(k):  # another form: the probability that k draws in a row fail
        failure *= Fraction(max(n - c - i, 0), n - i)
    assert pass_at_k(n, c, k) == float(1 - failure)


@given(st.lists(st.sampled_from(["1", "1.0", " 1 ", "2", "x", "$x$", None]), max_size=9))
def test_majority_matches_counting(answers):
    same = {"1.0": "1", " 1 ": "1", "$x$": "x"}
    votes = [same.get(a, a) for a in answers if a is not None]
    most = max(map(votes.count, votes), default=0)
    winners = (i for i, a in enumerate(answers) if a is not None and votes.count(same.get(a, a)) == most)
    assert majority(answers) == next(winners, None)  # ties: the first


SAME_VOTES = [
    ["007", "7", "+7", "7.0", "$7$", "7.", "\\frac{14}{2}", "x = 7", "seven"], ["00", "0", "-0"],
    ["27.50", "27.5", "55/2"],
    ["\\dfrac{1}{2}", "\\frac12", "0.5", "1/2", ".5", "\\tfrac{1}{2}"], ["\\left( 1,\\, 2 \\right)", "(1,2)"],
    ["x.", "x"], ["1,000", "1000", "1{,}000"], ["\\{1, 2\\}", "\\{2,1\\}", "\\{1, 4/2\\}"], ["(B)", "\\text{B}", "B"],
    ["2, 3", "3, 2"], ["[0, \\infty)", "[0,\\infty)"], ["10 \\text{ cm}", "10 cm"], ["\\text{Yes}", "yes"],
]  # fmt: skip
OTHER_VOTES = [
    ["0", ""], ["0.5", "5"], ["-3", "3"], ["27.05", "27.5"], ["\\leftarrow", "arrow"], ["1,2", "12"],
    ["1e9999999999", "1e1"], ["0.33", "1/3"], ["(1,2)", "(2,1)"], ["[0,1)", "[0,1]"], ["5 cm", "5 kg"], ["A", "B"],
    ["x+1", "x-1"], ["yes", "no"],
]  # fmt: skip


@given(st.sampled_from(SAME_VOTES), st.sampled_from(SAME_VOTES), st.data())
def test_answers_vote_by_the_verifiers_classes(one, other, data):
    """Every spelling of an answer counts for it, in any order: one more of it wins, one less loses."""
    count = data.draw(st.integers(2, 6))
    mine = data.draw(st.lists(st.sampled_from(one), min_size=count, max_size=count))
    theirs = [data.draw(st.sampled_from(other))] * (count - 1)
    votes = data.draw(st.permutations([*mine, *theirs]))
    winner = majority(votes)
    assert votes[winner] in one and winner == next(i for i, vote in enumerate(votes) if vote in one)
    for first, second in OTHER_VOTES:
        assert majority([second, first, second]) == 0 and majority([second, first]) == 0


def test_majority_of_many_different_answers_takes_bounded_time():
    answers = [f"\\frac{{x+{i}}}{{y-{i}}} + \\sqrt{{{i}z}}" for i in range(300)] + ["x" * 50_000, "(" * 5_000]
    started = time.process_time()
    assert majority([*answers, answers[7]]) == 7 and time.process_time() - started < 10


def test_ks_are_positive_integers():
    assert parse_ks("1,8") == (1, 8)
    for text in ("0", "1,,2", "a", "-1", "1.5", "9" * 9999):
        with pytest.raises(argparse.ArgumentTypeError, match="expected positive integers joined by commas"):
            parse_ks(text)


CORRECT, WRONG = Sample("", "2", 1.0, 5, True), Sample("", "3", 0.0, 9, True)
CUT = Sample("", None, 0.0, 20, False)


def test_summary_matches_manual_counts():
    result = summarize([[CORRECT, CORRECT, WRONG], [WRONG, CUT, WRONG]], "unit", (1, 3))
    expected = {"pass@1": 1 / 3, "pass@3": 1 / 2, "avg@n": 1 / 3, "maj@n": 1 / 2}
    assert {name: e.value for name, e in result.estimates.items()} == pytest.approx(expected)
    assert (result.data, result.n, result.problems, result.right) == ("unit", 3, 2, [2, 0])
    assert result.mean_length == pytest.approx(57 / 6) and result.truncated == result.no_answer == 1 / 6
    record = result.record()
    assert list(record)[:5] == ["data", "n", "problems", "pass@1", "pass@1_ci"]
    assert record["pass@1_ci"] == [result.estimates["pass@1"].low, result.estimates["pass@1"].high]
    with pytest.raises(ValueError, match="pass@4 of 3 samples"):
        summarize([[CORRECT] * 3], "unit", (4,))


def test_partial_scores_are_not_right():
    """Partial scores count in the average alone, scores above 1 as right. An empty answer is an answer."""
    group = [Sample("", answer, score, 5, True) for answer, score in (("2", 0.5), ("", 1.0), ("3", 0.0), ("4", 1.5))]
    result = summarize([group], "unit", (1,))
    assert result.right == [2] and result.no_answer == 0
    assert {name: e.value for name, e in result.estimates.items()} == {"pass@1": 0.5, "avg@n": 0.75, "maj@n": 0}


def test_only_the_first_voters_vote():
    groups = [[WRONG, CORRECT, CORRECT], [CORRECT, WRONG, WRONG]]
    assert metric_values(groups, (1,))["maj@n"].tolist() == [1, 0]
    assert metric_values(groups, (1,), voters=1)["maj@n"].tolist() == [0, 1]
