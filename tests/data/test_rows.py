"""Rows of files and hub data sets, against what was written; malformed input is refused."""

import os

import pytest

from d3s.common import UserError
from d3s.data.rows import file_rows, hub_rows
from tests.helpers.data_files import assert_refused_with_location, write_rows

ROWS = [{"problem": "1+1?", "answer": "2"}, {"problem": "What is $\\frac{1}{2}$, in décimal?", "answer": "0.5"}]


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".csv", ".parquet"])
def test_all_file_formats_give_the_same_rows(tmp_path, suffix):
    path = tmp_path / f"small{suffix}"
    write_rows(path, ROWS)
    if suffix == ".csv":
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())  # a byte order mark, as spreadsheets write it
    locations, rows = zip(*file_rows(path))
    first = {".jsonl": "line 1", ".json": "record 1", ".csv": "line 2", ".parquet": "row 1"}[suffix]
    assert list(rows) == ROWS and locations[0] == f"{path} {first}"


@pytest.mark.parametrize(
    ("suffix", "content", "expected"),
    [
        ("jsonl", b'{"problem": "a", "answer": "1"}\n{"problem": "b", "ans\n', "line 2: not valid JSON"),
        ("jsonl", b'{"problem": "a"}\n\n{"problem": "b"}\n', "line 2: got an empty line, expected one JSON object per"),
        ("jsonl", b'["a", "1"]\n', "line 1: got a JSON list, expected an object"),
        ("jsonl", b"[" * 200_000 + b"\n", "line 1: not valid JSON"),
        ("jsonl", b'{"problem": "a", "answer": "1", "answer": "2"}\n', "line 1: duplicate key 'answer'"),
        ("csv", b"problem,answer,answer\na,1,2\n", "line 1: duplicate column 'answer'"),
        ("json", b'[{"problem": "a", "answer": ' + b"9" * 5000 + b"}]", "not valid JSON"),
        ("json", b"[" * 200_000, "not valid JSON"),
        ("jsonl", '{"problem": "\xe9", "answer": "1"}\n'.encode("latin-1"), "not UTF-8 text"),
        ("json", b'{"problem": "a", "answer": "1"}', "got a JSON dict, expected a list of objects"),
        ("json", b'[{"problem": "a"},\n', "line 2: not valid JSON"),
        ("json", b'[{"problem": "a", "answer": "1"}, 3]', "record 2: got a JSON int, expected an object"),
        ("csv", b"problem,answer\na,1\nb,2,3\n", "line 3: the number of columns is not the header's 2"),
        ("csv", b'problem,answer\n"a"b,1\n', "line 2: not valid CSV"),
        ("parquet", b"hello", "not a readable Parquet file"),
        ("txt", b"hello", "got suffix '.txt', expected one of .jsonl, .json, .csv, .parquet"),
    ],
    ids=range(16),
)
def test_malformed_files_are_refused_with_location(tmp_path, suffix, content, expected):
    path = tmp_path / f"x.{suffix}"
    assert_refused_with_location(path, content, expected, lambda: list(file_rows(path)))


def test_only_regular_files_are_read(tmp_path):
    (tmp_path / "dir.jsonl").mkdir()
    os.mkfifo(tmp_path / "pipe.jsonl")  # opening it would wait forever for a writer
    for name, kind in (("none", "no such file"), ("dir", "got a directory"), ("pipe", "got a special file, expected")):
        with pytest.raises(UserError, match=f"{name}.jsonl: {kind}"):
            list(file_rows(tmp_path / f"{name}.jsonl"))


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
        return [{"problem": "1+1?", "answer": "2"}]

    for module in flags:
        monkeypatch.setattr(module, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub, "get_session", Session)
    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    assert list(hub_rows("org/name", "train", "")) == [("org/name row 1", {"problem": "1+1?", "answer": "2"})]
    assert timeouts == [5] and modes == [[True, True]] and not any(module.HF_HUB_OFFLINE for module in flags)
    Session.head = lambda self, url, timeout: None
    list(hub_rows("org/name", "train", ""))
    assert modes[1] == [False, False]


def test_hub_errors_name_the_split_and_the_remedy(monkeypatch):
    import datasets

    def offline(path, subset, split):
        raise ConnectionError(f"Couldn't reach {path} [{subset}] {split}\nsecond line")

    monkeypatch.setattr(datasets, "load_dataset", offline)
    with pytest.raises(UserError, match=r"^openai/gsm8k:main: cannot load split 'test' from the hub \(.*\); .* use X$"):
        list(hub_rows("openai/gsm8k:main", "test", "X"))
