"""Spans and shapers as advantages of tokens, against prefixes decoded one by one, and loops over tokens."""

from itertools import accumulate

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from d3s.common import UserError
from d3s.config.schema import RewardConfig
from d3s.responses import text_decoder
from d3s.rewards.token_advantages import (
    SHAPER_RULES,
    cached_decode,
    covered_tokens,
    dense_advantages,
    token_advantages,
    token_ends,
)
from d3s.tiny import byte_tokenizer
from tests.helpers.selection import advantages_of

TOKENIZER = byte_tokenizer()
HERE = f"{__name__}:"


class PieceTokenizer:
    """Tokens are pieces of text; as with sentencepiece, a space at the beginning of a decoded text is dropped."""

    def __init__(self, pieces: list[str]) -> None:
        self.pieces = pieces

    def decode(self, ids):
        return "".join(self.pieces[i] for i in ids if self.pieces[i] != "<end>").removeprefix(" ")


def shared_beginning(left: str, right: str) -> int:
    return next((i for i, (a, b) in enumerate(zip(left, right)) if a != b), min(len(left), len(right)))


# --- from characters to tokens ----------------------------------------------------------------------------------------


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_ends_of_byte_tokens_follow_the_bytes(text):
    """A character belongs to the token that completes it; the end-of-sequence token adds none."""
    ids = [*TOKENIZER.encode(text), TOKENIZER.eos_token_id]
    expected = [len(text.encode()[: i + 1].decode(errors="ignore")) for i in range(len(text.encode()))]
    assert token_ends(cached_decode(text_decoder(TOKENIZER, ())), ids, text) == [*expected, len(text)]


@given(st.lists(st.sampled_from([" a", "b", " ", "  ", "é", "�", "ab c", "<end>", ""]), max_size=30))
def test_ends_match_prefixes_decoded_one_by_one(pieces):
    tokenizer, ids = PieceTokenizer(pieces), list(range(len(pieces)))
    text = tokenizer.decode(ids)
    expected = [shared_beginning(tokenizer.decode(ids[:i]), text) for i in range(1, len(ids) + 1)]
    assert token_ends(cached_decode(tokenizer.decode), ids, text) == expected


@given(st.data(), st.lists(st.integers(0, 3), min_size=1, max_size=8))
def test_covered_tokens_hold_a_part_of_the_span(data, lengths):
    """Token i holds its characters, or if it has none, the first bytes of the next one."""
    ends = list(accumulate(lengths))
    assume(ends[-1])
    start = data.draw(st.integers(0, ends[-1] - 1))
    end = data.draw(st.integers(start + 1, ends[-1]))
    parts = [{*range(b, max(e, b + 1))} & {*range(ends[-1])} for b, e in zip([0, *ends], ends)]
    expected = [i for i, part in enumerate(parts) if part & {*range(start, end)}]
    assert list(range(len(ends))[covered_tokens(ends, start, end)]) == expected


# --- returns to go ----------------------------------------------------------------------------------------------------


@given(st.data(), st.integers(1, 12))
def test_dense_advantages_match_a_loop(data, length):
    """A_t = (sum of the rewards from t on - mean) / (std + 1e-4), with the rest of the total on the last token."""
    values = st.floats(-2, 2)
    spans = []
    for _ in range(data.draw(st.integers(0, 3))):
        start = data.draw(st.integers(0, length - 1))
        spans.append((start, data.draw(st.integers(start + 1, length)), data.draw(values)))
    rewards = torch.tensor([[data.draw(values) for _ in range(4)]], dtype=torch.float64)
    of_tokens = [0.0] * length
    for _, end, value in spans:
        of_tokens[end - 1] += value
    of_tokens[-1] += rewards[0, 0].item() - sum(value for *_, value in spans)
    mean, std = rewards.mean().item(), rewards.std().item()
    assume(std >= 1e-3)
    expected = [(sum(of_tokens[t:]) - mean) / (std + 1e-4) for t in range(length)]
    advantage, divisor = (values[0, 0].item() for values in advantages_of(RewardConfig(), rewards))
    got = dense_advantages(advantage, divisor, spans, list(range(1, length + 1)), length)
    torch.testing.assert_close(got, torch.tensor(expected), rtol=1e-4, atol=1e-4)


def test_groups_of_equal_rewards_teach_nothing():
    """Nothing tells their responses apart."""
    rewards, spans, ends = torch.full((1, 4), 0.7), [(0, 1, 0.2)], [1, 2]
    for rule in ("group", "batch", "none", "d3s.methods.maxrl:maxrl"):
        _, divisors = advantages_of(RewardConfig(advantages=rule), rewards)
        assert dense_advantages(0.0, divisors[0].item(), spans, ends, 2).tolist() == [0.0, 0.0]


# --- shapers ----------------------------------------------------------------------------------------------------------


def halves(problem, response, answer, advantage):
    assert (problem, answer) == ("1+1=", "2")
    middle = len(response) // 2
    return [(0, middle, -advantage / 2), (0, 1, 9.0)]


def no_list(problem, response, answer, advantage):
    return None


def outside(problem, response, answer, advantage):
    return [(0, len(response) + 1, 0.0)]


def fails(problem, response, answer, advantage):
    raise KeyError("step")


def of_tokens(text: str, spans=(), rule: str | None = "halves") -> list[float]:
    shaper = SHAPER_RULES.rule(HERE + rule) if rule else lambda **_: ()
    shaped = shaper(problem="1+1=", response=text, answer="2", advantage=-1.0)
    ids = [*TOKENIZER.encode(text), TOKENIZER.eos_token_id]
    return token_advantages(cached_decode(text_decoder(TOKENIZER, ())), ids, text, -1.0, 0.5, spans, shaped).tolist()


def test_shapers_overwrite_the_advantages_of_their_spans():
    """In the order of the spans, after the returns to go; the end-of-sequence token is in no span."""
    assert of_tokens("abcd") == [9.0, 0.5, -1.0, -1.0, -1.0]
    assert of_tokens("efgh", [(2, 3, 1.0)]) == [9.0, 0.5, -1.0, -3.0, -3.0]
    assert of_tokens("abcd", rule=None) == [-1.0] * 5


def test_failing_shapers_are_named():
    for name, problem in {
        "no_list": 'returned the spans None, expected a list .* on problem "1[+]1=", answer "2", response "abcd"',
        "outside": r"returned the span \(0, 5, 0.0\), .* with 0 <= start < end <= 4.* on ",
        "fails": r"raised KeyError: 'step' \(test_token_advantages.py, line \d+\) on problem",
    }.items():
        with pytest.raises(UserError, match=f"^reward.shaper: {HERE}{name} {problem}"):
            of_tokens("abcd", rule=name)
