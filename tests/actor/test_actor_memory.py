"""Memory of the actor's passes: every tensor that an update creates is seen by a dispatch mode."""

import pytest
import torch

from d3s.policy import CHUNK_ELEMENTS
from tests.helpers.actors import Operations, make_actor, make_batch, update
from tests.helpers.models import save_random_model

VOCABULARY, HIDDEN, CHUNK = 30_000, 32, 2**18  # 8 rows of logits in a chunk


@pytest.fixture
def actor(monkeypatch, tmp_path):
    """An actor of a model whose vocabulary is most of it."""
    heads = {"num_attention_heads": 1, "num_key_value_heads": 1}
    path = save_random_model(tmp_path / "model", 0, vocab_size=VOCABULARY, hidden_size=HIDDEN, **heads)
    monkeypatch.setitem(CHUNK_ELEMENTS, "cpu", CHUNK)
    return make_actor(path, "loss.kind=gspo", "loss.beta=0.1")


def test_vocabulary_tensors_fit_in_a_chunk(actor):
    """All but the weights and their gradients."""
    batch, sizes = make_batch([(4, 20)] * 4, fraction=0.5), [0]
    assert 16 < batch.selected.sum() < 64  # of 80: both passes of the head take several chunks

    def see(_, args, results):
        shapes = [x.shape for x in results if VOCABULARY in x.shape]
        sizes[-1] = max([sizes[-1], *(s.numel() for s in shapes if set(s) != {VOCABULARY, HIDDEN})])

    with Operations(see):
        batch.old_logprobs, _ = actor.compute_logprobs(batch)
        batch.ref_logprobs, _ = actor.compute_logprobs(batch, reference=True)
        sizes.append(0)
        update(actor, batch)
        assert all(CHUNK / 2 < size <= CHUNK for size in sizes)
        torch.zeros(9, HIDDEN) @ actor.lm.get_output_embeddings().weight.T
        assert sizes[-1] == 9 * VOCABULARY > CHUNK  # what would be seen without chunks


def test_tied_embedding_has_one_gradient_tensor(actor, monkeypatch):
    """The head and the lookup add to one tensor, instead of one each and a third for the sum."""
    created = set()

    def see(_, args, results):
        created.update(x.untyped_storage().data_ptr() for x in results if x.shape == (VOCABULARY, HIDDEN))

    monkeypatch.setattr(actor.optimizer, "step", lambda: None)  # AdamW's moments have that shape too
    monkeypatch.setattr(actor.optimizer, "zero_grad", lambda: None)
    weight, batch = actor.lm.get_input_embeddings().weight, make_batch([(4, 20)] * 4, fraction=0.5)
    batch.ref_logprobs = batch.rollout_logprobs
    with Operations(see):
        actor.update(batch, 1e-3, torch.Generator().manual_seed(0))
    assert created - {weight.data_ptr()} == {weight.grad.data_ptr()}
