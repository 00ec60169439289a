"""Tokens and bytes of a run, against hand computation and what autograd saves."""

from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from d3s.actor.lora import attach_adapter
from d3s.config.load import load_config
from d3s.config.schema import LoraConfig
from d3s.flops import ModelShape
from d3s.memory import (
    Placement,
    activation_bytes,
    checkpoint_bytes,
    engine_bytes,
    evaluations,
    largest_microbatch,
    memory,
    peaks,
    spread_steps,
    token_share,
)
from d3s.policy import CHUNK_ELEMENTS
from d3s.shapes import SHIPPED, find_shape
from tests.helpers.actors import make_actor, make_batch
from tests.helpers.configs import ROOT

QWEN_1B, QWEN_7B, _ = SHIPPED.values()
CHUNK = CHUNK_ELEMENTS["cuda"]
GB = 2**30


def shaped(shape: str) -> list[str]:
    return [f"schedule.n_shape={shape}", f"schedule.k_shape={shape}"]


@pytest.mark.parametrize(
    ("overrides", "share"),
    [
        ([], 0.0875),  # the integral of (8 + 24 p) / 32 * (0.05 + 0.15 p)
        (shaped("cosine"), 0.092),
        (shaped("exponential"), 0.133),
        (shaped("step"), (0.25 * 0.05 + 0.20) / 2),
        (shaped("constant"), 0.25 * 0.05),
        (["schedule.n_init=16", "schedule.n_final=16", "schedule.k_init=0.1", "schedule.k_final=0.1"], 0.05),
        (["schedule.n_init=null", "schedule.k_init=1", "schedule.k_final=1"], 1.0),
    ],
)
def test_token_share_is_the_integral_of_the_schedule(overrides, share):
    """All of 1,999 steps are counted, and 2,000 of a million."""
    for steps in (1999, 10**6):
        config = load_config([], [f"train.steps={steps}", *overrides])
        assert token_share(config) == pytest.approx(share, abs=1e-3)
    assert spread_steps(7) == list(range(7)) and spread_steps(9, 3) == [1, 4, 7] and len(spread_steps(10**6)) == 2000


def test_evaluations_are_those_of_the_training_loop():
    """Before the first step, after every third of ten, say, and at the end."""
    for every, done in ((0, 2), (3, 5), (5, 3), (11, 2)):
        words = ["train.steps=10", f"eval.every={every}"]
        assert evaluations(load_config([], [*words, "eval.data=[gsm8k]"])) == done
    assert evaluations(load_config([], words)) == 0


FULL, HALF = ("float32", "float32"), ("autocast", "bfloat16")


@pytest.mark.parametrize("kind", ["qwen2", "qwen3", "gemma3_text"])
@pytest.mark.parametrize(
    ("mode", "dtype", "rank"), [(*FULL, 0), (*FULL, 24), (*HALF, 0), (*HALF, 24), ("zero3", "bfloat16", 0)]
)
def test_activations_equal_what_autograd_saves(tmp_path, mode, dtype, rank, kind):
    """Compare the difference between models of three layers and one layer, on 512 packed tokens."""
    (_, of_one), (shape, of_three) = (
        saved_by_autograd(tmp_path / str(n), mode, rank, kind, num_hidden_layers=n) for n in (1, 3)
    )
    expected = 2 * 512 * activation_bytes(shape, dtype, 1, 0, mode == "zero3", rank) // shape.layers
    assert of_three - of_one == pytest.approx(expected, rel=0.03)


