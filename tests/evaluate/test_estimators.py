"""Estimators, against brute force over subsets, exact fractions and votes counted by hand."""

import argparse
import itertools
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from d3s.evaluate import pass_at_k
from d3s.evaluate.estimators import majority, parse_ks, vote_key


def test_pass_at_k_is_the_share_of_successful_subsets():
    for n in range(1, 8):
        for c, k in itertools.product(range(n + 1), range(1, n + 1)):
            subsets = list(itertools.combinations([1] * c + [0] * (n - c), k))
            assert pass_at_k(n, c, k) == float(Fraction(sum(any(s) for s in subsets), len(subsets)))
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


@pytest.mark.parametrize(
    ("a", "b", "equal"),
    [
        ("007", "7", True), ("27.0", "27", True), ("00", "0", True), ("0.0", "0", True), ("0", "", False),
        ("27.50", "27.5", True), ("+3", "3", True), ("-3.", "-3", True), ("x.", "x", True),
        ("\\dfrac{1}{2}", "\\frac{1}{2}", True), ("\\tfrac{1}{2}", "\\frac{1}{2}", True),
        ("\\left( 1,\\, 2 \\right)", "(1,2)", True), ("$5$", "5", True), ("0.5", "5", False), ("-3", "3", False),
        ("27.05", "27.5", False), ("\\leftarrow", "arrow", False), ("1,2", "12", False), ("²", "2", False),
        ("1e9999999999", "1e1", False),
    ],
)  # fmt: skip
def test_vote_keys_ignore_layout_only(a, b, equal):
    assert (vote_key(a) == vote_key(b)) is equal


def test_ks_are_positive_integers():
    assert parse_ks("1,8") == (1, 8)
    for text in ("0", "1,,2", "a", "-1", "1.5", "9" * 9999):
        with pytest.raises(argparse.ArgumentTypeError, match="expected positive integers joined by commas"):
            parse_ks(text)
