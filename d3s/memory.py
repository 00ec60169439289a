"""Tokens and bytes of a run, computed from its configuration and the shape of its model.

Pure functions; `train.py --dry-run` prints their results. The memory formulas count what the actor allocates by design.
Fragmentation, the CUDA context and workspaces of libraries come on top: a plan fits in 90 % of a GPU.
tests/test_memory.py compares the formulas with what autograd saves.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from d3s.cgroups import CPU_CACHE, free_memory
from d3s.common import UserError
from d3s.distributed import all_gather_objects, ranks_per_node
from d3s.flops import ModelShape, adapter_parameters
from d3s.loss import reads_reference
from d3s.packing import MICROBATCH
from d3s.schedule import planned_steps, schedule_bounds

if TYPE_CHECKING:  # pydantic may be missing
    from accelerate import Accelerator

    from d3s.config.schema import Config

GB = 2**30
BYTES = {"float32": 4, "bfloat16": 2}  # per number
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
# A recomputed layer saves its input (d numbers), and all of the above while the backward pass is in it. The recomputed
# layers are the first ones: when the backward pass comes to them, the others have released what they saved.
def activation_bytes(shape: ModelShape, dtype: str, tokens: int, recomputed: int, zero3: bool, rank: int = 0) -> int:
    """Bytes that the trunk (all but the head) saves for the backward pass of a micro-batch of `tokens` tokens.

    Args:
        recomputed: layers with gradient checkpointing.
        rank: of LoRA's adapters; 0 trains all weights.
    """
    (q, v), d, f = shape.attention, shape.hidden, shape.intermediate
    if dtype == "float32":
        layer, stream = (16 if rank else 24) * d + 12 * q + 8 * v + 16 * f + 28 * rank, 4 * d
    else:
        half_stream = zero3 or rank > 0
        layer = (12 if rank else 16 if zero3 else 26) * d + 6 * q + 4 * v + 8 * f + 14 * rank
        stream = (2 if half_stream else 4) * d
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
        gradients = 0 if place.offload_optimizer else 4 * own  # summed in float32, see actor/zero3.py
        optimizer = 0 if place.offload_optimizer else 12 * own
        copies = b * (min(p, LIVE_PARAMETERS) + min(p, REDUCE_BUCKET))
        stepping = 0 if place.offload_optimizer else 8 * min(own, LIVE_PARAMETERS)
    else:
        adapters = adapter_parameters(config, shape)
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
    """Bytes of the engine while it generates, on a GPU of `gpu` bytes or, with 0, on a CPU."""
    rollout = config.rollout
    weights = shape.parameters * BYTES[config.model.dtype] // rollout.tensor_parallel_size
    if rollout.kv_cache_gb is not None:
        return weights + int(rollout.kv_cache_gb * GB)
    return int(rollout.gpu_memory_utilization * gpu) if gpu else weights + CPU_CACHE


def engine_sequences(config: Config, shape: ModelShape, engine: int) -> int:
    """Sequences of full length that fit in the KV cache of an engine of `engine` bytes."""
    ranks, number = config.rollout.tensor_parallel_size, BYTES[config.model.dtype]
    tokens = config.data.max_prompt_length + config.rollout.max_completion_length
    left = max(0, engine - shape.parameters * number // ranks)
    return left // (tokens * (cache_bytes(shape, number) // ranks))


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


def choose_cache(shape: ModelShape, number: int, sequences: int, length: int, room: int) -> int:
    """Bytes of the KV cache on a CPU: for this number of sequences of full length, at most `room` bytes."""
    return max(CPU_CACHE, min(cache_bytes(shape, number) * sequences * length, room))


def fit_cpu(config: Config, shape: ModelShape, place: Placement, chunk_elements: int, free: int) -> Config:
    """Choose the micro-batch and the KV cache, where the options do not, so that a step fits in FITS of `free` bytes.

    The largest micro-batch that fits by halving MICROBATCH, down to one sequence; then the cache gets what is left.
    """
    train, rollout, options = config.train, config.rollout, config.data
    longest = options.max_prompt_length + longest_response(config)
    tokens = train.max_tokens_per_microbatch or max(MICROBATCH, longest)

    def sized(tokens: int) -> Config:
        return config.model_copy(update={"train": train.model_copy(update={"max_tokens_per_microbatch": tokens})})

    def room(planned: Config) -> int:
        engine = engine_bytes(planned, shape, 0) - CPU_CACHE * (rollout.engine != "vllm")
        parts = memory(planned, shape, place, chunk_elements)
        return int(FITS * free) - max(peaks(parts, engine, False, place.zero3).values())

    while not train.max_tokens_per_microbatch and tokens > longest and room(sized(tokens)) < 0:
        tokens = max(longest, tokens // 2)
    planned = sized(tokens)
    if rollout.kv_cache_gb is None and rollout.engine == "vllm" and not rollout.servers:
        sequences = min(rollout.max_num_seqs, train.prompts_per_step * rollout.num_generations)
        length, left = options.max_prompt_length + rollout.max_completion_length, CPU_CACHE + room(planned)
        cache = choose_cache(shape, BYTES[config.model.dtype], sequences, length, left)
        planned = planned.model_copy(update={"rollout": rollout.model_copy(update={"kv_cache_gb": cache / GB})})
    return planned


def require_states(config: Config, shape: ModelShape, place: Placement, free: int) -> None:
    """Raise UserError if weights, gradients and optimizer states alone exceed the `free` bytes of a CPU's memory."""
    parts = memory(config, shape, place, 1)
    needed = sum(parts[name] for name in ("weights", "gradients", "optimizer", "reference"))
    if needed > free:
        raise UserError(
            f"model.name: got weights, gradients and optimizer states of {needed / GB:.1f} GB, expected at most the "
            f"{free / GB:.1f} GB of free memory; use a smaller model, lora.rank, or a machine with more"
        )


