"""Coverage of the choice of rollouts and tokens against brute force over subsets and cut-offs."""

import itertools
import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from d3s.methods.coverage import covering_fraction, covering_keep
from d3s.selector import select_rollouts, top_tokens
from tests.helpers.subsets import seeded, value_tables, variance

covers = st.sampled_from([0.05, 0.5, 0.8, 0.9, 1.0])


def covering(advantages, cover, low, high, share=1.0, eligible=None):
    """The covering number of the choice that select_rollouts makes with seed 0."""
    shown = advantages if eligible is None else advantages.masked_fill(~eligible, 0.0)

    def choose(n):
        return select_rollouts(advantages, n, share, seeded(0), eligible)

    return covering_keep(shown, choose, cover, low, high)


def square_sums(pool, size):
    """The sums of squares of the subsets with the largest variance: there are several where these are equally good."""
    subsets = list(itertools.combinations(pool, size))
    best = max(map(variance, subsets))
    return [math.fsum(x * x for x in subset) for subset in subsets if variance(subset) >= best * (1 - 1e-8)]


def check_smallest(pools, keep, sizes, needed, low, high):
    """Whether no smaller even number is certain to suffice, and the number can; `sizes` maps it to those of pools."""

    def held(n):
        sums = [square_sums(pool, sizes(n)) for pool in pools]
        return sum(map(min, sums)), sum(map(max, sums))

    assert low <= keep <= high and (keep % 2 == 0 or keep in (low, high))
    for n in range(low + low % 2, keep, 2):
        assert held(n)[0] < needed * (1 + 1e-8)
    assert keep == high or held(keep)[1] >= needed * (1 - 1e-8)


@given(st.one_of(value_tables(2, 4), value_tables(3, 6)), st.data(), covers, st.booleans())
@settings(max_examples=150)
def test_covering_number_matches_brute_force(table, data, cover, cross):
    """Across groups (of at most 8 rollouts) or within them."""
    cross = cross and sum(map(len, table)) <= 8
    low = data.draw(st.integers(1, len(table[0])))
    high = data.draw(st.integers(low, len(table[0])))
    needed = cover * math.fsum(x * x for row in table for x in row)
    keep = covering(torch.tensor(table, dtype=torch.float64), cover, low, high, share=float(cross))
    if not needed:
        assert keep == low
    elif cross:
        check_smallest([list(itertools.chain(*table))], keep, lambda n: n * len(table), needed, low, high)
    else:
        check_smallest(table, keep, lambda n: n, needed, low, high)


def test_ineligible_rollouts_hold_nothing():
    row = torch.tensor([[9.0, -9, 3, -3, 1, -1, 0, 0]])
    eligible = torch.tensor([[False] * 2 + [True] * 6])
    assert covering(row, 0.85, 2, 8) == 2 and covering(row, 0.95, 2, 8, eligible=eligible) == 4
    assert covering(row, 0.95, 2, 8, eligible=torch.zeros(1, 8, dtype=torch.bool)) == 2


scores = st.lists(st.one_of(st.integers(0, 3).map(float), st.floats(0, 100)), max_size=30)


@given(scores, covers, st.sampled_from([0.01, 0.2, 0.5]), st.sampled_from([0.5, 0.8, 1.0]))
def test_covering_fraction_matches_brute_force(values, cover, low, high):
    """The tokens that top_tokens then chooses hold the share; without a score it is the lower bound."""
    products = torch.tensor(values, dtype=torch.float64)
    fraction = covering_fraction(products, cover, low, high)
    exact, total = sorted(map(Fraction, values), reverse=True), sum(map(Fraction, values))
    if not total:
        assert fraction == low
        return
    needed = Fraction(cover) * total * (1 - Fraction(1, 10**8))
    count = next(n for n in range(1, len(exact) + 1) if sum(exact[:n]) >= needed)
    assert fraction == pytest.approx(min(max(count / len(values), low), high))
    assert fraction == high or products[top_tokens(products, fraction)].sum() >= cover * products.sum() * (1 - 1e-8)
