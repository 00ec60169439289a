"""Problems from files, the hub, benchmarks by name or the embedded tasks; their resumable order; decontamination.

Every source ends as a list of `Problem`, read whole: a bad line is reported before any model is loaded.
"""

import csv
import json
import math
import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Any

from d3s.common import UserError
from d3s.data.synthetic import SPLITS, TASKS, Problem

NO_ANSWERS = ("", "nan", "none", "null")  # how tables and programs write that a value is missing
FILE_SUFFIXES = (".jsonl", ".json", ".csv", ".parquet")
HELD_OUT = 256  # problems of an embedded task's validation and test split where no number is given
Row = tuple[str, dict[str, Any]]  # where it stands (for error messages), its fields


@dataclass(frozen=True)
class Benchmark:
    """Where a benchmark's rows are on the hub (`org/name` or `org/name:subset`), and which fields to read."""

    hub: str
    split: str
    problem_field: str
    answer_field: str
    licence: str


BENCHMARKS = {
    "aime24": Benchmark("HuggingFaceH4/aime_2024", "train", "problem", "answer", "problems (c) MAA"),
    "aime25": Benchmark("math-ai/aime25", "test", "problem", "answer", "Apache-2.0; problems (c) MAA"),
    "amc23": Benchmark("math-ai/amc23", "test", "question", "answer", "problems (c) MAA"),
    "math500": Benchmark("HuggingFaceH4/MATH-500", "test", "problem", "answer", "MIT (MATH)"),
    "gsm8k": Benchmark("openai/gsm8k:main", "test", "question", "answer", "MIT"),
    "minerva": Benchmark("math-ai/minervamath", "test", "question", "answer", "problems from MIT OCW, CC BY-NC-SA"),
    "olympiadbench": Benchmark(
        "Hothan/OlympiadBench:OE_TO_maths_en_COMP", "train", "question", "final_answer", "MIT (OpenBMB/OlympiadBench)"
    ),
}


def load_problems(
    source: str,
    *,
    split: str = "train",
    problem_field: str = "problem",
    answer_field: str = "answer",
    limit: int | None = None,
    sampled: bool = False,
    seed: int = 0,
) -> list[Problem]:
    """All problems of a source, or `limit` of them: the first, or with `sampled` a random sample in the source's order.

    The sample depends on the number of problems and on `limit` alone, so that every run and every model gets the same;
    a smaller one is part of a larger one. The problems of an embedded task are drawn at random in any case.

    Args:
        source: a local .jsonl/.json/.csv/.parquet file; a benchmark of BENCHMARKS; `NAME=path`, the benchmark NAME read
            from a local file, whose rows have the benchmark's own fields or `problem` and `answer`;
            `synthetic:precedence` or `synthetic:countdown`; or a hub data set `org/name` or `org/name:subset`.
        sampled: whether `limit` takes a sample instead of the first.
        split: of a hub data set or an embedded task; files have none, and benchmarks know their own.
        problem_field, answer_field: of files and hub data sets; `a.b` is a field of an object.
        seed: of an embedded task.
    Raises UserError, naming the file and the line, for whatever cannot be read as a problem with an answer.
    """
    if limit is not None and limit < 1:
        raise UserError(f"limit is {limit}; at least one problem is needed")
    if source.startswith("synthetic:"):
        return _synthetic(source.removeprefix("synthetic:"), split, limit, seed)
    first = None if sampled else limit
    name, equals, path = source.partition("=")
    if name in BENCHMARKS:
        benchmark = BENCHMARKS[name]
        fields = (benchmark.problem_field, benchmark.answer_field)
        rows = _file_rows(Path(path)) if equals else _hub_rows(benchmark.hub, benchmark.split, name)
        problems = _problems(rows, name, fields, path or benchmark.hub, first, fallback=("problem", "answer"))
        return _sample(problems, limit)
    if equals and is_data_file(source) and not Path(source).exists():
        close = get_close_matches(name, BENCHMARKS, 1)
        raise UserError(
            f"{source}: {name!r} is no benchmark{f' (did you mean {close[0]!r}?)' if close else ''}; "
            f"allowed before = are {', '.join(BENCHMARKS)}"
        )
    if is_data_file(source):
        rows, label = _file_rows(Path(source)), Path(source).stem
    elif is_hub_name(source):
        rows, label = _hub_rows(source, split, source), source
    else:
        known = [*BENCHMARKS, *(f"synthetic:{task}" for task in TASKS)]
        close = get_close_matches(source, known, 1)
        raise UserError(
            f"no data set {source!r}{f' (did you mean {close[0]!r}?)' if close else ''}; allowed are a file "
            f"({', '.join(FILE_SUFFIXES)}), a hub name org/name, and {', '.join(known)}"
        )
    return _sample(_problems(rows, label, (problem_field, answer_field), source, first), limit)


def is_data_file(source: str) -> bool:
    """Whether a source ends as a data file does, in capitals or not."""
    return Path(source).suffix.lower() in FILE_SUFFIXES