def with_recomputation(config: Config, chosen: bool | int) -> Config:
    """A copy with this value of model.gradient_checkpointing."""
    model = config.model.model_copy(update={"gradient_checkpointing": chosen})
    return config.model_copy(update={"model": model})


def choose_recomputation(
    config: Config, shape: ModelShape | None, place: Placement, chunk_elements: int, gpu: int, free: int
) -> Config:
    """Replace `auto` by the smallest number of layers with which an update fits in FITS of the free memory.

    All layers if none does, or if the shape of the model is unknown; none on a CPU.

    Args:
        gpu: bytes of the GPU, 0 for a CPU.
        free: bytes of it that are free before anything is loaded.

    Raises: UserError for more layers than the model has.
    """
    chosen = config.model.gradient_checkpointing
    if chosen != "auto":
        if shape and recomputed_layers(config, shape) > shape.layers:
            raise UserError(
                f"model.gradient_checkpointing: got {chosen}, expected at most the {shape.layers} layers of "
                f"{config.model.name}"
            )
        return config
    if not (gpu and shape):
        return with_recomputation(config, gpu > 0)
    engine = engine_bytes(config, shape, gpu)
    for layers in range(shape.layers):
        planned = with_recomputation(config, layers)
        parts = memory(planned, shape, place, chunk_elements)
        if peaks(parts, engine, config.rollout.sleep, place.zero3)["update"] <= FITS * free:
            return planned
    return with_recomputation(config, shape.layers)


def checkpoint_bytes(config: Config, shape: ModelShape, place: Placement) -> int:
    """Bytes of a checkpoint: trained float32 weights and AdamW's moments; ZeRO-3 adds the weights in model.dtype."""
    trained = adapter_parameters(config, shape) or shape.parameters
    return trained * (12 + (BYTES[config.model.dtype] if place.zero3 else 0))


# --- of this machine -----------------------------------------------------------------------------------------------

SHIPPED = {  # the models of configs/, for machines that have not downloaded them
    "Qwen/Qwen2.5-Math-1.5B": ModelShape(1536, 28, 12, 2, 128, 8960, 151_936, tied=True, qkv_bias=True),
    "Qwen/Qwen2.5-Math-7B": ModelShape(3584, 28, 28, 4, 128, 18_944, 152_064, qkv_bias=True),
    "meta-llama/Llama-3.1-8B-Instruct": ModelShape(4096, 32, 32, 8, 128, 14_336, 128_256),
}


