"""Problems of reasoning-gym, `reasoning-gym:TASK`: drawn and scored by worker processes, see d3s/gym/worker.py."""

import json
from collections.abc import Iterable, Mapping
from hashlib import sha256
from importlib.util import find_spec
from typing import Any

from d3s.common import UserError, short, suggestion
from d3s.data.synthetic import split_of
from d3s.gym.scores import GYM, SERVE
from d3s.gym.worker import PACKAGE, SIZE
from d3s.verifier.pool import Worker

PREFIX = "reasoning-gym:"
INSTALL = "pip install reasoning-gym==0.1.25"  # the version of the extra gym in pyproject.toml
SIZES = {"train": 1024, "validation": 128, "test": 128}  # default numbers of problems
CHUNK, CHUNK_LIMIT_S = 16, 120.0  # problems of a request; the slowest tasks take a second for one
MEMORY_MB = 2048
MISSES = 500  # draws without a new problem after which there is none left


def draw_problems(
    task: str, options: Mapping[str, Any], split: str, limit: int | None, seed: int
) -> list[tuple[str, str, dict[str, Any]]]:
    """Distinct problems of a split as (text, answer, columns): `limit`, or fewer where the task has no more.

    The text of a problem, without case and spacing, decides its split, as in synthetic tasks, so that the splits are
    disjoint for all seeds, sizes and options. Each split also has a seed of its own in the package.

    Raises: UserError for an unknown task or option, for options that the task refuses, and for one whose scorer
        evaluates text.
    """
    name = f"{PREFIX}{task}"
    if not find_spec(PACKAGE):
        raise UserError(f"{name}: the package reasoning-gym is not installed; {INSTALL}")
    try:
        worker = Worker(MEMORY_MB, CHUNK_LIMIT_S, SERVE)
    except (OSError, RuntimeError) as error:
        raise UserError(f"{name}: the process of reasoning-gym fails ({short(str(error))}); {INSTALL}") from error
    try:
        _check(task, options, _ask(worker, name, "describe", task, dict(options)))
        start = int(sha256(f"{task}/{split}/{seed}".encode()).hexdigest()[:8], 16)
        return _draw(worker, name, (task, dict(options), start), split, limit)
    finally:
        worker.stop()


def check_tasks(options: Mapping[str, Any], sources: Iterable[str], option: str, place: str) -> None:
    """Raise UserError for options of a task that none of the sources, those of `place`, names."""
    used = {source.removeprefix(PREFIX) for source in sources if source.startswith(PREFIX)}
    if unused := options.keys() - used:
        raise UserError(f"{option}: got {min(unused)!r}, expected the task of a {PREFIX}TASK in {place}")


def _draw(
    worker: Worker, name: str, arguments: tuple[str, dict[str, Any], int], split: str, limit: int | None
) -> list[tuple[str, str, dict[str, Any]]]:
    wanted, drawn, misses = limit or SIZES[split], {}, 0
    for first in range(0, SIZE, CHUNK):
        before = len(drawn)
        for number, text, answer in _ask(worker, name, "draw", *arguments, first, CHUNK):
            key = " ".join(text.split()).casefold()
            if split_of(key) == split and text.strip():
                drawn.setdefault(key, (text, answer, {GYM: [*arguments, number]}))
        misses = 0 if len(drawn) > before else misses + CHUNK
        if len(drawn) >= wanted or misses >= MISSES:
            break
    if not drawn:
        raise UserError(f"{name}: has no {split} problem with these data.options; choose others")
    return list(drawn.values())[:wanted]


def _check(task: str, options: Mapping[str, Any], about: dict[str, Any]) -> None:
    """Raise UserError for what the worker has found wrong with a task."""
    name = f"{PREFIX}{task}"
    if tasks := about.get("tasks"):
        near = suggestion(task, tasks) or f"; expected one of {', '.join(tasks)}"
        raise UserError(f"{name}: no such task{near}")
    if "unknown" in about:
        unknown, known = about["unknown"], about["options"]
        near = suggestion(unknown, known)
        raise UserError(f"data.options: {task} has no option {unknown!r}{near}; its options are {', '.join(known)}")
    if found := about.get("evaluates"):
        danger = f"its scorer evaluates text as code ({found}), which could run what the model writes"
        raise UserError(f"{name}: {danger}; choose another task, or a data file with a reward of yours")
    if error := about.get("error"):
        raise UserError(f"data.options: {task} refuses {json.dumps(dict(options))} ({' '.join(error.split())[:200]})")


def _ask(worker: Worker, name: str, *request: Any) -> Any:
    reply = worker.ask(*request, timeout_s=CHUNK_LIMIT_S)
    if reply in ("timeout", "crash", "unparsed"):
        reason = {"timeout": f"takes more than {CHUNK_LIMIT_S:g} s", "crash": f"takes more than {MEMORY_MB} MB"}
        raise UserError(f"{name}: drawing {CHUNK} problems {reason.get(reply, 'fails')}; set easier data.options")
    return json.loads(reply)
