"""Problems and prompts of a run, against known rows and one token per character; decontamination against all pairs."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from d3s.common import UserError
from d3s.config.load import load_config
from d3s.data.dataset import encode_problems, read_problems
from d3s.data.decontamination import decontaminate
from d3s.tiny import byte_tokenizer
from tests.helpers.data_files import problem, write_rows

TOKENIZER = byte_tokenizer()


@pytest.fixture
def make_config(tmp_path):
    """Make a configuration of ten training problems, of 2 to 11 characters, and three test problems."""
    rows = [{"problem": "a" * length, "answer": str(length)} for length in range(2, 12)]
    train = write_rows(tmp_path / "train.jsonl", rows)
    test = write_rows(tmp_path / "test.jsonl", [{"problem": "b" * length, "answer": "1"} for length in (3, 8, 20)])

    def make(*overrides):
        return load_config([], [f"data.path={train}", f"eval.data=[{test}]", "train.prompts_per_step=2", *overrides])

    return make


def test_signs_of_arithmetic_count_however_they_are_written(make_config, tmp_path):
    texts = "What is 12-3?", "What is 12×3?", "Is x≤3?"
    train = write_rows(tmp_path / "signs.jsonl", [{"problem": text, "answer": "1"} for text in texts])
    rows = [{"problem": text, "answer": "1"} for text in ("what is 12−3", "what is 12÷3", "is x<=3", "is x≥3")]
    benchmark = write_rows(tmp_path / "benchmark.jsonl", rows)
    problems = read_problems(make_config(f"data.path={train}", f"data.decontaminate=[{benchmark}]"))
    assert [problem.problem for problem in problems.train] == ["What is 12×3?"]


def test_overlapping_problems_are_removed_and_noted(make_config, tmp_path):
    rows = [{"problem": text, "answer": "1"} for text in ("A A!", "aaa", "AAAA", "unrelated")]
    benchmark = write_rows(tmp_path / "benchmark.jsonl", rows)
    problems = read_problems(make_config(f"data.decontaminate=[{benchmark}]"))
    assert [p.answer for p in problems.train] == ["2", *(str(length) for length in range(5, 12))]
    assert problems.notes == [
        f"decontamination removed 2 of 10 problems of {tmp_path / 'train.jsonl'}",
        "removed train-1: equal overlap with benchmark-1 (benchmark)",
        "removed train-2: equal overlap with benchmark-2 (benchmark)",
    ]
    with pytest.raises(UserError, match=r"data.decontaminate: removed all 10 problems of .*train.jsonl; use other"):
        read_problems(make_config(f"data.decontaminate=[{tmp_path / 'train.jsonl'}]"))
    few = write_rows(tmp_path / "few.jsonl", rows[:2])
    with pytest.raises(UserError, match=r"data.decontaminate: removed all 2 problems of .*few.jsonl; use other"):
        read_problems(
            make_config(f"data.path=[{tmp_path / 'train.jsonl'}, {few}]", f"data.decontaminate=[{benchmark}]")
        )


def test_repeated_problems_are_counted(make_config, tmp_path):
    golds = {"a": "11", "b": "1", "c": "121", "d": "23"}  # the answers of each problem, a character each
    rows = [{"problem": text, "answer": gold} for text, answers in golds.items() for gold in answers]
    path = write_rows(tmp_path / "twice.jsonl", rows)
    assert read_problems(make_config(f"data.path={path}")).notes == [
        f"4 of 8 problems of {path} repeat an earlier one",
        f"2 problems of {path} have more than one answer, the first is twice-3",
    ]


def test_trained_problems_in_evaluations_are_counted(make_config, tmp_path):
    """Also those that differ in spacing; the option that the note names removes them."""
    rows = [{"problem": text, "answer": "1"} for text in ("aaa", " aaaa\n", "unrelated")]
    path, train = write_rows(tmp_path / "mine.jsonl", rows), tmp_path / "train.jsonl"
    (note,) = read_problems(make_config(f"eval.data=[{path}, {tmp_path / 'test.jsonl'}]")).notes
    remedy = f"data.decontaminate=[{path}]"
    shared = "2 of 3 problems of mine, which is evaluated, are also trained on"
    assert note == f"{shared}; {remedy} removes them from {train}"
    notes = read_problems(make_config(f"eval.data=[{path}]", remedy)).notes
    assert notes[0].startswith("decontamination removed 2 of 10") and not any("also trained on" in n for n in notes)
    # The option reads the test split, so it removes nothing of another one.
    options = ["data.path=synthetic:precedence", "data.limit=9", "eval.data=[synthetic:precedence]", "eval.split=train"]
    notes = read_problems(make_config(*options)).notes
    assert notes[-1].endswith("are also trained on; train on other problems or evaluate others")


@pytest.mark.parametrize(("max_prompt_length", "prompt_budget", "dropped"), [(5, 8, 1), (8, 5, 2)])
def test_overlong_prompts_follow_both_limits(make_config, max_prompt_length, prompt_budget, dropped):
    """Training prompts obey the smaller limit; test prompts only the model's, whatever data.max_prompt_length is."""
    overrides = ["data.template=plain", f"data.max_prompt_length={max_prompt_length}"]
    config = make_config(*overrides, "data.overlong_prompts=drop")
    problems = read_problems(config)
    prompts, tests = encode_problems(config, problems, TOKENIZER, prompt_budget)
    assert [p.answer for p in prompts.problems] == ["2", "3", "4", "5"] and prompts.dropped == 6
    assert [len(ids) for ids in tests["test"].ids] == [3, 8, 20][: 3 - dropped]
    assert problems.notes == [
        "6 prompts longer than 5 tokens were dropped",
        f"test: {dropped} prompts longer than {prompt_budget} tokens were dropped",
    ]
    with pytest.raises(UserError, match="got a prompt of 6 tokens, expected at most 5"):
        encode_problems(make_config(*overrides), problems, TOKENIZER, prompt_budget)


