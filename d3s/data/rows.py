"""Rows of local files and hub data sets, each with its location for error messages.

Local files are read completely, so that a bad line is reported before a model is loaded.
"""

import csv
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from d3s.common import UserError
from d3s.pretrained import ask_hub

FILE_SUFFIXES = (".jsonl", ".json", ".csv", ".parquet")
Row = tuple[str, dict[str, Any]]  # location (file and line, for error messages), fields
ReadRow = tuple[str, Any]  # or what is wrong with it, or a JSON value of another kind


def is_data_file(source: str) -> bool:
    """Whether a source has the suffix of a data file, in either case."""
    return Path(source).suffix.lower() in FILE_SUFFIXES


def read_field(row: dict[str, Any], name: str, location: str) -> Any:
    """The value of a field; `a.b` is the field b of the object in field a, unless a field itself is named `a.b`.

    `a.0` is the first item of the list in field a: `prompt.0.content` reads the first message of a conversation.
    """
    value: Any = row
    for part in (name,) if name in row else name.split("."):
        if isinstance(value, list):
            value = {str(index): item for index, item in enumerate(value)}
        if not isinstance(value, dict) or part not in value:
            available = ", ".join(map(repr, row)) or "none"
            raise UserError(f"{location}: no field {name!r}; available fields are {available:.200}")
        value = value[part]
    return value


def require_text(value: Any, name: str, location: str, expected: str = "text") -> str:
    """The value of field `name`. Raises UserError if it is no text, is blank, or is not Unicode."""
    if not isinstance(value, str) or not value.strip():
        raise UserError(f"{location}: field {name!r}: got {value!r:.60}, expected {expected}")
    return require_unicode(value, name, location)


def require_unicode(value: str, name: str, location: str) -> str:
    """The text of field `name`. Raises UserError if it has half of a surrogate pair, which only JSON can write."""
    if re.search("[\ud800-\udfff]", value):
        raise UserError(f"{location}: field {name!r}: got half of a surrogate pair, expected Unicode text")
    return value


def file_rows(path: Path, bad_rows: list[UserError] | None = None) -> Iterator[Row]:
    """Yield the rows of a local file. Raises UserError with file and line for anything malformed.

    bad_rows: if given, a malformed row is left out, and its error appended.
    """
    suffix = path.suffix.lower()
    if suffix not in FILE_SUFFIXES:
        raise UserError(f"{path}: got suffix {path.suffix!r}, expected one of {', '.join(FILE_SUFFIXES)}")
    if not path.is_file():
        kind = "a directory" if path.is_dir() else "a special file"
        raise UserError(f"{path}: got {kind}, expected a regular file" if path.exists() else f"{path}: no such file")
    try:
        if suffix == ".parquet":
            yield from _parquet_rows(path)
        else:
            reader = {".jsonl": _jsonl_rows, ".json": _json_rows, ".csv": _csv_rows}[suffix]
            with path.open(encoding="utf-8-sig", newline="") as file:
                for location, row in reader(path, file):
                    if isinstance(row, dict):
                        yield location, row
                        continue
                    kind = f"got a JSON {type(row).__name__}, expected an object with a problem and an answer"
                    error = row if isinstance(row, UserError) else UserError(f"{location}: {kind}")
                    if bad_rows is None:
                        raise error
                    bad_rows.append(error)
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 text ({error.reason} at byte {error.start})") from error
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or error})") from error


def hub_rows(name: str, split: str, remedy: str) -> Iterator[Row]:
    """Yield the rows of the hub data set `org/name` or `org/name:subset`, from the local cache or downloaded.

    `remedy` is what the error message recommends where the hub cannot be reached.
    """
    from datasets import load_dataset

    path, _, subset = name.partition(":")
    try:
        with _offline_unless_hub_answers():
            rows = load_dataset(path, subset or None, split=split)
    except Exception as error:  # offline, gated, misspelled and malformed data sets raise a dozen unrelated types
        reason = (str(error) or type(error).__name__).splitlines()[0]
        problem = f"cannot load split {split!r} from the hub ({reason})"
        raise UserError(f"{name}: {problem}; without a network, use {remedy}") from error
    features = getattr(rows, "features", None)
    yield from _arrow_rows(rows, features.arrow_schema if features else (), name)


