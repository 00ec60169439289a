"""The automatic share on scripted metrics, against its formula and hand-computed averages."""

import math

import pytest

from d3s.config.load import load_config
from d3s.methods.auto_share import CLIMB, DWELL, FIRST_STEPS, AutoShare

B = 8
CONFIG = load_config([], [f"train.prompts_per_step={B}"])


def line(x=0.0, variance=1.0, groups=6.0, **more):
    """Metrics of a step whose gradient norm is exp(x) per root of the variance."""
    metrics = {"loss": 0.1, "grad_norm": math.exp(x) * math.sqrt(variance), "advantage/var_selected": variance}
    return metrics | {"selection/effective_groups": groups} | more


def shares(lines, share=0.0):
    """The share after each step."""
    rule = AutoShare(CONFIG, share)
    return [(rule.observe(metrics), rule.share)[1] for metrics in lines]


def settled(share):
    """A rule at the end of the steps without a decision, with averages 0."""
    rule = AutoShare(CONFIG, share)
    for _ in range(FIRST_STEPS):
        rule.observe(line())
    assert rule.share == share
    return rule


def test_calm_run_climbs_every_dwell_steps():
    expected = [min(1.0, CLIMB * (max(0, step - FIRST_STEPS) // DWELL)) for step in range(1, 41)]
    assert shares([line()] * 40) == expected and expected[-1] == 1


def test_changes_tell_their_reason():
    rule = settled(0.5)
    reasons = [rule.observe(line()) for _ in range(DWELL)]
    assert reasons[:-1] == [None] * (DWELL - 1) and "0.5 to 0.75" in reasons[-1] and "calm for 5" in reasons[-1]
    reason = rule.observe(line(math.log(10)))
    assert "0.75 to 0.375" in reason and "10.0 times its average" in reason


@pytest.mark.parametrize(("before", "after"), [(1.0, 0.5), (0.5, 0.25), (0.26, 0.13), (0.25, 0.0), (0.0, 0.0)])
def test_spike_lowers_the_share_at_once(before, after):
    rule = settled(before)
    for _ in range(DWELL - 1):
        rule.observe(line())
    reason = rule.observe(line(math.log(3.01)))
    assert rule.share == after and (reason is None) == (before == after)
    for _ in range(DWELL - 1):
        assert rule.observe(line()) is None  # the calm steps before the spike no longer count
    assert rule.share == after
    rule.observe(line())
    assert rule.share == after + CLIMB


@pytest.mark.parametrize(("factor", "moves"), [(1.49, True), (1.51, False), (2.99, False)])
def test_nothing_moves_between_the_thresholds(factor, moves):
    rule = settled(0.5)
    for _ in range(DWELL - 1):
        rule.observe(line())
    assert (rule.observe(line(math.log(factor))) is not None) is moves
    rule.observe(line(-1.0))  # the calm steps before still count
    assert rule.share == 0.75


def test_no_decision_in_the_first_steps():
    spikes = [line(i * 2.0) for i in range(FIRST_STEPS)]
    assert shares(spikes, 0.5) == [0.5] * FIRST_STEPS
    assert shares([*spikes, line(20.0)], 0.5)[-1] == 0.25
    assert shares([*spikes[:-1], line(20.0)], 0.5)[-1] == 0.5


def test_restless_run_stays_at_d3s_i():
    spikes = [line(4.0 * (step % DWELL == DWELL - 1)) for step in range(60)]
    assert set(shares(spikes)) == {0.0}
    assert set(shares([line(groups=B / 4 - 0.1)] * 60)) == {0.0}  # a few groups hold everything that is kept
    assert shares([line(groups=B / 4)] * 60)[-1] == 1.0


def test_variance_of_the_kept_explains_the_norm():
    """A larger share raises the variance: the norm rises by its root, and the deviation does not."""
    rule = settled(0.5)
    for variance in (1.5, 30.0, 1e-3):
        rule.observe(line(variance=variance))
        assert rule.deviation == pytest.approx(0, abs=1e-12)


def test_averages_match_the_formula():
    xs = [0.3, 0.2, 0.9, -4.0, 0.1, 5.0, 0.2, 0.25]
    rule, mean, spread = AutoShare(CONFIG), 0.3, 0.0
    for x in xs:
        rule.observe(line(x, variance=0.7))
        assert rule.deviation == pytest.approx(x - mean)
        limit = 3 * max(spread, 0.1)
        clipped = max(mean - limit, min(mean + limit, x))
        mean, spread = 0.9 * mean + 0.1 * clipped, 0.9 * spread + 0.1 * abs(clipped - mean)
        assert (rule.mean, rule.spread) == (pytest.approx(mean), pytest.approx(spread))


@pytest.mark.parametrize(
    "empty",
    [
        {"loss": 0.0, "grad_norm": 0.0, "advantage/var_selected": 0.0, "selection/effective_groups": 0.0},
        line() | {"grad_norm": 0.0},
        line() | {"advantage/var_selected": 0.0},
    ],
    ids=["nothing kept", "no gradient", "equal advantages"],
)
def test_steps_without_a_deviation_change_nothing(empty):
    rule = settled(0.5)
    rule.observe(line(0.5))
    before = rule.state_dict()
    assert rule.observe(empty) is None
    assert rule.state_dict() == before | {"deviation": 0.0, "before": 0.5}
    assert set(shares([empty] * 50)) == {0.0}


@pytest.mark.parametrize("bad", [{"loss": math.nan}, {"loss": math.inf}, {"grad_norm": math.nan}])
def test_values_that_are_not_finite_are_alarms(bad):
    rule = settled(1.0)
    assert "not finite" in rule.observe(line() | bad)
    assert rule.share == 0.5 and all(math.isfinite(value) for value in rule.state_dict().values())


def test_rising_kl_is_not_calm():
    """The divergence doubles its rise every step, or rises evenly; without loss.beta it is not looked at."""
    doubling = [line(**{"policy/kl_ref": 0.001 * 2.2**i}) for i in range(40)]
    even = [line(**{"policy/kl_ref": 0.001 * i}) for i in range(40)]
    falling = [line(**{"policy/kl_ref": 1.0 - 0.001 * i}) for i in range(40)]
    assert [shares(lines)[-1] for lines in (doubling, even, falling)] == [0.0, 1.0, 1.0]


def test_restored_state_decides_as_the_whole_run():
    script = [line(0.2 * math.sin(i) + 2.0 * (i % 17 == 16), **{"policy/kl_ref": 0.01 * i}) for i in range(60)]
    whole = AutoShare(CONFIG)
    reasons = [whole.observe(metrics) for metrics in script]
    assert sum(reason is not None for reason in reasons) > 5
    for cut in (3, 8, 16, 33):
        first, second = AutoShare(CONFIG), AutoShare(CONFIG)
        for metrics in script[:cut]:
            first.observe(metrics)
        second.load_state_dict(first.state_dict())
        assert [second.observe(metrics) for metrics in script[cut:]] == reasons[cut:]
        assert second.state_dict() == whole.state_dict()
