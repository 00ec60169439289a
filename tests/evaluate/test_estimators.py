"""Estimators, against brute force over subsets, exact fractions and votes counted by hand."""

import argparse
import itertools
import math
import random
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from d3s.evaluate import pass_at_k
from d3s.evaluate.estimators import majority, parse_ks, per_problem, vote_key


@pytest.mark.parametrize("n", range(1, 8))
def test_pass_at_k_is_the_share_of_successful_subsets(n):
    for c, k in itertools.product(range(n + 1), range(1, n + 1)):
        subsets = list(itertools.combinations([1] * c + [0] * (n - c), k))
        assert pass_at_k(n, c, k) == float(Fraction(sum(any(s) for s in subsets), len(subsets)))


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
    winner = majority(answers)
    if not votes:
        assert winner is None
    else:
        most = max(votes.count(v) for v in votes)
        chosen = next(v for v in votes if votes.count(v) == most)  # ties: the first
        assert winner == next(i for i, a in enumerate(answers) if a is not None and same.get(a, a) == chosen)


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


@given(st.lists(st.lists(st.sampled_from([0.0, 1.0]), min_size=6, max_size=6), min_size=1, max_size=5))
def test_metrics_match_exact_fractions(scores):
    answers = [["7" if s else f"{random.Random(i).randrange(9)}x" for i, s in enumerate(row)] for row in scores]
    values = per_problem(np.array(scores), answers, [1, 3])
    for p, row in enumerate(scores):
        correct = int(sum(row))
        assert values["pass@1"][p] == float(Fraction(correct, 6))
        assert values["avg@n"][p] == pytest.approx(correct / 6, abs=1e-15)
        assert values["pass@3"][p] == float(1 - Fraction(math.comb(6 - correct, 3), math.comb(6, 3)))
        counts = Counter(answers[p])
        assert values["maj@n"][p] == float(counts.most_common(1)[0][0] == "7")


def test_scores_of_one_or_more_are_correct():
    values = per_problem(np.array([[0.5, 1.0, 0.0, 1.5]]), [["a", "b", None, "c"]], [1])
    assert values["pass@1"][0] == 0.5 and values["avg@n"][0] == 0.75 and values["maj@n"][0] == 0.0


@pytest.mark.parametrize(
    ("n", "c", "k"), [(4, 2, 5), (4, 5, 2), (4, -1, 2), (4, 2, 0), (4, 2, -1), (0, 0, 1), (-1, 0, 1)]
)
def test_pass_at_k_refuses_impossible_counts(n, c, k):
    with pytest.raises(ValueError, match=r"got .*, expected"):
        pass_at_k(n, c, k)


def test_ks_are_positive_integers():
    assert parse_ks("1,8") == (1, 8)
    for text in ("0", "1,,2", "a", "-1", "1.5", "9" * 9999):
        with pytest.raises(argparse.ArgumentTypeError, match="expected positive integers joined by commas"):
            parse_ks(text)
