"""Passes that run out of memory against actors that begin with the smaller micro-batches, bitwise; sums over them."""

import math

import pytest
import torch
from accelerate import Accelerator

from benchmarks.architectures import save_random_model as save_architecture
from d3s.actor.micro_batches import SequenceMemoryError, Tally
from d3s.common import UserError
from d3s.loss import Largest
from tests.helpers.actors import (
    assert_bitwise_equal,
    copy_parameters,
    make_actor,
    make_batch,
    nothing_changes,
    tokens_to_run,
    update,
)
from tests.helpers.rounding import assert_same_way
from tests.helpers.small_memory import PLACES, above, at_call, fail, small_memory

SIZES = [(3, 7), (12, 1), (1, 5), (6, 16), (2, 2), (4, 20), (5, 9), (2, 11)]
PASS_TOKENS = 86  # of all passes of an update on them
CASES = {
    "on policy": [],
    "several updates": ["optim.num_iterations=3", "optim.weight_decay=0.1"],
    "gspo": ["loss.kind=gspo", "loss.beta=0.1", "optim.num_iterations=2"],
    "lora": ["lora.rank=4", "loss.beta=0.1"],
    "checkpointing": ["model.gradient_checkpointing=true"],
}


def off_policy(actor, batch):
    """Give the batch what the loss reads; a small batch fits in any case."""
    batch.old_logprobs = batch.rollout_logprobs.clone()
    if actor.config.loss.beta:
        batch.ref_logprobs = batch.rollout_logprobs - 0.1
    return batch


def budgeted(tokens: int, *overrides: str):
    return [f"train.max_tokens_per_microbatch={tokens}", *overrides]


LIMITS = [("cpu", 23), ("cpu", 30), ("cpu", 60), ("pretended", 60), pytest.param("cuda", 30, marks=pytest.mark.gpu)]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("device", "limit"), LIMITS, indirect=["device"])
def test_update_in_small_memory_equals_small_micro_batches(device, tied_model, case, limit):
    """Each pass above the limit fails in the middle: gradients of the layers above are left behind."""
    batch = make_batch(SIZES, fraction=0.7)
    actor = make_actor(tied_model, *CASES[case])
    with small_memory(above(limit, seed=limit)):
        got = update(actor, off_policy(actor, batch))
        again = update(actor, batch)
    assert actor.micro_batches.max_tokens < PASS_TOKENS
    expected = make_actor(tied_model, *budgeted(actor.micro_batches.max_tokens, *CASES[case]))
    for metrics, gradients in (got, again):
        wanted, wanted_gradients = update(expected, batch)
        assert metrics == wanted
        for left, right in zip(gradients, wanted_gradients, strict=True):
            assert_bitwise_equal(left, right)
    assert_bitwise_equal(copy_parameters(actor), copy_parameters(expected))
    states = [a.optimizer.state_dict()["state"] for a in (actor, expected)]
    for left, right in zip(*(state.values() for state in states), strict=True):
        assert_bitwise_equal(left, right)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("number", range(8))
def test_failure_in_any_micro_batch_is_repeated(gqa_model, place, number):
    """In micro-batches of 24 tokens: one failure, also in a later optimizer step, leaves rounding alone."""
    batch = make_batch(SIZES, fraction=0.7)
    settings = budgeted(24, "optim.num_minibatches=2", "optim.num_iterations=2")
    actor, expected = make_actor(gqa_model, *settings), make_actor(gqa_model, *settings)
    start = copy_parameters(actor)
    with small_memory(at_call(number, place)):
        metrics, _ = update(actor, off_policy(actor, batch))
    wanted, _ = update(expected, batch)
    assert actor.micro_batches.max_tokens < expected.micro_batches.max_tokens == 24
    forwarded = "selection/tokens_forwarded"  # smaller micro-batches share fewer prompts
    assert metrics.pop(forwarded) >= wanted.pop(forwarded)
    assert metrics == pytest.approx(wanted, rel=1e-4, abs=1e-6)
    assert_same_way(copy_parameters(actor), copy_parameters(expected), start)


