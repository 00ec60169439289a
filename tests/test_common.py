"""Test the shared helpers against strict JSON, file-size limits, kills and hand-written answers."""

import json
import os
import resource
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from d3s.common import (
    JsonLines,
    UserError,
    disk_error,
    exit_code,
    gpu_problem,
    json_line,
    printable,
    read_json_lines,
    require_gpu,
    to_jsonable,
    write_atomically,
    write_directory,
)

ROOT = Path(__file__).resolve().parents[1]


@contextmanager
def file_size_limit(size: int):
    """Let the operating system refuse every byte of a file beyond `size`, as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


# --- command lines ----------------------------------------------------------------------------------------------------


def test_exit_code_of_a_user_error_is_2(capsys):
    def main():
        raise UserError("file: missing; create it")

    assert exit_code(main) == 2
    assert capsys.readouterr() == ("", "error: file: missing; create it\n")


def test_silence_libraries_keeps_user_settings():
    code = (
        "import logging, os, warnings; from d3s.common import silence_libraries; silence_libraries()\n"
        "from transformers.utils import logging as hf\n"
        "with warnings.catch_warnings(record=True) as shown:\n"
        "    for kind in (FutureWarning, DeprecationWarning, UserWarning): warnings.warn(kind.__name__, kind)\n"
        "print([str(w.message) for w in shown], os.environ['TQDM_DISABLE'], os.environ['TRANSFORMERS_VERBOSITY'],\n"
        "      logging.getLogger('vllm').level, hf.is_progress_bar_enabled())\n"
    )
    environment = {k: v for k, v in os.environ.items() if k != "TRANSFORMERS_VERBOSITY"} | {"TQDM_DISABLE": "0"}
    output = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert output.stdout == "['UserWarning'] 0 error 40 False\n", output.stderr


# --- the device -------------------------------------------------------------------------------------------------------


def test_unusable_gpu_is_reported_in_the_words_of_torch(monkeypatch):
    """A build for CUDA without a usable card: refused, but not where the CPU will do and all cards are hidden."""

    def refuse():
        raise RuntimeError("Found no NVIDIA driver on your system.\n Install one.")

    monkeypatch.setattr(torch.cuda, "init", refuse)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(torch.version, "cuda", None)
    require_gpu(optional=False)  # a build for CPUs
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    for optional in (False, True):
        with pytest.raises(UserError) as refusal:
            require_gpu(optional)
        sentence = str(refusal.value)
        assert "(Found no NVIDIA driver on your system. Install one)" in sentence and "driver 580 or newer" in sentence
        assert "CUDA_VISIBLE_DEVICES=-1 and rollout.engine: transformers" in sentence and "\n" not in sentence
    for hidden in ("-1", ""):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
        require_gpu(optional=True)
        with pytest.raises(UserError):
            require_gpu(optional=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert gpu_problem() is None


# --- JSON lines -------------------------------------------------------------------------------------------------------


def test_json_lines_on_a_full_disk_are_all_or_nothing(tmp_path):
    path = tmp_path / "a.jsonl"
    with JsonLines(path) as file:
        file.append({"step": 1, "x": 0.5})
        before = path.read_bytes()
        with file_size_limit(len(before) + 25):  # the first of the next lines would fit
            with pytest.raises(UserError, match=r"a\.jsonl: cannot be written \(File too large\); free some space"):
                file.append({"step": 2, "x": 0.5}, {"step": 3, "x": 0.5})
            assert path.read_bytes() == before
        file.append({"step": 2})
    assert [record["step"] for record in read_json_lines(path)] == [1, 2]


def test_read_json_lines_skips_incomplete_lines(tmp_path):
    path = tmp_path / "a.jsonl"
    assert read_json_lines(path) == []
    path.write_bytes(b'{"a": 1}\n\n[2]\n"text"\n{"a": \n{"a": 3}\n\xff\xfe\n{"a": 4}')
    assert read_json_lines(path) == [{"a": 1}, {"a": 3}, {"a": 4}]


SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-(2**40), 2**40), st.floats(width=32), st.text())


@given(st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=10))
def test_to_jsonable_values_survive_strict_json(value):
    def expected(item):
        if isinstance(item, dict):
            return {key: expected(part) for key, part in item.items()}
        if isinstance(item, list):
            return [expected(part) for part in item]
        return None if isinstance(item, float) and item - item != 0 else item

    text = json_line({"value": to_jsonable(value)})
    assert json.loads(text, parse_constant=pytest.fail)["value"] == expected(value)  # NaN and infinity are not JSON


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [b"new", [b"n", b"", b"ew"]], ids=["bytes", "chunks"])
def test_write_atomically_replaces_the_file(tmp_path, data):
    path = tmp_path / "file"
    path.write_bytes(b"old and longer")
    write_atomically(path, iter(data) if isinstance(data, list) else data)
    assert path.read_bytes() == b"new" and list(tmp_path.iterdir()) == [path]


def test_write_atomically_keeps_the_file_on_failure(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def chunks():
        yield b"new"
        raise KeyboardInterrupt

    with file_size_limit(100), pytest.raises(UserError, match=r"file: cannot be written \(File too large\); free some"):
        write_atomically(path, b"x" * 101)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, chunks())
    with pytest.raises(UserError, match=r"file/below: cannot be written \(Not a directory\); choose another output"):
        write_atomically(path / "below", b"new")
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]


def test_write_directory_replaces_when_complete(tmp_path):
    path = tmp_path / "model"
    path.mkdir()
    (path / "old").touch()
    refused = pytest.raises(UserError, match=r"model: cannot be written \(File too large\); free some")
    with refused, file_size_limit(100), write_directory(path) as temporary:
        (temporary / "new").write_bytes(b"x" * 101)
    with pytest.raises(KeyboardInterrupt), write_directory(path):
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == [path]
    with write_directory(path) as temporary:
        (temporary / "new").touch()
        assert [file.name for file in path.iterdir()] == ["old"] and temporary.parent == tmp_path
    assert [file.name for file in path.iterdir()] == ["new"] and list(tmp_path.iterdir()) == [path]
    with write_directory(path, replace=False) as temporary:  # another process was first
        (temporary / "second").touch()
    assert [file.name for file in path.iterdir()] == ["new"] and list(tmp_path.iterdir()) == [path]


FULL = "free some space and rerun the command (train.py: --resume auto, from step 1 without a checkpoint)"


@pytest.mark.parametrize(
    ("error", "reason", "remedy"),
    [
        (OSError(28, "No space left on device"), "No space left on device", FULL),
        (OSError(13, "Permission denied"), "Permission denied", "choose another --html"),
        (RuntimeError("write failed\nat line 9"), "write failed", FULL),
    ],
)
def test_disk_error_names_reason_and_remedy(error, reason, remedy):
    message = str(disk_error(Path("a/b"), error, "choose another --html"))
    assert message == f"a/b: cannot be written ({reason}); {remedy}"


# --- text -------------------------------------------------------------------------------------------------------------


def test_printable_replaces_control_characters():
    assert printable("a\nb\x00\x1b[2J\x07\x7f\x9b\u202egnp\u2066\ud800é") == "a\nb␀␛[2J␇���gnp��é"


@given(st.text())
def test_printable_text_is_safe_and_stable(text):
    shown = printable(text)
    assert len(shown) == len(text) and printable(shown) == shown
    assert all(c == "\n" or c.isprintable() or ord(c) >= 0xA0 for c in shown)
    assert not set(shown) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
