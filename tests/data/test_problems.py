"""Problems of every kind of source, and their order: against known rows and permutations; bad input is refused."""

import json
import os
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from d3s.common import UserError
from d3s.config.load import load_config
from d3s.data.code import CODE_REWARD, read_code_problem
from d3s.data.order import build_order
from d3s.data.problems import Problem, hub_split, is_hub_name, load_problems, name_sources, problem_order
from d3s.data.rows import file_rows, hub_rows
from tests.helpers.code_files import HUMANEVAL, MBPP
from tests.helpers.data_files import write_rows

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data" / "benchmarks"  # not part of the repository
BENCHMARK_FILES = {  # name: (file, number of problems)
    "aime24": ("aime24", 30), "aime25": ("aime25", 30), "amc23": ("amc23", 40), "math500": ("math500", 500),
    "gsm8k": ("gsm8k_test", 1319), "minerva": ("minerva_math", 272), "olympiadbench": ("olympiadbench", 675),
}  # fmt: skip
ROWS = [{"problem": "1+1?", "answer": "2"}, {"problem": "What is $\\frac{1}{2}$, in décimal?", "answer": "0.5"}]


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".csv", ".parquet"])
def test_all_file_formats_give_the_same_rows(tmp_path, suffix):
    path = tmp_path / f"small{suffix}"
    write_rows(path, ROWS)
    if suffix == ".csv":
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())  # a byte order mark, as spreadsheets write it
    locations, rows = zip(*file_rows(path))
    first = {".jsonl": "line 1", ".json": "record 1", ".csv": "line 2", ".parquet": "row 1"}[suffix]
    assert list(rows) == ROWS and locations[0] == f"{path} {first}"


@pytest.mark.parametrize(("suffix", "name", "row"), [(".parquet", "humaneval", HUMANEVAL), (".csv", "mbpp", MBPP)])
def test_programs_are_read_from_files(tmp_path, suffix, name, row):
    """A CSV file has a list as JSON. The benchmark's name changes the source alone."""
    listed = {"test_list": json.dumps(row["test_list"])} if name == "mbpp" else {}
    path = write_rows(tmp_path / f"mine{suffix}", [row | listed] * 2)
    text, answer = read_code_problem(row, "")
    for source, label in ((path, "mine"), (f"{name}={path}", name)):
        problems = load_problems(source)
        assert [(p.problem, p.answer, p.source) for p in problems] == [(text, answer, label)] * 2
        assert {p.reward for p in problems} == {CODE_REWARD} and problems[0].id == str(row["task_id"])
        assert problems[0].row["prompt" if name == "humaneval" else "code"] and problems[0].row["problem"] == text


