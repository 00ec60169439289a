"""Artificial runs for the learning benchmarks, and the configuration of a cell."""

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from d3s.report.runs import Run, load_runs
from research import fresh_problems, jobs
from research.jobs import SEEDS_PER_BASE
from research.records import LOGGED, PEAKS, Record
from research.row import TASKS, Row
from research.rows import BY_NAME
from research.step_costs import Costs


def write_run(folder: Path, metrics: Iterable[dict], evaluations: Iterable[dict]) -> Run:
    """A run directory with these lines of metrics and evaluations."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in (("eval", evaluations), ("metrics", metrics)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return load_runs([folder])[0]


def make_record(steps: Sequence[int], right: Sequence[Sequence[int]], **fields) -> Record:
    """A run evaluated after `steps` [E] with `right` [E, problems] of 8 right; `fields` replace what others would be.

    A step takes 2 seconds, samples 1000 tokens, trains 500 of them and runs 600 through the layers; every logged value
    is 1.
    """
    steps, right = np.array(steps), np.array(right)
    texts = {name: name for name in ("row", "revision", "cpu")} | {"arguments": "configs/method/grpo.yaml"}
    costs = {"seconds": 2.0, "generated": 1000.0, "trained": 500.0, "forwarded": 600.0}
    curves = {"steps": steps, "right": right} | {name: cost * steps for name, cost in costs.items()}
    logged = {name: np.ones(len(steps) - 1) for name in (*LOGGED, *PEAKS)}
    others = {"part": "compare", "base": "tiny:precedence", "seed": 0, "kl_to_base": np.full(len(steps), np.nan)}
    return Record(**texts | curves | others | {"logged": logged} | fields)


def planned_runs(row: Row, right: Sequence[int], seeds: int | None = None, **fields) -> list[Record]:
    """All runs of a row, with an evaluation every row.every steps: of 2 problems right[seed] of 8, at first none.

    Args:
        seeds: on each base model, by default as many as the row has.
    """
    steps = range(0, row.steps + 1, row.every)
    return [
        make_record(
            steps,
            [[0, 0], *[[right[seed % len(right)]] * 2] * (len(steps) - 1)],
            **{"row": row.name, "base": base, "seed": row.first_seed + SEEDS_PER_BASE * i + seed} | fields,
        )
        for seed in range(row.seeds if seeds is None else seeds)
        for i, base in enumerate(row.bases)
    ]


def lines_of(
    row: str, seconds: dict[int, float], chunk: int = 0, zeros: int = 0, base: str = "tiny:precedence"
) -> list:
    """The lines of a row in the file of step costs: seconds so far by step."""
    keys = {"row": row, "zeros_computed": str(zeros), "base": base, "chunk": str(chunk)}
    return [keys | {"step": str(step), "seconds": str(spent)} for step, spent in seconds.items()]


def costs_of(per_step: dict[tuple[str, int], float]) -> Costs:
    """Seconds of a step by row and whether zeros are computed, the same for both tasks."""
    return Costs(
        line
        for (row, zeros), seconds in per_step.items()
        for base in TASKS
        for line in lines_of(row, {BY_NAME[row].steps: BY_NAME[row].steps * seconds}, 0, zeros, base)
    )


def cells_of(table: str) -> dict[str, list[str]]:
    """The cells of every line of a Markdown table by its first cell, without the header."""
    lines = [re.split(r"(?<!\\) \| ", line[2:-2]) for line in table.splitlines()[2:]]
    assert len({first for first, *_ in lines}) == len(lines)
    return {first: rest for first, *rest in lines}


def without_base_models(monkeypatch, model: str | Path = "tiny:precedence") -> None:
    """Let jobs have `model` for every base model, and a name for their problems, so that nothing is created."""
    monkeypatch.setattr(jobs, "model_of", lambda base: model)
    monkeypatch.setattr(fresh_problems, "ensure", lambda: fresh_problems.PATH)


class SerialPool:
    """In place of ProcessPoolExecutor: calls in this process."""

    def __init__(self, *_, **__) -> None:
        self.map = map

    def __enter__(self) -> "SerialPool":
        return self

    def __exit__(self, *_) -> None:
        pass