@contextmanager
def _offline_unless_hub_answers() -> Iterator[None]:
    """Set the hub libraries to offline mode if the hub does not answer: else they retry for half a minute."""
    import datasets
    import huggingface_hub

    constants = huggingface_hub.constants
    before = constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE
    if not any(before) and ask_hub(constants.ENDPOINT):
        constants.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE = before


def _jsonl_rows(path: Path, file: TextIO) -> Iterator[ReadRow]:
    lines = file.read().rstrip().split("\n")
    for number, line in enumerate(lines if lines != [""] else [], start=1):
        location = f"{path} line {number}"
        try:
            yield location, _parse_json(line, location, "one JSON object per line")
        except UserError as error:
            yield location, error


def _json_rows(path: Path, file: TextIO) -> Iterator[ReadRow]:
    text = file.read()
    rows = _parse_json(text, path, "a list of objects") if text.strip() else []
    if not isinstance(rows, list):
        raise UserError(f"{path}: got a JSON {type(rows).__name__}, expected a list of objects")
    for number, row in enumerate(rows, start=1):
        yield f"{path} record {number}", row


def _parse_json(text: str, location: object, expected: str) -> Any:
    """Parse JSON. A repeated key is an error: its second value would silently replace the first."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if (duplicate := _first_duplicate([key for key, _ in pairs])) is not None:
            raise UserError(f"{location}: duplicate key {duplicate!r} in an object")
        return dict(pairs)

    try:
        return json.loads(text, object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        problem = f"not valid JSON ({error})" if text.strip() else "got an empty line"
        raise UserError(f"{location}: {problem}; expected {expected}") from error


def _csv_rows(path: Path, file: TextIO) -> Iterator[ReadRow]:
    csv.field_size_limit(sys.maxsize)  # by default a field of more than 131,072 characters is an error
    reader = csv.DictReader(file, strict=True)
    try:
        header = reader.fieldnames or ()
        if (duplicate := _first_duplicate(header)) is not None:
            raise UserError(f"{path} line 1: duplicate column {duplicate!r}")
        for row in reader:
            location = f"{path} line {reader.line_num}"
            if None in row or None in row.values():
                row = UserError(f"{location}: the number of columns is not the header's {len(header)}")
            yield location, row
    except csv.Error as error:
        raise UserError(f"{path} line {reader.reader.line_num}: not valid CSV ({error})") from error


def _first_duplicate(names: Any) -> str | None:
    return next((name for name, count in Counter(names).items() if count > 1), None)


def _parquet_rows(path: Path) -> Iterator[Row]:
    import pyarrow
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.read_table(path)
        rows = table.to_pylist()
    except (pyarrow.ArrowException, ValueError, OverflowError) as error:  # the others: what Python cannot hold
        raise UserError(f"{path}: not a readable Parquet file ({str(error).splitlines()[0]})") from error
    yield from _arrow_rows(rows, table.schema, path)


def _arrow_rows(rows: Iterable[dict[str, Any]], schema: Iterable[Any], source: object) -> Iterator[Row]:
    """Rows with their location. 0.1 of type float32 gets the value 0.1, not 0.10000000149011612."""
    import numpy as np
    from pyarrow import types

    def convert(value: Any, kind: Any) -> Any:
        if isinstance(value, float) and (types.is_float32(kind) or types.is_float16(kind)):
            return float(str(np.float32(value) if types.is_float32(kind) else np.float16(value)))
        if types.is_struct(kind) and isinstance(value, dict):
            return value | {field.name: convert(value[field.name], field.type) for field in kind}
        if isinstance(value, list) and hasattr(kind, "value_type"):
            return [convert(item, kind.value_type) for item in value]
        return value

    narrow = {field.name: field.type for field in schema if "float" in str(field.type)}
    for number, row in enumerate(rows, start=1):
        yield f"{source} row {number}", row | {name: convert(row[name], kind) for name, kind in narrow.items()}
