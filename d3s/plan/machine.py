"""Inspect the machine for `--dry-run`: launched processes, device, model shape, tokenizer, data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from rich.markup import escape
from rich.table import Table

from d3s.config.schema import Config
from d3s.data.dataset import encode_problems, read_problems
from d3s.data.order import build_order
from d3s.data.problems import BENCHMARKS, hub_split, is_hub_name, name_sources
from d3s.data.prompts import resolve_template
from d3s.first_look import prompt_lines
from d3s.memory import GB, Placement, evaluations
from d3s.pretrained import check_name, prompt_budget, read_tokenizer, stop_token_ids
from d3s.reference import require_tokens, require_use
from d3s.rules import rule_label
from d3s.shapes import cached_file, find_shape, model_config
from d3s.tiny import byte_tokenizer, parse_name
from d3s.trials import attempt_rewards

ASSUMED_GPU = 80 * GB  # bytes, for half precision on a machine without a GPU


def labeled(rows: Iterable[tuple[str, str]]) -> Table:
    """The rows of a plan, labels in bold."""
    table = Table.grid(padding=(0, 2))
    for label, text in rows:
        table.add_row(f"[bold]{label}[/bold]", escape(text))
    return table


# --- hardware --------------------------------------------------------------------------------------------------------


def engine_device(config: Config) -> tuple[str, int]:
    """Name and memory in bytes of the device that the run is planned for; 0 bytes for a CPU.

    Without a local GPU, half precision is planned for a GPU of ASSUMED_GPU.
    """
    if torch.cuda.is_available():
        return torch.cuda.get_device_name(), torch.cuda.get_device_properties(0).total_memory
    return ("the CPU", 0) if config.model.dtype == "float32" else (f"a GPU of {ASSUMED_GPU // GB} GB", ASSUMED_GPU)


# --- model -----------------------------------------------------------------------------------------------------------


def model_row(config: Config, place: Placement) -> tuple[str, str]:
    """The model and the processes of a plan. Raises UserError as check_model does."""
    note = check_model(config.model.name)
    ranks = f"{place.ranks} process{'es' if place.ranks > 1 else ''}{' under ZeRO-3' if place.zero3 else ''}"
    compiled = ", layers compiled when they first run" * config.model.compile
    return "model", f"{config.model.name} in {config.model.dtype}, {ranks}{compiled}{note and f'; {note}'}"


def reference_rows(config: Config) -> Iterator[tuple[str, str]]:
    """The model of loss.reference in a plan. Raises UserError as check_model, require_use and require_tokens do."""
    require_use(config)
    if name := config.loss.reference:
        note, shape = check_model(name), find_shape(name)
        own, other = find_tokenizer(config.model.name), find_tokenizer(name)
        if own and other:
            require_tokens(config, own, other)
        size = f", {shape.parameters / 1e6:,.2f} M parameters" if shape else ", counted as large as the policy"
        yield "reference", f"{name}{size}{note and f'; {note}'}"


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


def check_lora(config: Config) -> None:
    """Raise UserError if LoRA cannot adapt the model, of which the configuration alone is needed."""
    if not config.lora.rank or not (found := model_config(config.model.name)):
        return
    from transformers import AutoConfig, AutoModelForCausalLM

    from d3s.actor.lora import target_layers

    content = dict(found[1])
    try:
        with torch.device("meta"):
            lm = AutoModelForCausalLM.from_config(AutoConfig.for_model(content.pop("model_type", ""), **content))
    except (ValueError, TypeError):  # an unknown architecture, which the run refuses
        return
    target_layers(lm, config.model.name, config.lora)


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
        return byte_tokenizer()
    if any(Path(name).glob("tokenizer*")):
        return read_tokenizer(name)
    from transformers import AutoTokenizer

    with suppress(OSError, ValueError):
        return AutoTokenizer.from_pretrained(name, local_files_only=True, trust_remote_code=False)
    return None


# --- data ------------------------------------------------------------------------------------------------------------


def check_data(config: Config) -> tuple[list[tuple[str, str]], int | None, int]:
    """Read the local data as the run will.

    Returns: rows of the plan as (label, text); the number of training problems, None where only the hub knows it; the
        tokens of the longest prompt, or their limit.
    Raises: UserError for data that cannot be read and prompts that exceed the limit.
    """
    data, tests, limit = config.data, config.eval.data, prompt_limit(config)
    rows, about, count, longest, sizes = [], [], None, None, {}
    for sources, split in ((data.weights, data.split), (tests, config.eval.split)):
        for source in [source for source in sources if source in BENCHMARKS]:
            hub_split(source, split)
    if any(map(is_hub_name, (*data.weights, *data.decontaminate))):
        rows.append(("data", f"{data.label}, template {data.template}, read when the run starts"))
    else:
        local = [source for source in tests if not is_hub_name(source)]
        problems = read_problems(config.updated(eval={"data": local}))
        attempt_rewards(config, problems)
        count = len(problems.train)
        sizes = {name: len(questions) for name, questions in problems.tests.items()}
        text = f"{data.label}: {count:,} problems"
        if len(data.weights) > 1:
            text += f", asked in proportion {' : '.join(f'{weight:g}' for weight in data.weights.values())}"
        if tokenizer := find_tokenizer(name := config.model.name):
            ends = [tokenizer.eos_token_id] if name.startswith("tiny:") else stop_token_ids(name)
            prompts, _ = encode_problems(config, problems, tokenizer, limit)
            template = resolve_template(data.template, tokenizer)
            reading = ends, config.rollout.stop, config.reward.extraction
            about = prompt_lines(template, prompts.texts[0], tokenizer, *reading)
            build_order(config, prompts.problems).take(count=config.train.prompts_per_step, position=0)
            count, longest = len(prompts.problems), max(map(len, prompts.ids))
            text += f", prompts of up to {longest} tokens (limit {limit})"
        else:
            text += "; prompt lengths are unknown without the tokenizer"
        rows += [("data", "; ".join([text, *problems.notes])), *about]
    if tests:
        names = [f"{name} ({sizes[name]:,} problems)" if name in sizes else name for name in name_sources(tests)]
        text = f"{evaluations(config)} times {config.eval.n} samples per problem of {', '.join(names)}"
        text += f", scored by {rule_label(config.eval.reward)}" if config.eval.reward else ""
        rows.append(("evaluation", text))
    return rows, count, limit if longest is None else longest
