"""Files of evaluation samples: JSON lines, readable after a kill at any moment."""

import json
import math
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from d3s.common import JsonLines, UserError, warn_of_damage, write_atomically, write_json, writing
from d3s.data.prompts import EncodedPrompts


@dataclass(slots=True)
class Sample:
    """One scored response to a problem."""

    response: str
    extracted: str | None  # its final answer, for the majority vote; None without one
    score: float  # 1 is correct
    tokens: int
    finished: bool  # False: cut at the length limit
    unclosed_thought: bool = False  # whether it ends inside a thought


class SampleFile:
    """An append-only file of the samples of a list of problems: n consecutive lines each, sorted only by `sort`.

    `groups` has the n samples of each problem in the file by its index, without the texts of the responses. Only
    complete problems count: opening the file removes an incomplete last one, which an interruption leaves. Raises
    UserError if the file contains samples of other problems, is damaged, or cannot be written.
    """

    def __init__(self, path: Path, data: str, prompts: EncodedPrompts, n: int) -> None:
        self._path, self._data, self._prompts, self._n = path, data, prompts, n
        self.groups: dict[int, list[Sample]] = {}
        self._spans: dict[int, tuple[int, int]] = {}  # byte offset and number of bytes of each problem
        with writing(path):
            content = path.read_bytes() if path.exists() else b""
            complete = self._load(content.splitlines(keepends=True))
            if complete < len(content):
                os.truncate(path, complete)
        self._file = JsonLines(path)

    def _load(self, lines: Sequence[bytes]) -> int:
        """Load complete problems from the start of the file. Returns the number of their bytes."""
        start, size = 0, 0
        while start < len(lines):
            group = lines[start : start + self._n]
            records = [_parse(line) for line in group]
            if len(records) < self._n or None in records:
                break
            index = records[0]["index"]
            self.groups[index] = [self._check(record, index, sample) for sample, record in enumerate(records)]
            self._spans[index] = size, sum(map(len, group))
            start, size = start + self._n, size + self._spans[index][1]
        if len(lines) - start > self._n:  # an interruption leaves less than one problem
            line = start + records.index(None) + 1
            raise UserError(f"{self._path} line {line}: damaged; repair the file or choose another --output")
        return size

    def _check(self, record: dict[str, Any], index: int, sample: int) -> Sample:
        """Convert a record to a Sample. Raises UserError unless it belongs to problem `index` of these prompts."""
        prompts, expected = self._prompts, None
        if 0 <= index < len(prompts.problems) and index not in self.groups:
            expected = (index, sample, prompts.texts[index], prompts.problems[index].answer)
        if (record["index"], record["sample"], record["prompt"], record["answer"]) != expected:
            problem = f"contains samples of other problems, first at problem {index}"
            raise UserError(f"{self._path}: {problem}; choose another --output")
        return _sample(record)

    def append(self, index: int, group: Sequence[Sample]) -> None:
        """Write the n samples of a problem, all of them or, on a full disk, none."""
        problem, prompt = self._prompts.problems[index], self._prompts.texts[index]
        shared = {"data": self._data, "index": index, "id": problem.id, "problem": problem.problem, "prompt": prompt}
        shared["answer"] = problem.answer
        self._spans[index] = self._file.append(*({**shared, "sample": i, **asdict(s)} for i, s in enumerate(group)))
        self.groups[index] = [replace(s, response="") for s in group]

    def sort(self) -> None:
        """Rewrite the file in the order of the problems, atomically. No append is possible afterwards."""
        order = sorted(self._spans)
        if order == list(self._spans):
            return

        def read_spans() -> Iterator[bytes]:
            with self._path.open("rb") as file:
                for index in order:
                    offset, size = self._spans[index]
                    file.seek(offset)
                    yield file.read(size)

        write_atomically(self._path, read_spans())

    def __enter__(self) -> "SampleFile":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def read_samples(path: Path) -> dict[tuple[str, str, int], list[Sample]]:
    """Read the complete problems of a file, by (problem, gold answer, occurrence of the two from 1).

    Damaged lines are left out, with a warning. Raises: UserError if the file cannot be read or has none.
    """
    if path.exists() and not path.is_file():
        raise UserError(f"{path}: cannot be read (not a regular file)")
    try:
        lines = path.read_bytes().splitlines(keepends=True)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error
    records = [_parse(line) for line in lines]
    groups: dict[int, list[dict[str, Any]]] = {}
    for record in filter(None, records):
        groups.setdefault(record["index"], []).append(record)
    n, occurrences, samples = max(map(len, groups.values()), default=0), Counter(), {}
    for _, group in sorted(groups.items()):
        key = (group[0]["problem"], group[0]["answer"])
        occurrences[key] += 1
        if len(group) == n:
            samples[*key, occurrences[key]] = [_sample(record) for record in group]
    if not samples:
        raise UserError(f"{path}: no samples found; expected a file written by eval.py")
    warn_of_damage(path, (i for i, line in enumerate(lines, 1) if line.endswith(b"\n") and not records[i - 1]))
    return samples


