"""Find the sizes of a model by its name: from its config.json, local or in the cache of the hub."""

from __future__ import annotations

import json
from pathlib import Path

from d3s.common import UserError
from d3s.flops import ModelShape

TINY = {  # of the models `tiny:TASK`
    "hidden_size": 96,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "num_key_value_heads": 3,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": True,
}
BYTES_AND_END = 257  # tokens of their vocabulary

SHIPPED = {  # the models of configs/, for machines that have not downloaded them
    "Qwen/Qwen2.5-Math-1.5B": ModelShape(1536, 28, 12, 2, 128, 8960, 151_936, tied=True, qkv_bias=True),
    "Qwen/Qwen2.5-Math-7B": ModelShape(3584, 28, 28, 4, 128, 18_944, 152_064, qkv_bias=True),
    "meta-llama/Llama-3.1-8B-Instruct": ModelShape(4096, 32, 32, 8, 128, 14_336, 128_256),
}


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
        return Path(name), {"model_type": "qwen2", "vocab_size": BYTES_AND_END, **TINY}
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
