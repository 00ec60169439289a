"""Fits of saturating curves, against known curves, brute force and what cannot be identified."""

import numpy as np
import pytest

from research.saturation import Saturation, common_curves, fit, fit_interval
from research.tests.experiments import make_record

COMPUTE = np.arange(9) * 12.0
KNOWN = Saturation(start=0.2, asymptote=0.7, midpoint=25.0, exponent=2.0)
BASES = ("a", "b", "c", "d")


def curve_of(known, compute=COMPUTE):
    return np.append(known.start, known.at(compute[1:]))


def runs_of(curve, deviation, seed=0, bases=BASES):
    rng = np.random.default_rng(seed)
    return {base: curve + rng.normal(0, deviation, (3, len(curve))) for base in bases}


def test_curve_is_the_published_form():
    """Half of the rise at the midpoint; at four times the midpoint with B = 2 the share 16 / 17."""
    assert KNOWN.at(25.0) == pytest.approx(0.45)
    assert KNOWN.at(100.0) == pytest.approx(0.2 + 0.5 * 16 / 17)


@pytest.mark.parametrize(
    "asymptote, midpoint, exponent", [(0.8, 30, 1.5), (0.5, 10, 3.5), (0.9, 60, 2.5), (0.6, 20, 1)]
)
@pytest.mark.parametrize("unit", [1, 5e4])
def test_fit_recovers_a_known_curve(asymptote, midpoint, exponent, unit):
    known = Saturation(0.2, asymptote, midpoint * unit, exponent)
    fitted = fit(COMPUTE * unit, curve_of(known, COMPUTE * unit))
    assert fitted.start == 0.2
    assert fitted.asymptote == pytest.approx(asymptote, rel=2e-3)
    assert fitted.midpoint == pytest.approx(midpoint * unit, rel=0.01)
    assert fitted.exponent == pytest.approx(exponent, rel=0.01)


def test_fit_is_as_good_as_brute_force():
    """A noisy curve: no point of a fine grid of all three parameters has a smaller error."""
    curve = curve_of(KNOWN) + np.random.default_rng(2).normal(0, 0.03, 9)
    fitted = fit(COMPUTE, curve)
    error = ((fitted.at(COMPUTE[1:]) - curve[1:]) ** 2).sum()
    asymptote, midpoint, exponent = np.meshgrid(
        np.linspace(curve.max(), 1, 40), np.geomspace(1, 300, 60), np.geomspace(0.3, 4, 40), indexing="ij"
    )
    grid = Saturation(curve[0], asymptote[..., None], midpoint[..., None], exponent[..., None])
    least = ((grid.at(COMPUTE[1:]) - curve[1:]) ** 2).sum(-1).min()
    assert error <= least + 1e-9
    assert curve.max() <= fitted.asymptote <= 1


def test_many_curves_are_fitted_as_each_alone():
    curves = np.stack(list(runs_of(curve_of(KNOWN), 0.02).values()))
    together = fit(COMPUTE, curves)
    assert together.asymptote.shape == (4, 3)
    alone = fit(COMPUTE, curves[2, 1])
    assert together.asymptote[2, 1] == pytest.approx(alone.asymptote)
    assert together.reach(0.4)[2, 1] == pytest.approx(alone.reach(0.4))


def test_reach_inverts_the_curve():
    for level in (0.25, 0.45, 0.69):
        assert KNOWN.at(KNOWN.reach(level)) == pytest.approx(level)
    assert (KNOWN.reach(0.1), KNOWN.reach(0.2)) == (0, 0)
    assert (KNOWN.reach(0.7), KNOWN.reach(0.9)) == (np.inf, np.inf)


@pytest.mark.parametrize("compute", [[1, 2, 3, 4, 5], [0, 1, 1, 2, 3], [0, 1, 2, 3]])
def test_unsuitable_compute_is_refused(compute):
    with pytest.raises(ValueError, match="compute: got"):
        fit(np.array(compute), np.linspace(0.1, 0.5, len(compute)))


def test_intervals_contain_the_known_curve():
    """Eight draws: about 95 % of the intervals contain the truth, and less noise makes them narrower."""
    covered, widths = np.zeros(2), np.zeros(2)
    for seed in range(8):
        asymptote, cost = fit_interval(COMPUTE, runs_of(curve_of(KNOWN), 0.02, seed), level=0.45)
        covered += asymptote.low <= 0.7 <= asymptote.high, cost.low <= 25 <= cost.high
        widths += asymptote.high - asymptote.low, cost.high - cost.low
    assert (covered >= 7).all()
    asymptote, cost = fit_interval(COMPUTE, runs_of(curve_of(KNOWN), 0.002), level=0.45)
    assert asymptote.high - asymptote.low < 0.3 * widths[0] / 8
    assert cost.high - cost.low < 0.3 * widths[1] / 8


def test_straight_line_leaves_asymptote_open():
    """From 0.3 to 0.5 without a bend: the asymptote may be anything from little more to 1. The level is measured."""
    asymptote, cost = fit_interval(COMPUTE, runs_of(np.linspace(0.3, 0.5, 9), 0.02), level=0.4)
    assert asymptote.low < 0.75
    assert asymptote.high > 0.999
    assert 40 < cost.low < 48 < cost.high < 56


def test_level_above_flat_curve_costs_infinite_compute():
    _, cost = fit_interval(COMPUTE, runs_of(np.full(9, 0.4), 0.01), level=0.6)
    assert cost.low > COMPUTE[-1]
    assert cost.high == np.inf


def test_single_run_gives_a_fit_without_interval():
    asymptote, cost = fit_interval(COMPUTE, {"a": curve_of(KNOWN)[None]}, level=0.45)
    assert asymptote.value == pytest.approx(0.7, rel=2e-3)
    assert cost.value == pytest.approx(25, rel=2e-3)
    assert (asymptote.low, cost.high) == (None, None)


def test_common_curves_end_at_the_cheapest_run():
    """Right are 0, 8 and 8 of 8 answers, at 0, 10 and 20 seconds, or at 0, 40 and 80."""
    runs = [
        make_record([0, 12, 24], [[0], [8], [8]], base=base, seconds=np.array([0.0, 1, 2]) * rate)
        for base, rate in (("a", 10), ("a", 40), ("b", 10))
    ]
    compute, curves = common_curves(runs, "seconds")
    assert compute.tolist() == [0, 10, 20]
    assert curves["a"].tolist() == [[0, 1, 1], [0, 0.25, 0.5]]
    assert curves["b"].tolist() == [[0, 1, 1]]