def open_output(directory: Path | None, settings: dict[str, Any]) -> Path:
    """Create an output directory with settings.json, or resume one. Raises UserError on a settings mismatch.

    Args:
        directory: None for runs/eval/HASH, with the hash of the settings except "data".
        settings: "data" has the hash of each data set; a resumed directory may receive further ones.
    """
    data, settings = settings.get("data", {}), {key: value for key, value in settings.items() if key != "data"}
    directory = directory or Path("runs/eval") / sha256(repr(settings).encode()).hexdigest()[:12]
    path = directory / "settings.json"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            if any(directory.iterdir()):
                raise UserError(f"{directory}: not empty and not an evaluation; choose another --output")
            write_json(path, settings | {"data": data})
            return directory
        previous = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(previous, dict) or not isinstance(known := previous.pop("data", {}), dict):
            raise ValueError("settings.json is not a JSON object")
    except (OSError, ValueError) as error:
        raise UserError(f"{directory}: cannot be used for output ({error}); choose another --output") from error
    pairs = {key: (settings.get(key), previous.get(key)) for key in previous | settings}
    pairs |= {f"rows of {name}": (value, known.get(name, value)) for name, value in data.items()}
    changes = [f"{key}: got {new!r}, expected {old!r}" for key, (new, old) in pairs.items() if new != old]
    if changes:
        raise UserError(f"{path}: cannot resume with other settings ({'; '.join(changes)}); choose another --output")
    if data.keys() - known.keys():
        write_json(path, settings | {"data": known | data})
    return directory


def write_summary(directory: Path, results: list[dict[str, Any]], verifier: dict[str, Any]) -> None:
    """Write the settings and results of an output directory, with those of data sets evaluated into it before."""
    path, settings = directory / "summary.json", json.loads((directory / "settings.json").read_text(encoding="utf-8"))
    try:
        known = {record["data"]: record for record in json.loads(path.read_text())["results"]}
    except (OSError, ValueError, LookupError, TypeError):  # none yet, or damaged
        known = {}
    known |= {record["data"]: record for record in results}
    ordered = [known[name] for name in settings["data"] if name in known]
    write_json(path, {"settings": settings, "results": ordered, "verifier": verifier})


def _parse(line: bytes) -> dict[str, Any] | None:
    """The record of a complete line, None for anything else."""
    try:
        record = json.loads(line) if line.endswith(b"\n") else None
    except ValueError:
        return None
    number = (int, float)
    types = {"index": int, "sample": int, "score": number, "tokens": number, "finished": bool}
    types |= {"problem": str, "prompt": str, "answer": str, "extracted": (str, type(None))}
    valid = isinstance(record, dict) and all(k in record and isinstance(record[k], kind) for k, kind in types.items())
    return record if valid and abs(record["score"]) < math.inf else None


def _sample(record: dict[str, Any]) -> Sample:
    unclosed = record.get("unclosed_thought", False)
    return Sample("", record["extracted"], record["score"], record["tokens"], record["finished"], unclosed)
