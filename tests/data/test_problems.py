"""Problems of every kind of source, against known rows and counts."""

import json
from pathlib import Path

import pytest

from d3s.common import UserError
from d3s.data.code import CODE_REWARD, read_code_problem
from d3s.data.problems import BENCHMARKS, Problem, hub_split, is_hub_name, load_problems, name_sources, read_gold
from tests.helpers.code_files import HUMANEVAL, MBPP
from tests.helpers.data_files import assert_refused_with_location, write_rows

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data" / "benchmarks"  # not part of the repository
BENCHMARK_FILES = {  # name: (file, number of problems)
    "aime24": ("aime24", 30), "aime25": ("aime25", 30), "amc23": ("amc23", 40), "math500": ("math500", 500),
    "gsm8k": ("gsm8k_test", 1319), "minerva": ("minerva_math", 272), "olympiadbench": ("olympiadbench", 675),
}  # fmt: skip


def test_configured_fields_ids_and_sources_are_read(tmp_path):
    rows = [{"question": "1+1?", "gold": 2, "id": 7, "source": "sums/easy"}, {"question": "1/2?", "gold": 0.5}]
    path = write_rows(tmp_path / "x.jsonl", rows)
    problems = load_problems(path, problem_field="question", answer_field="gold")
    assert problems == [Problem("7", "1+1?", "2", "sums/easy"), Problem("x-1", "1/2?", "0.5", "x")]


BAD_FILES = [
    ("jsonl", b"", "no problems found; expected at least one row with 'problem' and 'answer'"),
    ("jsonl", b'{"question": "a", "answer": "1"}\n', "no field 'problem'; available fields are 'question', 'answer'"),
    ("jsonl", b'{"problem": "a", "answer": " "}\n', "line 1: field 'answer': got ' ', expected a final answer"),
    ("jsonl", b'{"problem": "a", "answer": null}\n', "field 'answer': got None"),
    ("csv", b"problem,answer\na,1\nb,nan\n", "line 3: field 'answer': got 'nan', expected a final answer"),
    ("jsonl", b'{"problem": "", "answer": "1"}\n', "field 'problem': got '', expected the text of a problem"),
    ("jsonl", b'{"problem": "\\ud800", "answer": "1"}\n', "line 1: field 'problem': got half of a surrogate pair"),
    ("jsonl", b'{"problem": "a", "answer": "1", "id": "\\udc00"}\n', "line 1: field 'id': got half of a surrogate"),
]


@pytest.mark.parametrize(("suffix", "content", "expected"), BAD_FILES)
def test_bad_files_are_refused_with_location(tmp_path, suffix, content, expected):
    path = tmp_path / f"x.{suffix}"
    assert_refused_with_location(path, content, expected, lambda: load_problems(str(path)))


def test_nested_fields_and_upper_case_suffixes_are_read(tmp_path):
    row = {"extra": {"question": "1+1?"}, "reward_model": {"ground_truth": "2"}, "a.b": "3"}
    path = write_rows(tmp_path / "x.jsonl", [row])
    names = {"problem_field": "extra.question", "answer_field": "reward_model.ground_truth"}
    (tmp_path / "x.jsonl").rename(tmp_path / "x.JSONL")
    path = str(tmp_path / "x.JSONL")
    assert load_problems(path, **names) == [Problem("x-0", "1+1?", "2", "x")]
    assert load_problems(path, **names | {"answer_field": "a.b"})[0].answer == "3"  # a field whose name contains a dot
    for missing in ("reward_model.gold", "reward_model.ground_truth.x", "nothing.at.all"):
        with pytest.raises(UserError, match=f"no field '{missing}'; available fields are 'extra', 'reward_model', "):
            load_problems(path, **names | {"answer_field": missing})


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_one_message_of_a_conversation_is_a_field(tmp_path, suffix):
    turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1+1?"}]
    path = write_rows(tmp_path / f"x{suffix}", [{"prompt": turns, "answer": "2"}])
    assert load_problems(path, problem_field="prompt.1.content") == [Problem("x-0", "1+1?", "2", "x")]
    for missing in ("prompt.2.content", "prompt.-1.content", "prompt.content"):
        with pytest.raises(UserError, match=f"no field '{missing}'; available fields are 'prompt', 'answer'"):
            load_problems(path, problem_field=missing)