def launched() -> Placement:
    """Read the placement of the processes that accelerate launched from their environment; one process by default."""
    env = os.environ
    zero3 = env.get("ACCELERATE_USE_DEEPSPEED") == "true" and env.get("ACCELERATE_DEEPSPEED_ZERO_STAGE") == "3"
    return Placement(
        int(env.get("WORLD_SIZE", "1")),
        zero3,
        zero3 and env.get("ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE", "none") != "none",
        zero3 and env.get("ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE", "none") != "none",
        ranks_per_node() if zero3 else 0,
    )


def cached_file(name: str, file: str) -> Path | None:
    """Path of a hub model's file in the local cache of the hub, None if it is not cached."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        cached = try_to_load_from_cache(name, file)
    except HFValidationError:  # not a hub name
        return None
    return Path(cached) if isinstance(cached, str) else None


def model_config(name: str) -> tuple[Path, dict] | None:
    """Path and content of a model's config.json, built in, local or in the hub's cache; None without one.

    Raises: UserError if the file is not a JSON object.
    """
    if name.startswith("tiny:"):
        from d3s.tiny import MODEL, byte_tokenizer

        return Path(name), {"model_type": "qwen2", "vocab_size": len(byte_tokenizer()), **MODEL}
    path = Path(name) / "config.json"
    path = path if path.is_file() else cached_file(name, "config.json")
    if path is None:
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error
    if not isinstance(content, dict):
        raise UserError(f"{path}: expected a JSON object, as in a model's config.json")
    return path, content


def _unreadable(path: Path, error: Exception) -> UserError:
    return UserError(f"{path}: cannot be read as a model's config.json ({type(error).__name__}: {error})")


def find_shape(name: str) -> ModelShape | None:
    """Shape of a model from its config.json, local or cached, or from SHIPPED; None if it is unknown.

    Raises: UserError for a config.json that cannot be read or lacks a size.
    """
    path, content = model_config(name) or (None, None)
    if content is None:
        return SHIPPED.get(name)
    try:
        return ModelShape.of(content)
    except (KeyError, TypeError, AttributeError, ZeroDivisionError) as error:
        raise _unreadable(path, error) from error


def known_parameters(name: str) -> int | None:
    """Parameters of a model whose shape is known, else None. Raises UserError as find_shape."""
    shape = find_shape(name)
    return shape.parameters if shape else None


def fit_recomputation(config: Config, model: str, accelerator: Accelerator) -> Config:
    """Replace model.gradient_checkpointing: auto by a number of layers before anything is loaded. Collective.

    On a CPU also choose the micro-batch and the KV cache that the options leave open, see fit_cpu.

    Ranks agree on the largest number: under ZeRO-3 a recomputed layer is gathered from all of them once more.

    Args:
        model: directory or hub name.

    Raises: UserError for more layers than the model has.
    """
    import torch

    from d3s.policy import CHUNK_ELEMENTS

    device = accelerator.device.type
    if device == "cpu":
        config = _fit_here(config, model, accelerator)
    free, gpu = torch.cuda.mem_get_info() if device == "cuda" else (0, 0)
    planned = choose_recomputation(config, find_shape(model), launched(), CHUNK_ELEMENTS[device], gpu, free)
    chosen = all_gather_objects([planned.model.gradient_checkpointing], accelerator)
    return with_recomputation(config, max(chosen))


def _fit_here(config: Config, model: str, accelerator: Accelerator) -> Config:
    """fit_cpu for the free memory of this machine; all ranks take the least that is chosen on any."""
    from d3s.policy import CHUNK_ELEMENTS

    shape, free = find_shape(model), free_memory()
    if shape and free is not None:
        require_states(config, shape, launched(), free)
        config = fit_cpu(config, shape, launched(), CHUNK_ELEMENTS["cpu"], free)
    chosen = [(config.train.max_tokens_per_microbatch or 0, config.rollout.kv_cache_gb or 0.0)]
    tokens, cache = (min(values) for values in zip(*all_gather_objects(chosen, accelerator)))
    train = config.train.model_copy(update={"max_tokens_per_microbatch": tokens or None})
    rollout = config.rollout.model_copy(update={"kv_cache_gb": cache or None})
    return config.model_copy(update={"train": train, "rollout": rollout})
