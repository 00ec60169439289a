"""Prompt templates and tokens, against the text that each template promises."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers.processors import TemplateProcessing

from d3s.common import UserError
from d3s.config.schema import DataConfig
from d3s.data.demonstrations import encode_demonstrations
from d3s.data.prompts import INSTRUCTION, TEMPLATES, ChatOptions, encode_prompts, render_prompt, resolve_template
from d3s.tiny import byte_tokenizer
from tests.helpers.chat_templates import LLAMA_LIKE, QWEN3_LIKE, USER_ONLY, qwen3_prompt
from tests.helpers.data_files import problem

TOKENIZER = byte_tokenizer()


@given(st.text(max_size=60), st.sampled_from(sorted(TEMPLATES)))
def test_prompt_contains_the_problem_unchanged(text, template):
    before, after = TEMPLATES[template].split("{problem}")
    prompt = render_prompt(text, template, TOKENIZER)
    assert prompt == before + text + after
    if prompt:
        encoded = encode_prompts([problem(text)], template, TOKENIZER, 10_000)
        assert TOKENIZER.decode(encoded.ids[0]) == encoded.texts[0] == prompt


def tokenizer_with(template):
    tokenizer = byte_tokenizer()
    tokenizer.bos_token = "<s>"
    tokenizer.chat_template = template
    return tokenizer


def test_failing_chat_templates_are_refused():
    for template, reason in {
        "{{ ''.__class__.__mro__ }}": "SecurityError: access to attribute '__class__'",
        "{{ raise_exception('no system turn') }}": "TemplateError: no system turn",
        "{% if %}": "TemplateSyntaxError",
    }.items():
        with pytest.raises(UserError, match=f"the tokenizer's chat template fails .{reason}[^\n]*$"):
            render_prompt("1+1?", "chat", tokenizer_with(template))


def test_templates_without_the_problem_are_refused():
    with pytest.raises(UserError, match="the prompt of problem 'p' has no tokens"):
        encode_prompts([problem("1+1?")], "chat", tokenizer_with("{# nothing #}"), 500)
    fixed = tokenizer_with("a fixed text")
    assert len(encode_prompts([problem("1+1?")] * 2, "chat", fixed, 500).ids) == 2
    with pytest.raises(UserError, match="every problem gets the same prompt, 'a fixed text'"):
        encode_prompts([problem("1+1?"), problem("1+2?")], "chat", fixed, 500)


@pytest.mark.parametrize(("system", "thinking"), [(None, None), ("", True), ("Answer in French.", False)])
def test_chat_options_reach_the_template(system, thinking):
    chat = ChatOptions(system, {} if thinking is None else {"enable_thinking": thinking})
    encoded = encode_prompts([problem("1+1?")], "chat", tokenizer_with(QWEN3_LIKE), 500, chat=chat)
    assert encoded.texts == [qwen3_prompt(f"1+1?\n{INSTRUCTION}", system, thinking is not False)]


@pytest.mark.parametrize(
    ("template", "name", "remedy"),
    [
        (QWEN3_LIKE, "enable_thinkin", " (did you mean 'enable_thinking'?); its variables are enable_thinking"),
        (QWEN3_LIKE, "messages", "; its variables are enable_thinking"),  # transformers' own
        (LLAMA_LIKE, "text", "; its variables are bos_token, date_string"),  # set by the template
        (USER_ONLY, "enable_thinking", "; its variables are none"),
    ],
)
def test_unknown_template_variables_are_refused(template, name, remedy):
    """transformers would render the same prompt with and without them."""
    with pytest.raises(UserError) as caught:
        encode_prompts([problem("1+1?")], "chat", tokenizer_with(template), 500, chat=ChatOptions(None, {name: "x"}))
    assert f"chat template has no variable {name!r}{remedy}" in str(caught.value)


def test_variables_that_a_template_sets_are_known():
    # inside `if not date_string is defined`, and beside tags that are not Jinja's
    chat = ChatOptions(None, {"date_string": "1 Jan 2026"})
    (text,) = encode_prompts([problem("1+1?")], "chat", tokenizer_with(LLAMA_LIKE), 500, chat=chat).texts
    assert text == "<s>Today: 1 Jan 2026" + f"1+1?\n{INSTRUCTION}"


def test_ignored_system_prompts_are_refused():
    tokenizer = tokenizer_with(USER_ONLY)
    assert render_prompt("1+1?", "chat", tokenizer, ChatOptions("")) == f"1+1?\n{INSTRUCTION}"
    with pytest.raises(UserError, match=r"^system_prompt: the tokenizer's chat template does not write it; remove it"):
        render_prompt("1+1?", "chat", tokenizer, ChatOptions("Be brief."))


@given(
    st.text(max_size=20), st.sampled_from(["plain", "chat"]), st.sampled_from(["", "<s> "]), st.integers(0, 2),
    st.booleans(), st.booleans(),
)  # fmt: skip
def test_prompts_begin_once_and_get_no_end_appended(text, template, before, ends, opened, written):
    """A chat template writes all of its tokens, and a text that begins with the first one gets no second one.

    A tokenizer that ends every text would have the model continue after an end; one that the text has stays.
    """
    tokenizer = byte_tokenizer()
    tokenizer.add_tokens(["<s>", "</s>"], special_tokens=True)
    tokenizer.bos_token, tokenizer.chat_template = "<s>", "{{ messages[0].content }}"
    form, ids = before + "$A" + " </s>" * ends, tokenizer.convert_tokens_to_ids
    special = [(name, ids(name)) for name in ("<s>", "</s>")]
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single=form, special_tokens=special)
    problems = [problem("<s>" * opened + text + "1" + "</s>" * written)]
    encoded = encode_prompts(problems, template, tokenizer, 500)
    first = [ids("<s>")] * bool(before and template == "plain" and not opened)
    assert encoded.ids == [first + tokenizer(encoded.texts[0], add_special_tokens=False)["input_ids"]]


def test_default_template_follows_the_tokenizer():
    """The built-in models' has single bytes; any larger vocabulary is that of a base model."""
    base = byte_tokenizer()
    base.add_tokens(["ab"])
    for tokenizer, name in ((TOKENIZER, "plain"), (tokenizer_with(QWEN3_LIKE), "chat"), (base, "base")):
        assert resolve_template("auto", tokenizer) == name and resolve_template("r1", tokenizer) == "r1"
        own, auto = (encode_prompts([problem("1+1?")], template, tokenizer, 500) for template in (name, "auto"))
        assert own == auto
    with pytest.raises(UserError, match=r"^template 'base': takes no system_prompt"):
        encode_prompts([problem("1+1?")], "auto", base, 500, chat=ChatOptions("Be brief."))


