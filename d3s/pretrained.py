"""Read a pretrained model from a directory or the hub: its configuration, tokenizer and weights.

No code that comes with a model is executed: `trust_remote_code` is False and weights are read from safetensors only.
Incomplete models raise a UserError, because transformers would initialize missing weights at random.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from d3s.common import UserError, short

HUB_TIMEOUT_S = 5  # for the hub to answer at all
MAX_LISTED = 3  # tensors listed in a message
OLD_BUFFERS = re.compile(r"\.(rotary_emb\.inv_freq|(attn|attention)\.(masked_)?bias)$")  # once saved with the weights


def check_name(name: str) -> None:
    """Raise UserError for a name that is neither a model's directory nor a possible hub name. No network access."""
    from huggingface_hub.utils import HFValidationError, validate_repo_id

    path = Path(name)
    if (path / "config.json").is_file():
        return
    if name and path.exists():
        trained = f", such as {path / 'model'}" if (path / "model" / "config.json").is_file() else ""  # a run
        raise UserError(f"{name}: has no config.json, expected a model's directory{trained}")
    with suppress(HFValidationError):
        validate_repo_id(name)
        if not name.startswith("runs/"):
            return
    expected = "expected a model's directory, a hub name org/name, or tiny:TASK"
    raise UserError(f"{name or 'model.name'}: no such directory; {expected}")


def read_config(path: str) -> Any:
    """Read the model's configuration. Raises UserError if it cannot be read or needs remote code."""
    from transformers import AutoConfig

    check_name(path)
    if not Path(path).exists():
        _require_hub(path)
    with _failures_explained(path, "config.json"):
        return AutoConfig.from_pretrained(path, trust_remote_code=False)


def _require_hub(name: str) -> None:
    """Without a connection to the hub, use its cache alone: else each file of a model is asked for six times.

    Raises: UserError if the cache does not have the model either.
    """
    from huggingface_hub import constants, try_to_load_from_cache

    if not (problem := hub_problem(constants.ENDPOINT)):
        return
    if not isinstance(try_to_load_from_cache(name, "config.json"), str):
        absent = f"no such directory and not in the hub's cache, and {constants.ENDPOINT} cannot be reached ({problem})"
        raise UserError(f"{name}: {absent}; use a model's directory, or connect to the hub")
    constants.HF_HUB_OFFLINE = True


def ask_hub(endpoint: str) -> str | None:
    """Why the hub does not answer within a few seconds; None if it does."""
    from huggingface_hub import constants, get_session

    if constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is set"
    try:
        get_session().head(endpoint, timeout=HUB_TIMEOUT_S)
    except Exception as error:  # of the transport, a proxy or a certificate
        return short(f"{type(error).__name__}: {error}")
    return None


hub_problem = cache(ask_hub)  # for the files of models, which are asked for several times


def read_tokenizer(path: str) -> Any:
    """Read the model's tokenizer. Raises UserError if there is none."""
    from transformers import AutoTokenizer

    with _failures_explained(path, "tokenizer"):
        tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=False)
    if not tokenizer.encode("1 + 1", add_special_tokens=False):  # of the empty one that transformers makes
        raise UserError(f"{path}: no tokenizer; expected tokenizer.json in the model's directory")
    return tokenizer


def load_model(path: str, **options) -> Any:
    """Load the causal language model at `path`; `options` are passed to `from_pretrained`.

    Raises: UserError for files that cannot be read, and for tensors that are missing, that have another shape than in
        config.json, or that belong to layers which config.json does not build. A head that is tied to the embedding
        may be missing; a vision tower and further heads may be there.
    """
    from transformers import AutoModelForCausalLM

    with _failures_explained(path, "weights"):
        model, loading = AutoModelForCausalLM.from_pretrained(
            path,
            use_safetensors=True,
            trust_remote_code=False,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # reported below with their names
            **options,
        )
    mismatched = [f"{name}: got {list(got)}, expected {list(shape)}" for name, got, shape in loading["mismatched_keys"]]
    own_config = "use the config.json of these weights"
    for problem, tensors, remedy in (
        ("are missing in the weight files", loading["missing_keys"], "save or download the model again"),
        ("do not have the shape of config.json", mismatched, own_config),
        ("of the weight files are not in the model of config.json", _unused(model, loading), own_config),
    ):
        if tensors:
            listed = ", ".join(sorted(tensors)[:MAX_LISTED]) + ", …" * (len(tensors) > MAX_LISTED)
            raise UserError(f"{path}: {len(tensors)} tensors {problem} ({listed}); {remedy}")
    for module in model.modules():  # transformers limits Nemotron-H's time steps otherwise, in whole passes alone
        if hasattr(module, "time_step_limit"):
            module.time_step_limit = model.config.time_step_limit
    return model


def _unused(model: Any, loading: dict[str, Any]) -> list[str]:
    """The unexpected tensors of the model's own modules, and of layers in the same list as the model's."""

    def place(name: str) -> str:
        layers = re.match(r"(.*?\.)\d+\.", name)
        return layers[1] if layers else name.rpartition(".")[0]

    places = {place(name) for name in model.state_dict()}
    unexpected = loading["unexpected_keys"]
    return [name for name in unexpected if place(name) in places and not OLD_BUFFERS.search(name)]