def test_limited_sample_is_spread_and_independent_of_seed(tmp_path):
    path = write_rows(tmp_path / "x.jsonl", [{"problem": f"{i}?", "answer": str(i)} for i in range(1000)])

    def numbers(**options):
        return [int(p.answer) for p in load_problems(path, **options)]

    small, large = (numbers(limit=limit, sampled=True) for limit in (100, 300))
    assert numbers(limit=100) == list(range(100)) and numbers(limit=1000, sampled=True) == list(range(1000))
    assert numbers(limit=100, sampled=True, seed=7) == small == sorted(small) and set(small) < set(large)
    assert sum(small) / 100 == pytest.approx(499.5, abs=4 * 288.7 / 10)  # four standard errors; of the first it is 49.5


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("gsm8k=missing.csv", "missing.csv: no such file"),
        (
            "minerva_math=missing.csv",
            "unknown benchmark 'minerva_math' (did you mean 'minerva'?); expected one of aime24",
        ),
        ("gsm8k=data", "data: got suffix '', expected one of .jsonl, .json, .csv, .parquet"),
        ("aime", "aime: unknown data set (did you mean 'aime2"),
        (
            "data.txt",
            "data.txt: unknown data set; expected a file (.jsonl, .json, .csv, .parquet), a hub name org/name,",
        ),
        ("synthetic:chess", "synthetic:chess: unknown task; expected one of synthetic:precedence, synthetic:mixed"),
    ],
)
def test_unknown_sources_are_refused(source, expected):
    with pytest.raises(UserError) as caught:
        load_problems(source)
    assert expected in str(caught.value)


@pytest.mark.parametrize(("name", "train"), [("precedence", 4096), ("countdown", 2048)])
def test_synthetic_tasks_have_default_sizes(name, train):
    source = f"synthetic:{name}"
    sizes = [len(load_problems(source, split=split)) for split in ("train", "validation", "test")]
    assert sizes == [train, 256, 256]
    limited = load_problems(source, limit=50, seed=3)
    assert limited == load_problems(source, seed=3)[:50] != load_problems(source, limit=50)


def test_hub_rows_are_read_by_benchmark_fields(monkeypatch):
    """From the hub's own name of the split that is evaluated."""
    import datasets

    rows = {
        ("openai/gsm8k", "main", "test"): {"question": "How many?", "answer": "First <<1+1=2>>2.\n#### 1,234"},
        ("MathArena/aime_2026", None, "train"): {"problem_idx": 1, "answer": 277, "problem": "Least?"},
        ("Hothan/OlympiadBench", "OE_TO_maths_en_COMP", "train"): {
            "question": "?",
            "final_answer": ["$8$", "9"],
            "id": 16,
        },
        ("org/name", "x", "train"): {"problem": "Own?", "answer": "5"},
    }
    monkeypatch.setattr(datasets, "load_dataset", lambda path, subset, split: [rows[path, subset, split]])
    benchmarks = [load_problems(name, split="test")[0] for name in ("gsm8k", "aime26", "olympiadbench")]
    assert [*benchmarks, *load_problems("org/name:x")] == [
        Problem("gsm8k-0", "How many?", "1234", "gsm8k"),
        Problem("aime26-0", "Least?", "277", "aime26"),
        Problem("16", "?", "8, 9", "olympiadbench"),
        Problem("org/name:x-0", "Own?", "5", "org/name:x"),
    ]


