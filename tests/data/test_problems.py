"""Loading, order, decontamination and templates, with the sentence that each kind of bad input gets."""

import csv
import json
import os
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from d3s.common import UserError
from d3s.data.decontamination import decontaminate
from d3s.data.problems import BENCHMARKS, Problem, ProblemOrder, load_problems, read_gold
from d3s.data.prompts import INSTRUCTION, PRESETS, encode_prompts, render_prompt
from d3s.tiny import byte_tokenizer

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data" / "benchmarks"
needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="the benchmark files are not beside the repository")
ROWS = [{"problem": "1+1?", "answer": "2"}, {"problem": "What is $\\frac{1}{2}$, in décimal?", "answer": "0.5"}]


def write(path, rows):
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows))
    elif path.suffix == ".csv":
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0].keys())
            writer.writeheader()
            writer.writerows(rows)
    else:
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    return str(path)


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".csv", ".parquet"])
def test_every_file_format_gives_the_same_problems(tmp_path, suffix):
    path = write(tmp_path / f"small{suffix}", ROWS)
    assert load_problems(path) == [
        Problem("small-0", "1+1?", "2", "small"),
        Problem("small-1", "What is $\\frac{1}{2}$, in décimal?", "0.5", "small"),
    ]
    assert load_problems(path, limit=1) == load_problems(path)[:1]


def test_configured_fields_ids_and_sources(tmp_path):
    rows = [{"question": "1+1?", "gold": 2, "id": 7, "source": "sums/easy"}, {"question": "1/2?", "gold": 0.5}]
    path = write(tmp_path / "x.jsonl", rows)
    problems = load_problems(path, problem_field="question", answer_field="gold")
    assert problems == [Problem("7", "1+1?", "2", "sums/easy"), Problem("x-1", "1/2?", "0.5", "x")]


