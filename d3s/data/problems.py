"""Problems of files, the hub, benchmarks by name and the synthetic tasks; their resumable order.

`load_problems` turns every kind of source into a list of `Problem`, before any model is loaded.
"""

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from d3s.common import UserError, short, suggestion
from d3s.data.code import CODE_REWARD, SCRIPT_TESTS, is_code, read_code_problem
from d3s.data.conversations import MESSAGES, Turn, conversation_text, read_turns
from d3s.data.golds import final_answer, gold_problem, read_gold
from d3s.data.gym import PREFIX, draw_problems
from d3s.data.rows import (
    FILE_SUFFIXES,
    Row,
    file_rows,
    hub_rows,
    is_data_file,
    read_field,
    require_text,
    require_unicode,
)
from d3s.data.synthetic import SPLITS, TASKS, find_task

CODE_COLUMNS = ("test", "test_list", *SCRIPT_TESTS)  # with the tests of a program, in the formats of d3s/data/code.py
MISSING_ANSWERS = ("", "nan", "none", "null")  # spellings of a missing value in tables and programs
LISTED = 3  # golds that a message names
HELD_OUT_SIZE = 256  # default number of problems in the validation and the test split of a synthetic task


class GoldError(UserError):
    """A gold answer that the verifier cannot read."""


@dataclass(frozen=True)
class Problem:
    """A problem with its gold answer. `source` is the data set, followed after slashes by a subject or level.

    Example: Problem("gsm8k-0", "How many apples ...?", "18", "gsm8k", {"question": "How many …", "answer": "…#### 18"})
    """

    id: str
    problem: str
    answer: str
    source: str
    columns: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)
    reward: str | None = None  # `module:name` of what scores its responses, where the verifier cannot
    turns: tuple[Turn, ...] = ()  # the conversation that a prompt of several turns is; `problem` is then its text
    file: int = 0  # the place of its source among those of data.path

    @property
    def row(self) -> dict[str, Any]:
        """What reward functions read: the columns of the data set; `problem` and `answer` always exist."""
        return {"problem": self.problem, "answer": self.answer} | self.columns


@dataclass(frozen=True)
class Benchmark:
    """Location of a benchmark on the hub (`org/name` or `org/name:subset`) and the fields to read."""

    hub: str
    split: str  # the one that is evaluated
    problem_field: str
    answer_field: str
    training: str | None = None  # the split to train on, where there is one


