"""Weights that the actor yields, and the checksum of frozen ones, against the model's own tensors."""

import pytest
import torch
from torch import nn

from d3s.actor import zero3
from d3s.actor.copies import frozen_checksum
from d3s.actor.zero3 import full_weights


@pytest.fixture
def model():
    """Two linear layers with one tied weight, and a third one."""
    torch.manual_seed(0)
    model = nn.ModuleDict({"embed": nn.Linear(4, 4), "head": nn.Linear(4, 4), "other": nn.Linear(4, 3)})
    model["head"].weight = model["embed"].weight
    return model


@pytest.mark.parametrize("bucket", [1, 70, 2**29])
def test_weights_of_any_bucket_are_the_parameters(model, monkeypatch, bucket):
    """Tied ones under each name, without a copy."""
    monkeypatch.setattr(zero3, "BUCKET_BYTES", bucket)
    expected = dict(model.named_parameters(remove_duplicate=False))
    weights = dict(full_weights(model))
    assert list(weights) == list(expected) and "head.weight" in weights
    for name, p in expected.items():
        assert torch.equal(weights[name], p) and weights[name].data_ptr() == p.data_ptr()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_checksum_follows_frozen_weights_alone(model, dtype):
    model.to(dtype)
    assert frozen_checksum(model) == ""
    model["embed"].requires_grad_(False)
    before = frozen_checksum(model)
    with torch.no_grad():
        model["other"].weight.add_(1)
    assert frozen_checksum(model) == before != ""
    with torch.no_grad():
        model["embed"].weight[1, 2] *= 1 + 2 * torch.finfo(dtype).eps
    assert frozen_checksum(model) != before