BAD_FILES = {
    "broken.jsonl": (b'{"problem": "a", "answer": "1"}\n{"problem": "b", "ans\n', "line 2: not valid JSON"),
    "blank.jsonl": (b'{"problem": "a", "answer": "1"}\n\n{"problem": "b", "answer": "1"}\n', "line 2: empty line"),
    "list.jsonl": (b'["a", "1"]\n', "line 1: holds a JSON list; expected an object"),
    "deep.jsonl": (b"[" * 200_000 + b"\n", "line 1: not valid JSON"),
    "empty.jsonl": (b"", "no problems in it; expected at least one row with 'problem' and 'answer'"),
    "spaces.jsonl": (b" \n\n", "no problems in it"),
    "field.jsonl": (b'{"question": "a", "answer": "1"}\n', "no field 'problem'; its fields are 'question', 'answer'"),
    "noanswer.jsonl": (
        b'{"problem": "a", "answer": " "}\n',
        "line 1: field 'answer' holds ' '; expected a final answer",
    ),
    "null.jsonl": (b'{"problem": "a", "answer": null}\n', "field 'answer' holds None"),
    "true.jsonl": (b'{"problem": "a", "answer": true}\n', "field 'answer' holds True"),
    "nan.jsonl": (b'{"problem": "a", "answer": NaN}\n', "field 'answer' holds nan"),
    "noproblem.jsonl": (
        b'{"problem": "", "answer": "1"}\n',
        "field 'problem' holds ''; expected the text of a problem",
    ),
    "chat.jsonl": (b'{"problem": [{"role": "user"}], "answer": "1"}\n', "expected the text of a problem"),
    "turns.jsonl": (b'{"prompt": [{"role": "user"}], "answer": "1"}\n', "no field 'problem'; its fields are 'prompt'"),
    "surrogate.jsonl": (
        b'{"problem": "\\ud800", "answer": "1"}\n',
        "line 1: field 'problem' holds half of a surrogate",
    ),
    "surrogate.json": (
        b'[{"problem": "a", "answer": "\\udfff"}]',
        "record 1: field 'answer' holds half of a surrogate",
    ),
    "id.jsonl": (b'{"problem": "a", "answer": "1", "id": "\\udc00"}\n', "line 1: field 'id' holds half of a surrogate"),
    "twice.jsonl": (b'{"problem": "a", "answer": "1", "answer": "2"}\n', "line 1: key 'answer' appears twice"),
    "twice.json": (b'[{"problem": "a", "answer": "1", "problem": "b"}]', "key 'problem' appears twice"),
    "twice.csv": (b"problem,answer,answer\na,1,2\n", "line 1: column 'answer' appears twice"),
    "missing.csv": (b"problem,answer\na,1\nb,nan\n", "line 3: field 'answer' holds 'nan'; expected a final answer"),
    "none.jsonl": (b'{"problem": "a", "answer": "None"}\n', "line 1: field 'answer' holds 'None'"),
    "long.json": (b'[{"problem": "a", "answer": ' + b"9" * 5000 + b"}]", "not valid JSON"),
    "deep.json": (b"[" * 200_000, "not valid JSON"),
    "latin.jsonl": ('{"problem": "\xe9", "answer": "1"}\n'.encode("latin-1"), "not UTF-8 text"),
    "object.json": (b'{"problem": "a", "answer": "1"}', "holds a JSON dict; expected a list of objects"),
    "broken.json": (b'[{"problem": "a"},\n', "line 2: not valid JSON"),
    "item.json": (b'[{"problem": "a", "answer": "1"}, 3]', "record 2: holds a JSON int"),
    "empty.json": (b"", "no problems in it"),
    "columns.csv": (b"problem,answer\na,1\nb,2,3\n", "line 3: not as many columns as the header's 2"),
    "short.csv": (b"problem,answer\na\n", "line 2: not as many columns"),
    "quote.csv": (b'problem,answer\n"a"b,1\n', "line 2: not valid CSV"),
    "empty.csv": (b"", "no problems in it"),
    "header.csv": (b"problem,answer\n", "no problems in it"),
    "text.parquet": (b"hello", "not a readable Parquet file"),
    "data.txt": (b"hello", "no data set"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_files_get_one_sentence_with_the_place(tmp_path, name):
    content, expected = BAD_FILES[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError) as caught:
        load_problems(str(tmp_path / name))
    message = str(caught.value)
    assert str(tmp_path / name) in message and expected in message
    assert "\n" not in message and len(message) < len(str(tmp_path)) + 260


def test_what_is_no_regular_file_is_named(tmp_path):
    (tmp_path / "dir.jsonl").mkdir()
    os.mkfifo(tmp_path / "pipe.jsonl")  # which would wait for a writer for ever
    for name, expected in (("dir.jsonl", "is a directory"), ("pipe.jsonl", "is not a regular file")):
        for source in (tmp_path / name, f"gsm8k={tmp_path / name}"):
            with pytest.raises(UserError, match=f"{name}: {expected}"):
                load_problems(str(source))


def test_fields_of_objects_and_names_in_capitals(tmp_path):
    row = {"extra": {"question": "1+1?"}, "reward_model": {"ground_truth": "2"}, "a.b": "3"}
    path = write(tmp_path / "x.jsonl", [row])
    names = {"problem_field": "extra.question", "answer_field": "reward_model.ground_truth"}
    (tmp_path / "x.jsonl").rename(tmp_path / "x.JSONL")
    path = str(tmp_path / "x.JSONL")
    assert load_problems(path, **names) == [Problem("x-0", "1+1?", "2", "x")]
    assert load_problems(path, **names | {"answer_field": "a.b"})[0].answer == "3"  # a field of that very name
    for missing in ("reward_model.gold", "reward_model.ground_truth.x", "nothing.at.all"):
        with pytest.raises(UserError, match=f"no field '{missing}'; its fields are 'extra', 'reward_model', 'a.b'"):
            load_problems(path, **names | {"answer_field": missing})


def test_a_sample_is_spread_and_the_same_for_all(tmp_path):
    path = write(tmp_path / "x.jsonl", [{"problem": f"{i}?", "answer": str(i)} for i in range(1000)])
    every = load_problems(path)
    small, large = (load_problems(path, limit=limit, sampled=True) for limit in (100, 300))
    assert load_problems(path, limit=100) == every[:100]
    assert load_problems(path, limit=100, sampled=True, seed=7) == small and set(small) < set(large)
    numbers = [int(p.answer) for p in small]
    assert numbers == sorted(numbers) and len(set(numbers)) == 100
    assert sum(numbers) / 100 == pytest.approx(499.5, abs=4 * 288.7 / 10)  # four standard errors; the first: 49.5
    assert load_problems(path, limit=1000, sampled=True) == load_problems(path, limit=2000, sampled=True) == every


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("missing.jsonl", "missing.jsonl: no such file"),
        ("gsm8k=missing.csv", "missing.csv: no such file"),
        ("minerva_math=missing.csv", "'minerva_math' is no benchmark (did you mean 'minerva'?); allowed before = are"),
        ("gsm8k=data", "data: a data file ends in .jsonl, .json, .csv, .parquet"),
        ("aime", "no data set 'aime' (did you mean 'aime2"),
        ("synthetic:chess", "no embedded task 'chess'; allowed are synthetic:precedence, synthetic:countdown"),
    ],
)
def test_unknown_sources(source, expected):
    with pytest.raises(UserError) as caught:
        load_problems(source)
    assert expected in str(caught.value)