@pytest.mark.parametrize(
    ("suffix", "content", "expected"),
    [
        ("jsonl", b"", "no problems found; expected at least one row with 'problem' and 'answer'"),
        ("jsonl", b'{"question": "a", "answer": "1"}', "no field 'problem'; available fields are 'question', 'answer'"),
        ("jsonl", b'{"problem": "a", "answer": " "}\n', "line 1: field 'answer': got ' ', expected a final answer"),
        ("csv", b"problem,answer\na,1\nb,nan\n", "line 3: field 'answer': got 'nan', expected a final answer"),
        ("jsonl", b'{"problem": "", "answer": "1"}\n', "field 'problem': got '', expected the text of a problem"),
        ("jsonl", b'{"problem": "\\ud800", "answer": "1"}\n', "line 1: field 'problem': got half of a surrogate pair"),
        ("jsonl", b'{"problem": "a", "answer": "1", "id": "\\udc00"}\n', "line 1: field 'id': got half of a surrogate"),
        ("jsonl", b'{"problem": "a", "answer": "1"}\n{"problem": "b", "ans\n', "line 2: not valid JSON"),
        ("jsonl", b'{"problem": "a", "answer": "1"}\n\n{"problem": "b"}\n', "line 2: got an empty line; expected one"),
        ("jsonl", b"[" * 200_000 + b"\n", "line 1: not valid JSON"),
        ("jsonl", b'{"problem": "a", "answer": "1", "answer": "2"}\n', "line 1: duplicate key 'answer'"),
        ("csv", b"problem,answer,answer\na,1,2\n", "line 1: duplicate column 'answer'"),
        ("json", b"[" * 200_000, "not valid JSON"),
        ("jsonl", '{"problem": "\xe9", "answer": "1"}\n'.encode("latin-1"), "not UTF-8 text"),
        ("json", b'{"problem": "a", "answer": "1"}', "got a JSON dict, expected a list of objects"),
        ("json", b'[{"problem": "a"},\n', "not valid JSON (Expecting value: line 2 column 1"),
        ("json", b'[{"problem": "a", "answer": "1"}, 3]', "record 2: got a JSON int, expected an object"),
        ("csv", b"problem,answer\na,1\nb,2,3\n", "line 3: the number of columns is not the header's 2"),
        ("csv", b'problem,answer\n"a"b,1\n', "line 2: not valid CSV"),
        ("parquet", b"hello", "not a readable Parquet file"),
    ],
    ids=range(20),
)
def test_bad_files_are_refused_with_location(tmp_path, suffix, content, expected):
    path = tmp_path / f"x.{suffix}"
    path.write_bytes(content)
    with pytest.raises(UserError) as caught:
        load_problems(str(path))
    message = str(caught.value)
    assert message.startswith(str(path)) and expected in message
    assert "\n" not in message and len(message) < len(str(tmp_path)) + 260


def test_values_that_python_cannot_hold_are_refused(tmp_path):
    late = pyarrow.array([3_000_000], pyarrow.int32()).cast(pyarrow.date32())
    pyarrow.parquet.write_table(pyarrow.table({"problem": ["1+1"], "day": late}), tmp_path / "x.parquet")
    with pytest.raises(UserError, match=r"x.parquet: not a readable Parquet file .date value"):
        load_problems(str(tmp_path / "x.parquet"))


def test_only_regular_files_are_read(tmp_path):
    (tmp_path / "dir.jsonl").mkdir()
    os.mkfifo(tmp_path / "pipe.jsonl")  # opening it would wait forever for a writer
    for name, kind in (("none", "no such file"), ("dir", "got a directory"), ("pipe", "got a special file, expected")):
        with pytest.raises(UserError, match=f"{name}.jsonl: {kind}"):
            load_problems(str(tmp_path / f"{name}.jsonl"))


def test_ids_and_sources_of_rows_are_read(tmp_path):
    rows = [{"question": "1+1?", "gold": 2, "id": 7, "source": "sums/easy"}, {"question": "1/2?", "gold": 0.5}]
    path = write_rows(tmp_path / "x.jsonl", rows)
    problems = load_problems(path, problem_field="question", answer_field="gold")
    assert problems == [Problem("7", "1+1?", "2", "sums/easy"), Problem("x-1", "1/2?", "0.5", "x")]
    hub_form = write_rows(tmp_path / "a.jsonl", [{"question": "How many?", "answer": "so\n#### 7"}])
    own_form = write_rows(tmp_path / "b.jsonl", [{"problem": "How many?", "answer": "7"}])
    for path in (hub_form, own_form):
        assert load_problems(f"gsm8k={path}") == [Problem("gsm8k-0", "How many?", "7", "gsm8k")]


