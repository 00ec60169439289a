"""Files of evaluation samples: JSON lines, a problem's n samples in a row, readable after a kill at any moment."""

import json
import math
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from d3s.common import UserError, disk_error, write_json
from d3s.data.prompts import EncodedPrompts


@dataclass(slots=True)
class Sample:
    """One response to a problem."""

    response: str
    extracted: str | None  # the answer in it, for the majority vote
    score: float  # 1 is right
    tokens: int
    finished: bool  # False: cut at the length limit


class SampleFile:
    """An append-only file of the samples of a list of problems, in the order in which they were completed until `sort`.

    `groups` holds the n samples of each problem in the file by its index, without the texts of the responses. Only
    complete problems count: opening the file cuts off one that a kill interrupted. Raises UserError if it belongs to
    other problems, is damaged, or cannot be written.
    """

    def __init__(self, path: Path, data: str, prompts: EncodedPrompts, n: int) -> None:
        self._path, self._data, self._prompts, self._n = path, data, prompts, n
        self.groups: dict[int, list[Sample]] = {}
        self._places: dict[int, tuple[int, int]] = {}  # first byte and number of bytes of each problem
        try:
            self._file = open(path, "ab+", buffering=0)  # noqa: SIM115 (held open until close)
            self._file.seek(0)
            self._file.truncate(self._take(self._file.read().splitlines(keepends=True)))
        except OSError as error:
            raise disk_error(path, error) from error

    def _take(self, lines: Sequence[bytes]) -> int:
        """Take whole problems from the front; the number of bytes that they are."""
        taken, size = 0, 0
        while taken < len(lines):
            part = lines[taken : taken + self._n]
            records = [_parse(line) for line in part]
            if len(records) < self._n or None in records:
                break
            index = records[0]["index"]
            self.groups[index] = [self._checked(record, index, sample) for sample, record in enumerate(records)]
            self._places[index] = size, sum(map(len, part))
            taken, size = taken + self._n, size + self._places[index][1]
        if len(lines) - taken > self._n:  # a kill leaves less than one problem
            raise UserError(f"{self._path} line {taken + 1} and what follows is damaged: repair it or begin a new one")
        return size

    def _checked(self, record: dict[str, Any], index: int, sample: int) -> Sample:
        prompts = self._prompts
        expected = None
        if 0 <= index < len(prompts.problems) and index not in self.groups:
            expected = (index, sample, prompts.texts[index], prompts.problems[index].answer)
        if (record["index"], record["sample"], record["prompt"], record["answer"]) != expected:
            raise UserError(
                f"{self._path} holds samples of other problems (at problem {index}); choose another output directory"
            )
        return _sample(record)

    def append(self, index: int, group: Sequence[Sample]) -> None:
        """Write the n samples of a problem, all of them or, on a full disk, none."""
        problem, prompt = self._prompts.problems[index], self._prompts.texts[index]
        about = {"data": self._data, "index": index, "id": problem.id, "problem": problem.problem, "prompt": prompt}
        lines = ({**about, "answer": problem.answer, "sample": i, **asdict(s)} for i, s in enumerate(group))
        text, size, written = "".join(json.dumps(line) + "\n" for line in lines).encode(), self._size(), 0
        try:
            while written < len(text):
                written += self._file.write(text[written:])
        except OSError as error:
            self._file.truncate(size)
            raise disk_error(self._path, error) from error
        self.groups[index] = [replace(s, response="") for s in group]
        self._places[index] = size, len(text)

    def sort(self) -> None:
        """Bring the file into the order of the problems, at once or not at all. Nothing can be appended afterwards."""
        order = sorted(self._places)
        if order == list(self._places):
            return
        beside = self._path.with_name(self._path.name + ".tmp")
        try:
            with beside.open("wb") as target:
                for start, size in map(self._places.get, order):
                    self._file.seek(start)
                    target.write(self._file.read(size))
            os.replace(beside, self._path)
        except OSError as error:
            raise disk_error(self._path, error) from error

    def _size(self) -> int:
        return os.fstat(self._file.fileno()).st_size

    def __enter__(self) -> "SampleFile":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def read_samples(path: Path) -> dict[tuple[str, str, int], list[Sample]]:
    """The whole problems of a file, by (problem, gold, which occurrence of the two). UserError if there are none."""
    if path.exists() and not path.is_file():
        raise UserError(f"{path}: cannot be read (not a regular file)")
    try:
        records = [record for line in path.read_bytes().splitlines(keepends=True) if (record := _parse(line))]
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error
    groups: dict[int, list[dict[str, Any]]] = {}
    for record in records:
        groups.setdefault(record["index"], []).append(record)
    n, seen, samples = max(map(len, groups.values()), default=0), Counter(), {}
    for _, group in sorted(groups.items()):
        text = (group[0]["problem"], group[0]["answer"])
        seen[text] += 1
        if len(group) == n:
            samples[*text, seen[text]] = [_sample(record) for record in group]
    if not samples:
        raise UserError(f"{path}: holds no samples; expected a file that eval.py wrote")
    return samples


def open_output(directory: Path, settings: dict[str, Any]) -> None:
    """Make an output directory, or enter it again; UserError if it was made with other settings or for other things."""
    path = directory / "settings.json"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            if any(directory.iterdir()):
                raise UserError(f"{directory} is not empty and holds no evaluation: choose another output directory")
            return write_json(path, settings)
        before = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{directory}: cannot be used for output ({error})") from error
    changed = [
        f"{key} {before.get(key)!r}, not {value!r}" for key, value in settings.items() if before.get(key) != value
    ]
    if changed:
        raise UserError(f"{directory} holds samples made with {', '.join(changed)}: choose another output directory")


def fingerprint(model: Path) -> str:
    """Of the weights in a model's directory: sizes, first and last MiB of its files, so that 100 GB take no time."""
    digest = sha256()
    for path in sorted(model.glob("*.safetensors")):
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            digest.update(f"{path.name} {size}".encode())
            for start in (0, max(0, size - 2**20)):
                file.seek(start)
                digest.update(file.read(2**20))
    return digest.hexdigest()[:16]


def _parse(line: bytes) -> dict[str, Any] | None:
    """A whole line of a file of samples, None for anything else."""
    try:
        record = json.loads(line) if line.endswith(b"\n") else None
    except ValueError:
        return None
    number = (int, float)
    types = {"index": int, "sample": int, "score": number, "tokens": number, "finished": bool}
    types |= {"problem": str, "prompt": str, "answer": str, "extracted": (str, type(None))}
    fits = isinstance(record, dict) and all(k in record and isinstance(record[k], kind) for k, kind in types.items())
    return record if fits and abs(record["score"]) < math.inf else None


def _sample(record: dict[str, Any]) -> Sample:
    return Sample("", record["extracted"], record["score"], record["tokens"], record["finished"])
