"""FLOPs against those that torch counts in a transformers model and in an update; peak rates by name."""

from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoConfig, AutoModelForCausalLM

from d3s.flops import TRAINED, ModelShape, forward_flops, peak_flops, update_flops
from d3s.packing import causal_pairs
from tests.helpers.actors import make_actor, make_batch

LENGTH = 11
PRODUCTS = (torch.ops.aten.mm, torch.ops.aten.addmm, torch.ops.aten.addmm_)  # without the positions' bmm
SIZES = {
    "vocab_size": 97, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2,
}  # fmt: skip


def counted_by_torch(model: torch.nn.Module, backward: bool) -> dict[str, float]:
    """Products in the layers and the head over one sequence; eager attention computes all pairs, causal or not."""
    counter = FlopCounterMode(display=False)
    with counter:
        logits = model(input_ids=torch.arange(LENGTH)[None]).logits
        if backward:
            logits.sum().backward()
    counts = counter.get_flop_counts()
    name = type(model).__name__
    layers = [counts[f"{name}.model.layers.{i}"] for i in range(2)]
    attention = sum(layer[torch.ops.aten.bmm] for layer in layers)
    return {
        "trunk": sum(sum(layer.values()) for layer in layers) - attention,
        "attention": attention * causal_pairs([LENGTH]) / LENGTH**2,
        "head": sum(counts[f"{name}.lm_head"].values()),
    }


@pytest.mark.parametrize("kind", ["qwen2", "qwen3", "gemma3_text"])
def test_trained_flops_match_torch(kind):
    heads = {} if kind == "qwen2" else {"head_dim": 16}  # a head size of their own
    config = AutoConfig.for_model(kind, **SIZES, **heads)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    forward = forward_flops(ModelShape.of(model.config.to_dict()), LENGTH, LENGTH, causal_pairs([LENGTH]))
    expected = {part: TRAINED * flops for part, flops in forward.items()}
    assert counted_by_torch(model, backward=True) == expected


def counted_update(path: Path, *options: str) -> tuple[float, dict[str, float], float]:
    """Of an update: the products that torch counts, the FLOPs of its forward passes by part (the head's rows without
    gradient apart, as "others"), and its model FLOPs."""
    actor, batch = make_actor(path, *options), make_batch()
    batch.old_logprobs = batch.rollout_logprobs
    shape = ModelShape.of(actor.lm.config.to_dict())

    def of_addmm(into, left, right, **_):  # which torch does not count
        return 2 * left[0] * left[1] * right[1]

    counter = FlopCounterMode(display=False, custom_mapping={torch.ops.aten.addmm_: of_addmm})
    with counter:
        steps = actor.update(batch, 1e-3, torch.Generator().manual_seed(0))
    counts = counter.get_flop_counts()["Global"]
    totals = {name: sum(step[name] for step in steps) for name in ("forwarded", "tokens", "rows")}
    forward = forward_flops(shape, totals["forwarded"], totals["tokens"])
    forward["others"] = forward_flops(shape, 0, totals["rows"] - totals["tokens"])["head"]
    lora = actor.config.lora
    flops = update_flops(shape, **totals, pairs=0, adapters=shape.adapter_parameters(lora.rank, lora.targets))
    return sum(counts.get(operator, 0) for operator in PRODUCTS), forward, flops


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["optim.num_minibatches=2", "optim.num_iterations=2", "train.max_tokens_per_microbatch=16"],
        ["loss.kind=gspo", "loss.old_logprobs=engine"],
    ],
    ids=["one update", "four updates", "all rows"],
)
def test_update_flops_match_torch(gqa_model, options):
    """The update computes the logits of rows with gradient a second time."""
    products, forward, flops = counted_update(gqa_model, *options)
    assert products == TRAINED * forward["trunk"] + (TRAINED + 1) * forward["head"] + forward["others"]
    assert flops == products - forward["head"]
    assert (forward["others"] > 0) == ("loss.kind=gspo" in options)


def test_adapters_train_no_other_weights(gqa_model):
    """Torch counts no gradients of the frozen embedding's output, for which the first layer would need products."""
    products, forward, flops = counted_update(gqa_model, "lora.rank=3")
    tokens = forward["trunk"] / (2 * 2 * (64 * (64 + 32 + 32) + 64 * 64 + 3 * 64 * 128))  # of two layers
    adapters = 2 * 3 * ((64 + 64) + 2 * (64 + 32) + (64 + 64) + 3 * (64 + 128))
    first_inputs = 2 * tokens * (64 * (64 + 32 + 32) + 3 * 3 * 64)
    assert flops == 2 * (forward["trunk"] + forward["head"]) + TRAINED * 2 * adapters * tokens
    assert products == flops + forward["head"] - first_inputs


def test_peak_rate_is_that_of_the_card():
    """Of a longer name with a meaning of its own there is none: parts of a card, other chips."""
    peaks = {
        "NVIDIA A100-SXM4-80GB": 312e12, "NVIDIA A100 80GB PCIe": 312e12, "NVIDIA A10": 125e12, "NVIDIA A10G": None,
        "NVIDIA H100 80GB HBM3": 989.4e12, "NVIDIA H100 80GB HBM3 MIG 1g.10gb": None, "NVIDIA H100 NVL": 835.5e12,
        "NVIDIA GH200 480GB": 989.4e12, "NVIDIA GeForce RTX 4090 Laptop GPU": None, "CPU": None, "Tesla T4": None,
    }  # fmt: skip
    assert {device: peak_flops(device) for device in peaks} == peaks