def test_tokens_beyond_the_embedding_are_refused():
    tokenizer = byte_tokenizer()
    tokenizer.embedding_rows = len(tokenizer)
    tokenizer.add_tokens(["<new>"])
    assert encode_prompts([problem("1+1?")], "plain", tokenizer, 500).ids
    with pytest.raises(UserError, match=r"^problem 'p' \(unit\): got token 257 \('<new>'\), expected .* = 257;"):
        encode_prompts([problem("1+<new>?")], "plain", tokenizer, 500)
    with pytest.raises(UserError, match=r"^rows.jsonl: demonstration 1: got token 257 "):
        encode_demonstrations([("1+1?", "<new>")], DataConfig(path="rows.jsonl"), tokenizer, 0, 500)


def test_template_files_are_read_or_refused(tmp_path):
    path = tmp_path / "mine.txt"
    path.write_text("Solve {problem} and {problem}, {with} braces")
    assert render_prompt("\\frac{1}{2}", str(path), TOKENIZER) == "Solve \\frac{1}{2} and \\frac{1}{2}, {with} braces"
    (tmp_path / "none.txt").write_text("Solve it")
    with pytest.raises(UserError, match=r"none.txt: got no placeholder .problem., expected it where the problem goes"):
        render_prompt("x", str(tmp_path / "none.txt"), TOKENIZER)
    with pytest.raises(UserError, match=r"'qwen_math': no such template or file \(did you mean 'qwen-math'\?\)"):
        render_prompt("x", "qwen_math", TOKENIZER)


def test_overlong_prompts_are_refused_or_dropped():
    problems = [problem("a" * length, f"p{length}") for length in (5, 20, 8, 9)]
    with pytest.raises(UserError, match=r"problem 'p20' \(unit\): got a prompt of 20 tokens, expected at most 8"):
        encode_prompts(problems, "plain", TOKENIZER, 8)
    encoded = encode_prompts(problems, "plain", TOKENIZER, 8, overlong="drop")
    assert [p.id for p in encoded.problems] == ["p5", "p8"] and encoded.dropped == 2
    assert list(map(len, encoded.ids)) == list(map(len, encoded.texts)) == [5, 8]
    with pytest.raises(UserError, match=r"all 4 prompts are longer than 4 tokens; raise data\.max_pro"):
        encode_prompts(problems, "plain", TOKENIZER, 4, overlong="drop")