def test_padding_counts_where_rows_are_padded(tmp_path):
    """In micro-batches of 30 tokens, of a model whose attention has a window."""
    seen, model = [], save_architecture("exaone4", tmp_path)
    actor, batch = make_actor(model, *budgeted(30)), make_batch([(6, 1), (6, 7), (6, 1), (9, 20), (9, 2)])
    batch.selected[:] = True
    actor.lm.base_model.layers[0].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].shape[:2]))
    metrics, _ = update(actor, batch)
    assert sorted(seen) == [(1, 28), (2, 6), (2, 12)] and metrics["selection/tokens_forwarded"] == 28 + 24 + 12


@pytest.mark.parametrize(("reference", "part"), [(False, False), (False, True), (True, True)])
def test_scoring_in_small_memory_equals_small_micro_batches(gqa_model, reference, part):
    batch = make_batch(SIZES, fraction=0.7)
    wanted = batch.selected if part else None
    actor = make_actor(gqa_model, "loss.beta=0.1")
    with small_memory(lambda tokens: "forward" if tokens > 30 else None):
        got = actor.compute_logprobs(batch, reference, wanted)
    assert actor.micro_batches.max_tokens <= 30
    expected = make_actor(gqa_model, *budgeted(actor.micro_batches.max_tokens, "loss.beta=0.1"))
    assert torch.equal(torch.stack(got), torch.stack(expected.compute_logprobs(batch, reference, wanted)))


def test_micro_batches_are_halved_until_they_fit(gqa_model):
    """From the tokens of the batch, not from a far larger setting; the warning names the value to set."""
    actor, tokens = make_actor(gqa_model, *budgeted(10_000)), []
    batch = make_batch(SIZES, fraction=0.7)
    batch.selected[:] = True
    assert actor.micro_batches.problem() is None
    with small_memory(lambda count: tokens.append(count) or ("forward" if count > 24 else None)):
        update(actor, batch)
    total = tokens_to_run(batch, batch.selected)
    assert tokens[0] == total and total // 8 <= actor.micro_batches.max_tokens <= total // 4
    assert actor.micro_batches.problem().startswith("train.max_tokens_per_microbatch: 10000 tokens exceed")
    assert actor.micro_batches.problem().endswith(f"set it to {actor.micro_batches.max_tokens}")


@pytest.mark.parametrize("place", PLACES)
def test_sequence_beyond_memory_changes_nothing(gqa_model, place):
    actor, batch = make_actor(gqa_model), make_batch(SIZES, fraction=0.7)
    update(actor, batch)
    longest = max(batch.forward_lengths(batch.selected))
    message = rf"passes of one sequence, of at most {longest} tokens; set model.gradient_checkpointing: true"
    with nothing_changes(actor), small_memory(lambda tokens: place if tokens >= longest else None):
        with pytest.raises(SequenceMemoryError, match=message):
            update(actor, batch)
        if place == "forward":
            with pytest.raises(SequenceMemoryError, match="passes of one sequence"):
                actor.compute_logprobs(batch, wanted=batch.selected)


def test_sequence_beyond_memory_after_an_optimizer_step(gqa_model):
    """The weights are no longer those of the last step, so no checkpoint of them may be written."""
    actor, batch = make_actor(gqa_model, *budgeted(1, "optim.num_minibatches=2")), make_batch(SIZES, fraction=0.7)
    passes = sum(length > 0 for length in batch.forward_lengths(batch.selected))
    with small_memory(at_call(passes - 1, "backward")), pytest.raises(UserError, match="--resume auto") as raised:
        update(actor, off_policy(actor, batch))
    assert not isinstance(raised.value, SequenceMemoryError)


def test_optimizer_step_beyond_memory_is_one_sentence(gqa_model, monkeypatch):
    actor = make_actor(gqa_model)
    monkeypatch.setattr(actor.optimizer, "step", fail)
    with pytest.raises(UserError, match=r"the optimizer step itself, .*docs/running.md"):
        update(actor, make_batch())


def test_micro_batches_add_to_sums_and_maxima():
    """Three micro-batches; the second one has no token, and no one has a value of "none"."""
    parts, tally, none = [torch.tensor([0.5, -3.0]), torch.zeros(0), torch.tensor([2.0])], Tally(), torch.zeros(0)
    for part in parts:
        tally.add({"sum": part, "largest": Largest(part), "scalar": torch.tensor(1.5), "none": Largest(none)})
    gathered = tally.gathered(Accelerator(cpu=True))
    assert gathered["sum"] == torch.cat(parts).sum() and gathered["scalar"] == 4.5
    assert gathered["largest"].values == torch.cat(parts).max() and gathered["none"].values == -math.inf
