"""What every module may use: UserError and the exit code, atomic files, text that is safe to print, quiet libraries."""

import errno
import json
import logging
import math
import os
import sys
import unicodedata
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any


class UserError(Exception):
    """A mistake that the user can correct, as one sentence: what is wrong, where, and what is allowed."""


def exit_code(main: Callable[[], int | None]) -> int:
    """Run a command line. Return its exit code, or 2 after printing the sentence of a UserError."""
    try:
        return main() or 0
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def silence_libraries() -> None:
    """Call before torch, transformers, vLLM and DeepSpeed are imported. Errors still show."""
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TQDM_DISABLE", "1")
    os.environ.setdefault("DS_ACCELERATOR", "cuda" if os.path.exists("/dev/nvidiactl") else "cpu")
    warnings.filterwarnings("ignore", category=FutureWarning)
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    for name in ("torch._library.triton", "vllm", "deepspeed", "DeepSpeed", "torch.distributed"):
        logging.getLogger(name).setLevel(logging.ERROR)

    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()


class JsonLines:
    """An append-only file to which a line comes whole or, on a full disk, not at all."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._file = open(path, "ab", buffering=0)  # noqa: SIM115 (held open until close)
        except OSError as error:
            raise disk_error(path, error) from None

    def append(self, record: dict) -> None:
        data, size = json_line(record).encode(), os.fstat(self._file.fileno()).st_size
        written = 0
        try:
            while written < len(data):
                written += self._file.write(data[written:])
        except OSError as error:
            self._file.truncate(size)
            raise disk_error(self._path, error) from None

    def close(self) -> None:
        self._file.close()


def read_json_lines(path: Path) -> list[dict]:
    """The whole lines of a JSON-lines file, [] if there is none. A torn line (killed or in the writing) is skipped."""
    if not path.exists():
        return []
    records = []
    for line in path.read_bytes().split(b"\n"):
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict):
            records.append(record)
    return records


def printable(text: str) -> str:
    """`text` without the power to move a cursor, ring a bell or reorder its line: model output is hostile."""
    return "".join(_visible(character) for character in text)


def _visible(character: str) -> str:
    category = unicodedata.category(character)
    if category == "Cc" and character != "\n":
        return chr(0x2400 + ord(character)) if ord(character) < 32 else "\N{REPLACEMENT CHARACTER}"
    if category == "Cs" or unicodedata.bidirectional(character) in _BIDI_CONTROLS:
        return "\N{REPLACEMENT CHARACTER}"
    return character


_BIDI_CONTROLS = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


def to_jsonable(value: Any) -> Any:
    """`value` as JSON can hold it: tensors and NumPy scalars become numbers, those that are not finite None."""
    if isinstance(value, dict):
        return {str(key): to_jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_jsonable(item) for item in value]
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def json_line(record: dict) -> str:
    return json.dumps(record, allow_nan=False) + "\n"


def write_atomically(path: Path, data: bytes) -> None:
    """Write `data` beside `path` and rename it there."""
    beside = path.with_name(path.name + ".tmp")
    try:
        beside.write_bytes(data)
        os.replace(beside, path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise disk_error(path, error) from None


def make_directory(path: Path) -> None:
    """A directory with all above it. Raises UserError where it cannot be."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise disk_error(path, error) from None


def disk_error(path: Path, error: OSError) -> UserError:
    """The sentence for a file that cannot be written."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        remedy = "free some space and run the same command again (train.py: with --resume auto)"
    else:
        remedy = "choose another output directory"
    return UserError(f"cannot write {path} ({error.strerror}): {remedy}")


def write_json(path: Path, value: Any) -> None:
    """Write `value` as indented JSON, atomically."""
    write_atomically(path, (json.dumps(value, indent=2) + "\n").encode())