@pytest.mark.parametrize("name", BENCHMARKS)
def test_benchmarks_without_the_split_are_refused(name):
    """Training problems are asked for by default: they are never those of the evaluation."""
    splits = {split: hub_split(name, split) for split in (["test", "train"] if name in ("gsm8k", "mbpp") else ["test"])}
    assert len(set(splits.values())) == len(splits)
    for split in {"train", "test", "validation", "dev"} - splits.keys():
        with pytest.raises(UserError, match=f"^{name}: got split '{split}', expected 'test'"):
            load_problems(name, split=split)


def test_gold_answers_are_extracted():
    golds = {"a\n#### 42": "42", "#### -1,234,567": "-1234567", "#### (1,2)": "(1,2)", "#### 3\nso #### 4": "4"}
    assert {field: read_gold(field) for field in golds} == golds
    assert (read_gold(["$1$", "$2$"]), read_gold(0.5)) == ("1, 2", "0.5")
    assert {read_gold(field) for field in ([], None, "####", float("inf"), True)} == {""}


@pytest.mark.skipif(not SHARED.is_dir(), reason="the benchmark files are not on this machine")
@pytest.mark.parametrize("name", BENCHMARK_FILES)
def test_benchmarks_have_their_number_of_problems(name):
    """tests/verifier/test_benchmark_golds.py verifies the gold answers."""
    file, count = BENCHMARK_FILES[name]
    assert len(load_problems(f"{name}={SHARED / file}.jsonl")) == count


def test_source_names():
    sources = ["gsm8k=x/y.jsonl", "data/my.parquet", "synthetic:countdown", "openai/gsm8k:main", "math500"]
    assert list(name_sources(sources)) == ["gsm8k", "my", "countdown", "openai-gsm8k-main", "math500"]
    assert list(name_sources(sources).values()) == sources
    assert list(name_sources(["mine=v2.jsonl"])) == ["mine=v2"]  # a file, as `mine` is not a benchmark
    with pytest.raises(UserError, match=r"a/x.jsonl and b/x.csv: got the name 'x' for both; evaluate them separately"):
        name_sources(["a/x.jsonl", "b/x.csv"])


# --- programs -------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".csv", ".parquet"])
@pytest.mark.parametrize(("name", "row"), [("humaneval", HUMANEVAL), ("mbpp", MBPP)])
def test_programs_are_read_from_all_formats(tmp_path, suffix, name, row):
    """A CSV file has a list as JSON. The benchmark's name changes the source alone."""
    listed = {"test_list": json.dumps(row["test_list"])} if suffix == ".csv" and name == "mbpp" else {}
    path = write_rows(tmp_path / f"mine{suffix}", [row | listed] * 2)
    text, answer = read_code_problem(row, "")
    for source, label in ((path, "mine"), (f"{name}={path}", name)):
        problems = load_problems(source)
        assert [(p.problem, p.answer, p.source) for p in problems] == [(text, answer, label)] * 2
        assert {p.reward for p in problems} == {CODE_REWARD} and problems[0].id == str(row["task_id"])
        assert problems[0].row["prompt" if name == "humaneval" else "code"] and problems[0].row["problem"] == text


def test_local_benchmarks_have_hub_or_own_fields(tmp_path):
    hub_form = write_rows(tmp_path / "a.jsonl", [{"question": "How many?", "answer": "so\n#### 7"}])
    own_form = write_rows(tmp_path / "b.jsonl", [{"problem": "How many?", "answer": "7"}])
    for path in (hub_form, own_form):
        assert load_problems(f"gsm8k={path}") == [Problem("gsm8k-0", "How many?", "7", "gsm8k")]


def test_existing_directories_are_not_hub_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert is_hub_name("org/name") and is_hub_name("org/name:main") and is_hub_name("gsm8k")
    (tmp_path / "org" / "name").mkdir(parents=True)
    assert not any(map(is_hub_name, ("org/name", "org/other.jsonl", "synthetic:countdown", "gsm8k=x.jsonl")))
