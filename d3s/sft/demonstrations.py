"""Demonstrations of files, the hub and the synthetic tasks: read, rendered and tokenized."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from d3s.common import UserError
from d3s.config.sft import SftConfig
from d3s.data.problems import Problem, is_hub_name, read_field
from d3s.data.prompts import encode_prompts
from d3s.data.rows import FILE_SUFFIXES, Row, file_rows, hub_rows, is_data_file
from d3s.data.synthetic import TASKS
from d3s.sft.loop import Sample

SYNTHETIC_SIZE = 32_768  # default number of demonstrations of a synthetic task


def read_demonstrations(options: SftConfig, seed: int) -> list[tuple[str, str]]:
    """Read the pairs (prompt, response) of sft.path. `seed` is that of a synthetic task.

    Raises: UserError with file and line for anything that is not a prompt with a response.
    """
    source = options.path
    if source.startswith("synthetic:"):
        task = source.removeprefix("synthetic:")
        if task not in TASKS:
            names = ", ".join(f"synthetic:{name}" for name in TASKS)
            raise UserError(f"sft.path: got {source!r}, expected one of {names}, a data file or a hub data set")
        return TASKS[task].demonstrations(options.limit or SYNTHETIC_SIZE, seed)
    pairs = []
    for location, row in _rows(options):
        pairs.append(tuple(_text(row, name, location) for name in (options.prompt_field, options.response_field)))
        if len(pairs) == options.limit:
            break
    if not pairs:
        raise UserError(f"{source}: no demonstrations found; expected at least one row")
    return pairs


def _rows(options: SftConfig) -> Iterator[Row]:
    if is_data_file(options.path):
        return file_rows(Path(options.path))
    if is_hub_name(options.path):
        return hub_rows(options.path, options.split, "a local file")
    raise UserError(
        f"sft.path: got {options.path!r}, expected a file ({', '.join(FILE_SUFFIXES)}), a hub name org/name, or "
        + " or ".join(f"synthetic:{task}" for task in TASKS)
    )


def _text(row: dict[str, Any], name: str, location: str) -> str:
    value = read_field(row, name, location)
    if not isinstance(value, str) or not value.strip():
        raise UserError(f"{location}: field {name!r}: got {value!r:.60}, expected text")
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise UserError(f"{location}: field {name!r}: got half of a surrogate pair, expected Unicode text")
    return value


def encode_demonstrations(
    pairs: list[tuple[str, str]], options: SftConfig, tokenizer: Any, end: int, longest: int
) -> tuple[list[Sample], int]:
    """Render and tokenize the demonstrations, and end each response with the token `end`.

    Args:
        longest: tokens that a prompt with its response may have.

    Returns: the samples, and the number of those that were too long and dropped (sft.overlong: drop).
    Raises: UserError for a demonstration that is too long, or if none remains.
    """
    problems = [Problem(f"demonstration {i}", prompt, "", options.path) for i, (prompt, _) in enumerate(pairs, start=1)]
    prompts = encode_prompts(problems, options.template, tokenizer, max_prompt_length=10**9)
    samples = []
    for number, (prompt, (_, response)) in enumerate(zip(prompts.ids, pairs, strict=True), start=1):
        ids = [*tokenizer(response, add_special_tokens=False)["input_ids"], end]
        if len(prompt) + len(ids) <= longest:
            samples.append((prompt, ids))
        elif options.overlong == "error":
            raise UserError(
                f"{options.path}: demonstration {number}: got {len(prompt) + len(ids)} tokens, expected at most "
                f"{longest}; raise sft.max_length if the model allows it, or set sft.overlong: drop"
            )
    if not samples:
        raise UserError(f"{options.path}: all {len(pairs)} demonstrations are longer than {longest} tokens")
    return samples, len(pairs) - len(samples)
