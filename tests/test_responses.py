"""Thoughts of responses, against texts put together from marks; decoded texts of a tokenizer with special tokens."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from d3s.programs.extraction import extract_program
from d3s.responses import THOUGHTS, after_thoughts, opening_mark, text_decoder
from d3s.reward import boxed
from d3s.tiny import byte_tokenizer
from d3s.verifier.extraction import extract_answer

MARKS = {*THOUGHTS, *THOUGHTS.values()}


@given(st.lists(st.sampled_from([r"so \boxed{1} ", "<", "[", "|>", "think", *sorted(MARKS)]), max_size=8))
def test_answer_follows_the_last_thought(pieces: list[str]) -> None:
    """Piece by piece: a thought ends with its own mark only; a closing mark alone ends one that is not seen."""
    closing, said = None, ""
    for piece in pieces:
        if closing is None and piece in THOUGHTS:
            closing = THOUGHTS[piece]
        elif piece in MARKS and closing in (None, piece):
            closing, said = None, ""
        else:
            said += piece
    assert after_thoughts("".join(pieces)) == (None if closing else said)


@pytest.mark.parametrize("mark", THOUGHTS)
def test_nothing_counts_in_a_thought_whoever_opened_it(mark: str) -> None:
    inside, answer = r"I try \boxed{5}. The answer is 5. ", r"So \boxed{6}."
    program = "```python\ndef f(): return 1\n```\n"
    prompts = [f"Question?{mark}{space}" for space in ("", "\n", "\n\n", "<|message|>")]
    for before in [*map(opening_mark, prompts), mark, rf"\boxed{{5}} {mark}"]:
        for response in (inside, inside + program, inside + " [/think] </think"):
            assert extract_answer(before + response) is None is extract_answer(before + response, "lenient")
            assert extract_program(before + response, {"f"}) == "" and boxed(before + response, "5") == 0
        closed = before + inside + THOUGHTS[mark] + answer
        assert [extract_answer(closed, extraction) for extraction in ("strict", "lenient")] == ["6", "6"]
        assert "return 1" in extract_program(before + inside + THOUGHTS[mark] + program, {"f"})


def test_prompts_that_only_mention_a_thought_open_none() -> None:
    for mark, closing in THOUGHTS.items():
        for prompt in (f"{mark}\n\n{closing}\n\n", f"Think in {mark} and {closing}.", f"Start with {mark}.", mark[1:]):
            assert opening_mark(prompt) == ""


def test_special_tokens_stay_in_the_text_without_ends_and_padding() -> None:
    """Marks of thoughts may be special tokens, which must not vanish."""
    tokenizer = byte_tokenizer()
    marks = ["[THINK]", "[/THINK]", "<|turn|>"]
    tokenizer.add_special_tokens({"additional_special_tokens": marks, "pad_token": "<pad>"})
    think, close, turn = tokenizer.convert_tokens_to_ids(marks)
    ids = [think, *tokenizer.encode("a"), close, *tokenizer.encode("b"), tokenizer.pad_token_id]
    decode = text_decoder(tokenizer, [turn])
    assert decode([*ids, turn]) == decode([*ids, tokenizer.eos_token_id]) == "[THINK]a[/THINK]b"
    assert text_decoder(SimpleNamespace(decode=tokenizer.decode), ())([think]) == "[THINK]" and decode([]) == ""
