"""Weights of loss.engine_correction, against hand-made values, closed forms and the masked objective."""

import math

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from d3s.common import UserError
from d3s.loss import CORRECTION_RULES, Clip, sequence_mask, token_mask, truncate
from d3s.plan.trials import attempt
from tests.helpers.losses import compute_loss


@given(st.lists(st.floats(-30, 30), max_size=30), st.floats(0, 0.99), st.floats(1.01, 100))
@example([math.log(r) for r in (0.25, 0.5, 1.0, 4.0, 8.0)], 0.6, 4.0)
@example([0.0, 2e4], 0.5, 5.0)  # exp overflows
def test_token_weights_are_the_bounded_ratios(gaps, floor, cap):
    """Each token by itself, in double precision; both rules give the same weights inside the bounds."""
    gaps = torch.tensor(gaps, dtype=torch.float64)
    masked, truncated = token_mask(gaps, floor, cap)[0].tolist(), truncate(gaps, cap)[0].tolist()
    for gap, weight, limited in zip(gaps.tolist(), masked, truncated):
        ratio = math.exp(min(gap, 20))
        assert limited == pytest.approx(min(ratio, cap))
        near_a_bound = min(abs(ratio - floor), abs(ratio - cap)) < 1e-9 * max(1, ratio)
        assert near_a_bound or weight == (limited if floor <= ratio <= cap else 0)


def test_bounds_belong_to_the_interval_and_defaults_to_sources():
    """0.5 and 5 are IcePop's (arXiv 2510.18855); NaN stays, so that the update refuses it."""
    ratios = torch.tensor([0.25, 0.5, 1.0, 4.0, 8.0])
    assert token_mask(ratios.log())[0].tolist() == pytest.approx([0, 0.5, 1, 4, 0])
    assert truncate(ratios.log())[0].tolist() == pytest.approx([0.25, 0.5, 1, 2, 2])
    assert token_mask(ratios.log(), floor=0.0, cap=10.0)[0].tolist() == pytest.approx(ratios.tolist())
    assert all(rule(ratios * math.nan)[0].isnan().all() for rule in (token_mask, truncate))


def test_sequence_mask_matches_hand_values():
    """Mean log ratios 0.6, 0.8 twice, -0.8 and 0 (4 and -4); sequences beyond log 2 = 0.693 are masked."""
    ids = torch.tensor([1, 1, 3, 5, 5, 5, 8, 8, 9, 9])
    gaps = torch.tensor([0.2, 1.0, 0.8, 0.7, 99.0, 0.9, -1.6, 0.0, 4.0, -4.0])
    weights, metrics = sequence_mask(gaps, ids, gaps < 50, 2.0)
    assert weights.tolist() == [1, 1, 0, 0, 0, 0, 0, 0, 1, 1]
    assert metrics == {"rollouts_masked": 3 / 5}


def test_default_sequence_cap_tells_drift_from_noise():
    """1.01 for the mean over a response of 500 tokens, which noise of 0.2 per token changes little."""
    g = torch.Generator().manual_seed(0)
    ids = torch.arange(64).repeat_interleave(500)
    gaps = 0.2 * torch.randn(len(ids), generator=g) + (ids % 2) * 0.02  # every second is off by 2 % per token
    weights, _ = sequence_mask(gaps, ids, torch.ones_like(ids, dtype=torch.bool))
    assert weights[ids % 2 == 0].mean() > 0.6 and weights[ids % 2 == 1].mean() < 0.4


@pytest.mark.parametrize("name", ["truncate", "token_mask", "sequence_mask"])
def test_impossible_bounds_are_refused(name):
    bounds = [{"cap": value} for value in (1, 0.5, "2", True)]
    bounds += [{"floor": value} for value in (1, -0.1, "0")] if name == "token_mask" else []
    for bound in bounds:
        ((key, value),) = bound.items()
        with pytest.raises(UserError, match=f"loss.engine_correction: got the {key} {value!r}, expected a number"):
            attempt(CORRECTION_RULES, {"rule": name, **bound}, None)


# L = - sum_t M(pi_old / pi_engine) min( r_t A_t, clip(r_t) A_t ) / T over all T tokens, masked ones included: IcePop as
# arXiv 2510.18855 and TRL's masks write it, with one advantage per response.
def test_masked_loss_matches_the_objective():
    """Values and gradients, with clipping; what is left out of the loss under test is exactly what is masked."""
    g = torch.Generator().manual_seed(4)
    ids = torch.arange(3).repeat_interleave(torch.tensor([5, 2, 8]))
    draws = torch.rand(3, 15, generator=g, dtype=torch.float64)
    logprobs = (-3 * draws[0]).requires_grad_()
    old = logprobs.detach() + draws[1] - 0.5
    engine = old + 3 * draws[2] - 1.5
    advantages = torch.tensor([1.3, -0.9, -0.4], dtype=torch.float64)[ids]
    ratio, mismatch = (logprobs - old).exp(), (old - engine).exp()
    weights = mismatch * ((mismatch >= 0.5) & (mismatch <= 2.0))
    expected = -(weights * torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)).sum() / 15

    weighted = advantages * token_mask(old - engine, cap=2.0)[0]
    kept = weighted != 0
    assert 3 < kept.sum() < 12
    tokens = (logprobs[kept], old[kept], weighted[kept])
    loss, stats = compute_loss("grpo", *tokens, None, Clip(0.2), 15.0)
    assert stats["clip_low"] + stats["clip_high"] > 0
    torch.testing.assert_close(loss, expected)
    gradients = [torch.autograd.grad(x, logprobs, retain_graph=True)[0] for x in (loss, expected)]
    torch.testing.assert_close(gradients[0], gradients[1])