@pytest.mark.parametrize(
    ("suffix", "malformed"), [(".jsonl", '{"problem": "a", "ans\n'), (".csv", "one,two,three\n"), (".json", ", 5]")]
)
def test_bad_rows_are_skipped_and_counted(make_config, tmp_path, suffix, malformed):
    """Of six rows, one has no answer, one no problem, and one is malformed."""
    good = [{"problem": f"{i}+1=", "answer": str(i + 1)} for i in range(3)]
    path = tmp_path / f"rows{suffix}"
    write_rows(path, [good[0], {"problem": "2+2=", "answer": ""}, good[1], {"problem": " ", "answer": "1"}, good[2]])
    path.write_text(path.read_text().removesuffix("]") + malformed)
    options = [f"data.path={path}", "eval.data=[]"]
    problems = read_problems(make_config(*options, "data.bad_rows=skip"))
    assert [(p.problem, p.answer) for p in problems.train] == [(row["problem"], row["answer"]) for row in good]
    (note,) = problems.notes
    assert note.startswith(f"data.bad_rows: skipped 3 of 6 rows of {path}, first: {path} ") and "'answer'" in note
    with pytest.raises(UserError, match="field 'answer': got '', expected a final answer"):
        read_problems(make_config(*options))
    assert len(read_problems(make_config(*options, "data.bad_rows=skip", "data.limit=2")).train) == 2


def test_rewards_fit_the_answers(make_config, tmp_path):
    """The verifier would score every program 0, and answers that are no tests cannot be run."""
    options = ("data.path=synthetic:code", "data.limit=9")
    for functions in ("[[verify, 0.5]]", "[boxed, [verify, 0.2]]", "[verify]"):
        with pytest.raises(UserError) as caught:
            read_problems(make_config(*options, f"reward.functions={functions}"))
    (remedy,) = re.findall(r"add (reward\.functions=\S+)", str(caught.value))
    assert len(read_problems(make_config(*options, remedy)).train) == 9
    path, tests = tmp_path / "problems.jsonl", '["assert f() == 1"]'
    options = [f"data.path={path}", "eval.data=[]", "reward.functions=[d3s.programs.code_reward:CodeReward]"]
    write_rows(path, [{"problem": "1", "answer": tests}])
    assert read_problems(make_config(*options)).train[0].answer == tests
    write_rows(path, [{"problem": "1", "answer": "18"}])
    with pytest.raises(UserError, match="got the answer '18', expected a JSON list of tests"):
        read_problems(make_config(*options))


# --- decontamination --------------------------------------------------------------------------------------------------


def test_equal_texts_and_shared_ngrams_are_removed():
    """Case, accents, punctuation and spaces do not count; arithmetic signs count in equal texts alone."""
    words = [f"w{i}" for i in range(30)]
    test = [problem("Où est $3 + 4$ ?", "sum"), problem(" + ".join(words), "long")]
    train = [
        problem("OU est 3+4", "equal"),
        problem("Où est 3*4 ?", "other-sign"),
        problem("x " + " * ".join(words[5:18]).upper() + ", y", "thirteen"),
        problem("x " + " ".join(words[5:17]) + " y " + " ".join(words[18:30]), "twelve"),
    ]
    kept, removed = decontaminate(train, test)
    assert [p.id for p in kept] == ["other-sign", "twelve"]
    assert [(p.id, match.id, reason) for p, reason, match in removed] == [
        ("equal", "sum", "equal"), ("thirteen", "long", "ngram"),
    ]  # fmt: skip


texts = st.lists(st.sampled_from("abc"), max_size=7).map(" ".join)


@given(st.lists(texts, max_size=6), st.lists(texts, max_size=6), st.integers(1, 4))
def test_removals_match_all_pairs(train, test, size):
    def grams(text):
        words = text.split()
        return {tuple(words[i : i + size]) for i in range(len(words) - size + 1)}

    kept, removed = decontaminate([problem(t, str(i)) for i, t in enumerate(train)], [problem(t) for t in test], size)
    clean = [i for i, a in enumerate(train) if not any(a == b or grams(a) & grams(b) for b in test)]
    assert [int(p.id) for p in kept] == clean
    assert sorted([int(p.id) for p, *_ in removed] + clean) == list(range(len(train)))
