"""Compiled layers against layers that are not: values, gradients, number of graphs, names of the weights."""

import os

import pytest
import torch
from torch._dynamo.utils import counters

from d3s.launch import compiler_problem
from tests.helpers.actors import SIZES, make_actor, make_batch, update
from tests.helpers.models import save_random_model
from tests.helpers.rounding import ROUNDING, assert_same_gradients, assert_same_values

BATCHES = [SIZES, [(4, 9), (2, 3), (3, 17), (1, 6)]]


@pytest.fixture
def graphs():
    """A function that counts the graphs of this test."""
    torch._dynamo.reset()
    counters.clear()
    yield lambda: counters["stats"]["unique_graphs"]
    torch._dynamo.reset()


def actors(path, *overrides):
    """One whose layers are not compiled, and one whose layers are."""
    return [make_actor(path, f"model.compile={flag}", *overrides) for flag in ("false", "true")]


def assert_same_update(eager, compiled, batch):
    """Metrics and gradients."""
    (metrics, gradients), (wanted, wanted_gradients) = (update(actor, batch, 1e-5) for actor in (compiled, eager))
    assert metrics == pytest.approx(wanted, rel=1e-4, abs=ROUNDING)
    for got, expected in zip(gradients, wanted_gradients, strict=True):
        assert_same_gradients(got, expected)


def test_layers_share_few_graphs(graphs, without_generated_code, gqa_model):
    """Whatever the lengths: with gradient, also where it is recomputed, without, and without the adapter."""
    eager, compiled = actors(gqa_model, "lora.rank=4", "loss.beta=0.1", "model.gradient_checkpointing=1")
    for number, sizes in enumerate(BATCHES):
        batch = make_batch(sizes, seed=number)
        batch.selected[0] = True
        for reference in (True, False):
            wanted = eager.compute_logprobs(batch, reference)
            for got, expected in zip(compiled.compute_logprobs(batch, reference), wanted, strict=True):
                assert_same_values(got, expected, largest=10.0)
            if reference:
                batch.ref_logprobs = wanted[0]
        assert_same_update(eager, compiled, batch)
    assert 0 < graphs() <= 5
    assert [name for name, _ in compiled.weights()] == [name for name, _ in eager.weights()]
    assert list(compiled.lm.state_dict()) == list(eager.lm.state_dict())


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)], indirect=True)
def test_generated_code_equals_eager(device, graphs, tmp_path, monkeypatch):
    """Also where vLLM in the same process has turned torch.compile off for itself."""
    monkeypatch.delenv("TORCHDYNAMO_DISABLE", raising=False)
    if problem := compiler_problem():
        pytest.skip(problem)
    monkeypatch.setenv("TORCHDYNAMO_DISABLE", "1")
    eager, compiled = actors(save_random_model(tmp_path, seed=0, num_hidden_layers=1))
    with torch._inductor.config.patch({"cpp.vec_isa_ok": True}):  # saves five programs that try vector instructions
        for number, sizes in enumerate(BATCHES):
            assert_same_update(eager, compiled, make_batch(sizes, seed=number))
    assert graphs() == 1 and os.environ["TORCHDYNAMO_DISABLE"] == "1"
