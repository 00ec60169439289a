"""Tokens and bytes of a run, computed from its configuration and the shape of its model.

Pure functions; `train.py --dry-run` prints their results. The memory formulas count what the actor allocates by design.
Fragmentation, the CUDA context and workspaces of libraries come on top: a plan fits in 90 % of a GPU.
tests/test_memory.py compares the formulas with what autograd saves.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from d3s.cgroups import CPU_CACHE
from d3s.flops import ModelShape
from d3s.loss import reads_reference
from d3s.packing import MICROBATCH
from d3s.schedule import planned_steps, schedule_bounds
from d3s.shapes import find_shape

if TYPE_CHECKING:  # pydantic may be missing
    from d3s.config.schema import Config

GB = 2**30
BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}  # per number
LIVE_PARAMETERS = 10**9  # DeepSpeed's stage3_max_live_parameters and sub_group_size, in parameters
REDUCE_BUCKET = 5 * 10**8  # DeepSpeed's reduce_bucket_size, in parameters
FITS = 0.9  # of a GPU's memory, that a plan may need
LOGIT_COPIES = 4  # logits of a chunk, their gradient, and temporaries of exp and of the cast


# --- tokens ----------------------------------------------------------------------------------------------------------


def spread_steps(steps: int, most: int = 2000) -> list[int]:
    """Steps (0-based) whose mean stands for the mean of the run: all of them, or `most` at equal distances."""
    if steps <= most:
        return list(range(steps))
    return [(2 * i + 1) * steps // (2 * most) for i in range(most)]


def token_share(config: Config) -> float:
    """Fraction of the run's response tokens that is trained, if kept responses are as long as dropped ones."""
    steps, g = spread_steps(config.train.steps), config.rollout.num_generations
    return sum(n * k for n, k in map(planned_steps(config), steps)) / (g * len(steps))


def evaluations(config: Config) -> int:
    """Number of evaluations of the run: before training, every eval.every steps, and after training."""
    steps = config.train.steps
    return 1 + math.ceil(steps / (config.eval.every or steps)) if config.eval.data else 0


# --- memory ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Placement:
    """Distribution of the model over the processes of a run."""

    ranks: int = 1  # processes, each with one GPU or on a CPU
    zero3: bool = False  # parameters, gradients and optimizer states are sharded; otherwise each rank has all (DDP)
    offload_optimizer: bool = False  # gradients and optimizer states are in host memory; ZeRO-3 only
    offload_parameters: bool = False  # parameters too
    node: int = 0  # ranks per node on several nodes, where ZeRO-3 keeps the weights once per node more; else 0


# Bytes that autograd saves per token and layer, for hidden d, query width q, key width v, feed-forward f:
#   float32               24 d + 12 q + 8 v + 16 f
#   half, autocast        26 d +  6 q + 4 v +  8 f    residual stream and norms in float32
#   half, ZeRO-3          16 d +  6 q + 4 v +  8 f    parameters and residual stream in half precision
# Under LoRA, in half precision with the latter; all linear layers adapted with rank r:
#   float32               16 d + 12 q + 8 v + 16 f + 28 r    frozen norms do not save their normalized input,
#   half                  12 d +  6 q + 4 v +  8 f + 14 r    each adapter saves the output of its A
# The norms of queries and keys (Qwen3, Gemma 3), and Gemma 3's other two of the residual stream, save 8 bytes a number:
# input and normalized input in float32. Qwen3's normalized input in half precision has 2, a frozen norm saves none.
# Under ZeRO-3 in half precision the first two norms of Gemma 3 save float32 as well, 4 d more.
# A recomputed layer saves its input (d numbers), and all of the above while the backward pass is in it. The recomputed
# layers are the first ones: when the backward pass comes to them, the others have released what they saved.
def activation_bytes(shape: ModelShape, dtype: str, tokens: int, recomputed: int, zero3: bool, rank: int = 0) -> int:
    """Bytes that the trunk (all but the head) saves for the backward pass of a micro-batch of `tokens` tokens.

    Args:
        recomputed: layers with gradient checkpointing.
        rank: of LoRA's adapters; 0 trains all weights.
    """
    (q, v), d, f = shape.attention, shape.hidden, shape.intermediate
    others = (shape.norms - 2) * d + shape.qk_norm * (q + v)  # what is normalized besides
    if dtype == "float32":
        layer, stream = (16 if rank else 24) * d + 12 * q + 8 * v + 16 * f + 28 * rank, 4 * d
    else:
        layer = (12 if rank else 16 if zero3 else 26) * d + 6 * q + 4 * v + 8 * f + 14 * rank
        stream = (2 if zero3 or rank else 4) * d
    is_gemma = shape.norms == 4
    layer += others * (4 if rank else 8 if is_gemma or dtype == "float32" else 6)
    layer += 4 * d if is_gemma and zero3 and dtype != "float32" else 0
    return tokens * (recomputed * stream + max(shape.layers - recomputed, 1) * layer)


