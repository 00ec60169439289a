"""N, K and the learning rate against hand-computed tables and the properties they must have."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from d3s.config.load import load_config
from d3s.config.schema import OptimConfig
from d3s.schedule import SHAPES, downsampling_schedule, learning_rate, planned_curve, schedule_at, schedule_bounds
from tests.helpers.selection import config

shapes = st.sampled_from(sorted(SHAPES))
progress = st.floats(-0.5, 1.5)
sizes = st.integers(2, 64)
fractions = st.floats(0.001, 1)


def test_default_schedule_is_the_papers():
    values = {0: (8, 0.05), 0.25: (14, 0.0875), 1 / 3: (16, 0.1), 0.5: (20, 0.125), 0.75: (26, 0.1625), 1: (32, 0.2)}
    curve = planned_curve(load_config([], []))
    for p, (n, k) in values.items():
        assert curve(p) == (n, pytest.approx(k, abs=1e-12))


def test_shapes_match_their_definitions():
    """s(p) at 0, 1/4, 1/2 and 1: p, 0, (1 - cos pi p)/2, (1 - e^-3p)/(1 - e^-3), [p >= 1/2]."""
    assert {name: [shape(p) for p in (0, 0.25, 0.5, 1)] for name, shape in SHAPES.items()} == {
        "linear": [0, 0.25, 0.5, 1],
        "constant": [0, 0, 0, 0],
        "cosine": pytest.approx([0, 0.1464466094, 0.5, 1]),
        "exponential": pytest.approx([0, 0.5552792150, 0.8175744762, 1]),
        "step": [0, 0, 1, 1],
    }


@given(progress, sizes, sizes, fractions, fractions, shapes, shapes)
def test_n_and_k_follow_their_shapes(p, n_init, n_final, k_init, k_final, n_shape, k_shape):
    """K and the even numbers nearest to N, within their range; both ends are exact, and progress is clipped."""

    def at(p):
        return downsampling_schedule(p, n_init, n_final, k_init, k_final, SHAPES[n_shape], SHAPES[k_shape])

    clipped = min(max(p, 0.0), 1.0)
    (n, k), change = at(p), SHAPES[n_shape](clipped)
    assert at(clipped) == (n, k) and isinstance(n, int)
    assert min(n_init, n_final) <= n <= max(n_init, n_final) and min(k_init, k_final) <= k <= max(k_init, k_final)
    assert k == pytest.approx(k_init + SHAPES[k_shape](clipped) * (k_final - k_init))
    assert abs(n - n_init - change * (n_final - n_init)) <= 1 + 1e-9
    if change in (0, 1) or n_init == n_final:
        assert n == {0: n_init, 1: n_final}.get(change, n_init)
    else:
        assert n % 2 == 0


@given(st.integers(1, 200), st.data(), st.sampled_from(["constant", "linear", "cosine"]))
def test_learning_rate_rises_then_falls_to_above_0(steps, data, shape):
    """Linearly to the peak; then by the share of the steps that is left, or its half cosine."""
    warmup = data.draw(st.integers(0, steps - 1))
    optim = OptimConfig(learning_rate=3.0, lr_schedule=shape, warmup_steps=warmup)
    rates = [learning_rate(s, steps, optim) for s in range(steps)]
    assert rates[:warmup] == [3.0 * (s + 1) / warmup for s in range(warmup)] and rates[warmup] == 3.0
    for t, rate in enumerate(rates[warmup:]):
        gone = t / (steps - warmup)
        half_cosine = pytest.approx(3.0 * (1 + math.cos(math.pi * gone)) / 2)
        assert rate == {"constant": 3.0, "linear": 3.0 * (1 - gone), "cosine": half_cosine}[shape]
    assert rates[warmup:] == sorted(rates[warmup:], reverse=True) and rates[-1] > 0


# --- of a configuration -----------------------------------------------------------------------------------------------

RISING = ["schedule.k_init=0.1", "schedule.k_final=0.5"]
FALLING = ["schedule.n_init=null", "schedule.n_final=4", "schedule.k_init=0.5", "schedule.k_final=0.1"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (RISING, [(4, 0.1), (6, 0.3), (8, 0.5)]),
        ([*RISING, "schedule.k_shape=constant"], [(4, 0.1), (6, 0.1), (8, 0.1)]),
        ([*FALLING, "schedule.n_shape=step", "schedule.k_shape=step"], [(8, 0.5), (4, 0.1), (4, 0.1)]),
        ([*FALLING, "schedule.n_shape=constant"], [(8, 0.5), (8, 0.3), (8, 0.1)]),
    ],
)
def test_schedule_runs_from_first_to_last_step(options, expected):
    settings = config("train.steps=3", *options)
    assert [schedule_at(settings, step) for step in range(3)] == [(n, pytest.approx(k)) for n, k in expected]
    ns, ks = zip(*expected)
    assert schedule_bounds(settings) == ((min(ns), max(ns)), (pytest.approx(min(ks)), pytest.approx(max(ks))))


def test_schedule_defaults_to_all_rollouts():
    settings = config("rollout.num_generations=12", "schedule.n_init=null", "schedule.n_final=null", "train.steps=1")
    assert schedule_at(settings, 0) == (12, 0.2)  # the only step is the last


def test_followed_schedule_is_planned_with_its_upper_bounds():
    """Unless it moves neither N nor K."""
    options = ["train.steps=9", "schedule.k_shape=constant"]
    for follow in ("d3s.methods.coverage:Coverage", "d3s.methods.plateau:Plateau"):
        settings = config(*options, f"schedule.follow={follow}")
        assert {schedule_at(settings, step) for step in range(9)} == {(8, 0.05)}
    share = config(*options, "schedule.follow=d3s.methods.auto_share:AutoShare")
    assert [schedule_at(share, step) for step in range(9)] == [schedule_at(config(*options), i) for i in range(9)]