def saved_by_autograd(path: Path, mode: str, rank: int, kind: str, **sizes: int) -> tuple[ModelShape, int]:
    """Bytes that a forward pass saves for the backward pass, without parameters and their copies."""
    from d3s.packing import Batch, pack
    from d3s.policy import Policy

    sizes |= {"hidden_size": 96, "intermediate_size": 320, "num_attention_heads": 6, "num_key_value_heads": 2}
    config = AutoConfig.for_model(kind, **sizes, head_dim=16, vocab_size=257)
    AutoModelForCausalLM.from_config(config).save_pretrained(path)
    dtype = torch.bfloat16 if rank and mode == "autocast" else torch.float32  # LoRA's frozen weights
    policy = Policy(str(path), 512, dtype=dtype)
    shape = find_shape(str(path))
    if rank:
        attach_adapter(policy.lm, str(path), LoraConfig(rank=rank), seed=0)
    if mode == "zero3":
        policy = policy.to(torch.bfloat16)
    storages = {}
    weights = {tuple(parameter.shape) for parameter in policy.parameters()}
    own = {parameter.untyped_storage().data_ptr() for parameter in policy.parameters()}

    def keep(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own and not {tuple(tensor.shape), tuple(tensor.shape)[::-1]} & weights:
            storages[storage.data_ptr()] = tensor
        return tensor

    batch = Batch([[1] * 8], [[2] * 505], *(torch.ones(505) for _ in range(3)))
    batch.selected = torch.ones(505, dtype=torch.bool)
    micro = pack(batch, [0], batch.forward_lengths(batch.selected))
    assert micro.input_ids.shape == (1, 512)
    autocast = torch.autocast("cpu", torch.bfloat16) if mode == "autocast" else nullcontext()
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor), autocast:
        outputs = policy(micro, batch.selected, 1.0)
    assert outputs[0].requires_grad
    return shape, sum(tensor.untyped_storage().nbytes() for tensor in storages.values())


def test_checkpointing_saves_inputs_and_one_layer():
    layer = activation_bytes(QWEN_7B, "bfloat16", 1000, 0, True) // 28
    assert layer == 1000 * (16 * 3584 + 6 * 3584 + 4 * 512 + 8 * 18_944)
    assert activation_bytes(QWEN_7B, "bfloat16", 1000, 3, True) == 25 * layer + 3 * 1000 * 2 * 3584
    assert activation_bytes(QWEN_7B, "float32", 1000, 28, False) == 1000 * (
        28 * 4 * 3584 + 24 * 3584 + 12 * 3584 + 8 * 512 + 16 * 18_944
    )


def test_memory_of_lora_by_hand():
    """Rank 16 on Qwen2.5-Math-7B: r (in + out) of seven matrices in each of 28 layers."""
    config = load_config([ROOT / "configs/qwen2.5-math-7b.yaml", ROOT / "configs/lora.yaml"], ["loss.beta=0.1"])
    sides = 2 * (3584 + 3584) + 2 * (3584 + 512) + 3 * (3584 + 18_944)
    p, trained = QWEN_7B.parameters, 28 * 16 * sides
    assert QWEN_7B.adapter_parameters(config.lora.rank, config.lora.targets) == trained == 40_370_176
    parts = memory(config, QWEN_7B, Placement(), CHUNK)
    assert (parts["weights"], parts["gradients"], parts["optimizer"]) == (2 * p + 4 * trained, 4 * trained, 8 * trained)
    assert (parts["copies"], parts["stepping"], parts["reference"]) == (2 * trained, 4 * trained, 0)
    assert parts["head"] == 4 * 4 * CHUNK  # logits alone
    assert memory(config, QWEN_7B, Placement(2), CHUNK)["gradients"] == 8 * trained
    assert checkpoint_bytes(config, QWEN_7B, Placement()) == 12 * trained
    named = load_config([], ["lora.rank=2", "lora.targets=[q_proj,mlp.down_proj,layers.3.self_attn.v_proj]"])
    counted = QWEN_7B.adapter_parameters(named.lora.rank, named.lora.targets)
    assert counted == 28 * 2 * (3584 + 3584 + 3584 + 18_944) + 2 * (3584 + 512)


@pytest.mark.parametrize("overrides", [[], ["lora.targets=[k_proj,o_proj]"]])
def test_lora_states_have_the_planned_bytes(gqa_model, overrides):
    """Weights, gradients and moments of an actor that has made an update."""
    actor, seen = make_actor(gqa_model, "lora.rank=8", *overrides), []
    parameters = list(actor.lm.parameters())
    actor.optimizer.optimizer.register_step_pre_hook(
        lambda *_: seen.append(sum(p.grad.nbytes for p in parameters if p.grad is not None))
    )
    actor.update(make_batch(), 1e-3, torch.Generator().manual_seed(0))
    parts = memory(actor.config, find_shape(str(gqa_model)), Placement(), CHUNK)
    assert parts["weights"] == sum(p.nbytes for p in parameters) and [parts["gradients"]] == seen
    moments = [m for state in actor.optimizer.optimizer.state.values() for m in state.values() if m.ndim]
    assert parts["optimizer"] == sum(m.nbytes for m in moments)


