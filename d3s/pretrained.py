"""Read a pretrained model from a directory or the hub: its configuration, tokenizer and weights.

Nothing that comes with a model is executed: `trust_remote_code` is False everywhere, and weights come from safetensors.
Incomplete models are refused with a UserError, because transformers would draw missing weights at random.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from d3s.common import UserError

SHOWN = 3  # tensors that a message names


def check_name(name: str) -> None:
    """Refuse what can be neither a model's directory nor a name on the hub, without asking the hub.

    Raises: UserError.
    """
    path = Path(name)
    if (path / "config.json").is_file():
        return
    if path.exists():
        raise UserError(f"the model {name!r} is no model's directory: there is no config.json in it")
    if name.startswith(("/", ".", "~", "runs/")) or name.endswith("/"):
        raise UserError(f"the model {name!r}: there is no such directory")
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name):
        raise UserError(f"the model {name!r} must be a directory, a hub name as org/name, or tiny:TASK")


def read_config(path: str) -> Any:
    """The model's configuration. Raises UserError if it cannot be read or needs remote code."""
    from transformers import AutoConfig

    check_name(path)
    with _in_one_sentence(path, "config.json"):
        return AutoConfig.from_pretrained(path, trust_remote_code=False)


def read_tokenizer(path: str) -> Any:
    """The model's tokenizer. Raises UserError if there is none."""
    from transformers import AutoTokenizer

    with _in_one_sentence(path, "tokenizer"):
        tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=False)
    if not tokenizer.encode("1 + 1", add_special_tokens=False):  # transformers makes an empty one where there is none
        raise UserError(f"{path}: the model has no tokenizer; tokenizer.json must be in its directory")
    return tokenizer


def load_model(path: str, **options) -> Any:
    """The causal language model at `path`; `options` go to `from_pretrained`.

    Raises: UserError for files that cannot be read, and for tensors that are missing or have another shape than
        config.json says. A head that is tied to the embedding need not be there.
    """
    from transformers import AutoModelForCausalLM

    with _in_one_sentence(path, "weights"):
        model, loading = AutoModelForCausalLM.from_pretrained(
            path,
            use_safetensors=True,
            trust_remote_code=False,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # they are refused below, with their names
            **options,
        )
    if missing := sorted(loading["missing_keys"]):
        raise UserError(f"{path}: {len(missing)} tensors of the model are not in its weights: {_first(missing)}")
    if mismatched := sorted(loading["mismatched_keys"]):
        wrong = [f"{name} is {list(found)}, expected {list(wanted)}" for name, found, wanted in mismatched]
        raise UserError(f"{path}: {len(wrong)} tensors do not have the shape that config.json gives: {_first(wrong)}")
    return model


def check_model(path: str, config: Any, tokenizer: Any) -> None:
    """Refuse a model before anything expensive is built from it; takes no more memory than one tensor.

    Raises: UserError as load_model, for weights that are not finite, and for an end-of-sequence token or a tokenizer
        that does not fit the vocabulary.
    """

    vocabulary = config.vocab_size
    if tokenizer.vocab_size > vocabulary:
        raise UserError(
            f"{path}: its tokenizer has {tokenizer.vocab_size} tokens, but vocab_size in config.json is {vocabulary}"
        )
    outside = [token for token in stop_token_ids(path) if not 0 <= token < vocabulary]
    if outside:
        raise UserError(f"{path}: eos_token_id is {outside[0]}, the vocabulary has {vocabulary} tokens")
    with not_sharded():
        load_model(path, device_map="meta")
    _require_finite(path)