def is_hub_name(source: str) -> bool:
    """Whether a source is read from the hub: a benchmark without a file, or org/name, which is no path here."""
    return source in BENCHMARKS or bool(
        not is_data_file(source) and re.fullmatch(r"[\w.-]+/[\w.-]+(:[\w.-]+)?", source) and not Path(source).exists()
    )


def _sample(problems: list[Problem], limit: int | None) -> list[Problem]:
    """`limit` of the problems at random, in their order."""
    if limit is None or limit >= len(problems):  # also where only the first were read
        return problems
    return [problems[i] for i in sorted(_permutation(len(problems), seed=0, epoch=0)[:limit])]


def _synthetic(name: str, split: str, limit: int | None, seed: int) -> list[Problem]:
    if name not in TASKS:
        raise UserError(f"no embedded task {name!r}; allowed are {', '.join(f'synthetic:{task}' for task in TASKS)}")
    if split not in SPLITS:
        raise UserError(f"synthetic:{name} has no split {split!r}; allowed are {', '.join(SPLITS)}")
    task = TASKS[name]
    return task.problems(split, limit or (task.train_size if split == "train" else HELD_OUT), seed)


# --- rows -----------------------------------------------------------------------------------------


def _file_rows(path: Path) -> Iterator[Row]:
    """The rows of a local file, each with the place to name if it is bad."""
    suffix = path.suffix.lower()
    if suffix not in FILE_SUFFIXES:
        raise UserError(f"{path}: a data file ends in {', '.join(FILE_SUFFIXES)}")
    if not path.is_file():
        problem = "is a directory" if path.is_dir() else "is not a regular file" if path.exists() else "no such file"
        raise UserError(f"{path}: {problem}")
    try:
        if suffix == ".parquet":
            yield from _parquet_rows(path)
        else:
            reader = {".jsonl": _jsonl_rows, ".json": _json_rows, ".csv": _csv_rows}[suffix]
            with path.open(encoding="utf-8-sig", newline="") as file:
                yield from reader(path, file)
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 text ({error.reason} at byte {error.start})") from error
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or error})") from error


def _jsonl_rows(path: Path, file: Any) -> Iterator[Row]:
    lines = file.read().rstrip().split("\n")
    for number, line in enumerate(lines if lines != [""] else [], start=1):
        where = f"{path} line {number}"
        if not line.strip():
            raise UserError(f"{where}: empty line; expected one JSON object a line")
        try:
            yield where, _as_row(_read_json(line, where), where)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{where}: not valid JSON ({error}); expected one JSON object a line") from error


def _json_rows(path: Path, file: Any) -> Iterator[Row]:
    text = file.read()
    try:
        rows = _read_json(text, path) if text.strip() else []
    except (ValueError, RecursionError) as error:
        line = f" line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise UserError(f"{path}{line}: not valid JSON ({error}); expected a list of objects") from error
    if not isinstance(rows, list):
        raise UserError(f"{path}: holds a JSON {type(rows).__name__}; expected a list of objects")
    for number, row in enumerate(rows, start=1):
        where = f"{path} record {number}"
        yield where, _as_row(row, where)


def _read_json(text: str, where: object) -> Any:
    """JSON in which a repeated key is an error: the second value would silently replace the first."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if twice := [key for key, count in Counter(key for key, _ in pairs).items() if count > 1]:
            raise UserError(f"{where}: key {twice[0]!r} appears twice in an object")
        return dict(pairs)

    return json.loads(text, object_pairs_hook=unique)


def _csv_rows(path: Path, file: Any) -> Iterator[Row]:
    reader = csv.DictReader(file, strict=True)
    try:
        if twice := [name for name, count in Counter(reader.fieldnames or ()).items() if count > 1]:
            raise UserError(f"{path} line 1: column {twice[0]!r} appears twice")
        for row in reader:
            where = f"{path} line {reader.line_num}"
            if None in row or None in row.values():
                raise UserError(f"{where}: not as many columns as the header's {len(reader.fieldnames or ())}")
            yield where, row
    except csv.Error as error:
        raise UserError(f"{path} line {reader.reader.line_num}: not valid CSV ({error})") from error


def _parquet_rows(path: Path) -> Iterator[Row]:
    import pyarrow
    import pyarrow.parquet

    try:
        rows = pyarrow.parquet.read_table(path).to_pylist()
    except pyarrow.ArrowException as error:
        raise UserError(f"{path}: not a readable Parquet file ({str(error).splitlines()[0]})") from error
    for number, row in enumerate(rows, start=1):
        yield f"{path} row {number}", row


def _hub_rows(name: str, split: str, asked_for: str) -> Iterator[Row]:
    """Rows of `org/name` or `org/name:subset`, downloaded or from the cache."""
    from datasets import load_dataset

    path, _, subset = name.partition(":")
    try:
        with _offline_unless_hub_answers():
            rows = load_dataset(path, subset or None, split=split)
    except Exception as error:  # offline, gated, misspelt and malformed data sets raise a dozen unrelated types
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        remedy = f"{asked_for}=FILE" if asked_for in BENCHMARKS else "a local file"
        raise UserError(
            f"{name} split {split!r} cannot be loaded from the hub ({reason}); without a network, use {remedy}"
        ) from error
    for number, row in enumerate(rows, start=1):
        yield f"{name} row {number}", row


@contextmanager
def _offline_unless_hub_answers() -> Iterator[None]:
    """Without a network the hub's libraries retry for half a minute; offline they look into their cache at once."""
    import datasets
    import huggingface_hub

    constants = huggingface_hub.constants
    before = constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE
    if not any(before):
        try:
            huggingface_hub.get_session().head(constants.ENDPOINT, timeout=5)
        except Exception:  # of whichever HTTP library the hub's client uses
            constants.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE = before


