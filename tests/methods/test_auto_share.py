"""The automatic share on drawn metrics, against a loop written from its formula."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from d3s.config.load import load_config
from d3s.methods.auto_share import FIRST_STEPS, AutoShare

B = 8
CONFIG = load_config([], [f"train.prompts_per_step={B}"])


def line(x=0.0, variance=1.0, groups=6.0, loss=0.1):
    """Metrics of a step whose gradient norm is exp(x) per root of the variance."""
    metrics = {"loss": loss, "grad_norm": math.exp(x) * math.sqrt(variance), "advantage/var_selected": variance}
    return metrics | {"selection/effective_groups": groups}


def decisions(lines, share):
    """The share and the deviation after each step, from the formula in the header of AutoShare."""
    mean = spread = kl = kl_rise = 0.0
    steps = calm = 0
    for metrics in lines:
        alarm, deviation = not math.isfinite(metrics["loss"] + metrics["grad_norm"]), 0.0
        early, rise = steps < FIRST_STEPS, max(0.0, metrics.get("policy/kl_ref", 0.0) - kl)
        steep, kl, kl_rise = rise > 2 * kl_rise, metrics.get("policy/kl_ref", 0.0), 0.9 * kl_rise + 0.1 * rise
        if not alarm:
            if not metrics["grad_norm"] or not metrics["advantage/var_selected"]:
                yield share, 0.0
                continue
            x = math.log(metrics["grad_norm"] / math.sqrt(metrics["advantage/var_selected"]))
            mean, steps = mean if steps else x, steps + 1
            deviation, limit = x - mean, 3 * max(spread, 0.1)
            clipped = max(mean - limit, min(mean + limit, x))
            mean, spread = 0.9 * mean + 0.1 * clipped, 0.9 * spread + 0.1 * abs(clipped - mean)
            alarm = deviation > math.log(3)
        if not early and alarm:
            calm, share = 0, 0.0 if share <= 0.25 else share / 2
        elif not early and deviation < math.log(1.5) and metrics["selection/effective_groups"] >= B / 4 and not steep:
            calm += 1
            if calm == 5:
                calm, share = 0, min(1.0, share + 0.25)
        yield share, deviation


STEPS = st.builds(
    line,
    st.sampled_from([0.0, 0.1, -0.2, 0.39, 0.42, 1.0, 1.2, -4.0, 5.0, -math.inf, math.inf]),
    st.sampled_from([1.0, 1.0, 30.0, 0.0]),
    st.sampled_from([6.0, 6.0, B / 4, B / 4 - 0.1]),
    st.sampled_from([0.1] * 9 + [math.nan]),
)
KL = st.lists(st.sampled_from([0.0, 0.001, 0.003, 0.02]), min_size=60, max_size=60)


@given(st.lists(STEPS, max_size=60), KL, st.sampled_from([0.0, 0.26, 0.5, 1.0]), st.booleans())
def test_shares_follow_the_formula(lines, rises, share, with_kl):
    """With a rule that every second step restores from its state."""
    if with_kl:
        lines = [metrics | {"policy/kl_ref": kl} for metrics, kl in zip(lines, itertools.accumulate(rises))]
    rule, lines = AutoShare(CONFIG, share), [*[line()] * (FIRST_STEPS + 1), *lines]
    for step, (metrics, (expected, deviation)) in enumerate(zip(lines, decisions(lines, share))):
        before, reason = rule.cross_share(), rule.observe(metrics)
        assert (rule.share, rule.deviation) == (expected, pytest.approx(deviation, abs=1e-9))
        assert (reason is None) == (before == expected)
        changes = {"selection/cross_share": before, "control/change": (expected > before) - (expected < before)}
        assert rule.metrics() == changes | {"control/deviation": rule.deviation}
        if reason:
            finite = math.isfinite(metrics["loss"] + metrics["grad_norm"])
            spike = f"{math.exp(deviation):.1f} times its average" if finite else "not finite"
            assert f"{before:g} to {expected:g}; the" in reason
            assert ("was calm for 5 steps" if expected > before else spike) in reason
        if step % 2:
            rule, state = AutoShare(CONFIG), rule.state_dict()
            rule.load_state_dict(state)
