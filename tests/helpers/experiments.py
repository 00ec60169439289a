"""Artificial runs for the learning benchmarks, and the configuration of a cell."""

import json
from pathlib import Path

from benchmarks.learning.runs import Cell
from d3s.config.load import dump_config, load_config
from d3s.config.schema import Config
from d3s.report.runs import Run, load_runs


def make_run(folder: Path, accuracies: list[float], tokens: int, seconds: float, problems: int = 10) -> Run:
    """A run directory with an evaluation every two steps, each with ten samples per problem and equal problems.

    Args:
        accuracies: Pass@1 of each evaluation
        tokens: trained tokens of each step
        seconds: CPU seconds of each step
    """
    folder.mkdir(parents=True)
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
    for name, lines in (("eval", evals), ("metrics", metrics)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return load_runs([folder])[0]


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
