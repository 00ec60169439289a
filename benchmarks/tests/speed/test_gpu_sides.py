"""The implementations of the GPU benchmark, against each other and against hand-counted FLOPs."""

import torch
from torch.nn.utils import parameters_to_vector

from benchmarks.speed.gpu_sides import D3s, Dense, cost, random_model
from benchmarks.speed.workload import make_rollouts


def test_flops_of_the_tiny_shape():
    """Two layers of width 64: the trunk without embedding, the head of 512 x 64, attention over 3 and 5 tokens."""
    model = random_model("tiny", "sdpa")
    trunk = sum(p.numel() for name, p in model.named_parameters() if p.dim() == 2 and "embed" not in name)
    expected = 6 * trunk * 8 + 6 * 512 * 64 * 4 + 3 * 4 * 2 * 64 * (1 + 2 + 3 + 1 + 2 + 3 + 4 + 5)
    assert cost(model, [3, 5], rows=4, forwarded=8) == {"flops": expected, "forwarded": 8, "rows": 4}


def test_d3s_trains_fewer_tokens_than_the_dense_update():
    work = make_rollouts(512, prompts=1, group=8, prompt_tokens=4, response_tokens=10, ragged=False)
    dense = Dense("tiny", micro_batch=4).update(work)
    full = D3s("tiny", 8, 1.0, max_tokens=28).update(work)
    selected = D3s("tiny", 2, 0.05, max_tokens=28).update(work)
    assert dense["rows"] == full["rows"] == 80
    # the last token predicts nothing, and each of four micro-batches has two rollouts of one prompt
    assert full["forwarded"] == dense["forwarded"] - 8 - 4 * 4
    assert selected["rows"] == 1 and selected["forwarded"] <= 13
    assert selected["flops"] < full["flops"] / 5


def test_d3s_without_selection_matches_the_dense_step():
    """On equal lengths the mean of token means is the token mean; bfloat16 autocast bounds the agreement."""
    work = make_rollouts(512, prompts=1, group=8, prompt_tokens=4, response_tokens=10, ragged=False)
    sides = D3s("tiny", 8, 1.0, max_tokens=28), Dense("tiny", micro_batch=4)
    models = sides[0].policy.lm, sides[1].grpo.model
    before = parameters_to_vector(models[0].parameters()).clone()
    for side in sides:
        side.update(work)
    steps = [parameters_to_vector(model.parameters()) - before for model in models]
    assert steps[0].norm() > 0
    assert torch.nn.functional.cosine_similarity(*steps, dim=0) > 0.9
