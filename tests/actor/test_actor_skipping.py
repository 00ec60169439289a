"""What the actor does not run, against the full computation: helpers/reference.py, loops, expectations."""

import pytest
import torch

from tests.helpers.actors import SIZES, assert_bitwise_equal, make_actor, make_batch, update
from tests.helpers.reference import load_reference, reference_loss
from tests.helpers.rounding import AFTER_EXP, assert_same_gradients


def test_tokens_after_the_last_selected_are_not_run(gqa_model):
    """The same results bit for bit when other tokens follow."""
    batch, other = make_batch(), make_batch()
    for i in range(len(SIZES)):
        kept = other.selected[other.tokens_of(i)].nonzero()
        last = int(kept[-1]) if len(kept) else -1
        other.responses[i][last + 1 :] = [0] * (len(other.responses[i]) - last - 1)
    assert batch.responses != other.responses
    (metrics, [gradients]), (other_metrics, [others]) = (update(make_actor(gqa_model), b) for b in (batch, other))
    assert metrics == other_metrics
    assert_bitwise_equal(gradients, others)
    assert metrics["selection/tokens_forwarded"] == sum(batch.forward_lengths(batch.selected))
    assert sum(batch.forward_lengths(batch.selected)) < 0.8 * sum(batch.forward_lengths())


def test_gspo_runs_full_rollouts_with_selected_tokens(gqa_model):
    batch, actor = make_batch(), make_actor(gqa_model, "loss.kind=gspo")
    batch.old_logprobs, _ = actor.compute_logprobs(batch)
    metrics, _ = update(actor, batch)
    kept = [batch.selected[batch.tokens_of(i)].any() for i in range(len(SIZES))]
    lengths = batch.forward_lengths()
    assert not all(kept) and metrics["selection/tokens_forwarded"] == sum(n for n, k in zip(lengths, kept) if k)


def assert_update_is_exact(actor, batch, model):
    """The loss and the gradients of the full computation. Returns the metrics."""
    loss, magnitude = reference_loss(model, batch, actor.config)
    loss.backward()
    metrics, [gradients] = update(actor, batch)
    assert metrics["loss"] == pytest.approx(loss.item(), rel=0, abs=AFTER_EXP * magnitude)
    assert_same_gradients(gradients, {name: p.grad for name, p in model.named_parameters()})
    return metrics


@pytest.mark.parametrize("normalizer", ["selected", "all", "sequence", "constant"])
@pytest.mark.parametrize("kind", ["grpo", "gspo", "cispo"])
def test_zero_advantages_are_not_run(gqa_model, kind, normalizer):
    """The denominators count the selected tokens of advantage 0."""
    settings = [f"loss.kind={kind}", f"loss.normalizer={normalizer}"]
    actor, batch = make_actor(gqa_model, *settings), make_batch()
    batch.selected[:] = True
    for i in (0, 3):
        batch.advantages[batch.tokens_of(i)] = 0.0
    noise = torch.Generator().manual_seed(1)
    batch.old_logprobs = actor.compute_logprobs(batch)[0] + torch.randn(len(batch.selected), generator=noise)
    metrics, lengths = assert_update_is_exact(actor, batch, load_reference(gqa_model)), batch.forward_lengths()
    assert metrics["selection/tokens_forwarded"] == sum(lengths) - lengths[0] - lengths[3]
    with_kl = make_actor(gqa_model, *settings, "loss.beta=0.1")
    batch.ref_logprobs = batch.rollout_logprobs
    assert update(with_kl, batch)[0]["selection/tokens_forwarded"] == sum(lengths)


@pytest.mark.parametrize("normalizer", ["selected", "all", "sequence", "constant"])
@pytest.mark.parametrize("kind", ["grpo", "gspo"])
def test_untrainable_tokens_leave_loss_ratio_and_count(gqa_model, kind, normalizer):
    """The log-probabilities of pi_old at untrainable tokens are far off and change nothing."""
    settings = [f"loss.kind={kind}", f"loss.normalizer={normalizer}", "loss.epsilon=0.9"]
    actor, batch = make_actor(gqa_model, *settings), make_batch()
    batch.trainable = torch.arange(len(batch.selected)) % 3 != 1
    batch.selected &= batch.trainable
    batch.old_logprobs = actor.compute_logprobs(batch)[0] + 0.1
    batch.old_logprobs[~batch.trainable] -= 5.0
    assert_update_is_exact(actor, batch, load_reference(gqa_model))


@pytest.mark.parametrize("normalizer", ["selected", "sequence"])
def test_weights_let_all_tokens_count(gqa_model, normalizer):
    """The advantages hold the weights; the denominators are those of the update that selects every token."""
    batch, everything = make_batch(), make_batch()
    chosen = batch.selected & (torch.arange(len(batch.selected)) % 2 == 0)
    batch.select(chosen, torch.full((len(chosen),), 2.0))
    everything.select(torch.ones_like(chosen))
    everything.advantages = (2.0 * everything.advantages).where(chosen, 0.0)
    (metrics, [gradients]), (expected_metrics, [expected]) = (
        update(make_actor(gqa_model, f"loss.normalizer={normalizer}"), b) for b in (batch, everything)
    )
    assert metrics["loss"] == expected_metrics["loss"] != 0
    assert_bitwise_equal(gradients, expected)
