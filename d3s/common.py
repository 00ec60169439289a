"""Shared helpers: UserError and exit code, usable GPU, atomic files, JSON lines, safe text, quiet libraries."""

import errno
import json
import logging
import math
import os
import shutil
import sys
import time
import unicodedata
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any

NOTHING_TRAINED = 3  # the exit code of a run without a trained token
FIRST_RANK_S = 5  # for the first rank of a node to report a mistake, after which a launcher ends the others


class UserError(Exception):
    """A mistake that the user can correct, as one sentence: `<key or file>: <problem>; <remedy>`."""


def exit_code(main: Callable[[], int | None]) -> int:
    """Run a command line. Return its exit code, or 2 after printing a UserError to stderr.

    A path without permission, or longer than a path can be, is a user's mistake wherever it is looked at.
    """
    _open_closed_outputs()
    with suppress(AttributeError, OSError):  # of an output that a caller has replaced
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal may lack characters of messages
    try:
        return main() or 0
    except UserError as error:
        text = str(error)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.ENAMETOOLONG) or error.filename is None:
            raise
        name = str(error.filename)
        cut = name[:80] + "…" * (len(name) > 80)
        text = f"{cut}: {error.strerror}; check the path and its permissions"
    if os.environ.get("LOCAL_RANK", "0") != "0":
        time.sleep(FIRST_RANK_S)
    print(f"error: {text}", file=sys.stderr)
    return 2


def _open_closed_outputs() -> None:
    """Send closed outputs to the null device, also those of C code, so that no file of a run gets the descriptors."""
    if sys.stdout and sys.stderr:
        return
    while (descriptor := os.open(os.devnull, os.O_RDWR)) < 3:
        pass
    os.close(descriptor)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", errors="backslashreplace"))  # noqa: SIM115 (for the process)


def silence_libraries() -> None:
    """Reduce the libraries' output to errors. Call before importing torch, transformers, vLLM and DeepSpeed."""
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


# --- the device ------------------------------------------------------------------------------------------------------

LEAST_DRIVER = "580"  # of NVIDIA, for CUDA 13, which the pinned torch is built for


def gpu_problem() -> str | None:
    """Why torch can use no GPU, in its own words, and what it needs; None if it can use one."""
    import torch

    if torch.cuda.is_available():
        return None
    try:
        torch.cuda.init()
        reason = "torch.cuda.is_available() is False"
    except Exception as error:
        reason = " ".join(str(error).split())[:200].rstrip(".")
    return f"torch {torch.__version__} finds no usable GPU ({reason}); it needs NVIDIA driver {LEAST_DRIVER} or newer"


