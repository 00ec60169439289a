"""Inspect the machine for `--dry-run`: launched processes, device, model shape, tokenizer, data."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from d3s.common import UserError
from d3s.config.schema import Config
from d3s.data.dataset import encode_problems, read_problems
from d3s.data.problems import BENCHMARKS, hub_split, is_hub_name, name_sources
from d3s.distributed import all_gather_objects, ranks_per_node
from d3s.flops import ModelShape
from d3s.plan.memory import GB, Placement, choose_recomputation, evaluations, with_recomputation
from d3s.pretrained import check_name, prompt_budget, read_tokenizer
from d3s.tiny import parse_name

if TYPE_CHECKING:
    from accelerate import Accelerator

ASSUMED_GPU = 80 * GB  # bytes, for half precision on a machine without a GPU
SHIPPED = {  # the models of configs/, for machines that have not downloaded them
    "Qwen/Qwen2.5-Math-1.5B": ModelShape(1536, 28, 12, 2, 128, 8960, 151_936, tied=True, qkv_bias=True),
    "Qwen/Qwen2.5-Math-7B": ModelShape(3584, 28, 28, 4, 128, 18_944, 152_064, qkv_bias=True),
    "meta-llama/Llama-3.1-8B-Instruct": ModelShape(4096, 32, 32, 8, 128, 14_336, 128_256),
}


# --- hardware --------------------------------------------------------------------------------------------------------


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


def gpu_name() -> str:
    """Name of the local GPU, "none" without one."""
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else "none"


def engine_device(config: Config) -> tuple[str, int]:
    """Name and memory in bytes of the device that the run is planned for; 0 bytes for a CPU.

    Without a local GPU, half precision is planned for a GPU of ASSUMED_GPU.
    """
    import torch

    if torch.cuda.is_available():
        return torch.cuda.get_device_name(), torch.cuda.get_device_properties(0).total_memory
    return ("the CPU", 0) if config.model.dtype == "float32" else (f"a GPU of {ASSUMED_GPU // GB} GB", ASSUMED_GPU)


def fit_recomputation(config: Config, model: str, accelerator: Accelerator) -> Config:
    """Replace model.gradient_checkpointing: auto by a number of layers before anything is loaded. Collective.

    Ranks agree on the largest number: under ZeRO-3 a recomputed layer is gathered from all of them once more.

    Args:
        model: directory or hub name.

    Raises: UserError for more layers than the model has.
    """
    import torch

    from d3s.policy import CHUNK_ELEMENTS

    device = accelerator.device.type
    free, gpu = torch.cuda.mem_get_info() if device == "cuda" else (0, 0)
    planned = choose_recomputation(config, find_shape(model), launched(), CHUNK_ELEMENTS[device], gpu, free)
    chosen = all_gather_objects([planned.model.gradient_checkpointing], accelerator)
    return with_recomputation(config, max(chosen))


# --- model -----------------------------------------------------------------------------------------------------------


def model_row(config: Config, place: Placement) -> tuple[str, str]:
    """The model and the processes of a plan. Raises UserError as check_model does."""
    note = check_model(config.model.name)
    ranks = f"{place.ranks} process{'es' if place.ranks > 1 else ''}{' under ZeRO-3' if place.zero3 else ''}"
    compiled = ", layers compiled when they first run" * config.model.compile
    return "model", f"{config.model.name} in {config.model.dtype}, {ranks}{compiled}{note and f'; {note}'}"


def check_model(name: str) -> str:
    """Check model.name without the hub. Returns a note if the run will download the model, else "".

    Raises: UserError for a directory that does not exist or contains no model, and for an impossible name.
    """
    if parse_name(name):
        return ""
    check_name(name)
    if (Path(name) / "config.json").is_file() or cached_file(name, "config.json"):
        return ""
    return "not on this machine: the run will download it from the hub"


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


def prompt_limit(config: Config) -> int:
    """Maximum prompt length in tokens: data.max_prompt_length, or less if the model's positions require it.

    Raises: UserError if the longest response leaves no position for a prompt.
    """
    name = config.model.name
    _, content = model_config(name) or (None, {})
    positions = content.get("max_position_embeddings")
    if not isinstance(positions, int):
        return config.data.max_prompt_length
    return min(config.data.max_prompt_length, prompt_budget(name, positions, config.rollout.max_completion_length))


def find_tokenizer(name: str) -> Any:
    """Tokenizer of a model (transformers' PreTrainedTokenizerBase) if it is on this machine, else None."""
    if name.startswith("tiny:"):
        from d3s.tiny import byte_tokenizer

        return byte_tokenizer()
    if any(Path(name).glob("tokenizer*")):
        return read_tokenizer(name)
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(name, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError):
        return None


# --- data ------------------------------------------------------------------------------------------------------------


def check_data(config: Config) -> tuple[list[tuple[str, str]], int | None]:
    """Read the local data as the run will.

    Returns: rows of the plan as (label, text); the number of training problems, None where only the hub knows it.
    Raises: UserError for data that cannot be read and prompts that exceed the limit.
    """
    data, tests, limit = config.data, config.eval.data, prompt_limit(config)
    rows, count, sizes = [], None, {}
    for source, split in ((data.path, data.split), *((name, config.eval.split) for name in tests)):
        if source in BENCHMARKS:
            hub_split(source, split)
    if any(map(is_hub_name, (data.path, *data.decontaminate))):
        rows.append(("data", f"{data.path}, template {data.template}, read when the run starts"))
    else:
        local = config.eval.model_copy(update={"data": [source for source in tests if not is_hub_name(source)]})
        problems = read_problems(config.model_copy(update={"eval": local}))
        count = len(problems.train)
        sizes = {name: len(questions) for name, questions in problems.tests.items()}
        text = f"{data.path}: {count:,} problems"
        if tokenizer := find_tokenizer(config.model.name):
            prompts, _ = encode_problems(config, problems, tokenizer, limit)
            count, longest = len(prompts.problems), max(map(len, prompts.ids))
            text += f", prompts of up to {longest} tokens (limit {limit})"
        else:
            text += "; prompt lengths are unknown without the tokenizer"
        rows.append(("data", "; ".join([text, *problems.notes])))
    if tests:
        names = [f"{name} ({sizes[name]:,} problems)" if name in sizes else name for name in name_sources(tests)]
        text = f"{evaluations(config)} times {config.eval.n} samples per problem of {', '.join(names)}"
        text += f", scored by {config.eval.reward}" if config.eval.reward else ""
        rows.append(("evaluation", text))
    return rows, count