# transformers fuses some tensors when it loads them, such as the experts of a layer; others expect those of the files.
def as_saved(path: str, weights: Iterator[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Weights of the loaded model at `path`, under the names and in the shapes that its files have."""
    from transformers.core_model_loading import revert_weight_conversion

    for name, tensor in weights:
        for saved_name, part in revert_weight_conversion(_without_memory(path), {name: tensor}).items():
            yield saved_name, tensor if part is tensor else part.clone()  # parts of one tensor share its memory


@cache
def _without_memory(path: str) -> Any:
    with not_sharded():
        return load_model(path, device_map="meta")


@contextmanager
def not_sharded() -> Iterator[None]:
    """Keep models complete on every rank: under ZeRO-3 transformers shards every model that it loads."""
    from transformers.integrations import deepspeed

    sharding = deepspeed._hf_deepspeed_config_weak_ref
    deepspeed.unset_hf_deepspeed_config()
    try:
        yield
    finally:
        deepspeed._hf_deepspeed_config_weak_ref = sharding


def _require_finite(path: str) -> None:
    """Reads every tensor of the weight files once."""
    from safetensors import safe_open

    for file in _weight_files(path):
        with safe_open(file, framework="pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118, a safetensors file is no dictionary
                tensor = tensors.get_tensor(name)
                if not tensor.is_floating_point() or tensor.element_size() < 2 or not tensor.numel():
                    continue
                low, high = tensor.aminmax()  # both are NaN if one element is
                if not (low.isfinite() and high.isfinite()):
                    raise UserError(f"{path}: {name} in {file.name} has values that are not finite")


def _weight_files(path: str) -> list[Path]:
    """The safetensors files that transformers loads, in the directory or in the hub's cache."""
    from transformers.utils import cached_file

    folder = Path(cached_file(path, "config.json")).parent
    index = folder / "model.safetensors.index.json"
    if (folder / "model.safetensors").exists() or not index.exists():
        return [folder / "model.safetensors"]
    return [folder / name for name in sorted(set(json.loads(index.read_text())["weight_map"].values()))]


@contextmanager
def _in_one_sentence(path: str, part: str) -> Iterator[None]:
    from safetensors import SafetensorError

    try:
        yield
    except Exception as error:  # a bad file makes transformers raise anything, KeyError and ZeroDivisionError included
        if "vLLM config" in str(error):  # vLLM lets transformers' own classes run it, and changes them for the process
            raise UserError(
                f"{path}: beside vLLM in one process the actor cannot load this architecture; "
                "use rollout.engine: transformers"
            ) from error
        first, second, *_ = (*str(error).strip().splitlines(), "", "")
        reason = " ".join([first, *second.split()] if first.endswith(":") else [first]).rstrip(".")
        if not isinstance(error, OSError | ValueError | ImportError | RuntimeError | SafetensorError):
            reason = f"{type(error).__name__}: {reason}"
        raise UserError(f"no model can be read from {path!r}: cannot load its {part}; {reason}") from error


def _first(items: list[str]) -> str:
    return ", ".join(items[:SHOWN]) + (", …" if len(items) > SHOWN else "")


def stop_token_ids(model_path: str) -> list[int]:
    """The model's end-of-sequence tokens, of which some chat models have several."""
    from transformers import AutoConfig, GenerationConfig

    try:
        eos = GenerationConfig.from_pretrained(model_path).eos_token_id
    except OSError:
        eos = None
    if eos is None:
        eos = AutoConfig.from_pretrained(model_path, trust_remote_code=False).eos_token_id
    if eos is None:
        raise UserError(f"{model_path}: neither generation_config.json nor config.json names an eos_token_id")
    return eos if isinstance(eos, list) else [eos]


def load_pretrained(path: str, max_tokens: int) -> tuple[Any, int]:
    """The tokenizer of the model at `path`, and the longest prompt in tokens that leaves room for `max_tokens`.

    Raises: UserError if `max_tokens` leaves no room for a prompt, and for an incomplete or damaged model (check_model),
        which engines would load all the same.
    """
    config, tokenizer = read_config(path), read_tokenizer(path)
    window = getattr(config, "max_position_embeddings", None)
    if window is None or not hasattr(config, "vocab_size"):
        raise UserError(f"{path}: config.json must have max_position_embeddings and vocab_size")
    budget = prompt_budget(path, window, max_tokens)
    check_model(path, config, tokenizer)
    return tokenizer, budget


def prompt_budget(name: str, window: int, max_tokens: int) -> int:
    """The longest prompt for a model of `window` positions. Raises UserError if the responses leave none."""
    if max_tokens >= window:
        raise UserError(f"max_tokens is {max_tokens}, must be less than the {window} positions of {name}")
    return window - max_tokens


def default_dtype() -> str:
    """bfloat16 on a GPU, else float32."""
    import torch

    return "bfloat16" if torch.cuda.is_available() else "float32"
