"""Test the shared helpers against strict JSON, file-size limits, kills and hand-written answers."""

import io
import json
import math
import os
import resource
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from hypothesis import example, given
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
from tests.helpers.configs import ROOT
from tests.helpers.processes import run_python


@contextmanager
def file_size_limit(size: int):
    """Let the operating system refuse every byte of a file beyond `size`, as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


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
    assert run_python(code, env=environment) == "['UserWarning'] 0 error 40 False\n"


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
        os.dup2(os.open(path, os.O_RDONLY), file._file.fileno())  # now truncate fails too
        with pytest.raises(UserError, match=r"a\.jsonl: cannot be written \(Bad file descriptor\)"):
            file.append({"step": 3})
    assert [record["step"] for record in read_json_lines(path)] == [1, 2]


def test_read_json_lines_skips_incomplete_lines(tmp_path):
    path = tmp_path / "a.jsonl"
    assert read_json_lines(path) == []
    path.write_bytes(b'{"a": 1}\n\n[2]\n"text"\n{"a": \n{"a": 3}\n\xff\xfe\n{"a": 4}')
    assert read_json_lines(path) == [{"a": 1}, {"a": 3}, {"a": 4}]


def test_to_jsonable_values_survive_strict_json():
    value = {"a": [math.nan, torch.tensor(2.5), (math.inf, 3)], 1: [None, True, "x", torch.tensor(-math.inf)]}
    assert json.loads(json_line(to_jsonable(value))) == {"a": [None, 2.5, [None, 3]], "1": [None, True, "x", None]}
    with pytest.raises(ValueError, match="not JSON compliant"):
        json_line({"a": math.nan})


def test_write_atomically_replaces_the_file_or_keeps_it(tmp_path):
    path = tmp_path / "file"
    for data, content in ((b"longer", b"longer"), (iter([b"o", b"", b"ld"]), b"old")):
        write_atomically(path, data)
        assert path.read_bytes() == content and list(tmp_path.iterdir()) == [path]

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
        (temporary / "new").touch()
    with pytest.raises(UserError, match="model: cannot be written"), write_directory(path, replace=False) as temporary:
        (temporary / "second").touch()
    assert [file.name for file in path.iterdir()] == ["new"] and list(tmp_path.iterdir()) == [path]


def test_disk_error_names_reason_and_remedy():
    full = "free some space and rerun the command (with --resume auto if it trains: from the last checkpoint)"
    for error, reason, remedy in (
        (OSError(28, "No space left on device"), "No space left on device", full),
        (OSError(13, "Permission denied"), "Permission denied", "choose another --html"),
        (RuntimeError("write failed\nat line 9"), "write failed", full),
    ):
        message = str(disk_error(Path("a/b"), error, "choose another --html"))
        assert message == f"a/b: cannot be written ({reason}); {remedy}"


@given(st.text())
@example("a\nb\x00\x1b[2J\x07\x7f\x9b\u202egnp\u2066\ud800é")
def test_printable_text_is_safe_and_stable(text):
    shown = printable(text)
    assert len(shown) == len(text) and printable(shown) == shown and (shown == text or not text.isprintable())
    assert all(c == "\n" or c.isprintable() or ord(c) >= 0xA0 for c in shown)
    assert not any(0xD800 <= ord(c) < 0xE000 for c in shown)
    assert not set(shown) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def test_output_without_a_character_escapes_it(monkeypatch):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, "latin-1"))
    assert exit_code(lambda: print("é …", flush=True)) == 0
    assert written.getvalue() == b"\xe9 \\u2026\n"


def test_closed_outputs_are_discarded():
    """As under daemons that close them, where sys.stdout is None."""
    opened = "sys.stdout.write('abcde') + 20 * (open('README.md').fileno() > 2)"
    program = f"import sys; from d3s.common import exit_code; sys.exit(exit_code(lambda: {opened}))"
    command = f'exec "{sys.executable}" -c "{program}" <&- >&- 2>&-'
    assert subprocess.run(["sh", "-c", command], cwd=ROOT).returncode == 25
