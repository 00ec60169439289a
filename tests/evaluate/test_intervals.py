"""Test Student and Welch intervals against published quantiles and the formulas written out."""

import math
import statistics

import pytest

from d3s.evaluate.intervals import student_interval, t_quantile, welch_interval


@pytest.mark.parametrize(
    "freedom, quantile", [(1, 12.7062047), (2, 4.3026527), (4, 2.7764451), (9, 2.2621572), (29, 2.0452296)]
)
def test_t_quantile_matches_published_tables(freedom, quantile):
    assert t_quantile(freedom) == pytest.approx(quantile, abs=1e-6)


def test_student_and_welch_intervals_match_formulas():
    values = [0.70, 0.74, 0.75, 0.77, 0.79]
    got = student_interval(values)
    half = 2.7764451 * statistics.stdev(values) / math.sqrt(5)
    assert (got.value, got.low, got.high) == pytest.approx((0.75, 0.75 - half, 0.75 + half))
    assert student_interval([0.5]).low is None
    # Welch, by hand: variances 1 and 4, 4 values each -> 5/4 / ... = 4.41 degrees of freedom
    a, b = [1.0, 1.0, 3.0, 3.0], [5.0, 5.0, 9.0, 9.0]
    va, vb = statistics.variance(a) / 4, statistics.variance(b) / 4
    freedom = (va + vb) ** 2 / (va**2 / 3 + vb**2 / 3)
    got = welch_interval(b, a)
    assert got.value == pytest.approx(5.0)
    assert got.high - got.value == pytest.approx(t_quantile(freedom) * math.sqrt(va + vb))
    assert freedom == pytest.approx(75 / 17)
    assert welch_interval([1.0], [0.0, 1.0]).low is None