@pytest.mark.parametrize("name", ["precedence", "countdown"])
def test_embedded_tasks_have_a_size_of_their_own(name):
    sizes = {split: len(load_problems(f"synthetic:{name}", split=split)) for split in ("train", "validation", "test")}
    assert sizes == {"train": 4096 if name == "precedence" else 2048, "validation": 256, "test": 256}
    limited = load_problems(f"synthetic:{name}", limit=50, seed=3)
    assert limited == load_problems(f"synthetic:{name}", seed=3)[:50] != load_problems(f"synthetic:{name}", limit=50)


def test_unknown_split_and_impossible_limit(tmp_path):
    with pytest.raises(UserError, match="no split 'dev'; allowed are train, validation, test"):
        load_problems("synthetic:precedence", split="dev")
    with pytest.raises(UserError, match="limit is 0; at least one"):
        load_problems(write(tmp_path / "x.jsonl", ROWS), limit=0)


def test_hub_without_network(monkeypatch):
    import datasets

    def offline(path, subset, split):
        raise ConnectionError(f"Couldn't reach {path} [{subset}] {split}\nsecond line")

    monkeypatch.setattr(datasets, "load_dataset", offline)
    with pytest.raises(UserError, match=r"reach openai/gsm8k \[main\] test\); without a network, use gsm8k=FILE"):
        load_problems("gsm8k")
    with pytest.raises(UserError, match=r"org/name split 'train' cannot be loaded .*use a local file"):
        load_problems("org/name")


def test_hub_that_does_not_answer_is_asked_once(monkeypatch):
    """The libraries see the offline mode, in which they look into their cache at once, and only for that long."""
    import datasets
    import huggingface_hub

    asked, seen = [], []

    class Session:
        def head(self, url, timeout):
            asked.append((url, timeout))
            raise OSError("Name or service not known")

    def load_dataset(path, subset, split):
        seen.append((huggingface_hub.constants.is_offline_mode(), datasets.config.HF_HUB_OFFLINE))
        return [{"problem": "1+1?", "answer": "2"}]

    for flags in (huggingface_hub.constants, datasets.config):
        monkeypatch.setattr(flags, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub, "get_session", Session)
    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    load_problems("org/name")
    assert len(asked) == 1 and asked[0][1] <= 5 and seen == [(True, True)]
    assert (huggingface_hub.constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE) == (False, False)
    Session.head = lambda self, url, timeout: None
    load_problems("org/name")
    assert seen[1] == (False, False)


