"""Advantages that differ between the tokens of a response: rewards of parts of the text, and a user's shaper.

A rule of reward.shaper takes, by name, what it needs of a kept response

    problem, response, answer    the texts
    advantage                    of the response

and returns (start, end, advantage) of the parts that have another one, in characters of the response.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import takewhile
from typing import Any

import torch
from torch import Tensor

from d3s.groups import Span
from d3s.responses import Decode
from d3s.rewards.scored import InvalidValue, about, as_spans
from d3s.rules import Contract


def cached_decode(decode: Decode) -> Decode:
    """A `text_decoder` that remembers short runs of tokens: they recur in most responses."""
    remembered = lru_cache(maxsize=2**16)(decode)
    return lambda ids: (remembered if len(ids) < 8 else decode)(ids)


def token_ends(decode: Decode, ids: Sequence[int], text: str) -> list[int]:
    """For each token, how many characters of `text` are decoded once it is there. The ids are not tokenized again.

    Args:
        text: what `decode` makes of all of them.

    Example: of "aé" as the bytes a, c3, a9 it is [1, 1, 2]: the second token completes no character.
    """
    ends: list[int] = []
    known, left, read = 0, 0, 0  # characters of ids[:read]; a new token is decoded with ids[left:read] before it
    for end in range(1, len(ids) + 1):
        base, piece = decode(tuple(ids[left:read])), decode(tuple(ids[left:end]))
        added = piece.removeprefix(base)
        length = _common_length(added, text, known)
        if not piece.startswith(base) or (length < len(added) and not added.endswith("�")):
            known, left, read = 0, 0, 0  # what a token adds depends on earlier ones: decode them all
            added = decode(tuple(ids[:end]))
            length = _common_length(added, text, 0)
        ends.append(max([known + length, *ends[-1:]]))
        if length and length == len(added):
            known, left, read = known + length, read, end
    return ends


def _common_length(piece: str, text: str, offset: int) -> int:
    """How many first characters of `piece` stand in `text` from `offset` on."""
    pairs = zip(piece, text[offset : offset + len(piece)])
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def covered_tokens(ends: Sequence[int], start: int, end: int) -> slice:
    """The tokens that hold a part of the characters from `start` to before `end`; a slice of at least one token.

    A token without characters of its own belongs to the next character, whose first bytes it holds.
    """
    begins = [0, *ends[:-1]]
    held = [i for i, (b, e) in enumerate(zip(begins, ends)) if b < end and max(e, b + 1) > start]
    return slice(held[0], held[-1] + 1)


# r_t is a span's value on the last token of the span; what the total has beyond the spans is on the last token.
# A_t = (sum_{s >= t} r_s - mean_g R) / std_g = A_i - sum_{s < t} r_s / std_g
def dense_advantages(
    advantage: float, divisor: float, spans: Sequence[Span], ends: Sequence[int], length: int
) -> Tensor:
    """Returns to go of one response, normalized as the rewards of its group are, [length].

    Args:
        advantage: of the response, which is that of its first token.
        divisor: what centered rewards of the group were divided by.
        spans: (start, end, value) in characters.
        ends: of token_ends.
    """
    earned = torch.zeros(length, dtype=torch.float64)
    for start, end, value in spans:
        earned[covered_tokens(ends, start, end).stop :] += value
    return (advantage - earned / divisor).float()


def _problem(result: Any, response: str, **_: Any) -> str | None:
    try:
        as_spans(result, response)
    except InvalidValue as error:
        return f"{error.value}, expected {error.expected}"
    return None


SHAPER_RULES = Contract("reward.shaper", {}, ("problem", "response", "answer", "advantage"), _problem, about)


def token_advantages(
    decode: Decode,
    ids: Sequence[int],
    text: str,
    advantage: float,
    divisor: float,
    spans: Sequence[Span],
    shaped: Sequence[Span],
) -> Tensor:
    """The advantage of every token of a response: its return to go, then that of its span, if it is in one; [length].

    Args:
        divisor: of the centered rewards of its group.
        spans: rewards of parts of the text.
        shaped: advantages of parts of the text, of reward.shaper.
    """
    ends = token_ends(decode, ids, text) if spans or shaped else []
    values = dense_advantages(advantage, divisor, spans, ends, len(ids))
    for start, end, value in shaped:
        values[covered_tokens(ends, start, end)] = value
    return values
