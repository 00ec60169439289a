"""Demonstrations from files and tasks: texts, tokens, limits, and the message for every kind of bad input."""

import pytest

from d3s.common import UserError
from d3s.config.schema import DataConfig
from d3s.data.demonstrations import encode_demonstrations, read_demonstrations
from d3s.data.prompts import INSTRUCTION, TEMPLATES
from d3s.tiny import byte_tokenizer
from tests.helpers.chat_templates import QWEN3_LIKE, qwen3_prompt
from tests.helpers.data_files import write_rows


def read(path, **options):
    fields = {"problem_field": "prompt", "answer_field": "response"}
    return read_demonstrations(DataConfig(**{"path": str(path)} | fields | options), seed=0)


def test_rows_are_read_from_chosen_fields_or_refused(tmp_path):
    rows = [{"q": "1+1=", "turns": {"a": " 2 "}}, {"q": "2+2=", "turns": {"a": "4"}}]
    path = write_rows(tmp_path / "rows.jsonl", rows)
    fields = {"problem_field": "q", "answer_field": "turns.a"}
    assert read(path, **fields) == [("1+1=", " 2 "), ("2+2=", "4")]
    assert read(path, **fields, limit=1) == [("1+1=", " 2 ")]
    good = {"prompt": "a", "response": "b"}
    for row, message in (
        ({"prompt": "a"}, "no field 'response'; available fields are 'prompt'"),
        (good | {"prompt": " "}, "field 'prompt': got ' ', expected text"),
    ):
        with pytest.raises(UserError, match=f"line 2: {message}"):
            read(write_rows(tmp_path / "rows.jsonl", [good, row]))
    with pytest.raises(UserError, match=r"data\.path: reasoning-gym:chain_sum has no demonstrations; name a file"):
        read("reasoning-gym:chain_sum")


def encoded(text):
    return byte_tokenizer().encode(text)


def encode(pairs, longest=1000, **options):
    return encode_demonstrations(pairs, DataConfig(**options), byte_tokenizer(), end=0, longest=longest)


def test_responses_end_with_the_end_token():
    samples, dropped = encode([("1+1=", "2"), ("3", "x y")], template="base")
    assert dropped == 0 and [response for _, response in samples] == [[*encoded("2"), 0], [*encoded("x y"), 0]]
    assert samples[0][0] == encoded(TEMPLATES["base"].replace("{problem}", "1+1="))


def test_overlong_demonstrations_are_refused_or_dropped():
    pairs = [("ab", "cd"), ("ab", "cde")]
    with pytest.raises(UserError, match=r"demonstration 2: got 6 tokens, expected at most 5; raise rollout.max_c"):
        encode(pairs, longest=5)
    samples, dropped = encode(pairs, longest=5, overlong_prompts="drop")
    assert len(samples) == dropped == 1
    with pytest.raises(UserError, match="all 2 demonstrations are longer than 4 tokens"):
        encode(pairs, longest=4, overlong_prompts="drop")


TURNS = [("system", "Be brief."), ("user", "1+1?"), ("assistant", "2"), ("user", "And 3?"), ("assistant", "5")]
CONVERSATION = {"messages": [{"role": role, "content": content} for role, content in TURNS]}


def test_every_assistant_turn_is_a_demonstration(tmp_path):
    """Its prompt is written by the chat template alone, without the instruction that problems get."""
    path = write_rows(tmp_path / "rows.jsonl", [CONVERSATION, {"prompt": "4?", "response": "4"}])
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = QWEN3_LIKE
    options = DataConfig(path=str(path), template="chat", problem_field="prompt", answer_field="response")
    pairs = read_demonstrations(options, seed=0)
    samples, _ = encode_demonstrations(pairs, options, tokenizer, end=0, longest=1000)
    first = qwen3_prompt("1+1?", "Be brief.")
    second = first + "2<|im_end|>\n" + qwen3_prompt("And 3?")
    expected = [(first, "2"), (second, "5"), (qwen3_prompt(f"4?\n{INSTRUCTION}"), "4")]
    assert [(tokenizer.decode(prompt), tokenizer.decode(ids[:-1])) for prompt, ids in samples] == expected
    assert all(ids[-1] == 0 for _, ids in samples)
    asked, said = CONVERSATION["messages"][:3], CONVERSATION["messages"][3:]
    asked[2] |= {"weight": 0, "name": "ada", "tool_calls": [], "thinking": False}
    weighted = write_rows(tmp_path / "weighted.jsonl", [{"messages": asked + said}])
    assert read_demonstrations(options.model_copy(update={"path": str(weighted)}), 0) == pairs[1:2]
    assert len(read_demonstrations(options.model_copy(update={"limit": 1}), seed=0)) == 1


def test_bad_conversations_are_refused(tmp_path):
    user = {"role": "user", "content": "a"}
    for messages, message in (
        ("text", "field 'messages': got 'text', expected a list of turns {role, content}"),
        ([user, {"role": "user"}], "turn 2: field 'content': got None, expected text"),
        ([user, {"role": "asistant", "content": "b"}], "turn 2: got the role 'asistant', expected system, user, ass"),
        ([user, user | {"role": "assistant", "tool_calls": [1]}], "turn 2: got 'tool_calls', which no prompt contains"),
        ([user], "expected an assistant turn after the first turn"),
        ([user | {"role": "assistant"}], "expected an assistant turn after the first turn"),
    ):
        with pytest.raises(UserError, match=message):
            read(write_rows(tmp_path / "rows.jsonl", [{"messages": messages}]), template="chat")
    with pytest.raises(UserError, match=r"line 1: a conversation .* requires data.template: chat"):
        read(write_rows(tmp_path / "rows.jsonl", [CONVERSATION]), template="base")