def require_gpu(optional: bool) -> None:
    """Raise UserError if torch is a build for GPUs and can use none; builds for CPUs need none.

    Args:
        optional: the CPU will do if CUDA_VISIBLE_DEVICES hides every GPU.
    """
    import torch

    if torch.version.cuda is None or (optional and os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")):
        return
    if problem := gpu_problem():
        raise UserError(
            f"{problem}; to use the CPU on purpose set CUDA_VISIBLE_DEVICES=-1 and rollout.engine: transformers "
            "(eval.py: --engine transformers)"
        )


# --- JSON -------------------------------------------------------------------------------------------------------------


class JsonLines:
    """An append-only JSON-lines file. Each `append` writes all of its lines or, on a full disk, none of them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with writing(path):
            self._file = open(path, "ab", buffering=0)  # noqa: SIM115 (closed by `close`)

    def append(self, *records: dict) -> tuple[int, int]:
        """Write one line per record. Return the byte offset and the number of bytes of what was written.

        Raises: UserError if the disk is full; the file then has its previous length.
        """
        data, size = b"".join(json_line(record).encode() for record in records), os.fstat(self._file.fileno()).st_size
        written = 0
        try:
            while written < len(data):
                written += self._file.write(data[written:])
        except OSError as error:
            with suppress(OSError):  # an incomplete last line is not read
                self._file.truncate(size)
            raise disk_error(self._path, error) from None
        return size, len(data)

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> "JsonLines":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_json_lines(path: Path, warn: bool = False) -> list[dict]:
    """Read the complete records of a JSON-lines file, [] if the file does not exist.

    A line that is not a JSON object is skipped: the last line is incomplete while the file is being written, or after
    the writer was killed. `warn` is whether to print the numbers of other skipped lines, without blank ones.
    """
    if not path.exists():
        return []
    records, skipped = [], []
    for number, line in enumerate(lines := path.read_bytes().split(b"\n"), start=1):
        try:
            record = json.loads(line)
        except ValueError:
            record = None
        if isinstance(record, dict):
            records.append(record)
        elif line.strip() and number < len(lines):
            skipped.append(number)
    if warn:
        warn_of_damage(path, skipped)
    return records


def warn_of_damage(path: Path, numbers: Iterable[int]) -> None:
    """Print the numbers of a file's lines that are left out, if there are any."""
    if lines := ", ".join(map(str, numbers)):
        print(f"warning: {path}: damaged lines are left out: {lines:.60}", file=sys.stderr)


def json_line(record: dict) -> str:
    """Serialize `record` as one line. Raises ValueError for NaN and infinity, which are not JSON."""
    return json.dumps(record, allow_nan=False) + "\n"


def to_jsonable(value: Any) -> Any:
    """Convert `value` to what JSON can represent: scalar tensors become numbers, NaN and infinity become None."""
    if isinstance(value, dict):
        return {str(key): to_jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_jsonable(item) for item in value]
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


# --- files ------------------------------------------------------------------------------------------------------------


def write_atomically(path: Path, data: bytes | Iterable[bytes]) -> None:
    """Write `data`, bytes or chunks of them, to a temporary file and rename it to `path`.

    Raises: UserError if the disk does not take it; the previous file then remains.
    """
    temporary = path.with_name(path.name + ".tmp")
    try:
        with writing(path):
            with temporary.open("wb") as file:
                file.writelines([data] if isinstance(data, bytes) else data)
            os.replace(temporary, path)
    finally:
        with suppress(OSError):  # renamed, or never made
            temporary.unlink()


def write_json(path: Path, value: Any) -> None:
    """Write `value` as indented JSON, atomically."""
    write_atomically(path, (json.dumps(value, indent=2) + "\n").encode())


@contextmanager
def write_directory(path: Path, replace: bool = True) -> Iterator[Path]:
    """Yield an empty temporary directory next to `path`; rename it to `path` when the block ends without an error.

    replace: False keeps the same files that another process has put at `path` in the meantime.
    Raises: UserError if the disk does not take it; the previous directory then remains.
    """
    temporary = path.with_name(f".{path.name}.partial" + ("" if replace else str(os.getpid())))
    try:
        with writing(path):
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir(parents=True)
            yield temporary
            if replace:
                replace_directory(temporary, path)
                return
            try:
                temporary.rename(path)
            except OSError:
                if not all((path / file.name).exists() for file in temporary.iterdir()):
                    raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def replace_directory(new: Path, path: Path) -> None:
    """Rename the directory `new`, a neighbor of `path`, to `path`. An error leaves the previous directory.

    A kill may leave the previous one aside, which recover_directories puts back.
    """
    aside = path.with_name(f".{path.name}.replaced")
    if path.exists():
        shutil.rmtree(aside, ignore_errors=True)
        path.rename(aside)
    try:
        new.rename(path)
    except OSError:
        if aside.exists():
            aside.rename(path)
        raise
    shutil.rmtree(aside, ignore_errors=True)


def recover_directories(folder: Path) -> None:
    """Clean up after a kill in write_directory or replace_directory: of each directory one whole version remains."""
    for aside in folder.glob(".*.replaced"):
        if not (path := aside.with_name(aside.name[1:].removesuffix(".replaced"))).exists():
            aside.rename(path)
    for remains in (*folder.glob(".*.replaced"), *folder.glob(".*.partial")):
        shutil.rmtree(remains, ignore_errors=True)


def make_directory(path: Path) -> None:
    """Make a directory and its parents. Raises UserError if that is impossible."""
    with writing(path):
        path.mkdir(parents=True, exist_ok=True)


@contextmanager
def writing(path: Path, remedy: str = "choose another output directory") -> Iterator[None]:
    """Raise the disk_error of `path` if the operating system or safetensors cannot write in the block."""
    from safetensors import SafetensorError

    try:
        yield
    except (OSError, SafetensorError) as error:
        raise disk_error(path, error, remedy) from None


def disk_error(path: Path, error: Exception, remedy: str = "choose another output directory") -> UserError:
    """Describe why `path` cannot be written. On a full disk the remedy is to free space, else it is `remedy`.

    error: an OSError, or the RuntimeError or SafetensorError by which torch and safetensors report a full disk.
    """
    if not isinstance(error, OSError) or error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        remedy = "free some space and rerun the command (with --resume auto if it trains: from the last checkpoint)"
    reason = (isinstance(error, OSError) and error.strerror) or next(iter(str(error).splitlines()), "unknown error")
    return UserError(f"{path}: cannot be written ({reason}); {remedy}")


# --- text -------------------------------------------------------------------------------------------------------------

EXCERPT = 60  # characters of a text quoted in a message
BIDI_CONTROLS = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


def printable(text: str) -> str:
    """Replace characters that move the cursor, ring a bell or reorder a line: model output may be hostile."""
    return "".join(_visible(character) for character in text)


def _visible(character: str) -> str:
    category = unicodedata.category(character)
    if category == "Cc" and character != "\n":
        return chr(0x2400 + ord(character)) if ord(character) < 32 else "\N{REPLACEMENT CHARACTER}"
    if category == "Cs" or unicodedata.bidirectional(character) in BIDI_CONTROLS:
        return "\N{REPLACEMENT CHARACTER}"
    return character


def describe(error: BaseException) -> str:
    """What a function raised, as a clause."""
    return "raised " + short(f"{type(error).__name__}: {error}".removesuffix(": "), 3 * EXCERPT)


def shown(value: Any) -> str:
    """The beginning of a value's repr."""
    try:
        return short(repr(value))
    except Exception:  # a user's class; an integer of thousands of digits
        return f"a {type(value).__name__}"


def short(text: str, most: int = EXCERPT) -> str:
    """One printable line of at most this many characters."""
    line = " ".join(printable(text[: 4 * most]).split())
    return line if len(line) <= most else line[: most - 1] + "…"


def suggestion(name: str, known: Iterable[str]) -> str:
    """The known name that `name` resembles, as a question in parentheses; "" if there is none."""
    close = get_close_matches(name, list(known), 1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def quote(text: str) -> str:
    """The beginning of a text in quotation marks."""
    return f'"{short(text)}"'


def scored_by(record: Mapping[str, Any]) -> str:
    """What scored an evaluation's responses, as it follows the name of the data set; "" if the record does not say."""
    name = str(record.get("reward", "")).rpartition(":")[2]
    return f" by {name}" if name else ""
