"""The text of a response: decoded with the marks of its thoughts, and what it says after them."""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

Decode = Callable[[Sequence[int]], str]

THOUGHTS = {  # opening mark -> closing mark, as models of today write them
    "<think>": "</think>",  # DeepSeek-R1, Qwen3, GLM, Phi-4-reasoning, OLMo 3
    "<thinking>": "</thinking>",
    "<thought>": "</thought>",  # EXAONE Deep
    "[THINK]": "[/THINK]",  # Magistral
    "<seed:think>": "</seed:think>",  # Seed-OSS
    "<|begin_of_thought|>": "<|end_of_thought|>",  # Sky-T1
    "<|START_THINKING|>": "<|END_THINKING|>",  # Command A
    "<|inner_prefix|>": "<|inner_suffix|>",  # Apertus
    "<longcat_think>": "</longcat_think>",
    "<mm:think>": "</mm:think>",  # MiniMax
    "<reasoning>": "</reasoning>",  # this and the next four are asked for in prompts
    "<reflection>": "</reflection>",
    "<scratchpad>": "</scratchpad>",
    "<analysis>": "</analysis>",
    "<start_working_out>": "<end_working_out>",
    "◁think▷": "◁/think▷",  # Kimi
    "<|channel>thought": "<channel|>",  # Gemma 4
    "<|channel|>analysis": "<|channel|>final",  # gpt-oss
    "<|channel|>commentary": "<|channel|>final",
}
_MARKS = [re.escape(mark) for mark in {**THOUGHTS, **dict.fromkeys(THOUGHTS.values())}]
_MARK = re.compile("|".join(_MARKS))
# most texts can have no other marks, and those that begin alike are found ten times as fast
_ANGLED = re.compile(f"<(?:{'|'.join(mark[1:] for mark in _MARKS if mark[0] == '<')})")
_OPENED = re.compile(rf"(?:{'|'.join(map(re.escape, THOUGHTS))})(?:<\|message\|>)?\s*\Z")


def opening_mark(prompt: str) -> str:
    """The mark, with the space after it, by which a prompt ends inside a thought; "" if it does not.

    A response is read with it in front: the same text, whoever opened the thought.
    """
    opened = _OPENED.search(prompt, max(0, len(prompt) - 100))
    return opened.group() if opened else ""


def after_thoughts(response: str) -> str | None:
    """What a response says after its last thought; None if it ends inside a thought.

    Only the mark that belongs to it closes a thought. A closing mark alone closes one that something else has opened.
    """
    closing, start = None, 0
    pattern = _MARK if "◁" in response or "THINK]" in response else _ANGLED
    for match in pattern.finditer(response):
        mark = match.group()
        if closing is None and mark in THOUGHTS:
            closing = THOUGHTS[mark]
        elif closing is None or mark == closing:
            closing, start = None, match.end()
    return None if closing else response[start:]


def text_decoder(tokenizer: Any, ends: Iterable[int]) -> Decode:
    """From token ids to the text that rewards see: special tokens stay, such as the marks of thoughts, ends do not.

    Args:
        ends: tokens that end a response. Those by which the tokenizer ends and pads sequences are left out too.
    """
    hidden = {*ends, getattr(tokenizer, "eos_token_id", None), getattr(tokenizer, "pad_token_id", None)}
    return partial(_decode, tokenizer, hidden)


def _decode(tokenizer: Any, hidden: set[int | None], ids: Sequence[int]) -> str:
    # an array: of a list transformers checks every element
    return tokenizer.decode(np.asarray([i for i in ids if i not in hidden], int), skip_special_tokens=False)