def test_hub_rows_are_read_by_the_table(monkeypatch):
    import datasets

    rows = {
        "openai/gsm8k": {"question": "How many?", "answer": "First <<1+1=2>>2.\n#### 1,234"},
        "Hothan/OlympiadBench": {"question": "Which?", "final_answer": ["$8$", "$\\frac{1}{2}$"], "id": 1606},
        "org/name": {"problem": "Own?", "answer": "5"},
    }
    monkeypatch.setattr(datasets, "load_dataset", lambda path, subset, split: [rows[path]])
    assert load_problems("gsm8k") == [Problem("gsm8k-0", "How many?", "1234", "gsm8k")]
    assert load_problems("olympiadbench") == [Problem("1606", "Which?", "8, \\frac{1}{2}", "olympiadbench")]
    assert load_problems("org/name:subset") == [Problem("org/name:subset-0", "Own?", "5", "org/name:subset")]


def test_benchmark_from_a_local_file_in_either_form(tmp_path):
    hub_form = write(tmp_path / "a.jsonl", [{"question": "How many?", "answer": "so\n#### 7"}])
    own_form = write(tmp_path / "b.jsonl", [{"problem": "How many?", "answer": "7"}])
    for path in (hub_form, own_form):
        assert load_problems(f"gsm8k={path}") == [Problem("gsm8k-0", "How many?", "7", "gsm8k")]


@pytest.mark.parametrize(
    ("field", "gold"),
    [
        ("a\n#### 42", "42"),
        ("#### -1,234,567", "-1234567"),
        ("#### (1,2)", "(1,2)"),
        (" \\frac12 ", "\\frac12"),
        ("1,000", "1,000"),
        (42, "42"),
        (["$1$", "$2$"], "1, 2"),
        ([], ""),
        ([1], ""),
        ({}, ""),
        (None, ""),
        ("####", ""),
    ],
)
def test_read_gold(field, gold):
    assert read_gold(field) == gold


COUNTS = {
    "aime24": ("aime24", 30),
    "aime25": ("aime25", 30),
    "amc23": ("amc23", 40),
    "math500": ("math500", 500),
    "gsm8k": ("gsm8k_test", 1319),
    "minerva": ("minerva_math", 272),
    "olympiadbench": ("olympiadbench", 675),
}


@needs_shared
@pytest.mark.parametrize("name", BENCHMARKS)
def test_benchmark_counts_and_golds_that_verify(name):
    from d3s.verifier.verifier import verify

    file, count = COUNTS[name]
    problems = load_problems(f"{name}={SHARED / file}.jsonl")
    assert len(problems) == count
    unreadable = [p.answer for p in problems if not verify(f"\\boxed{{{p.answer}}}", p.answer)]
    assert unreadable == []


@needs_shared
def test_no_benchmark_text_is_in_the_training_files():
    test = [p for name in BENCHMARKS for p in load_problems(f"{name}={SHARED / COUNTS[name][0]}.jsonl")]
    for file in ("gsm8k_train", "math_train"):
        train = load_problems(str(SHARED / f"{file}.jsonl"))
        kept, report = decontaminate(train, test)
        assert len(kept) + len(report) == len(train)
        assert {o.reason for o in report} <= {"ngram"}
        assert len(report) < 0.03 * len(train)


# --- decontamination ------------------------------------------------------------------------------


def problem(text, name="p"):
    return Problem(name, text, "1", "unit")


