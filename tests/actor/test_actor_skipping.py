"""What the actor does not run, against the full computation: helpers/reference.py, loops, expectations."""

import itertools
import math

import pytest
import torch

from d3s.methods.nat import keep_probabilities
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
    (metrics, [gradients]), (other_metrics, [other_gradients]) = (
        update(make_actor(gqa_model), b) for b in (batch, other)
    )
    assert metrics == other_metrics
    assert_bitwise_equal(gradients, other_gradients)
    assert metrics["selection/tokens_forwarded"] == sum(batch.forward_lengths(cut=True))
    assert sum(batch.forward_lengths(cut=True)) < 0.8 * sum(batch.forward_lengths(cut=False))


def test_gspo_runs_full_rollouts_with_selected_tokens(gqa_model):
    batch, actor = make_batch(), make_actor(gqa_model, "loss.kind=gspo")
    batch.old_logprobs, _ = actor.compute_logprobs(batch)
    metrics, _ = update(actor, batch)
    kept = [batch.selected[batch.tokens_of(i)].any() for i in range(len(SIZES))]
    lengths = batch.forward_lengths(cut=False)
    assert not all(kept) and metrics["selection/tokens_forwarded"] == sum(n for n, k in zip(lengths, kept) if k)


@pytest.mark.parametrize("normalizer", ["selected", "all", "sequence", "constant"])
@pytest.mark.parametrize("kind", ["grpo", "gspo", "cispo"])
def test_zero_advantages_are_not_run(gqa_model, kind, normalizer):
    """The gradient is that of the full computation, whose denominators count the selected tokens of advantage 0."""
    settings = [f"loss.kind={kind}", f"loss.normalizer={normalizer}"]
    actor, batch, model = make_actor(gqa_model, *settings), make_batch(), load_reference(gqa_model)
    batch.selected[:] = True
    for i in (0, 3):
        batch.advantages[batch.tokens_of(i)] = 0.0
    noise = torch.Generator().manual_seed(1)
    batch.old_logprobs = actor.compute_logprobs(batch)[0] + torch.randn(len(batch.selected), generator=noise)
    loss, magnitude = reference_loss(model, batch, actor.config)
    loss.backward()
    metrics, [gradients] = update(actor, batch)
    assert metrics["loss"] == pytest.approx(loss.item(), rel=0, abs=AFTER_EXP * magnitude)
    assert_same_gradients(gradients, {name: p.grad for name, p in model.named_parameters()})
    lengths = batch.forward_lengths(cut=False)
    assert metrics["selection/tokens_forwarded"] == sum(lengths) - lengths[0] - lengths[3]
    with_kl = make_actor(gqa_model, *settings, "loss.beta=0.1")
    batch.ref_logprobs = batch.rollout_logprobs
    assert update(with_kl, batch)[0]["selection/tokens_forwarded"] == sum(lengths)


@pytest.mark.parametrize("normalizer", ["selected", "all", "sequence", "constant"])
@pytest.mark.parametrize("kind", ["grpo", "gspo"])
def test_untrainable_tokens_leave_loss_ratio_and_count(gqa_model, kind, normalizer):
    """The log-probabilities of pi_old at untrainable tokens are far off and change nothing."""
    settings = [f"loss.kind={kind}", f"loss.normalizer={normalizer}", "loss.epsilon=0.9"]
    actor, batch, model = make_actor(gqa_model, *settings), make_batch(), load_reference(gqa_model)
    batch.trainable = torch.arange(len(batch.selected)) % 3 != 1
    batch.selected &= batch.trainable
    batch.old_logprobs = actor.compute_logprobs(batch)[0] + 0.1
    batch.old_logprobs[~batch.trainable] -= 5.0
    loss, magnitude = reference_loss(model, batch, actor.config)
    loss.backward()
    metrics, [gradients] = update(actor, batch)
    assert metrics["loss"] == pytest.approx(loss.item(), rel=0, abs=AFTER_EXP * magnitude)
    assert_same_gradients(gradients, {name: p.grad for name, p in model.named_parameters()})


@pytest.mark.parametrize(("kind", "normalizer"), [("nat", "selected"), ("nat_prefix", "sequence")])
def test_weighted_random_tokens_are_unbiased(gqa_model, kind, normalizer):
    """The mean gradient over all selections of 2 + 3 tokens, each with its probability, is that of all tokens."""
    actor = make_actor(gqa_model, f"selector.tokens=d3s.methods.nat:{kind}", f"loss.normalizer={normalizer}")
    k = 0.4

    def gradients(selected: list[bool], k: float) -> list[torch.Tensor]:
        batch = make_batch([(3, 2), (1, 3)])
        probabilities = keep_probabilities(k, batch.sequence_ids, kind == "nat_prefix").float()
        batch.select(torch.tensor(selected), 1 / probabilities)
        return [tensor for step in update(actor, batch, learning_rate=0.0)[1] for tensor in step.values()]

    everything = gradients([True] * 5, 1.0)
    kept = keep_probabilities(k, make_batch([(3, 2), (1, 3)]).sequence_ids, kind == "nat_prefix").tolist()
    mean = [torch.zeros_like(tensor) for tensor in everything]
    for selected in itertools.product([True, False], repeat=5):
        pairs = list(zip(kept, selected))
        if kind == "nat":
            probability = math.prod(p if s else 1 - p for p, s in pairs)
        else:  # a response's number is below the probabilities of its kept tokens and not below those of the others
            probability = 1.0
            for response in (pairs[:2], pairs[2:]):
                lowest = min((p for p, s in response if s), default=1.0)
                probability *= max(0.0, lowest - max((p for p, s in response if not s), default=0.0))
        for total, gradient in zip(mean, gradients(list(selected), k) if probability else []):
            total += probability * gradient
    for got, expected in zip(mean, everything):
        torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-6)