def _as_row(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UserError(
            f"{where}: holds a JSON {type(value).__name__}; expected an object with a problem and an answer"
        )
    return value


# --- from rows to problems ------------------------------------------------------------------------


def _problems(
    rows: Iterator[Row],
    label: str,
    fields: tuple[str, str],
    source: str,
    limit: int | None,
    fallback: tuple[str, str] | None = None,
) -> list[Problem]:
    """Problems from rows with `fields`, or, where a row has not both of those, with the fields `fallback`."""
    problems = []
    for where, row in rows:
        names = fallback if fallback and not set(fields) <= row.keys() else fields
        text, gold = (_field(row, name, where) for name in names)
        answer = read_gold(gold)
        if not isinstance(text, str) or not text.strip():
            raise UserError(f"{where}: field {names[0]!r} holds {text!r:.60}; expected the text of a problem")
        if answer.lower() in NO_ANSWERS:
            raise UserError(f"{where}: field {names[1]!r} holds {gold!r:.60}; expected a final answer")
        problem_id, origin = row.get("id"), row.get("source")
        identity = str(problem_id) if isinstance(problem_id, str | int) else f"{label}-{len(problems)}"
        problem = Problem(identity, text, answer, origin if isinstance(origin, str) else label)
        for name, value in zip(("id", *names, "source"), (problem.id, text, answer, problem.source)):
            if any("\ud800" <= character <= "\udfff" for character in value):
                raise UserError(f"{where}: field {name!r} holds half of a surrogate pair; expected Unicode text")
        problems.append(problem)
        if len(problems) == limit:
            break
    if not problems:
        raise UserError(f"{source}: no problems in it; expected at least one row with {fields[0]!r} and {fields[1]!r}")
    return problems


def _field(row: dict[str, Any], name: str, where: str) -> Any:
    """The value of a field; `a.b` is the field b of the object in field a, unless a field has that name itself."""
    value: Any = row
    for part in (name,) if name in row else name.split("."):
        if not isinstance(value, dict) or part not in value:
            raise UserError(f"{where}: no field {name!r}; its fields are {', '.join(map(repr, row)) or 'none':.200}")
        value = value[part]
    return value


def read_gold(value: Any) -> str:
    """The final answer in a gold field, '' if there is none.

    Text as it stands; what follows the last `####` of a GSM8K solution, without thousands commas; numbers as Python
    writes them; the several answers of an OlympiadBench list joined by commas, without their dollar signs.
    """
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        return ", ".join(item.replace("$", "").strip() for item in value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value) if math.isfinite(value) else ""
    if not isinstance(value, str):
        return ""
    _, marker, final = value.rpartition("####")
    return re.sub(r"(?<=\d),(?=\d{3})", "", final).strip() if marker else value.strip()


# --- order ----------------------------------------------------------------------------------------


@lru_cache(maxsize=4)
def _permutation(size: int, seed: int, epoch: int) -> list[int]:
    order = list(range(size))
    random.Random(f"order/{seed}/{epoch}").shuffle(order)
    return order


@dataclass(frozen=True)
class ProblemOrder:
    """An endless order of problems, shuffled anew every epoch.

    It is a pure function of (seed, position): a run resumes from the number of problems taken so far, and nothing else.
    """

    num_problems: int
    seed: int

    def take(self, position: int, count: int) -> list[int]:
        """Indices of the `count` problems from `position` on; every epoch holds each problem exactly once."""
        places = (divmod(p, self.num_problems) for p in range(position, position + count))
        return [_permutation(self.num_problems, self.seed, epoch)[offset] for epoch, offset in places]


# --- decontamination ------------------------------------------------------------------------------


def name_sources(sources: Sequence[str]) -> dict[str, str]:
    """Sources of data by what they are called in tables and files; UserError for two of the same name.

    That is the NAME of `NAME=FILE`, the stem of a file, and anything else as it is, made fit for a file name.
    """
    names: dict[str, str] = {}
    for source in sources:
        name, equals, _ = source.partition("=")
        if not (equals and name in BENCHMARKS):
            name = Path(source).stem if is_data_file(source) else source.removeprefix("synthetic:")
        name = name.replace("/", "-").replace(":", "-")
        if name in names:
            raise UserError(f"{names[name]} and {source} are both called {name!r}: evaluate them one at a time")
        names[name] = source
    return names