def test_decontamination_finds_equal_texts_and_shared_passages():
    words = [f"w{i}" for i in range(30)]
    test = [problem("What is $3 + 4$ ?", "sum"), problem(" ".join(words), "long")]
    train = [
        problem("WHAT is 3+4", "equal"),
        problem("What is 3*4?", "other-sign"),
        problem("x " + " ".join(words[5:18]).upper() + ", y", "thirteen"),
        problem("x " + " ".join(words[5:17]) + " y " + " ".join(words[18:30]), "twelve"),
    ]
    kept, report = decontaminate(train, test)
    assert [p.id for p in kept] == ["other-sign", "twelve"]
    assert [(o.train_id, o.test_id, o.reason) for o in report] == [
        ("equal", "sum", "equal"),
        ("thirteen", "long", "ngram"),
    ]
    assert report[1].text == " ".join(words[5:18])


texts = st.lists(st.sampled_from("abc"), max_size=7).map(" ".join)


@given(st.lists(texts, max_size=6), st.lists(texts, max_size=6), st.integers(1, 4))
def test_decontamination_against_all_pairs(train, test, size):
    def grams(text):
        words = text.split()
        return {tuple(words[i : i + size]) for i in range(len(words) - size + 1)}

    kept, report = decontaminate([problem(t, str(i)) for i, t in enumerate(train)], [problem(t) for t in test], size)
    clean = [i for i, a in enumerate(train) if not any(a == b or grams(a) & grams(b) for b in test)]
    assert [int(p.id) for p in kept] == clean
    assert sorted([int(o.train_id) for o in report] + clean) == list(range(len(train)))


# --- order ----------------------------------------------------------------------------------------


@given(st.integers(1, 40), st.integers(0, 2**31), st.lists(st.integers(0, 25), max_size=12))
@settings(deadline=None)
def test_order_is_a_function_of_the_position(size, seed, counts):
    order, position, taken = ProblemOrder(size, seed), 0, []
    for count in counts:
        part = ProblemOrder(size, seed).take(position, count)  # a fresh object, as after a resumption
        position += count
        taken += part
    assert taken == order.take(0, position)
    for epoch in range(position // size):
        assert sorted(taken[epoch * size : (epoch + 1) * size]) == list(range(size))


def test_epochs_and_seeds_differ():
    order = ProblemOrder(100, 0)
    assert order.take(0, 100) != order.take(100, 100)
    assert order.take(0, 100) != ProblemOrder(100, 1).take(0, 100)
    assert order.take(0, 100) != list(range(100))


# --- templates ------------------------------------------------------------------------------------

TOKENIZER = byte_tokenizer()


@given(st.text(max_size=60), st.sampled_from(sorted(PRESETS)))
@settings(deadline=None)
def test_the_problem_stands_in_the_prompt_unchanged(text, template):
    before, after = PRESETS[template].split("{problem}")
    prompt = render_prompt(text, template, TOKENIZER)
    assert prompt == before + text + after
    encoded = encode_prompts([problem(text)], template, TOKENIZER, 10_000) if prompt else None
    if encoded:
        assert TOKENIZER.decode(encoded.ids[0]) == encoded.texts[0] == prompt


def test_plain_is_the_problem_alone():
    assert render_prompt("3+6*3=", "plain", TOKENIZER) == "3+6*3="


def test_presets_ask_for_a_box():
    for name in ("base", "qwen-math", "r1"):
        assert "\\boxed{}" in PRESETS[name]
    assert PRESETS["qwen-math"].startswith(f"<|im_start|>system\n{INSTRUCTION}<|im_end|>\n<|im_start|>user\n")


def test_chat_uses_the_tokenizers_template_and_no_second_beginning():
    tokenizer = byte_tokenizer()
    with pytest.raises(UserError, match="the tokenizer has no chat template; allowed are plain, base, qwen-math, r1"):
        render_prompt("1+1?", "chat", tokenizer)
    tokenizer.chat_template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>"
    prompt = f"<user>1+1?\n{INSTRUCTION}<assistant>"
    assert render_prompt("1+1?", "chat", tokenizer) == prompt
    assert tokenizer.decode(encode_prompts([problem("1+1?")], "chat", tokenizer, 500).ids[0]) == prompt


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{{ ''.__class__.__mro__ }}", "SecurityError: access to attribute '__class__'"),
        ("{{ raise_exception('no system turn') }}", "TemplateError: no system turn"),
        ("{% for m in nothing.at.all %}x{% endfor %}", "UndefinedError: 'nothing' is undefined"),
        ("{{ 1 / 0 }}", "ZeroDivisionError"),
        ("{% if %}", "TemplateSyntaxError"),
    ],
)
def test_a_chat_template_that_fails_is_one_sentence(template, reason):
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = template
    with pytest.raises(UserError, match="the tokenizer's chat template fails") as caught:
        render_prompt("1+1?", "chat", tokenizer)
    assert reason in str(caught.value) and "\n" not in str(caught.value)
    tokenizer.chat_template = "{# nothing #}"
    with pytest.raises(UserError, match="the prompt of problem 'p' has no tokens"):
        encode_prompts([problem("1+1?")], "chat", tokenizer, 500)
    tokenizer.chat_template = "a fixed text"
    assert len(encode_prompts([problem("1+1?")] * 2, "chat", tokenizer, 500).ids) == 2
    with pytest.raises(UserError, match="every problem gets the same prompt, 'a fixed text'"):
        encode_prompts([problem("1+1?"), problem("1+2?")], "chat", tokenizer, 500)


