r"""Prompt templates: from a problem to the exact text, and the tokens, that the model continues.

A template is one of TEMPLATES, `chat` (the tokenizer's own chat template), the path of a text file that contains
`{problem}`, or `auto`, see resolve_template. With `chat`, a system turn and values for the template's variables can be
given (ChatOptions).
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from d3s.common import UserError, printable, suggestion
from d3s.data.conversations import Turn
from d3s.data.problems import Problem

INSTRUCTION = r"Please reason step by step, and put your final answer within \boxed{}."
TEMPLATES = {
    "plain": "{problem}",
    "base": f"Question: {{problem}}\n{INSTRUCTION}\nAnswer:",
    # Qwen2.5-Math's own evaluation prompt, with the instruction in the system turn
    "qwen-math": (
        f"<|im_start|>system\n{INSTRUCTION}<|im_end|>\n<|im_start|>user\n{{problem}}<|im_end|>\n<|im_start|>assistant\n"
    ),
    # DeepSeek-R1-Zero (arXiv 2501.12948, table 1); the request for a box, which the verifier looks for, is added
    "r1": (
        "A conversation between User and Assistant. The user asks a question, and the Assistant solves it. The "
        "assistant first thinks about the reasoning process in the mind and then provides the user with the answer. "
        "The reasoning process and answer are enclosed within <think> </think> and <answer> </answer> tags, "
        "respectively, i.e., <think> reasoning process here </think> <answer> answer here </answer>. "
        r"User: {problem} Put the final answer within \boxed{} inside the answer tags. Assistant: <think>"
    ),
}

# Variables of a chat template that transformers sets itself.
SET_BY_TRANSFORMERS = {
    "messages", "tools", "documents", "add_generation_prompt", "raise_exception", "strftime_now",
}  # fmt: skip
GENERATION_TAG = re.compile(r"\{%[-+]?\s*(end)?generation\s*[-+]?%\}")  # transformers' own addition to Jinja


@dataclass(frozen=True)
class ChatOptions:
    """For template `chat`: the system turn before the problem, and values for variables of the tokenizer's template.

    Example: ChatOptions("Answer in French.", {"enable_thinking": False})
    """

    system_prompt: str | None = None  # None: no system turn; some templates then write one of their own
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class EncodedPrompts:
    """Problems with the text and the token ids of their prompts, in the order given; `dropped` counts overlong ones.

    Example: EncodedPrompts([Problem("p0", "1+1=", "2", "sums")], ["1+1="], [[16, 10, 16, 28]], 0)
    """

    problems: list[Problem]
    texts: list[str]
    ids: list[list[int]]
    dropped: int


def resolve_template(template: str, tokenizer: Any) -> str:
    """What `auto` stands for: `chat` with a template for it, `plain` for the built-in models, else `base`."""
    if template != "auto":
        return template
    if getattr(tokenizer, "chat_template", None):
        return "chat"
    special = set(tokenizer.all_special_tokens)
    single_bytes = all(len(token) == 1 for token in tokenizer.get_vocab() if token not in special)
    return "plain" if single_bytes else "base"  # the built-in models have read problems alone


def render_prompt(problem: str | Sequence[Turn], template: str, tokenizer: Any, chat: ChatOptions | None = None) -> str:
    """Render the exact text that the model is given for a problem, or for a conversation, to which nothing is added.

    The system turn of a conversation takes the place of the option.

    Raises: UserError for an unknown template, a file without `{problem}`, and for `chat` with a tokenizer whose chat
        template is missing, fails, or does not write the system prompt.
    """
    template, chat = resolve_template(template, tokenizer), chat or ChatOptions()
    is_text = isinstance(problem, str)
    if template != "chat":
        remedy = "use chat with a tokenizer that has a chat template"
        if not is_text:
            raise UserError(f"template {template!r}: cannot write a conversation; {remedy}, or set data.problem_field")
        if chat != ChatOptions():
            raise UserError(f"template {template!r}: takes no system_prompt and no chat_template_kwargs; {remedy}")
        # replace, not format: problems and instructions are full of braces
        return (TEMPLATES.get(template) or _read_template(template)).replace("{problem}", problem)
    turns = [{"role": "user", "content": f"{problem}\n{INSTRUCTION}"}] if is_text else problem
    if chat.system_prompt is not None and turns[0]["role"] != "system":
        turns = [{"role": "system", "content": chat.system_prompt}, *turns]
    text = render_turns(turns, tokenizer, chat.arguments)
    # Templates drop thoughts from turns of the assistant; of a problem without turns encode_prompts checks the text.
    for number, turn in enumerate(turns[:-1] if is_text else turns, 1):
        if turn["role"] != "assistant" and turn["content"].strip() not in text:
            absent = "system_prompt" if is_text else f"turn {number} ({turn['role']})"
            raise UserError(f"{absent}: the tokenizer's chat template does not write it; remove it")
    return text


def render_turns(turns: Sequence[Mapping[str, str]], tokenizer: Any, arguments: Mapping[str, Any] | None = None) -> str:
    """Render a conversation, turns {role, content}, up to the model's next turn, by the tokenizer's chat template.

    Raises: UserError if the template is missing or fails.
    """
    if not getattr(tokenizer, "chat_template", None):
        raise UserError(f"template 'chat': the tokenizer has no chat template; use one of {', '.join(TEMPLATES)}")
    try:
        return tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True, **(arguments or {}))
    except Exception as error:  # a chat template is a program that can raise anything
        reason = printable(f"{type(error).__name__}: {error}".splitlines()[0])[:200]
        raise UserError(f"template 'chat': the tokenizer's chat template fails ({reason})") from error


def _check_variables(names: Iterable[str], tokenizer: Any) -> None:
    """Refuse names that the chat template does not read: transformers would ignore them without a word."""
    from jinja2 import Environment, meta

    try:
        source = GENERATION_TAG.sub("", tokenizer.get_chat_template())
        variables = meta.find_undeclared_variables(Environment(extensions=["jinja2.ext.loopcontrols"]).parse(source))
    except Exception:  # rendering says what is wrong with the template
        return
    known = sorted(variables - SET_BY_TRANSFORMERS)
    for name in names:
        if name not in known:
            expected = f"{suggestion(name, known)}; its variables are {', '.join(known) or 'none'}"
            raise UserError(f"chat_template_kwargs: the tokenizer's chat template has no variable {name!r}{expected}")


@lru_cache(maxsize=4)
def _read_template(path: str) -> str:
    if not Path(path).is_file():
        names = [*TEMPLATES, "chat", "auto"]
        expected = f"one of {', '.join(names)}, or a text file that contains {{problem}}"
        raise UserError(f"template {path!r}: no such template or file{suggestion(path, names)}; expected {expected}")
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"template {path}: cannot be read as UTF-8 text ({error})") from error
    if "{problem}" not in text:
        raise UserError(f"template {path}: got no placeholder {{problem}}, expected it where the problem goes")
    return text


def _appended(tokenizer: Any) -> int:
    """How many tokens, such as an end, the tokenizer puts after a text: a prompt goes on, so it has none of them."""
    bare, full = (tokenizer("1", add_special_tokens=special)["input_ids"] for special in (False, True))
    places = [i for i in range(len(full)) if full[i : i + len(bare)] == bare]
    return len(full) - len(bare) - places[-1] if places else 0


def require_embedded(ids: Sequence[int], tokenizer: Any, where: str) -> None:
    """Raise UserError for a token that the model has no embedding of, such as an added one without resizing."""
    rows = getattr(tokenizer, "embedding_rows", None)  # set by load_pretrained
    if rows and (outside := max(ids, default=0)) >= rows:
        token = f"{outside} ({tokenizer.convert_ids_to_tokens(outside)!r})"
        problem = f"got token {token}, expected less than the model's vocab_size = {rows}"
        raise UserError(f"{where}: {problem}; use the model's own tokenizer, or resize its embedding")


def encode_prompts(
    problems: Sequence[Problem],
    template: str,
    tokenizer: Any,
    max_prompt_length: int,
    overlong: Literal["error", "drop"] = "error",
    chat: ChatOptions | None = None,
) -> EncodedPrompts:
    """Render and tokenize the prompts. One of more than `max_prompt_length` tokens is an error, or dropped and counted.

    Raises: UserError for a prompt without tokens, for a token beyond the model's embedding, for a template that ignores
        the problem or an argument of `chat`, for the first overlong prompt (overlong="error"), or if none remains
        (overlong="drop").
    """
    template = resolve_template(template, tokenizer)
    if chat and chat.arguments and template == "chat":
        _check_variables(chat.arguments, tokenizer)
    kept, texts, ids = [], [], []
    # A template that begins with the beginning-of-sequence token must not get a second one from the tokenizer.
    bos_token, appended = getattr(tokenizer, "bos_token", None), _appended(tokenizer)
    for problem in problems:
        place = f"problem {problem.id!r} ({problem.source})"
        try:
            text = render_prompt(problem.turns or problem.problem, template, tokenizer, chat)
        except UserError as error:  # which depends on the conversation
            raise UserError(f"{place}: {error}") if problem.turns else error from None
        add_special_tokens = template != "chat" and not (bos_token and text.startswith(bos_token))
        tokens = tokenizer(text, add_special_tokens=add_special_tokens)["input_ids"]
        if add_special_tokens and appended:
            tokens = tokens[:-appended]
        require_embedded(tokens, tokenizer, place)
        if not tokens:
            raise UserError(f"template {template!r}: the prompt of problem {problem.id!r} has no tokens")
        if len(tokens) <= max_prompt_length:
            kept.append(problem)
            texts.append(text)
            ids.append(tokens)
        elif overlong == "error":
            size = f"got a prompt of {len(tokens)} tokens, expected at most {max_prompt_length}"
            remedy = "drop overlong prompts (data.overlong_prompts: drop; eval.py: --overlong-prompts drop)"
            raise UserError(f"{place}: {size}; raise the limit or {remedy}")
    if len(set(texts)) == 1 < len({problem.problem for problem in kept}):  # a chat template without the user's turn
        same = f"every problem gets the same prompt, {printable(texts[0])[:60]!r}"
        raise UserError(f"template {template!r}: {same}; use a template that contains the problem")
    if not kept:
        longer = f"all {len(problems)} prompts are longer than {max_prompt_length} tokens"
        raise UserError(f"template {template!r}: {longer}; raise data.max_prompt_length, or lower the response length")
    return EncodedPrompts(kept, texts, ids, len(problems) - len(kept))
