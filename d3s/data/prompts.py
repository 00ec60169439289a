r"""Prompt templates: from a problem to the exact text, and the tokens, that the model continues.

A template is one of PRESETS, `chat` (the tokenizer's own chat template), or a text file's path with `{problem}` in it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from d3s.common import UserError, printable
from d3s.data.synthetic import Problem

INSTRUCTION = r"Please reason step by step, and put your final answer within \boxed{}."
PRESETS = {
    "plain": "{problem}",
    "base": f"Question: {{problem}}\n{INSTRUCTION}\nAnswer:",
    # Qwen2.5-Math's own evaluation prompt: its instruction stands in the system turn
    "qwen-math": (
        f"<|im_start|>system\n{INSTRUCTION}<|im_end|>\n<|im_start|>user\n{{problem}}<|im_end|>\n<|im_start|>assistant\n"
    ),
    # DeepSeek-R1-Zero (arXiv 2501.12948, table 1); the box, which the verifier looks for, is asked for by the user
    "r1": (
        "A conversation between User and Assistant. The user asks a question, and the Assistant solves it. The "
        "assistant first thinks about the reasoning process in the mind and then provides the user with the answer. "
        "The reasoning process and answer are enclosed within <think> </think> and <answer> </answer> tags, "
        "respectively, i.e., <think> reasoning process here </think> <answer> answer here </answer>. "
        r"User: {problem} Put the final answer within \boxed{} inside the answer tags. Assistant: <think>"
    ),
}


@dataclass(frozen=True)
class EncodedPrompts:
    """Problems with the text and the token ids of their prompts, in the order given; `dropped` were too long."""

    problems: list[Problem]
    texts: list[str]
    ids: list[list[int]]
    dropped: int


def render_prompt(problem: str, template: str, tokenizer: Any) -> str:
    """The exact text that the model is given for a problem.

    Raises UserError for an unknown template, a file without `{problem}`, and `chat` with a tokenizer that has no chat
    template or one that fails.
    """
    if template == "chat":
        if not getattr(tokenizer, "chat_template", None):
            raise UserError(f"template 'chat': the tokenizer has no chat template; allowed are {_allowed()}")
        turns = [{"role": "user", "content": f"{problem}\n{INSTRUCTION}"}]
        try:
            return tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
        except Exception as error:  # a template is a program: it can raise what it likes
            reason = printable(f"{type(error).__name__}: {error}".splitlines()[0])[:200]
            raise UserError(f"template 'chat': the tokenizer's chat template fails ({reason})") from error
    # replace, not format: problems and instructions are full of braces
    return (PRESETS[template] if template in PRESETS else _read_template(template)).replace("{problem}", problem)


@lru_cache(maxsize=4)
def _read_template(path: str) -> str:
    if not Path(path).is_file():
        close = get_close_matches(path, [*PRESETS, "chat"], 1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise UserError(f"no template {path!r}{hint}; allowed are {_allowed()}, or a text file with {{problem}} in it")
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"template {path}: cannot be read as UTF-8 text ({error})") from error
    if "{problem}" not in text:
        raise UserError(f"template {path}: does not say where the problem goes; expected {{problem}} in it")
    return text


def _allowed() -> str:
    return ", ".join((*PRESETS, "chat"))


def encode_prompts(
    problems: Sequence[Problem],
    template: str,
    tokenizer: Any,
    max_prompt_length: int,
    overlong: Literal["error", "drop"] = "error",
) -> EncodedPrompts:
    """Render and tokenize. A prompt of more than `max_prompt_length` tokens is refused, or dropped and counted.

    Raises UserError for a prompt without tokens, for the first overlong prompt (overlong="error"), or when none is left
    (overlong="drop").
    """
    kept, texts, ids = [], [], []
    # A template that writes the beginning of the sequence itself must not get a second one from the tokenizer.
    beginning = getattr(tokenizer, "bos_token", None)
    for problem in problems:
        text = render_prompt(problem.problem, template, tokenizer)
        special = template != "chat" and not (beginning and text.startswith(beginning))
        tokens = tokenizer(text, add_special_tokens=special)["input_ids"]
        if not tokens:
            raise UserError(f"template {template!r}: the prompt of problem {problem.id!r} has no tokens")
        if len(tokens) <= max_prompt_length:
            kept.append(problem)
            texts.append(text)
            ids.append(tokens)
        elif overlong == "error":
            raise UserError(
                f"the prompt of problem {problem.id!r} ({problem.source}) has {len(tokens)} tokens, at most "
                f"{max_prompt_length} are allowed; raise the limit or drop overlong prompts"
            )
    if len(set(texts)) == 1 < len({problem.problem for problem in kept}):  # a chat template that drops the user's turn
        raise UserError(f"template {template!r}: every problem gets the same prompt, {printable(texts[0])[:60]!r}")
    if not kept:
        raise UserError(f"each of the {len(problems)} prompts is longer than the limit of {max_prompt_length} tokens")
    return EncodedPrompts(kept, texts, ids, len(problems) - len(kept))
