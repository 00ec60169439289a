"""Choose the sizes that a configuration leaves open so that a run fits in the memory of this machine.

The number of recomputed layers on a GPU; the micro-batch and the KV cache on a CPU. d3s/memory.py has the formulas.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import torch

from d3s.cgroups import CPU_CACHE, free_memory
from d3s.common import UserError
from d3s.distributed import all_gather_objects, ranks_per_node
from d3s.flops import ModelShape
from d3s.memory import (
    BYTES,
    FITS,
    GB,
    Placement,
    cache_bytes,
    engine_bytes,
    engine_sleeps,
    longest_response,
    memory,
    peaks,
    recomputed_layers,
)
from d3s.packing import MICROBATCH
from d3s.policy import CHUNK_ELEMENTS
from d3s.shapes import find_shape

if TYPE_CHECKING:  # pydantic may be missing
    from accelerate import Accelerator

    from d3s.config.schema import Config


def launched() -> Placement:
    """Read the placement of the processes that accelerate launched from their environment; one process by default."""
    env = os.environ
    zero3 = env.get("ACCELERATE_USE_DEEPSPEED") == "true" and env.get("ACCELERATE_DEEPSPEED_ZERO_STAGE") == "3"
    devices = (env.get(f"ACCELERATE_DEEPSPEED_OFFLOAD_{what}_DEVICE", "none") for what in ("OPTIMIZER", "PARAM"))
    offloads = (zero3 and device != "none" for device in devices)
    return Placement(int(env.get("WORLD_SIZE", "1")), zero3, *offloads, ranks_per_node() if zero3 else 0)


def choose_cache(shape: ModelShape, number: int, sequences: int, length: int, room: int) -> int:
    """Bytes of the KV cache on a CPU: for this number of sequences of full length, at most `room` bytes."""
    return max(CPU_CACHE, min(cache_bytes(shape, number) * sequences * length, room))


def phase_peak(config: Config, shape: ModelShape, place: Placement, chunk_elements: int) -> int:
    """Bytes that the largest phase of a step needs on a CPU, the KV cache of the options included."""
    engine = engine_bytes(config, shape, 0)
    return max(peaks(memory(config, shape, place, chunk_elements), engine, False, place.zero3).values())


def fit_cpu(config: Config, shape: ModelShape, place: Placement, chunk_elements: int, free: int) -> Config:
    """Choose the micro-batch and the KV cache, where the options do not, so that a step fits in FITS of `free` bytes.

    The largest micro-batch that fits by halving MICROBATCH, down to one sequence; then the cache gets what is left.
    """
    train, rollout, options = config.train, config.rollout, config.data
    longest = options.max_prompt_length + longest_response(config)
    tokens = train.max_tokens_per_microbatch or max(MICROBATCH, longest)

    def sized(tokens: int) -> Config:
        return config.updated(train={"max_tokens_per_microbatch": tokens})

    def room(planned: Config) -> int:
        return int(FITS * free) - phase_peak(planned, shape, place, chunk_elements)

    while not train.max_tokens_per_microbatch and tokens > longest and room(sized(tokens)) < 0:
        tokens = max(longest, tokens // 2)
    planned = sized(tokens)
    if rollout.kv_cache_gb is None and rollout.engine == "vllm" and not rollout.servers:
        sequences = min(rollout.max_num_seqs, train.prompts_per_step * rollout.num_generations)
        length, left = options.max_prompt_length + rollout.max_completion_length, CPU_CACHE + room(planned)
        cache = choose_cache(shape, BYTES[config.model.dtype], sequences, length, left)
        planned = planned.updated(rollout={"kv_cache_gb": cache / GB})
    return planned


def require_states(config: Config, shape: ModelShape, place: Placement, free: int) -> None:
    """Raise UserError if weights, gradients and optimizer states alone exceed the `free` bytes of a CPU's memory."""
    parts = memory(config, shape, place, 1)
    needed = sum(parts[name] for name in ("weights", "gradients", "optimizer", "reference"))
    if needed > free:
        expected = f"at most the {free / GB:.1f} GB of free memory"
        problem = f"got weights, gradients and optimizer states of {needed / GB:.1f} GB, expected {expected}"
        raise UserError(f"model.name: {problem}; use a smaller model, lora.rank, or a machine with more")


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
            expected = f"at most the {shape.layers} layers of {config.model.name}"
            raise UserError(f"model.gradient_checkpointing: got {chosen}, expected {expected}")
        return config
    if not (gpu and shape):
        return config.updated(model={"gradient_checkpointing": gpu > 0})
    engine = engine_bytes(config, shape, gpu)
    for layers in range(shape.layers):
        planned = config.updated(model={"gradient_checkpointing": layers})
        parts = memory(planned, shape, place, chunk_elements)
        if peaks(parts, engine, engine_sleeps(config, gpu), place.zero3)["update"] <= FITS * free:
            return planned
    return config.updated(model={"gradient_checkpointing": shape.layers})


def fit_recomputation(config: Config, model: str, accelerator: Accelerator, microbatch: int | None = None) -> Config:
    """Replace model.gradient_checkpointing: auto by a number of layers before anything is loaded. Collective.

    On a CPU also choose the micro-batch and the KV cache that the options leave open, see fit_cpu.

    Ranks agree on the largest number: under ZeRO-3 a recomputed layer is gathered from all of them once more.

    Args:
        model: directory or hub name.
        microbatch: tokens of the micro-batches of the run that is resumed: with others the last bits would differ.

    Raises: UserError for more layers than the model has.
    """
    device = accelerator.device.type
    if microbatch and not config.train.max_tokens_per_microbatch:
        config = config.updated(train={"max_tokens_per_microbatch": microbatch})
    if device == "cpu":
        config = _fit_here(config, model, accelerator)
    free, gpu = torch.cuda.mem_get_info() if device == "cuda" else (0, 0)
    planned = choose_recomputation(config, find_shape(model), launched(), CHUNK_ELEMENTS[device], gpu, free)
    chosen = all_gather_objects([planned.model.gradient_checkpointing], accelerator)
    return config.updated(model={"gradient_checkpointing": max(chosen)})


def _fit_here(config: Config, model: str, accelerator: Accelerator) -> Config:
    """fit_cpu for the free memory of this machine; all ranks take the least that is chosen on any."""
    shape, free = find_shape(model), free_memory()
    if shape and free is not None:
        require_states(config, shape, launched(), free)
        config = fit_cpu(config, shape, launched(), CHUNK_ELEMENTS["cpu"], free)
        if (most := phase_peak(config, shape, launched(), CHUNK_ELEMENTS["cpu"])) > free:
            problem = f"a step may need {most / GB:.1f} GB, and {free / GB:.1f} GB are free"
            remedy = "lower train.max_tokens_per_microbatch, rollout.max_completion_length or rollout.kv_cache_gb"
            accelerator.print(f"memory: {problem}; {remedy}")
    chosen = [(config.train.max_tokens_per_microbatch or 0, config.rollout.kv_cache_gb or 0.0)]
    tokens, cache = (min(values) for values in zip(*all_gather_objects(chosen, accelerator)))
    return config.updated(train={"max_tokens_per_microbatch": tokens or None}, rollout={"kv_cache_gb": cache or None})