def test_fields_of_objects_and_lists_are_read(tmp_path):
    turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1+1?"}]
    row = {"prompt": turns, "reward_model": {"ground_truth": "2"}, "a.b": "3"}
    path = write_rows(tmp_path / "x.jsonl", [row])
    (tmp_path / "x.jsonl").rename(tmp_path / "x.JSONL")
    path = str(tmp_path / "x.JSONL")
    names = {"problem_field": "prompt.1.content", "answer_field": "reward_model.ground_truth"}
    assert load_problems(path, **names) == [Problem("x-0", "1+1?", "2", "x")]
    assert load_problems(path, **names | {"answer_field": "a.b"})[0].answer == "3"  # a field whose name contains a dot
    for missing in ("reward_model.gold", "reward_model.ground_truth.x", "prompt.2.content", "prompt.-1.content"):
        with pytest.raises(UserError, match=f"no field '{missing}'; available fields are 'prompt', 'reward_model', "):
            load_problems(path, **names | {"answer_field": missing})


@pytest.mark.skipif(not SHARED.is_dir(), reason="the benchmark files are not on this machine")
@pytest.mark.parametrize("name", BENCHMARK_FILES)
def test_benchmarks_have_their_number_of_problems(name):
    """tests/verifier/test_benchmark_golds.py verifies the gold answers."""
    file, count = BENCHMARK_FILES[name]
    problems = load_problems(f"{name}={SHARED / file}.jsonl", verified=True)
    assert len(problems) == count and problems == load_problems(f"{name}={SHARED / file}.jsonl")


# --- sources ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("minerva_math=x.csv", "unknown benchmark 'minerva_math' (did you mean 'minerva'?); expected one of aime24"),
        ("gsm8k=data", "data: got suffix '', expected one of .jsonl, .json, .csv, .parquet"),
        (".", ".: a directory; expected a file (.jsonl"),
        ("aime", "aime: unknown data set (did you mean 'aime2"),
        ("data.txt", "data.txt: unknown data set; expected a file (.jsonl, .json, .csv, .parquet), a hub name"),
        ("synthetic:chess", "synthetic:chess: unknown task; expected one of synthetic:precedence, synthetic:mixed"),
    ],
)
def test_unknown_sources_are_refused(source, expected):
    with pytest.raises(UserError) as caught:
        load_problems(source)
    assert expected in str(caught.value)


def test_synthetic_tasks_have_default_sizes():
    sizes = [len(load_problems("synthetic:countdown", split=split)) for split in ("train", "validation", "test")]
    assert sizes == [2048, 256, 256]
    limited = load_problems("synthetic:countdown", limit=50, seed=3)
    assert limited == load_problems("synthetic:countdown", seed=3)[:50] != load_problems("synthetic:countdown")[:50]


