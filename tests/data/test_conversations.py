"""Conversations as prompts, against the text that a template must give, and rows that no model continues."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from d3s.common import UserError
from d3s.data.conversations import conversation_text, read_turns
from d3s.data.problems import load_problems
from d3s.data.prompts import ChatOptions, encode_prompts, render_prompt
from d3s.tiny import byte_tokenizer
from tests.helpers.chat_templates import QWEN3_LIKE, USER_ONLY
from tests.helpers.data_files import write_rows

TOKENIZER = byte_tokenizer()
TOKENIZER.chat_template = QWEN3_LIKE
SYSTEM, ASKED = {"role": "system", "content": "Be brief."}, {"role": "user", "content": "1+1?"}
SAID, AGAIN = {"role": "assistant", "content": "2"}, {"role": "user", "content": "And twice that?"}


def rendered(turns):
    """What QWEN3_LIKE gives."""
    return "".join(f"<|im_start|>{t['role']}\n{t['content']}<|im_end|>\n" for t in turns) + "<|im_start|>assistant\n"


def contents():
    return st.text("ab {}\\é\n", min_size=1, max_size=12).filter(str.strip)


@given(st.booleans(), st.lists(st.tuples(contents(), contents()), max_size=3), contents(), st.none() | contents())
def test_turns_are_rendered_as_they_stand(system, earlier, last, option):
    said = [t for pair in earlier for t in map(turn, ("user", "assistant"), pair)]
    turns = [*[SYSTEM] * system, *said, turn("user", last)]
    read = read_turns([t | {"name": None} for t in turns], "line 1")
    assert list(read) == turns and conversation_text(read).endswith(last)
    added = [] if system or option is None else [turn("system", option)]
    assert render_prompt(read, "chat", TOKENIZER, ChatOptions(option)) == rendered(added + turns)


def turn(role, content):
    return {"role": role, "content": content}


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_rows_with_messages_are_problems(tmp_path, suffix):
    turns = [SYSTEM, ASKED, SAID, AGAIN]
    path = write_rows(tmp_path / f"x{suffix}", [{"messages": turns, "answer": 4}])
    (problem,) = load_problems(path)
    assert (problem.problem, problem.answer, list(problem.turns)) == ("1+1?\n\n2\n\nAnd twice that?", "4", turns)
    assert problem.row["messages"] == turns and problem.row["problem"] == problem.problem
    encoded = encode_prompts([problem], "auto", TOKENIZER, 500)
    assert encoded.texts == [rendered(turns)] and TOKENIZER.decode(encoded.ids[0]) == rendered(turns)
    path = write_rows(tmp_path / f"y{suffix}", [{"prompt": [ASKED], "gold": "2"}])
    (problem,) = load_problems(path, problem_field="prompt", answer_field="gold")
    assert (problem.problem, problem.turns) == ("1+1?", (ASKED,))
    path = write_rows(tmp_path / f"z{suffix}", [{"problem": "1+1?", "answer": "2", "messages": [ASKED, SAID]}])
    assert load_problems(path)[0].turns == ()  # the column of a warm-up, beside the problem


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([ASKED, SAID], ": the last turn is by 'assistant', expected 'user', whom the model answers"),
        ([SYSTEM], ": the last turn is by 'system', expected 'user', whom the model answers"),
        ([], ": got [], expected a list of turns {role, content}"),
        ("1+1?", ": got '1+1?', expected a list of turns {role, content}"),
        (["1+1?"], ", turn 1: got '1+1?', expected {role, content}"),
        ([SYSTEM, turn("tool", "2"), ASKED], ", turn 2: got the role 'tool', expected system, user, assistant"),
        ([{"content": "1+1?"}], ", turn 1: got the role None, expected system, user, assistant"),
        ([turn("user", " ")], ", turn 1: field 'content': got ' ', expected text"),
        ([turn("user", [{"text": "a"}])], ", turn 1: field 'content': got [{'text': 'a'}], expected text"),
        (
            [ASKED, SAID | {"a": [1]}, AGAIN],
            ", turn 2: got 'a', which no prompt contains; write it into the content, or remove it",
        ),
        ([ASKED, SYSTEM, ASKED], ", turn 2: got the role 'system', expected it in the first turn alone"),
    ],
)
def test_conversations_that_no_model_continues_are_refused(tmp_path, messages, expected):
    good = {"messages": [ASKED], "answer": "2"}
    path = write_rows(tmp_path / "x.jsonl", [good, {"messages": messages, "answer": "2"}])
    with pytest.raises(UserError) as refused:
        load_problems(path)
    assert str(refused.value) == f"{path} line 2: field 'messages'{expected}"
    bad = []
    assert len(load_problems(path, bad_rows=bad)) == 1 and len(bad) == 1


@pytest.mark.parametrize(
    ("template", "expected"),
    [("plain", "template 'plain': cannot write a conversation; use chat with"), ("auto", "template 'base': cannot")],
)
def test_templates_without_turns_are_refused(tmp_path, template, expected):
    (problem,) = load_problems(write_rows(tmp_path / "x.jsonl", [{"messages": [SYSTEM, ASKED], "answer": "2"}]))
    base = byte_tokenizer()
    base.add_tokens(["two"])  # no longer of single bytes, as the built-in models are
    with pytest.raises(UserError) as refused:
        encode_prompts([problem], template, base, 500)
    assert str(refused.value).startswith(f"problem 'x-0' (x): {expected}")
    base.chat_template = USER_ONLY
    with pytest.raises(UserError, match=r"problem 'x-0' \(x\): turn 1 \(system\): the .* does not write it; remove it"):
        encode_prompts([problem], "chat", base, 500)
