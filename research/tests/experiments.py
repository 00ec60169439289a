"""Artificial runs for the learning benchmarks, and the configuration of a cell."""

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from d3s.config.load import dump_config, load_config
from d3s.config.schema import Config
from d3s.report.runs import Run, load_runs
from research import fresh_problems, jobs
from research.jobs import SEEDS_PER_BASE
from research.records import LOGGED, PEAKS, Record
from research.rows import Row
from research.runs import Cell


def make_run(folder: Path, accuracies: list[float], tokens: int, seconds: float, problems: int = 10) -> Run:
    """A run directory with an evaluation every two steps, each with ten samples per problem and equal problems.

    Args:
        accuracies: Pass@1 of each evaluation
        tokens: trained tokens of each step
        seconds: CPU seconds of each step
    """
    evals = [
        {"step": 2 * i, "data": "x", "wall_time": 9.0 * i, "n": 10, "pass@1": p, "right": [round(10 * p)] * problems}
        for i, p in enumerate(accuracies)
    ]
    costs = {"wall_time": 9.0, "selection/tokens": tokens, "time/cpu": seconds, "grad_norm": 0.5}
    shares = {"selection/usefulness": 0.75, "policy/clip_low": 0.01, "policy/clip_high": 0.02}
    metrics = [
        {"step": s, "tokens_trained": s * tokens, "tokens_generated": 100 * s} | costs | shares
        for s in range(1, 2 * len(accuracies) - 1)
    ]
    return write_run(folder, metrics, evals)


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
    texts = {name: name for name in ("row", "key", "revision", "cpu")} | {"arguments": "configs/method/grpo.yaml"}
    costs = {"seconds": 2.0, "generated": 1000.0, "trained": 500.0, "forwarded": 600.0}
    curves = {"steps": steps, "right": right} | {name: cost * steps for name, cost in costs.items()}
    logged = {name: np.ones(len(steps) - 1) for name in (*LOGGED, *PEAKS)}
    others = {"part": "compare", "base": "tiny:precedence", "seed": 0, "kl_to_base": np.full(len(steps), np.nan)}
    return Record(**texts | curves | others | {"logged": logged} | fields)


def planned_runs(row: Row, right: Sequence[int], seeds: int | None = None, **fields) -> list[Record]:
    """All runs of a row, with an evaluation every row.every steps; right[seed] of 8 are right at each, on 2 problems.

    Args:
        seeds: on each base model, by default as many as the row has.
    """
    steps = range(0, row.steps + 1, row.every)
    return [
        make_record(
            steps,
            [[right[seed % len(right)]] * 2] * len(steps),
            **{"row": row.name, "base": base, "seed": row.first_seed + SEEDS_PER_BASE * i + seed} | fields,
        )
        for seed in range(row.seeds if seeds is None else seeds)
        for i, base in enumerate(row.bases)
    ]


def cells_of(table: str) -> dict[str, list[str]]:
    """The cells of every line of a Markdown table by its first cell, without the header."""
    lines = [re.split(r"(?<!\\) \| ", line[2:-2]) for line in table.splitlines()[2:]]
    assert len({first for first, *_ in lines}) == len(lines)
    return {first: rest for first, *rest in lines}


def without_base_models(monkeypatch, model: str | Path = "tiny:precedence") -> None:
    """Let jobs have `model` for every base model, and a name for their problems, so that nothing is created."""
    monkeypatch.setattr(jobs, "model_of", lambda base: model)
    monkeypatch.setattr(fresh_problems, "ensure", lambda: fresh_problems.PATH)


def config_of(cell: Cell) -> Config:
    """The resolved configuration of a cell."""
    return load_config(*cell.sources())


def artificial_runs(runs: list[tuple[Cell, int]], root: Path, processes: int) -> dict:
    """Replace `train_all`: GRPO ends 0.2 above the other methods, the second clip 0.1 above the other clips."""
    made = {}
    for cell, seed in runs:
        folder = cell.folder(root) / f"seed{seed}"
        if not folder.exists():
            config = config_of(cell.extended(f"train.seed={seed}"))
            end = 0.4 + (0.2 if cell.name.startswith("GRPO") else 0.0) + (0.1 if config.loss.epsilon == 0.03 else 0.0)
            make_run(folder, [0.1, end / 2, end], tokens=20, seconds=1.0)
            dump_config(config, folder / "config.yaml")
        made[cell, seed] = load_runs([folder])[0]
    return made