def test_memory_under_zero3_by_hand():
    config = load_config([ROOT / "configs/qwen2.5-math-7b.yaml"])
    own = QWEN_7B.parameters // 8
    parts = memory(config, QWEN_7B, Placement(8, True), CHUNK)
    assert (parts["weights"], parts["gradients"], parts["optimizer"]) == (2 * own, 4 * own, 12 * own)
    assert parts["copies"] == 2 * 10**9 + 2 * 5 * 10**8
    offloaded = memory(config, QWEN_7B, Placement(8, True, True), CHUNK)
    assert (offloaded["weights"], offloaded["gradients"], offloaded["optimizer"]) == (2 * own, 0, 0)
    assert memory(config, QWEN_7B, Placement(8, True, True, True), CHUNK)["weights"] == 0
    nodes, own = Placement(16, True, node=8), QWEN_7B.parameters // 16
    assert memory(config, QWEN_7B, nodes, CHUNK)["weights"] == 2 * own + QWEN_7B.parameters // 4
    config.loss.beta = 0.1  # the reference keeps DeepSpeed from a second shard
    assert memory(config, QWEN_7B, nodes, CHUNK)["weights"] == 2 * own


@pytest.mark.parametrize("overrides", [["lora.rank=4"], [], ["model.dtype=bfloat16"]])
def test_memory_of_a_teacher_by_its_own_size(overrides, gqa_model):
    """In model.dtype, also of LoRA, whose reference is else its own frozen weights; sharded by ZeRO-3."""
    config = load_config([], [f"loss.reference={gqa_model}", "loss.beta=0.1", *overrides])
    number, parameters = (2 if "bfloat16" in str(overrides) else 4), find_shape(str(gqa_model)).parameters
    assert memory(config, QWEN_7B, Placement(), CHUNK)["reference"] == number * parameters
    assert memory(config, QWEN_7B, Placement(8, True), CHUNK)["reference"] == number * (parameters // 8)
    actor = make_actor(gqa_model, *overrides, "loss.beta=0.1", teacher=str(gqa_model))
    assert sum(p.nbytes for p in actor.reference.parameters()) == number * parameters
    config.loss.beta = 0.0
    assert memory(config, QWEN_7B, Placement(), CHUNK)["reference"] == 0


def test_peaks_sum_what_is_in_use_at_the_same_time():
    parts = {"weights": 1, "gradients": 2, "optimizer": 4, "reference": 8, "copies": 16, "activations": 32, "head": 64}
    parts["stepping"] = 128
    assert peaks(parts, 1000, True, False) == {"generate": 13 + 1000, "update": 15 + 128}
    assert peaks(parts | {"stepping": 3}, 1000, False, True) == {"generate": 15 + 1000, "update": 15 + 112 + 1000}


def test_bytes_of_the_engine_and_tokens_of_a_microbatch_by_hand():
    config = load_config([], ["model.dtype=bfloat16"])
    assert engine_bytes(config, QWEN_1B, 80 * GB) == int(0.4 * 80 * GB)
    assert engine_bytes(config, QWEN_1B, 0) == 2 * QWEN_1B.parameters + GB // 2
    config = load_config([], ["model.dtype=bfloat16", "rollout.kv_cache_gb=3", "rollout.tensor_parallel_size=2"])
    assert engine_bytes(config, QWEN_1B, 80 * GB) == QWEN_1B.parameters + 3 * GB
    assert engine_bytes(load_config([], ["rollout.engine=transformers"]), QWEN_1B, 80 * GB) == 4 * QWEN_1B.parameters
    servers = ["rollout.servers=[http://a:8000]", "selector.entropy_source=actor"]
    assert engine_bytes(load_config([], servers), QWEN_1B, 80 * GB) == 0
    config = load_config([], ["train.max_tokens_per_microbatch=100", "data.max_prompt_length=60"])
    assert (largest_microbatch(config), largest_microbatch(load_config([]))) == (60 + 1024 - 1, 16384)
    few = ["train.prompts_per_step=2", "schedule.n_init=4", "schedule.n_final=8", "optim.num_minibatches=3"]
    few += ["rollout.max_completion_length=65", "data.max_prompt_length=60"]
    assert largest_microbatch(load_config([], few)) == 6 * (60 + 64)  # of 16 rollouts, six in a mini-batch