def largest_microbatch(config: Config) -> int:
    """Tokens of the largest micro-batch: the limit, or one sequence of full length if that is longer.

    Not more than the rollouts of a mini-batch can have.
    """
    longest = config.data.max_prompt_length + longest_response(config)
    rollouts = -(-config.train.prompts_per_step * schedule_bounds(config)[0][1] // config.optim.num_minibatches)
    return min(max(config.train.max_tokens_per_microbatch or MICROBATCH, longest), rollouts * longest)


def longest_response(config: Config) -> int:
    """Tokens of the longest response in a forward pass: all but the last, which predicts nothing."""
    return config.rollout.max_completion_length - 1


# Bytes per parameter, for P parameters over W ranks. One process or DDP: 16 for float32 weights, gradients and the two
# moments of AdamW; 4 for the buckets of DDP; during the update in half precision 2 for copies of the weights.
# LoRA: b (2 or 4) for frozen weights, which are also the reference, and the bytes above per parameter of the adapters.
# ZeRO-3: b for weights, 4 for gradients, 12 for float32 weights and moments, all divided by W; gathered layers come on
# top. On several nodes of R ranks, without a reference, each rank keeps b / R more (actor/zero3.py).
def memory(config: Config, shape: ModelShape, place: Placement, chunk_elements: int) -> dict[str, int]:
    """Bytes per GPU (or process) by purpose, without the engine.

    Args:
        chunk_elements: logits that the head computes at once (policy.CHUNK_ELEMENTS of the device).

    Returns: "weights", "gradients", "optimizer" (moments; under ZeRO-3 also float32 weights), "reference" (model),
        "copies" (of weights: in half precision, or gathered by ZeRO-3), "activations" and "head" of a micro-batch,
        "stepping" (temporaries of the optimizer step, when copies, activations and head are released).
    """
    p, ranks, dtype = shape.parameters, place.ranks, config.model.dtype
    b, v = BYTES[dtype], shape.vocabulary
    half = b == 2
    tokens, recomputed = largest_microbatch(config), recomputed_layers(config, shape)
    if place.zero3:
        own = p // ranks
        second = b * p // place.node if place.node and not reads_reference(config.loss.kind, config.loss.beta) else 0
        weights = 0 if place.offload_parameters else b * own + second
        updated = 0 if place.offload_optimizer else own
        gradients, optimizer = 4 * updated, 12 * updated  # summed in float32, see actor/zero3.py
        copies = b * (min(p, LIVE_PARAMETERS) + min(p, REDUCE_BUCKET))
        stepping = 8 * min(updated, LIVE_PARAMETERS)
    else:
        adapters = shape.adapter_parameters(config.lora.rank, config.lora.targets)
        trained = adapters or p
        weights = 4 * trained + (b * p if adapters else 0)
        gradients, optimizer = (8 if ranks > 1 else 4) * trained, 8 * trained
        copies = 2 * trained if half else 0
        stepping = 4 * trained
    # In addition to the logits: a separate gradient of the head's weight, unless it is accumulated in place
    # (policy.accumulate_in_place); in half precision a copy of the weight, and a chunk's product in float32. A frozen
    # head has none of these.
    in_place = ranks == 1 and not place.zero3
    head = 4 * LOGIT_COPIES * min(chunk_elements, v * tokens)
    if not config.lora.rank:
        head += ((0 if in_place else 4) + (6 if half else 0)) * v * shape.hidden
    return {
        "weights": weights,
        "gradients": gradients,
        "optimizer": optimizer,
        "reference": reference_bytes(config, shape, place),
        "copies": copies,
        "activations": activation_bytes(shape, dtype, tokens, recomputed, place.zero3, config.lora.rank or 0),
        "head": head,
        "stepping": stepping,
    }


def reference_bytes(config: Config, shape: ModelShape, place: Placement) -> int:
    """Bytes of the reference model; 0 without one, and where it is the policy without its adapter.

    That of loss.reference is loaded in model.dtype. One of unknown shape counts as large as the policy.
    """
    teacher, number = config.loss.reference, BYTES[config.model.dtype]
    if not reads_reference(config.loss.kind, config.loss.beta) or (config.lora.rank and not teacher):
        return 0
    if teacher:
        shape = find_shape(teacher) or shape
    return shape.parameters // place.ranks * number if place.zero3 else shape.parameters * (number if teacher else 4)


def engine_bytes(config: Config, shape: ModelShape, gpu: int) -> int:
    """Bytes of the engine while it generates, on a GPU of `gpu` bytes or, with 0, on a CPU; servers have their own."""
    rollout = config.rollout
    if rollout.servers:
        return 0
    weights = shape.parameters * BYTES[config.model.dtype] // rollout.tensor_parallel_size
    if rollout.engine != "vllm":  # which reserve no KV cache
        return weights
    if rollout.kv_cache_gb is not None:
        return weights + int(rollout.kv_cache_gb * GB)
    return int(rollout.gpu_memory_utilization * gpu) if gpu else weights + CPU_CACHE


def engine_sleeps(config: Config, gpu: int) -> bool:
    """Whether the engine releases its memory during the update: vLLM's alone, on a GPU of `gpu` bytes."""
    return gpu > 0 and config.rollout.sleep and config.rollout.engine == "vllm"


def engine_sequences(config: Config, shape: ModelShape, engine: int) -> int:
    """Sequences of full length that fit in the KV cache of an engine of `engine` bytes."""
    ranks, number = config.rollout.tensor_parallel_size, BYTES[config.model.dtype]
    tokens = config.data.max_prompt_length + config.rollout.max_completion_length
    left = max(0, engine - shape.parameters * number // ranks)
    return left * ranks // (tokens * cache_bytes(shape, number))


def cache_bytes(shape: ModelShape, number: int) -> int:
    """Bytes of the KV cache per token, for numbers of `number` bytes."""
    return 2 * shape.layers * shape.attention[1] * number


def peaks(parts: dict[str, int], engine: int, engine_sleeps: bool, zero3: bool) -> dict[str, int]:
    """Largest sum of bytes in use at the same time, for the phases "generate" and "update".

    An engine that sleeps releases its memory during the update. During generation the actor holds weights, optimizer
    states and reference model, and gradients only under ZeRO-3, which keeps their buffer.

    Args:
        parts: what memory() returns.
        engine: bytes of the engine.
    """
    states = parts["weights"] + parts["optimizer"] + parts["reference"]
    work = max(parts["copies"] + parts["activations"] + parts["head"], parts["stepping"])
    return {
        "generate": states + (parts["gradients"] if zero3 else 0) + engine,
        "update": states + parts["gradients"] + work + (0 if engine_sleeps else engine),
    }


def recomputed_layers(config: Config, shape: ModelShape) -> int:
    """Number of layers that a configuration without `auto` recomputes."""
    chosen = config.model.gradient_checkpointing
    return shape.layers if chosen is True else int(chosen)


def checkpoint_bytes(config: Config, shape: ModelShape, place: Placement) -> int:
    """Bytes of a checkpoint: trained float32 weights and AdamW's moments; ZeRO-3 adds the weights in model.dtype."""
    trained = shape.adapter_parameters(config.lora.rank, config.lora.targets) or shape.parameters
    return trained * (12 + (BYTES[config.model.dtype] if place.zero3 else 0))
