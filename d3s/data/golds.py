r"""Gold answers: the final answer in a field of a data set, and whether the verifier can read it.

read_gold(["7"])  read_gold({"ground_truth": 7})  read_gold("so\n#### 7")  -> "7", whatever scores the responses
final_answer(r"... Hence \boxed{7}.")  final_answer("<answer>7</answer>")  final_answer('["7"]')  -> "7"
"""

import ast
import json
import math
import re
from decimal import Decimal
from functools import lru_cache
from typing import Any

from d3s.verifier.equivalence import equivalent
from d3s.verifier.extraction import extract, find_boxes

KEYS = ("ground_truth", "final_answer", "answer", "gold", "gold_answer", "label", "solution", "value")
LEVELS = 6  # of wrappers around an answer, such as a box in a tag in a list
LONGEST_SENTENCE, MOST_WORDS = 8, 30  # words of an answer that goes on after a sentence's end, and of any answer
_TAG = re.compile(
    r"(?:<answer>|\[ANSWER\])((?:[^<\[]|<(?!/?answer>)|\[(?!/?ANSWER))*+)(?:</answer>|\[/ANSWER\])", re.IGNORECASE
)
_HOPE = re.compile(r"(?<!\s)\s*+I hope (?:it|this) is correct\.?\s*+\Z")  # as the solutions of Minerva end
_CONTAINER = re.compile(r"""[\[{]\s*+(?:\{\s*+)?["']""")  # `[1, 2]`, `{1, 2}` and `{{1, 2}, {3}}` are answers
# In JSON, after `\\\\` is removed: what `\frac`, `\theta`, `\neq` become that nobody has escaped.
_MISREAD = re.compile(r"\\[bfrt]|\\u00[01]|\\n(?:eq?|u|abla|ot|mid)(?![a-z])")
_ASSIGNMENT = re.compile(r"[\s$,]*+[A-Za-z](?:_[0-9A-Za-z])?\s*=[^=]*")
_COMMAND = re.compile(r"\\[A-Za-z]+")
_WORD = re.compile(r"[^\W\d_]{2,}")
_SENTENCE_END = re.compile(r"[.!?]\s++[^\W\d_a-z]|\n")


def read_gold(value: Any) -> str:
    """The final answer in a gold field, "" if there is none.

    Text is taken as it is, except that of a GSM8K solution only what follows the last `####` is taken, without
    thousands commas; numbers as Python writes them, decimals without trailing zeros; the answers of an OlympiadBench
    list joined by commas, without dollar signs; of an object the field of KEYS, or its only one.
    """
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        return ", ".join(item.replace("$", "").strip() for item in value)
    if isinstance(value, list) and len(value) == 1:
        return read_gold(value[0])
    if isinstance(value, dict):
        named = [value[key] for key in KEYS if key in value] or list(value.values())
        return read_gold(named[0]) if len(named) == 1 else ""
    if isinstance(value, Decimal) and value.is_finite():
        return format(value.normalize(), "f")
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value) if math.isfinite(value) else ""
    if not isinstance(value, str):
        return ""
    _, marker, final = value.rpartition("####")
    return re.sub(r"(?<=\d),(?=\d{3})", "", final).strip() if marker else value.strip()


@lru_cache(maxsize=2**16)
def final_answer(gold: str) -> str:
    """The final answer in the text of a gold: in a tag, in a list or an object, or in the last box of a solution."""
    for _ in range(LEVELS):
        before = gold
        if tagged := _TAG.findall(gold):
            gold = tagged[-1].strip()
        gold = _HOPE.sub("", gold)
        gold = read_gold(_parse(gold) if _CONTAINER.match(gold) else gold) or gold
        if boxes := find_boxes(gold):
            stated = extract(gold) or ()
            gold = (" or ".join(reversed(stated)) or boxes[-1][2] or "").strip()
        if gold == before:
            break
    return gold


@lru_cache(maxsize=2**16)
def gold_problem(gold: str) -> str:
    """Why a response cannot be compared with this final answer, "" if it can."""
    words = len(_WORD.findall(_COMMAND.sub(" ", gold)))
    if words > MOST_WORDS or (words > LONGEST_SENTENCE and _SENTENCE_END.search(gold)):
        return "a whole text without a box"
    equations = [line for line in re.split(r"\n|\$\$", gold) if "=" in line and "\\begin" not in gold]
    if len(equations) > 1 and not all(map(_ASSIGNMENT.fullmatch, equations)):
        return "several lines of a solution without a box"
    if _CONTAINER.match(gold):
        return "without one of the fields " + ", ".join(KEYS)
    if extract(f"\\boxed{{{gold}}}") != (gold,):
        return "cannot be written in a box"
    return "" if equivalent(gold, gold) else "does not equal itself"


def _parse(text: str) -> Any:
    """The list or object that a text is, as JSON or Python writes it; None for another text."""
    for candidate in (text, text.replace("\\", "\\\\")):  # of `["\frac12"]`, which nobody has escaped
        for parse in (json.loads, ast.literal_eval):
            try:
                value = parse(candidate)
            except (ValueError, SyntaxError, RecursionError, MemoryError):
                continue
            if not _MISREAD.search(json.dumps(value, default=str, skipkeys=True).replace("\\\\", "")):
                return value
    return None
