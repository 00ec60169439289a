"""Measure what the steps of every row cost, free of other load: the seconds at which rows are compared.

    python -m research.step_costs                             (65 to 95 CPU minutes; then make results)
    python -m research.step_costs --row D2S --row PODS        (these rows alone; the others stay)
    python -m research.step_costs --row D2S --again 2001      (with another seed, beside what is there)

The CPU seconds of a run vary with what other processes do, which share caches and cores with it. So cost is measured
apart from learning: the rows of a chunk and D3S take turns in one process, one training step each, from the base model
to the last step of each. docs/data/step_costs.csv has the seconds so far. A row's cost is its ratio to D3S in the same
process, times the mean of D3S over all processes. Making fewer steps is no shortcut: the model then learns less, so
that other shares of the rollouts have A = 0 and responses have another length. Of several seeds the mean counts.

A command that was stopped continues, at the same commit, with the chunks that are not in its runs/step_costs-*.csv.

GRPO is measured a second time with rollouts of A = 0 computed, as other trainers do. Leaving them out is exact but for
rounding, so one run gives two curves against seconds.
"""

import argparse
import csv
import math
import os
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from benchmarks.harness import ROOT, revision
from d3s.tracking.throughput import cpu_seconds
from d3s.trainer import Trainer
from d3s.verifier.verifier import Verifier
from research.jobs import FORKS, Job, Known, config_of, setting_of
from research.padded_base import SUFFIX
from research.records import DATA, read
from research.row import TASKS, Row
from research.rows import AGAIN, HEAVY_ROWS, ROWS

COSTS = DATA.with_name("step_costs.csv")
REFERENCE, HEAVY_REFERENCE = "D3S", HEAVY_ROWS[0].name
CHUNK = 8  # rows of a process, without the reference
SEED = 2000  # of no other run
OPEN = r"\boxed{\frac{\sqrt{8}}{2}}"  # only the verifier's workers can judge it
COLUMNS = ("row", "zeros_computed", "base", "chunk", "step", "seconds")


@dataclass(frozen=True)
class Chunk:
    """Rows that take turns in one process."""

    index: int
    base: str
    jobs: tuple[tuple[Job, bool], ...]  # each with whether rollouts of A = 0 are computed


def trainer_of(job: Job, folder: Path, zeros: bool) -> Trainer:
    """A trainer of a run without evaluations; with `zeros` it runs every selected token."""
    own = ("eval.data=[]", f"train.seed={job.seed}", f"train.output_dir={folder}")
    trainer = Trainer(config_of((*job.arguments(), *own)))
    if zeros:
        trainer.actor.trained_tokens = lambda batch: batch.selected
    return trainer


def measure(chunk: Chunk) -> list[tuple]:
    """Lines of COLUMNS at the evaluated steps of each row, and at its last one."""
    os.chdir(ROOT)
    torch.set_num_threads(1)  # as in the runs
    with closing(Verifier()) as verifier:
        verifier.submit(OPEN, r"\sqrt{2}").result()  # starts the server of this process, which all rows share
    lines, spent = [], np.zeros(len(chunk.jobs))
    with TemporaryDirectory() as folder:
        trainers = [trainer_of(job, Path(folder) / str(i), zeros) for i, (job, zeros) in enumerate(chunk.jobs)]
        for step in range(1, max(job.row.steps for job, _ in chunk.jobs) + 1):
            order = np.roll(np.arange(len(trainers)), step)
            for i in (i for i in order if step <= chunk.jobs[i][0].row.steps):
                started = cpu_seconds()
                trainers[i].advance()
                spent[i] += cpu_seconds() - started
                job, zeros = chunk.jobs[i]
                if step % job.row.every == 0:
                    lines.append((job.row.name, int(zeros), chunk.base, chunk.index, step, f"{spent[i]:.5g}"))
        for trainer in trainers:
            trainer.close()
    return lines


def chunks(
    rows: Iterable[Row], base: str, known: Known, reference: str, first_index: int = 0, seed: int = SEED
) -> list[Chunk]:
    """The rows with a known setting in chunks, each with the reference; GRPO rows come twice."""
    arms = []
    for row in rows:
        try:
            job = Job("compare", row, base, seed, setting_of(row, known))
        except ValueError:
            continue
        twice = "GRPO, G = " in row.name and "norm" not in row.name
        arms.append([(job, zeros) for zeros in ((False, True) if twice else (False,))])
    first = next(arm for arm in arms if arm[0][0].row.name == reference)
    packed: list[list] = [[]]
    for arm in (arm for arm in arms if arm is not first):
        if len(packed[-1]) + len(arm) > CHUNK:
            packed.append([])
        packed[-1] += arm
    return [Chunk(i, base, (*first, *part)) for i, part in enumerate(packed, first_index)]


# --- reading ---------------------------------------------------------------------------------------------------------