class AddsBeginning:
    """A tokenizer that puts <s> (token 1) first, as Llama's does."""

    bos_token, chat_template = "<s>", "{{ bos_token }}"

    def __call__(self, text, add_special_tokens):
        tokens = [1] if add_special_tokens else []
        return {"input_ids": tokens + ([1] if text.startswith("<s>") else []) + [2] * len(text.removeprefix("<s>"))}

    def apply_chat_template(self, turns, tokenize, add_generation_prompt):
        return "<s>" + turns[0]["content"]


def test_exactly_one_beginning_of_sequence(tmp_path):
    (tmp_path / "own.txt").write_text("<s>{problem}")
    for template in ("plain", "chat", str(tmp_path / "own.txt")):
        assert encode_prompts([problem("1+1?")], template, AddsBeginning(), 500).ids[0].count(1) == 1


def test_template_file(tmp_path):
    path = tmp_path / "mine.txt"
    path.write_text("Solve {problem} and {problem}, {with} braces")
    assert render_prompt("\\frac{1}{2}", str(path), TOKENIZER) == ("Solve \\frac{1}{2} and \\frac{1}{2}, {with} braces")
    (tmp_path / "none.txt").write_text("Solve it")
    with pytest.raises(UserError, match=r"none.txt: does not say where the problem goes"):
        render_prompt("x", str(tmp_path / "none.txt"), TOKENIZER)
    with pytest.raises(UserError, match=r"no template 'qwen_math' \(did you mean 'qwen-math'\?\); allowed are"):
        render_prompt("x", "qwen_math", TOKENIZER)


def test_overlong_prompts_are_refused_or_dropped_and_counted():
    problems = [problem("a" * length, f"p{length}") for length in (5, 20, 8, 9)]
    with pytest.raises(UserError, match=r"the prompt of problem 'p20' .* has 20 tokens, at most 8 are allowed"):
        encode_prompts(problems, "plain", TOKENIZER, 8)
    encoded = encode_prompts(problems, "plain", TOKENIZER, 8, overlong="drop")
    assert [p.id for p in encoded.problems] == ["p5", "p8"] and encoded.dropped == 2
    assert list(map(len, encoded.ids)) == list(map(len, encoded.texts)) == [5, 8]
    with pytest.raises(UserError, match="each of the 4 prompts is longer than the limit of 4 tokens"):
        encode_prompts(problems, "plain", TOKENIZER, 4, overlong="drop")
