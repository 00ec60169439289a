"""Write rows in each format of data files, and check how a bad file is refused."""

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from d3s.common import UserError


def write_rows(path: Path, rows: list[dict]) -> str:
    """Write rows in the format that the suffix names. Return the path."""
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


def assert_refused_with_location(path: Path, content: bytes, expected: str, read: Callable[[], object]) -> None:
    """Write `content` to `path`; `read` must raise one short sentence that names the file and says `expected`."""
    path.write_bytes(content)
    with pytest.raises(UserError) as caught:
        read()
    message = str(caught.value)
    assert message.startswith(str(path)) and expected in message
    assert "\n" not in message and len(message) < len(str(path.parent)) + 260