class Costs:
    """CPU seconds of training so far by row, task and step."""

    def __init__(self, lines: Iterable[dict[str, str]]) -> None:
        """`lines`: of COLUMNS, see read_costs."""
        self._curves: dict[tuple[str, bool, str], dict[str, dict[int, float]]] = {}  # by chunk
        for line in lines:
            key = (line["row"], bool(int(line["zeros_computed"])), line["base"])
            of_chunk = self._curves.setdefault(key, {}).setdefault(line["chunk"], {})
            of_chunk[int(line["step"])] = float(line["seconds"])
        logs = [np.log(list(self._ratios(*key).values())) for key in self._curves if key != self._reference(key[2])]
        self.freedom = sum(len(of_row) - 1 for of_row in logs)
        squares = sum(float(((of_row - of_row.mean()) ** 2).sum()) for of_row in logs)
        self.deviation = math.sqrt(squares / self.freedom) if self.freedom else 0.0

    def __bool__(self) -> bool:
        return bool(self._curves)

    @staticmethod
    def _reference(task: str) -> tuple[str, bool, str]:
        return HEAVY_REFERENCE if task.endswith(SUFFIX) else REFERENCE, False, task

    def _ratios(self, row: str, zeros: bool, task: str) -> dict[str, float]:
        """By chunk the seconds of all steps over those of the reference."""
        of_reference = self._curves[self._reference(task)]
        curves = self._curves.get((row, zeros, task), {})
        return {chunk: max(curve.values()) / max(of_reference[chunk].values()) for chunk, curve in curves.items()}

    def seconds(self, row: str, base: str, steps: np.ndarray, zeros: bool = False) -> np.ndarray | None:
        """Seconds after `steps` [E] on a base model of the same task; None for a row that was not measured.

        A base model of another warm-up costs what the measured one of its task does, a row on new seeds what it did.
        """
        key = self._key(row, base, zeros)
        if key not in self._curves:
            return None
        ends = {chunk: max(curve.values()) for chunk, curve in self._curves[self._reference(key[2])].items()}
        mean = float(np.mean(list(ends.values())))
        curves = [
            np.interp(steps, [0, *curve], [0, *curve.values()]) * mean / ends[chunk]
            for chunk, curve in self._curves[key].items()
        ]
        return np.mean(curves, axis=0)

    # s^2 / n: ln(ratio) has a variance s^2 between seeds, pooled over the rows with several; the mean of n seeds counts
    def error(self, row: str, base: str, zeros: bool = False) -> float:
        """Relative standard error of a row's seconds; 0 of the reference, whose seconds the others are ratios to."""
        key = self._key(row, base, zeros)
        if key not in self._curves or key == self._reference(key[2]):
            return 0.0
        return self.deviation / math.sqrt(len(self._curves[key]))

    @staticmethod
    def _key(row: str, base: str, zeros: bool) -> tuple[str, bool, str]:
        return row.removeprefix(AGAIN), zeros, base.replace("@1", "")


def read_lines(path: Path = COSTS) -> list[dict[str, str]]:
    """The measured lines, of COLUMNS; none if the file does not exist."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def read_costs(path: Path = COSTS) -> Costs:
    """The measured costs; empty if the file does not exist."""
    return Costs(read_lines(path))


def write_lines(lines: Iterable[dict[str, str]], path: Path) -> None:
    """Write the file anew, in the order of chunks."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(sorted(lines, key=lambda line: (line["base"].endswith(SUFFIX), int(line["chunk"]))))


def without(lines: Iterable[dict[str, str]], rows: Iterable[str]) -> list[dict[str, str]]:
    """The lines of other rows. Those of the reference go with the last row of their chunk."""
    references = (REFERENCE, HEAVY_REFERENCE)
    left = [line for line in lines if line["row"] not in set(rows) - set(references)]
    chunks_left = {(line["base"], line["chunk"]) for line in left if line["row"] not in references}
    return [line for line in left if (line["base"], line["chunk"]) in chunks_left]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="chunks at a time (default: all cores)")
    measured = [row.name for row in (*ROWS, *HEAVY_ROWS) if row.name not in (REFERENCE, HEAVY_REFERENCE)]
    parser.add_argument("--row", choices=measured, metavar="NAME", action="append", help="a row, repeatable")
    parser.add_argument("--again", type=int, metavar="SEED", help="measure with this seed too, rows of --row")
    args = parser.parse_args()
    if args.again is not None and not args.row:
        parser.error("--again: needs rows, --row NAME")
    os.chdir(ROOT)
    known = {record.identity: record for record in read()}
    again, seed = args.again is not None, SEED if args.again is None else args.again
    kept = without(read_lines(), () if again else args.row) if args.row else []
    index = 1 + max((int(line["chunk"]) for line in kept), default=-1)
    work: list[Chunk] = []
    padded = [base + SUFFIX for base in TASKS]
    for rows, bases, reference in ((ROWS, TASKS, REFERENCE), (HEAVY_ROWS, padded, HEAVY_REFERENCE)):
        chosen = [row for row in rows if not args.row or row.name in (*args.row, reference)]
        if len(chosen) > 1:
            work += [chunk for base in bases for chunk in chunks(chosen, base, known, reference, index, seed)]
    for chunk in work:
        for job, _ in chunk.jobs:
            job.arguments()  # creates base models and problems before the processes need them
    asked = sha256(repr((args.row, args.again)).encode()).hexdigest()[:6]
    partial = ROOT / "runs" / f"step_costs-{revision()}-{asked}.csv"
    partial.parent.mkdir(exist_ok=True)
    lines = read_lines(partial) or kept
    done = {(line["base"], line["chunk"]) for line in lines}
    work = [chunk for chunk in reversed(work) if (chunk.base, str(chunk.index)) not in done]  # the longest first
    with ProcessPoolExecutor(args.processes, mp_context=FORKS) as pool:
        for chunk, measured_lines in zip(work, pool.map(measure, work), strict=True):
            lines += [dict(zip(COLUMNS, line)) for line in measured_lines]
            write_lines(lines, partial)
            print(f"measured {len(chunk.jobs)} rows on {chunk.base}", flush=True)
    write_lines(lines, COSTS)
    partial.unlink(missing_ok=True)
    print(f"wrote {COSTS}")


if __name__ == "__main__":
    main()