# transformers fuses some tensors on loading, such as the experts of a layer; engines expect the tensors of the files.
def as_saved(path: str, weights: Iterator[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Convert weights of the loaded model at `path` to the names and shapes of its files."""
    from transformers.core_model_loading import revert_weight_conversion

    for name, tensor in weights:
        for saved_name, part in revert_weight_conversion(meta_model(path), {name: tensor}).items():
            yield saved_name, tensor if part is tensor else part.clone()  # parts of one tensor would share its memory


@cache
def meta_model(path: str) -> Any:
    """The model without memory for its weights."""
    with not_sharded():
        return load_model(path, device_map="meta")


def attention_only(lm: Any) -> bool:
    """Whether no layer of a transformers model is recurrent or a convolution."""
    layers = set(getattr(lm.config, "layer_types", None) or ())
    return layers <= {"full_attention", "sliding_attention"} and not lm._is_stateful


@contextmanager
def not_sharded() -> Iterator[None]:
    """Load complete models on every rank: under ZeRO-3 transformers shards every model that it loads."""
    from transformers.integrations import deepspeed

    deepspeed_config = deepspeed._hf_deepspeed_config_weak_ref
    deepspeed.unset_hf_deepspeed_config()
    try:
        yield
    finally:
        deepspeed._hf_deepspeed_config_weak_ref = deepspeed_config


def _require_finite(path: str) -> None:
    """Read every tensor of the weight files once. Raises UserError for NaN and infinity."""
    from safetensors import safe_open

    for file in weight_files(path):
        with safe_open(file, framework="pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118 (safe_open is not a dictionary)
                tensor = tensors.get_tensor(name)
                if not tensor.is_floating_point() or tensor.element_size() < 2 or not tensor.numel():
                    continue
                low, high = tensor.aminmax()  # both are NaN if any element is
                if not (low.isfinite() and high.isfinite()):
                    raise UserError(f"{path}: tensor {name} in {file.name} has non-finite values; use other weights")


def weight_files(path: str) -> list[Path]:
    """The safetensors files that transformers loads, from the directory or the hub's cache."""
    from transformers.utils import cached_file

    folder = Path(cached_file(path, "config.json")).parent
    index = folder / "model.safetensors.index.json"
    if (folder / "model.safetensors").exists() or not index.exists():
        return [folder / "model.safetensors"]
    return [folder / name for name in sorted(set(json.loads(index.read_text())["weight_map"].values()))]


@contextmanager
def _failures_explained(path: str, part: str) -> Iterator[None]:
    """Turn every exception into a UserError with the path, the part of the model and the first line of the reason."""
    from safetensors import SafetensorError

    try:
        yield
    except Exception as error:  # for malformed files transformers raises any type, also KeyError and ZeroDivisionError
        # vLLM runs such a model with the classes of transformers, which it patches in the process
        if "vLLM config" in str(error):
            problem = "the actor cannot load this architecture in one process with vLLM"
            raise UserError(f"{path}: {problem}; use rollout.engine: transformers") from error
        first, second, *_ = (*str(error).strip().splitlines(), "", "")
        reason = " ".join([first, *second.split()] if first.endswith(":") else [first]).rstrip(".")
        if not isinstance(error, OSError | ValueError | ImportError | RuntimeError | SafetensorError):
            reason = f"{type(error).__name__}: {reason}"
        raise UserError(f"{path}: cannot load the model's {part} ({reason})") from error


def stop_token_ids(model_path: str) -> list[int]:
    """The end tokens of generation_config.json, or else of config.json, and the tokenizer's if they lack it.

    Raises: UserError if there is none.
    """
    from transformers import AutoConfig, GenerationConfig

    eos = None
    with suppress(OSError):
        eos = GenerationConfig.from_pretrained(model_path).eos_token_id
    if eos is None:
        eos = AutoConfig.from_pretrained(model_path, trust_remote_code=False).eos_token_id
    listed = eos if isinstance(eos, list) else [eos]
    with suppress(UserError):  # load_pretrained refuses a model without a tokenizer
        listed = [*listed, read_tokenizer(model_path).eos_token_id]
    ends = [token for token in dict.fromkeys(listed) if token is not None]
    if not ends:
        raise UserError(f"{model_path}: no eos_token_id; add it to generation_config.json, config.json or tokenizer")
    return ends


def load_pretrained(path: str, max_tokens: int, check: bool = True) -> tuple[Any, int]:
    """Check the model at `path`, in no more memory than one tensor takes, and load its tokenizer.

    Without `check` its weights are not read. Engines would load incomplete or damaged models without an error.

    Returns: the tokenizer; the prompt budget, which is the longest prompt in tokens for responses of `max_tokens`.
    Raises: UserError as load_model, for non-finite weights, for an end-of-sequence token or a tokenizer that exceeds
        the vocabulary, and if `max_tokens` leaves nothing for a prompt.
    """
    config, tokenizer = read_config(path), read_tokenizer(path)
    window, vocabulary = (getattr(config, name, None) for name in ("max_position_embeddings", "vocab_size"))
    if window is None or vocabulary is None:
        raise UserError(f"{path}: config.json: expected max_position_embeddings and vocab_size")
    budget = prompt_budget(path, window, max_tokens)
    tokenizer.embedding_rows = vocabulary  # for prompts: added tokens may be beyond it
    if check:
        if (size := tokenizer.vocab_size) > vocabulary:
            raise UserError(f"{path}: got a tokenizer of {size} tokens, expected at most vocab_size = {vocabulary}")
        if outside := [token for token in stop_token_ids(path) if not 0 <= token < vocabulary]:
            raise UserError(f"{path}: eos_token_id: got {outside[0]}, expected less than vocab_size = {vocabulary}")
        with not_sharded():
            load_model(path, device_map="meta")
        _require_finite(path)
    return tokenizer, budget


def prompt_budget(name: str, window: int, max_tokens: int) -> int:
    """The longest prompt for a model of `window` positions. Raises UserError if responses leave nothing for it."""
    if max_tokens >= window:
        problem = f"got responses of up to {max_tokens} tokens, expected less than the model's {window} positions"
        raise UserError(f"{name}: {problem}; lower rollout.max_completion_length (eval.py: --max-tokens)")
    return window - max_tokens
