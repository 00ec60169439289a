"""Demonstrations of files, the hub and the synthetic tasks: read, rendered and tokenized."""

from collections.abc import Iterator
from typing import Any

from d3s.common import UserError
from d3s.config.schema import DataConfig
from d3s.data.conversations import MESSAGES, ROLES, Turn, list_turns
from d3s.data.gym import PREFIX
from d3s.data.problems import Problem, source_rows
from d3s.data.prompts import encode_prompts, render_prompt, render_turns, require_embedded
from d3s.data.rows import read_field, require_text
from d3s.data.synthetic import find_task

Prompt = str | list[Turn]  # a problem, or the turns of a conversation
SHOWN_ROLES = (*ROLES, "developer", "tool")  # of turns in prompts
NOT_TRAINED = ("tool_calls", "function_call", "thinking", "reasoning_content")  # keys beside the content of a turn
SYNTHETIC_SIZE = 32_768  # default number of demonstrations of a synthetic task


def read_demonstrations(data: DataConfig, seed: int) -> list[tuple[Prompt, str]]:
    """Read the pairs (prompt, response) of data.path. `seed` is that of a synthetic task.

    Raises: UserError with file and line for anything that is not a prompt with a response.
    """
    source = data.path
    if source.startswith("synthetic:"):
        task = find_task(source.removeprefix("synthetic:"))
        return task.demonstrations(data.limit or SYNTHETIC_SIZE, seed)
    if source.startswith(PREFIX):
        raise UserError(f"data.path: {source} has no demonstrations; name a file, or synthetic:TASK")
    pairs = []
    for location, row in source_rows(source, data.split)[1]:
        if MESSAGES in row and data.problem_field not in row:
            pairs += _assistant_turns(row[MESSAGES], data.template, location)
        else:
            names = data.problem_field, data.answer_field
            pairs.append(tuple(require_text(read_field(row, name, location), name, location) for name in names))
        if data.limit and len(pairs) >= data.limit:
            break
    if not pairs:
        raise UserError(f"{source}: no demonstrations found; expected at least one row")
    return pairs[: data.limit]


def _assistant_turns(messages: Any, template: str, location: str) -> Iterator[tuple[Prompt, str]]:
    """The demonstrations of a conversation: each assistant turn with the turns before it."""
    field = f"{location}: field {MESSAGES!r}"
    if template not in ("chat", "auto"):
        raise UserError(f"{location}: a conversation (field {MESSAGES!r}) requires data.template: chat")
    turns = list_turns(messages, field, SHOWN_ROLES, NOT_TRAINED)
    answers = [i for i, turn in enumerate(turns) if turn["role"] == "assistant"]
    if not answers or answers[0] == 0:
        raise UserError(f"{field}: expected an assistant turn after the first turn")
    for i in answers:
        if messages[i].get("weight") != 0:  # of OpenAI's files: a turn that is shown and not trained
            yield turns[:i], turns[i]["content"]


def encode_demonstrations(
    pairs: list[tuple[Prompt, str]], data: DataConfig, tokenizer: Any, end: int, longest: int
) -> tuple[list[tuple[list[int], list[int]]], int]:
    """Render and tokenize the demonstrations, and end each response with the token `end`.

    Args:
        longest: tokens that a prompt with its response may have.

    Returns: the samples, and the number of those that were too long and dropped (data.overlong_prompts: drop).

    Raises: UserError for a demonstration that is too long, or if none remains.
    """
    samples = []
    prompts = _prompt_ids([prompt for prompt, _ in pairs], data, tokenizer)
    for number, (prompt, (_, response)) in enumerate(zip(prompts, pairs, strict=True), start=1):
        ids = [*tokenizer(response, add_special_tokens=False)["input_ids"], end]
        require_embedded([*prompt, *ids], tokenizer, f"{data.path}: demonstration {number}")
        if len(prompt) + len(ids) <= longest:
            samples.append((prompt, ids))
        elif data.overlong_prompts == "error":
            problem = f"got {len(prompt) + len(ids)} tokens, expected at most {longest}"
            remedy = "raise rollout.max_completion_length or data.max_prompt_length, or set data.overlong_prompts: drop"
            raise UserError(f"{data.path}: demonstration {number}: {problem}; {remedy}")
    if not samples:
        raise UserError(f"{data.path}: all {len(pairs)} demonstrations are longer than {longest} tokens")
    return samples, len(pairs) - len(samples)


def _prompt_ids(prompts: list[Prompt], data: DataConfig, tokenizer: Any) -> list[list[int]]:
    if all(isinstance(prompt, str) for prompt in prompts):
        problems = [Problem(f"demonstration {i}", prompt, "", data.path) for i, prompt in enumerate(prompts, start=1)]
        return encode_prompts(problems, data.template, tokenizer, max_prompt_length=10**9).ids
    texts = (render_prompt(p, "chat", tokenizer) if isinstance(p, str) else render_turns(p, tokenizer) for p in prompts)
    return [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
