"""Measure what GRPO's steps cost when rollouts with A = 0 are computed too, as other trainers do.

    python -m benchmarks.learning.zero_cost [--processes 2]

Leaving them out is exact: both kinds of step end with the same weights, and this program checks it. So one run gives
two curves against seconds, and docs/data/zero_costs.csv has the ratio of their seconds so far. Two trainers take turns
in one process, step by step, so other load slows both alike.
"""

import csv
import os
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from benchmarks.harness import ROOT
from benchmarks.learning.jobs import SEEDS_PER_BASE, SWEEP_BASES, Job, Search
from benchmarks.learning.records import DATA, Record, read
from benchmarks.learning.rows import BY_NAME, Row
from benchmarks.learning.runs import FORKS, argument_parser
from d3s.config.load import load_config
from d3s.metrics import cpu_seconds
from d3s.trainer import Trainer

COSTS = DATA.with_name("zero_costs.csv")
GROUPS = (2, 4, 8, 16, 32)
SEED = 2000  # of no other run
COLUMNS = ("row", "base", "seed", "step", "seconds", "seconds_with_zeros")


def trainer_of(job: Job, folder: Path, zeros: bool) -> Trainer:
    """A trainer of a run without evaluations; with `zeros` it runs every selected token."""
    cell = job.cell().extended("eval.data=[]", f"train.seed={job.seed}", f"train.output_dir={folder}")
    trainer = Trainer(load_config(*cell.sources()))
    if zeros:
        trainer.actor.trained_tokens = lambda batch: batch.selected
    return trainer


def measure(job: Job) -> list[tuple]:
    """Lines of COLUMNS at the row's evaluated steps.

    Raises: RuntimeError if the weights of both trainers differ by more than rounding at the end.
    """
    os.chdir(ROOT)
    lines, spent = [], np.zeros(2)
    with TemporaryDirectory() as folder:
        trainers = [trainer_of(job, Path(folder) / str(zeros), zeros) for zeros in (False, True)]
        for step in range(1, job.row.steps + 1):
            for i in (0, 1) if step % 2 else (1, 0):
                started = cpu_seconds()
                trainers[i].step()
                spent[i] += cpu_seconds() - started
                trainers[i].state.step += 1
            if step % job.row.every == 0:
                lines.append((job.row.name, job.base, job.seed, step, *(f"{x:.4g}" for x in spent)))
        weights = [torch.cat([p.detach().flatten() for p in trainer.actor.lm.parameters()]) for trainer in trainers]
        for trainer in trainers:
            trainer.close()
    if (gap := float((weights[0] - weights[1]).abs().max())) > 1e-2:
        raise RuntimeError(f"{job.row.name} on {job.base}: the weights differ by {gap:.1e}, expected equal ones")
    return lines


def seconds_with_zeros(record: Record, costs: list[dict[str, str]]) -> np.ndarray:
    """The seconds of a run so far [E] if it had computed rollouts with A = 0: its own times the measured ratio.

    The ratio is the mean over the measured bases, by step.

    Raises: KeyError for a row that was not measured.
    """
    of_row = [line for line in costs if line["row"] == record.row]
    if not of_row:
        raise KeyError(f"{record.row}: not in {COSTS.name}")
    ratios: dict[int, list[float]] = {}
    for line in of_row:
        ratios.setdefault(int(line["step"]), []).append(float(line["seconds_with_zeros"]) / float(line["seconds"]))
    steps = sorted(ratios)
    means = [float(np.mean(ratios[step])) for step in steps]
    return record.seconds * np.interp(record.steps, steps, means)


def read_costs(path: Path = COSTS) -> list[dict[str, str]]:
    """The measured lines; none if the file does not exist."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def main() -> None:
    args = argument_parser(__doc__, "ablation").parse_args()
    os.chdir(ROOT)
    known = {(r.part, r.key, r.base, r.seed): r for r in read()}
    rows: list[Row] = [BY_NAME[f"GRPO, G = {group}"] for group in GROUPS]
    jobs = [
        Job("compare", row, base, SEED + SEEDS_PER_BASE * i, Search(row, known).chosen())
        for row in rows
        for i, base in enumerate(SWEEP_BASES)
    ]
    for job in jobs:
        job.cell()  # creates base models and problems before the processes need them
    with ProcessPoolExecutor(args.processes, mp_context=FORKS) as pool:
        lines = [line for part in pool.map(measure, jobs) for line in part]
    with COSTS.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([COLUMNS, *lines])
    print(f"wrote {COSTS}")


if __name__ == "__main__":
    main()
