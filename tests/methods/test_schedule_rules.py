"""Rules of schedule.follow: the automatic share and the plateau against loops, coverage against a search."""

import itertools
import math
from fractions import Fraction

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from d3s.config.load import load_config
from d3s.methods.auto_share import FIRST_STEPS, AutoShare
from d3s.methods.coverage import covering_fraction, covering_keep
from d3s.methods.plateau import Plateau
from tests.helpers.subsets import value_tables

# --- AutoShare --------------------------------------------------------------------------------------------------------

B = 8
CONFIG = load_config([], [f"train.prompts_per_step={B}"])


def line(x=0.0, variance=1.0, groups=6.0, loss=0.1):
    """Metrics of a step whose gradient norm is exp(x) per root of the variance."""
    metrics = {"loss": loss, "grad_norm": math.exp(x) * math.sqrt(variance), "advantage/var_selected": variance}
    return metrics | {"selection/effective_groups": groups}


def shares(lines, share):
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


@example([line(groups=B / 4)] * 6, [0.0] * 6, 0.5, False)  # the fewest groups with which it climbs
@example([*[line()] * 6, line(math.log(10)), line(loss=math.nan)], [0.0] * 8, 0.5, False)  # it climbs and falls twice
@given(st.lists(STEPS, max_size=60), KL, st.sampled_from([0.0, 0.26, 0.5, 1.0]), st.booleans())
def test_shares_follow_the_formula(lines, rises, share, with_kl):
    """With a rule that every second step restores from its state."""
    if with_kl:
        lines = [metrics | {"policy/kl_ref": kl} for metrics, kl in zip(lines, itertools.accumulate(rises))]
    rule, lines = AutoShare(CONFIG, share), [*[line()] * (FIRST_STEPS + 3), *lines]
    for step, (metrics, (expected, deviation)) in enumerate(zip(lines, shares(lines, share))):
        before, reason = rule.cross_share(), rule.observe(metrics)
        assert (rule.share, rule.deviation) == (expected, pytest.approx(deviation, abs=1e-9))
        assert (reason is None) == (before == expected)
        assert reason is None or f"{before:g} to {expected:g}; the" in reason
        changes = {"selection/cross_share": before, "control/change": (expected > before) - (expected < before)}
        assert rule.metrics() == changes | {"control/deviation": rule.deviation}
        if step % 2:
            rule, state = AutoShare(CONFIG), rule.state_dict()
            rule.load_state_dict(state)


# --- Plateau ----------------------------------------------------------------------------------------------------------


def decisions(evaluations, patience):
    """The progress after each evaluation: a quarter more after `patience` without a new best, by paired differences."""
    best, wait, moved = [], 0, 0
    for accuracies in evaluations:
        differences = [a - b for a, b in zip(accuracies, best)]
        mean = sum(differences) / max(1, len(differences))
        spread = math.sqrt(sum((d - mean) ** 2 for d in differences) / max(1, len(differences) - 1))
        if len(best) != len(accuracies) or mean > spread / math.sqrt(len(differences)):  # other problems, or better
            best, wait = accuracies, 0
        else:
            wait += 1
            if wait == patience:
                wait, moved = 0, min(4, moved + 1)
        yield moved / 4


def accuracies(size):
    return st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=size, max_size=size)


EVALUATIONS = st.lists(st.one_of(accuracies(3), st.just([0.5] * 3)), max_size=14)


@given(EVALUATIONS, st.lists(accuracies(1), max_size=4), st.integers(1, 3))
def test_plateau_follows_the_rule(evaluations, others, patience):
    """With a rule that is restored from its state after each evaluation; at the end there are other problems."""

    def new_rule():
        return Plateau(lambda progress: ("curve at", progress), patience)

    rule, before, evaluations = new_rule(), 0.0, evaluations + others
    for evaluation, expected in zip(evaluations, decisions(evaluations, patience)):
        reason = rule.observe_eval(evaluation)
        assert rule.at() == ("curve at", expected) and rule.metrics() == {"schedule/progress": expected}
        assert (reason is not None) == (expected > before)
        assert reason is None or f"{before:g} to {expected:g}" in reason
        state, rule, before = rule.state_dict(), new_rule(), expected
        rule.load_state_dict(state)


# --- Coverage ---------------------------------------------------------------------------------------------------------

covers = st.sampled_from([0.05, 0.5, 0.8, 0.9, 1.0])


@given(value_tables(3, 6), st.data(), covers)
def test_covering_number_matches_a_search(table, data, cover):
    """Of the N largest squares of each group; tests/test_schedule_following.py has the choices that a step makes."""
    low = data.draw(st.integers(1, len(table[0])))
    high = data.draw(st.integers(low, len(table[0])))
    advantages = torch.tensor(table, dtype=torch.float64)
    ranks = advantages.square().argsort(dim=1, descending=True).argsort(dim=1)
    squares = [sorted((Fraction(x) ** 2 for x in row), reverse=True) for row in table]
    needed = Fraction(cover) * sum(map(sum, squares)) * (1 - Fraction(1, 10**8))
    even = range(low + low % 2, high, 2)
    expected = next((n for n in even if sum(sum(row[:n]) for row in squares) >= needed), high) if needed else low
    assert covering_keep(advantages, lambda n: ranks < n, cover, low, high) == expected


scores = st.lists(st.one_of(st.integers(0, 3).map(float), st.floats(0, 100)), max_size=30)


@given(scores, covers, st.sampled_from([0.01, 0.2, 0.5]), st.sampled_from([0.5, 0.8, 1.0]))
def test_covering_fraction_matches_brute_force(values, cover, low, high):
    """Without a score it is the lower bound."""
    fraction = covering_fraction(torch.tensor(values, dtype=torch.float64), cover, low, high)
    exact, total = sorted(map(Fraction, values), reverse=True), sum(map(Fraction, values))
    if not total:
        assert fraction == low
        return
    needed = Fraction(cover) * total * (1 - Fraction(1, 10**8))
    count = next(n for n in range(1, len(exact) + 1) if sum(exact[:n]) >= needed)
    assert fraction == pytest.approx(min(max(count / len(values), low), high))