BENCHMARKS = {
    "aime24": Benchmark("HuggingFaceH4/aime_2024", "train", "problem", "answer"),
    "aime25": Benchmark("math-ai/aime25", "test", "problem", "answer"),
    "aime26": Benchmark("MathArena/aime_2026", "train", "problem", "answer"),
    "hmmt_feb25": Benchmark("MathArena/hmmt_feb_2025", "train", "problem", "answer"),
    "hmmt_nov25": Benchmark("MathArena/hmmt_nov_2025", "train", "problem", "answer"),
    "hmmt_feb26": Benchmark("MathArena/hmmt_feb_2026", "train", "problem", "answer"),
    "amc23": Benchmark("math-ai/amc23", "test", "question", "answer"),
    "math500": Benchmark("HuggingFaceH4/MATH-500", "test", "problem", "answer"),
    "gsm8k": Benchmark("openai/gsm8k:main", "test", "question", "answer", training="train"),
    "minerva": Benchmark("math-ai/minervamath", "test", "question", "answer"),
    "olympiadbench": Benchmark("Hothan/OlympiadBench:OE_TO_maths_en_COMP", "train", "question", "final_answer"),
    "humaneval": Benchmark("openai/openai_humaneval", "test", "prompt", "test"),
    "mbpp": Benchmark("google-research-datasets/mbpp:full", "test", "text", "test_list", training="train"),
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
    bad_rows: list[UserError] | None = None,
    verified: bool = False,
    options: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[Problem]:
    """Load all problems of a source, or `limit` of them: the first, or with `sampled` a random sample in source order.

    The sample depends only on the number of problems and on `limit`, so every run and every model gets the same one; a
    smaller sample is a subset of a larger one. Problems of a synthetic task are random in any case.

    Args:
        source: a local .jsonl/.json/.csv/.parquet file; a benchmark of BENCHMARKS; `NAME=path`, the benchmark NAME read
            from a local file, whose rows have the benchmark's own fields or `problem` and `answer`;
            `synthetic:precedence`, `mixed`, `countdown` or `code`; `reasoning-gym:TASK`; or a hub data set `org/name`
            or `org/name:subset`. Rows in the formats of HumanEval, MBPP and APPS have tests as answers, see
            d3s/data/code.py.
        split: of a hub data set or a task; of a benchmark test or, where there is one, train; files have none.
        problem_field, answer_field: of files and hub data sets; `a.b` is the field b of the object in field a.
        sampled: whether `limit` takes a random sample instead of the first problems.
        seed: of a task.
        bad_rows: if given, rows that are not a problem with an answer are left out, and what is wrong is appended.
        verified: whether the verifier scores. Of its golds the final answer is taken, and it must be able to read it.
        options: of tasks of reasoning-gym, by the name of the task.

    Raises: UserError with file and line for anything that is not a problem with an answer; for golds that the verifier
        cannot read with their number and the first ones.
    """
    if limit is not None and limit < 1:
        raise UserError(f"limit: got {limit}, expected at least 1")
    if source.startswith(("synthetic:", PREFIX)) and split not in SPLITS:
        raise UserError(f"{source}: unknown split {split!r}; expected one of {', '.join(SPLITS)}")
    if source.startswith("synthetic:"):
        return _draw_problems(source.removeprefix("synthetic:"), split, limit, seed)
    if source.startswith(PREFIX):
        task = source.removeprefix(PREFIX)
        drawn = draw_problems(task, (options or {}).get(task, {}), split, limit, seed)
        return [Problem(f"{task}-{i}", text, answer, source, row) for i, (text, answer, row) in enumerate(drawn)]
    name, rows = source_rows(source, split, bad_rows)
    fields = [(problem_field, answer_field)]
    if name in BENCHMARKS:
        fields = [(BENCHMARKS[name].problem_field, BENCHMARKS[name].answer_field), ("problem", "answer")]
    problems, unreadable = [], []
    for location, row in rows:
        names = fields[0] if set(fields[0]) <= row.keys() else fields[-1]
        try:
            problems.append(_read_problem(row, names, location, name, len(problems), verified))
        except UserError as error:
            if bad_rows is None and not isinstance(error, GoldError):
                raise
            (unreadable if bad_rows is None else bad_rows).append(error)
        if len(problems) == limit and not sampled:
            break
    if unreadable:
        problem = f"the verifier cannot read {len(unreadable)} of {len(problems) + len(unreadable)} gold answers"
        listed = "; ".join(map(str, unreadable[:LISTED]))
        remedy = "correct them, name their field (data.answer_field), or score with a function of yours"
        where = "reward.functions, eval.reward; eval.py: --reward"
        raise UserError(f"{source}: {problem}: {listed}; expected final answers: {remedy} ({where})")
    if not problems:
        expected = f"at least one row with {fields[0][0]!r} and {fields[0][1]!r}"
        raise bad_rows[0] if bad_rows else UserError(f"{source}: no problems found; expected {expected}")
    if limit is None or limit >= len(problems):
        return problems
    return [problems[i] for i in sorted(problem_order(len(problems), seed=0, position=0, count=limit))]


def source_rows(source: str, split: str, bad_rows: list[UserError] | None = None) -> tuple[str, Iterator[Row]]:
    """The name and the rows of a source of `load_problems`, except of a synthetic task.

    The name is that of a benchmark, the stem of a file, or the source itself. Raises UserError for an unknown source.
    """
    name, equals, path = source.partition("=")
    if name in BENCHMARKS and equals:
        return name, file_rows(Path(path), bad_rows)
    if name in BENCHMARKS:
        return name, hub_rows(BENCHMARKS[name].hub, hub_split(name, split), f"{name}=FILE")
    if equals and is_data_file(source) and not Path(source).exists():
        expected = f"expected one of {', '.join(BENCHMARKS)} before ="
        raise UserError(f"{source}: unknown benchmark {name!r}{suggestion(name, BENCHMARKS)}; {expected}")
    if is_data_file(source):
        return Path(source).stem, file_rows(Path(source), bad_rows)
    if is_hub_name(source):
        return source, hub_rows(source, split, "a local file")
    known = [*BENCHMARKS, *(f"synthetic:{task}" for task in TASKS), f"{PREFIX}TASK"]
    got = "a directory" if Path(source).is_dir() else f"unknown data set{suggestion(source, known)}"
    expected = f"a file ({', '.join(FILE_SUFFIXES)}), a hub name org/name, or one of {', '.join(known)}"
    raise UserError(f"{source}: {got}; expected {expected}")


def hub_split(name: str, split: str) -> str:
    """The split on the hub that a benchmark's `test` or `train` is. Raises UserError for one that it does not have."""
    splits = {"test": BENCHMARKS[name].split, "train": BENCHMARKS[name].training}
    if found := splits.get(split):
        return found
    known = " or ".join(repr(key) for key, value in splits.items() if value)
    raise UserError(f"{name}: got split {split!r}, expected {known}; for other problems name a file or org/name")


def is_hub_name(source: str) -> bool:
    """Whether a source is read from the hub: a benchmark without a file, or org/name that is not a local path."""
    has_form = re.fullmatch(r"[\w.-]+/[\w.-]+(:[\w.-]+)?", source) and not is_data_file(source)
    return source in BENCHMARKS or bool(has_form and not Path(source).exists())


def name_sources(sources: Sequence[str]) -> dict[str, str]:
    """Map the name that each source has in tables and file names to the source. UserError for a duplicate name.

    The name is NAME for `NAME=FILE`, TASK for `synthetic:TASK` and `reasoning-gym:TASK`, the stem of a file, and
    otherwise the source itself with `/` and `:` replaced by `-`.
    """
    names: dict[str, str] = {}
    for source in sources:
        name, equals, _ = source.partition("=")
        if not (equals and name in BENCHMARKS):
            name = Path(source).stem if is_data_file(source) else source.removeprefix("synthetic:").removeprefix(PREFIX)
        name = name.replace("/", "-").replace(":", "-")
        if name in names:
            raise UserError(f"{names[name]} and {source}: got the name {name!r} for both; evaluate them separately")
        names[name] = source
    return names


def _draw_problems(name: str, split: str, limit: int | None, seed: int) -> list[Problem]:
    task = find_task(name)
    count = limit or (task.train_size if split == "train" else HELD_OUT_SIZE)
    return [
        Problem(f"{name}/{text}", text, answer, f"synthetic/{name}/{level}", reward=task.reward)
        for text, answer, level in task.draw(split, count, seed)
    ]


def _read_problem(
    row: dict[str, Any], names: tuple[str, str], location: str, label: str, number: int, verified: bool
) -> Problem:
    if names[0] == "problem" and "problem" not in row and MESSAGES in row:
        names = MESSAGES, names[1]
    reward = CODE_REWARD if is_code(row) and (names[1] in CODE_COLUMNS or not set(names) <= row.keys()) else None
    turns = ()
    if reward:
        text, answer = read_code_problem(row, location)
    else:
        text, answer = _read_text_and_answer(row, names, location, verified)
    if not isinstance(text, str):
        turns, text = text, conversation_text(text)
    row_id, row_source = row.get("id", row.get("task_id")), row.get("source")
    problem_id = str(row_id) if isinstance(row_id, str | int) else f"{label}-{number}"
    source = row_source if isinstance(row_source, str) else label
    problem = Problem(problem_id, text, answer, source, row, reward, turns)
    for name, value in (("id", problem.id), (names[1], answer), ("source", problem.source)):
        require_unicode(value, name, location)
    return problem


def _read_text_and_answer(
    row: dict[str, Any], names: tuple[str, str], location: str, verified: bool
) -> tuple[str | tuple[Turn, ...], str]:
    text, gold = (read_field(row, name, location) for name in names)
    if names[0] == MESSAGES or isinstance(text, list):
        text = read_turns(text, f"{location}: field {names[0]!r}")
    else:
        require_text(text, names[0], location, "the text of a problem")
    answer = read_gold(gold)
    if answer.lower() in MISSING_ANSWERS:
        raise UserError(f"{location}: field {names[1]!r}: got {gold!r:.60}, expected a final answer")
    if verified:
        answer = final_answer(answer)
        if problem := gold_problem(answer):
            raise GoldError(f"{location} {short(str(gold))!r} ({problem})")
    return text, answer


# --- order ----------------------------------------------------------------------------------------


@lru_cache(maxsize=1024)  # more than sources of data.path
def _permutation(size: int, seed: int, epoch: int) -> list[int]:
    order = list(range(size))
    random.Random(f"order/{seed}/{epoch}").shuffle(order)
    return order


def problem_order(size: int, seed: int, position: int, count: int) -> list[int]:
    """Indices of `count` of `size` problems, from `position` on, in an endless order that is reshuffled every epoch.

    Every epoch contains each problem exactly once. The position is all that a resumed run needs.
    """
    pairs = (divmod(p, size) for p in range(position, position + count))
    return [_permutation(size, seed, epoch)[offset] for epoch, offset in pairs]
