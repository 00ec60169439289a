"""What a plan finds on this machine: the processes, the model's sizes, its tokenizer, and the data that is here."""

import json
import os
from pathlib import Path

from d3s.common import UserError
from d3s.config.schema import Config
from d3s.data.dataset import encode_problems, read_problems
from d3s.data.problems import is_hub_name, name_sources
from d3s.plan.memory import ModelShape, Placement, evaluations
from d3s.pretrained import check_name, prompt_budget, read_tokenizer
from d3s.tiny import parse_name

SHIPPED = {  # of the models in configs/, for machines that have not downloaded them
    "Qwen/Qwen2.5-Math-1.5B": ModelShape(1536, 28, 12, 2, 128, 8960, 151_936, tied=True, qkv_bias=True),
    "Qwen/Qwen2.5-Math-7B": ModelShape(3584, 28, 28, 4, 128, 18_944, 152_064, qkv_bias=True),
    "meta-llama/Llama-3.1-8B-Instruct": ModelShape(4096, 32, 32, 8, 128, 14_336, 128_256),
}


def launched() -> Placement:
    """The processes that accelerate has launched, or one."""
    env = os.environ
    zero3 = env.get("ACCELERATE_USE_DEEPSPEED") == "true" and env.get("ACCELERATE_DEEPSPEED_ZERO_STAGE") == "3"
    return Placement(
        int(env.get("WORLD_SIZE", "1")),
        zero3,
        zero3 and env.get("ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE", "none") != "none",
        zero3 and env.get("ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE", "none") != "none",
    )


def check_model(name: str) -> str:
    """A note on a model, by its name alone: empty, or that the hub was not asked for it.

    Raises: UserError for a directory that is none or holds no model, and for what can be no name.
    """
    if parse_name(name):
        return ""
    check_name(name)
    if (Path(name) / "config.json").is_file():
        return ""
    if cached_file(name, "config.json"):
        return ""
    return "not on this machine: the run will ask the hub for it"


def cached_file(name: str, file: str) -> Path | None:
    """A file of a hub model in the hub's cache on this machine."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        cached = try_to_load_from_cache(name, file)
    except HFValidationError:  # not a hub name
        return None
    return Path(cached) if isinstance(cached, str) else None


def find_shape(name: str) -> ModelShape | None:
    """A model's sizes from its own config.json, here or in the hub's cache, or from the table of shipped models."""
    if name.startswith("tiny:"):
        from d3s.tiny import MODEL, byte_tokenizer

        return ModelShape.of({"model_type": "qwen2", "vocab_size": len(byte_tokenizer()), **MODEL})
    path = Path(name) / "config.json"
    if not path.is_file():
        path = cached_file(name, "config.json")
    if path is None:
        return SHIPPED.get(name)
    try:
        return ModelShape.of(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ZeroDivisionError) as error:
        raise UserError(f"{path}: cannot be read as a model's config.json ({type(error).__name__}: {error})") from error


def prompt_room(config: Config) -> int:
    """The longest prompt in tokens: by data.max_prompt_length, and by the model's positions where they are known here.

    Raises: UserError if the longest response leaves none.
    """
    name, longest = config.model.name, config.rollout.max_completion_length
    if name.startswith("tiny:"):
        from d3s.tiny import MODEL as content
    else:
        file = Path(name) / "config.json"
        path = file if file.is_file() else cached_file(name, "config.json")
        content = json.loads(path.read_text(encoding="utf-8")) if path else {}
    window = content.get("max_position_embeddings")
    if not isinstance(window, int):
        return config.data.max_prompt_length
    return min(config.data.max_prompt_length, prompt_budget(name, window, longest))


def find_tokenizer(name: str):
    """The model's tokenizer if it is on this machine, else None."""
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


def check_data(config: Config) -> tuple[list[tuple[str, str]], int | None]:
    """Reads what is local as the run will; lines for the plan, and the number of training problems if known."""
    data, tests, room = config.data, config.eval.data, prompt_room(config)
    lines, count, known = [], None, {}
    if any(map(is_hub_name, (data.path, *data.decontaminate))):
        lines.append(("data", f"{data.path}, template {data.template}, read when the run starts"))
    else:
        readable = config.eval.model_copy(update={"data": [source for source in tests if not is_hub_name(source)]})
        problems = read_problems(config.model_copy(update={"eval": readable}))
        count, known = len(problems.train), problems.tests
        text = f"{data.path}: {count:,} problems"
        if tokenizer := find_tokenizer(config.model.name):
            prompts, _ = encode_problems(config, problems, tokenizer, room)
            count, longest = len(prompts.problems), max(len(ids) for ids in prompts.ids)
            text += f", prompts of up to {longest} tokens ({room} allowed)"
        else:
            text += "; without the tokenizer prompts are not counted"
        lines.append(("data", "; ".join([text, *problems.notes])))
    if tests:
        listed = ", ".join(
            f"{name} ({len(known[name]):,} problems)" if name in known else name for name in name_sources(tests)
        )
        lines.append(("evaluation", f"{evaluations(config)} times {config.eval.n} samples per problem of {listed}"))
    return lines, count