def test_hub_rows_are_read_by_benchmark_fields(monkeypatch):
    """From the hub's own name of the split that is evaluated."""
    import datasets

    olympiad = {"question": "?", "final_answer": ["$8$", "9"], "id": 16}
    rows = {
        ("openai/gsm8k", "main", "test"): {"question": "How many?", "answer": "First <<1+1=2>>2.\n#### 1,234"},
        ("MathArena/aime_2026", None, "train"): {"problem_idx": 1, "answer": 277, "problem": "Least?"},
        ("Hothan/OlympiadBench", "OE_TO_maths_en_COMP", "train"): olympiad,
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


@pytest.mark.parametrize("name", ["gsm8k", "mbpp", "aime24"])
def test_benchmarks_without_the_split_are_refused(name):
    """Training problems are asked for by default: they are never those of the evaluation."""
    splits = {split: hub_split(name, split) for split in (["test"] if name == "aime24" else ["test", "train"])}
    assert len(set(splits.values())) == len(splits)
    for split in {"train", "validation"} - splits.keys():
        with pytest.raises(UserError, match=f"^{name}: got split '{split}', expected 'test'"):
            load_problems(name, split=split)


def test_unreachable_hub_is_contacted_once(monkeypatch):
    """The libraries are in offline mode, in which they go straight to their cache, only during the call."""
    import datasets
    import huggingface_hub

    timeouts, modes, flags = [], [], (huggingface_hub.constants, datasets.config)

    class Session:
        def head(self, url, timeout):
            timeouts.append(timeout)
            raise OSError("Name or service not known")

    def load_dataset(path, subset, split):
        modes.append([module.HF_HUB_OFFLINE for module in flags])
        if split == "test":
            raise ConnectionError(f"Couldn't reach {path} [{subset}]\nsecond line")
        return ROWS

    for module in flags:
        monkeypatch.setattr(module, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub, "get_session", Session)
    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    assert next(hub_rows("org/name", "train", "")) == ("org/name row 1", ROWS[0])
    assert timeouts == [5] and modes == [[True, True]] and not any(module.HF_HUB_OFFLINE for module in flags)
    Session.head = lambda self, url, timeout: None
    with pytest.raises(UserError, match=r"^org/gsm8k:main: cannot load split 'test' from the hub \(.*\); .* use X$"):
        next(hub_rows("org/gsm8k:main", "test", "X"))
    assert modes[1] == [False, False]


def test_source_names(tmp_path, monkeypatch):
    sources = ["gsm8k=x/y.jsonl", "data/my.parquet", "synthetic:countdown", "openai/gsm8k:main", "math500"]
    assert list(name_sources(sources)) == ["gsm8k", "my", "countdown", "openai-gsm8k-main", "math500"]
    assert list(name_sources(sources).values()) == sources
    assert list(name_sources(["mine=v2.jsonl"])) == ["mine=v2"]  # a file, as `mine` is not a benchmark
    with pytest.raises(UserError, match=r"a/x.jsonl and b/x.csv: got the name 'x' for both; evaluate them separately"):
        name_sources(["a/x.jsonl", "b/x.csv"])
    monkeypatch.chdir(tmp_path)
    assert is_hub_name("org/name") and is_hub_name("org/name:main") and is_hub_name("gsm8k")
    (tmp_path / "org" / "name").mkdir(parents=True)
    assert not any(map(is_hub_name, ("org/name", "org/other.jsonl", "synthetic:countdown", "gsm8k=x.jsonl")))


# --- samples and order ------------------------------------------------------------------------------------------------


def test_limited_sample_is_spread_and_independent_of_seed(tmp_path):
    path = write_rows(tmp_path / "x.jsonl", [{"problem": f"{i}?", "answer": str(i)} for i in range(1000)])

    def numbers(**options):
        return [int(p.answer) for p in load_problems(path, **options)]

    small, large = (numbers(limit=limit, sampled=True) for limit in (100, 300))
    assert numbers(limit=100) == list(range(100)) and numbers(limit=1000, sampled=True) == list(range(1000))
    assert numbers(limit=100, sampled=True, seed=7) == small == sorted(small) and set(small) < set(large)
    assert sum(small) / 100 == pytest.approx(499.5, abs=4 * 288.7 / 10)  # four standard errors; of the first it is 49.5


@given(st.integers(1, 40), st.integers(0, 2**31), st.lists(st.integers(0, 25), max_size=12))
def test_order_is_a_function_of_position(size, seed, counts):
    position, taken = 0, []
    for count in counts:
        taken += problem_order(size, seed, position, count)
        position += count
    assert taken == problem_order(size, seed, 0, position)
    for epoch in range(position // size):
        assert sorted(taken[epoch * size : (epoch + 1) * size]) == list(range(size))


def test_default_order_differs_by_epoch_and_seed():
    """What is learned changes nothing, and there is no state."""
    order, taken = build_order(load_config([], []), [Problem("0", "problem", "1", "test")] * 30), []
    for position in range(0, 60, 3):
        taken += order.take(count=3, position=position)
        order.learn(problems=taken[-3:], verdicts=torch.ones(3, 4), rewards=torch.ones(3, 4))
    assert taken == problem_order(30, 0, 0, 60) and order.metrics() is None and not order.has("state_dict")
    assert taken[30:] != taken[:30] != problem_order(30, 1, 0, 30) and taken[:30] != list(range(30))
