"""Importance weights of engine_correction, against hand-made values, closed forms and the masked padded objective."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from d3s.loss import Clip, correction_bounds, denominators, engine_correction
from tests.helpers.losses import compute_loss


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_truncated_weights_match_hand_values(dtype):
    old, engine = (
        torch.tensor([-1.0, -1.0, -1.0, -1.0], dtype=dtype),
        torch.tensor([-1.0, -2.0, 0.0, -50.0], dtype=dtype),
    )
    weights = engine_correction(old, engine, torch.tensor([0, 0, 1, 1]), "truncate", 2.0)
    assert weights.tolist() == pytest.approx([1.0, 2.0, math.exp(-1), 2.0])


def test_corrections_have_separate_default_caps():
    """2 for a token's weight; 1.01 for the mean over a response, which noise of 0.2 per token changes little."""
    g = torch.Generator().manual_seed(0)
    old = -3 * torch.rand(64 * 500, generator=g)
    ids = torch.arange(64).repeat_interleave(500)
    noise = 0.2 * torch.randn(len(old), generator=g)
    drift = (ids % 2) * 0.02  # every second response is off by 2 % per token
    weights = engine_correction(old + noise + drift, old, ids, "sequence_mask")
    assert weights[ids % 2 == 0].mean() > 0.6 and weights[ids % 2 == 1].mean() < 0.4
    assert engine_correction(old + noise + drift, old, ids, "sequence_mask", 2.0).all()  # masks none
    assert engine_correction(old + 1, old, ids, "truncate").unique().tolist() == [2.0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sequence_mask_matches_hand_values(dtype):
    """Mean log ratios 0.6, -0.6, 0.8, -0.8 and 0 (4 and -4); sequences beyond log 2 = 0.693 are masked."""
    ids = torch.tensor([3, 3, 1, 8, 5, 5, 9, 9])
    gaps = torch.tensor([0.2, 1.0, -0.6, 0.8, -1.6, 0.0, 4.0, -4.0], dtype=dtype)
    weights = engine_correction(gaps, torch.zeros_like(gaps), ids, "sequence_mask", 2.0)
    assert weights.tolist() == [1, 1, 1, 0, 0, 0, 1, 1]
    assert engine_correction(gaps[:0], gaps[:0], ids[:0], "sequence_mask", 2.0).shape == (0,)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_token_mask_matches_hand_values(dtype):
    """Ratios 1/4, 1/2, 1, 4, 8 and two that overflow; bounds belong to the interval, and a floor of 0 masks none."""
    ratios = torch.tensor([0.25, 0.5, 1.0, 4.0, 8.0], dtype=dtype)
    old, engine = torch.cat([ratios.log(), ratios.new_tensor([0.0, -2e4])]), torch.zeros(7, dtype=dtype)
    engine[5] = -2e4
    ids = torch.tensor([0, 0, 0, 1, 1, 1, 1])
    assert engine_correction(old, engine, ids, "token_mask").tolist() == pytest.approx([0, 0.5, 1, 4, 0, 0, 0])
    wide = engine_correction(old, engine, ids, "token_mask", 10.0, floor=0.0)
    assert wide.tolist() == pytest.approx([0.25, 0.5, 1, 4, 8, 0, 0])
    narrow = engine_correction(old, engine, ids, "token_mask", 4.0, floor=0.6)
    assert narrow.tolist() == pytest.approx([0, 0, 1, 4, 0, 0, 0])
    assert engine_correction(old[:0], engine[:0], ids[:0], "token_mask").shape == (0,)
    assert engine_correction(old * math.nan, engine, ids, "token_mask").isnan().all()  # so the update refuses it


def test_bounds_are_given_or_those_of_the_sources():
    assert correction_bounds("token_mask", None, None) == (0.5, 5.0)  # arXiv 2510.18855
    assert correction_bounds("token_mask", 0.0, 3.0) == (0.0, 3.0)
    assert correction_bounds("truncate", None, None)[1] == 2


@given(st.lists(st.floats(-30, 30), max_size=30), st.floats(0, 0.99), st.floats(1.01, 100))
def test_token_mask_keeps_ratios_inside_the_bounds(gaps, floor, cap):
    """Each token by itself, in double precision; truncation keeps the same weights below its cap."""
    gaps = torch.tensor(gaps, dtype=torch.float64)
    zeros, ids = torch.zeros_like(gaps), torch.zeros(len(gaps), dtype=torch.long)
    masked = engine_correction(gaps, zeros, ids, "token_mask", cap, floor=floor)
    truncated = engine_correction(gaps, zeros, ids, "truncate", cap)
    for gap, weight, limited in zip(gaps.tolist(), masked.tolist(), truncated.tolist()):
        ratio = math.exp(gap)
        assert weight == pytest.approx(ratio if floor <= ratio <= cap else 0.0) or min(
            abs(ratio - floor), abs(ratio - cap)
        ) < 1e-9 * max(1, ratio)
        assert weight == 0 or weight == limited


# L = - sum_t M(pi_old / pi_engine) min( r_t A_t, clip(r_t) A_t ) / T over all T tokens, masked ones included: IcePop as
# arXiv 2510.18855 and TRL's masks write it, on padded rows with one advantage per response.
def test_masked_loss_matches_the_padded_objective():
    """Values and gradients, with clipping; what is left out of the loss under test is exactly what is masked."""
    g = torch.Generator().manual_seed(4)
    lengths = torch.tensor([5, 2, 8])
    mask = torch.arange(8) < lengths[:, None]
    logprobs = (-3 * torch.rand(3, 8, generator=g, dtype=torch.float64)).requires_grad_()
    old = logprobs.detach() + torch.rand(3, 8, generator=g, dtype=torch.float64) - 0.5
    engine = old + 3 * torch.rand(3, 8, generator=g, dtype=torch.float64) - 1.5
    advantages = torch.tensor([1.3, -0.9, -0.4], dtype=torch.float64)[:, None]
    ratio, mismatch = (logprobs - old).exp(), (old - engine).exp()
    weights = mismatch * ((mismatch >= 0.5) & (mismatch <= 2.0))
    per_token = weights * torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)
    expected = -per_token[mask].sum() / mask.sum()

    ids = torch.arange(3).repeat_interleave(lengths)
    weighted = advantages.expand(3, 8)[mask] * engine_correction(old[mask], engine[mask], ids, "token_mask", 2.0)
    kept = weighted != 0
    assert 3 < kept.sum() < 12
    total = denominators("selected", lengths, lengths, 10).double()[ids]
    loss, stats = compute_loss(
        "grpo", logprobs[mask][kept], old[mask][kept], weighted[kept], None, Clip(0.2), total[kept]
    )
    assert stats["clip_low"] + stats["clip_high"] > 0
    torch.testing.assert_close(loss, expected)
    gradients = [torch.autograd.grad(x, logprobs, retain_graph=True)[0] for x in (loss, expected)]
    torch.testing.assert_close(gradients[0], gradients[1])
