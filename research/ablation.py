"""Train the rows of the results, and record every run in docs/data/runs.csv.

    python -m research.ablation [--minutes 55] [--processes 2]      (make ablation)
    python -m research.ablation --part heavy                        (one part: sweep, rows, heavy, studies)
    python -m research.ablation --row D3S --seeds 90 91 92          (a row with other seeds)

First the learning rate of every row is searched on validation problems, then the rows are trained and evaluated on test
problems, seed by seed, so that an interrupted campaign has all rows with fewer seeds. A run whose line is in the file
is not repeated. No run starts after --minutes; call again for the rest. research/results.py makes the
tables.
"""

import fcntl
import os
import subprocess
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.harness import ROOT, machine, revision
from d3s.report.runs import load_runs
from research.comparisons import is_planned
from research.jobs import SEEDS_PER_BASE, Job, Known, Search, compared_jobs, searched_row
from research.kl_to_base import kl_to_base
from research.records import DATA, read, record_run, write
from research.rows import BY_NAME, PARTS, Row
from research.runs import argument_parser, in_fork, train


class Campaign:
    """The records so far, and how to add to them until a deadline."""

    def __init__(self, data: Path, folder: Path, processes: int, minutes: float) -> None:
        self.data, self.folder, self.processes = data, folder, processes
        folder.mkdir(parents=True, exist_ok=True)
        self.guard = (folder / "lock").open("w")  # held until this process ends
        try:
            fcntl.flock(self.guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SystemExit(f"{folder}: another campaign is running; wait for its end") from None
        self.deadline = time.monotonic() + 60 * minutes
        self.records = {record.identity: record for record in read(data)}
        self.origin = machine() | {"revision": committed_revision()}
        self.lock = threading.Lock()

    def run(self, jobs: Iterable[Job]) -> bool:
        """Train what is missing, `processes` runs at a time. Returns whether no run is left."""
        missing = [job for job in dict.fromkeys(jobs) if job.identity() not in self.records]
        with ThreadPoolExecutor(self.processes) as pool:
            futures = [pool.submit(self._train, job) for job in missing]
            try:
                done = sum(future.result() for future in futures)
            except BaseException:  # do not start the remaining runs
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        return done == len(missing)

    def _train(self, job: Job) -> bool:
        if time.monotonic() > self.deadline:
            return False
        cell, started = job.cell(), time.monotonic()
        code = cell.folder(self.folder / job.part) / f"seed{job.seed}.revision"
        if not code.exists():  # of the code that starts the run
            code.parent.mkdir(parents=True, exist_ok=True)
            code.write_text(self.origin["revision"])
        folder = train(cell, job.seed, self.folder / job.part)
        if job.part == "compare" and in_fork(kl_to_base, folder):
            raise RuntimeError(f"{folder}: the KL divergence from the base model could not be computed")
        record = record_run(
            load_runs([folder])[0],
            kl_to_base(folder) if job.part == "compare" else {},
            part=job.part,
            row=job.row.name,
            base=job.base,
            seed=job.seed,
            arguments=" ".join(cell.arguments),
            key=cell.key(),
            revision=code.read_text(),
            cpu=self.origin["cpu"],
        )
        with self.lock:
            self.records[job.identity()] = record
            write(self.data, self.records.values())
            left = (self.deadline - time.monotonic()) / 60
            accuracy = f"Pass@1 {100 * record.levels(1)[0]:.1f} to {100 * record.levels(1)[-1]:.1f}"
            cost = f"{record.seconds[-1]:.0f} of {time.monotonic() - started:.0f} s"
            setting = " ".join(job.setting.overrides())
            print(
                f"{left:5.1f} min left  {job.row.name} | {job.base} seed {job.seed} {setting}: {accuracy}, {cost}",
                flush=True,
            )
        return True

    def sweep(self, rows: Sequence[Row]) -> bool:
        """Search the settings of all rows on validation problems. Returns whether every search has ended."""
        rows = list(dict.fromkeys(map(searched_row, rows)))
        while True:
            searches = [Search(row, self.records) for row in rows]
            jobs = [job for search in searches for job in search.wanted()]
            if not jobs:
                self._forget("sweep", rows, [job for search in searches for job in search.jobs_so_far()])
                return True
            if not self.run(jobs):
                return False

    def _forget(self, part: str, rows: Sequence[Row], jobs: Iterable[Job]) -> None:
        """Drop runs of these rows at settings that they no longer have, as after a change of a row or of its search."""
        names, current = {row.name for row in rows}, {job.identity() for job in jobs}
        of_rows = {identity: record for identity, record in self.records.items() if record.row in names}
        for identity, record in of_rows.items():
            if record.part == part and identity not in current and (part == "sweep" or is_planned(record)):
                del self.records[identity]
        write(self.data, self.records.values())

    def compare(self, rows: Sequence[Row]) -> bool:
        """Train the rows on test problems, one seed of all rows after the other. Returns whether no run is left."""
        of_rows = [compared_jobs(row, self.records) for row in rows]
        self._forget("compare", rows, [job for jobs in of_rows for job in jobs])
        by_seed = [
            job
            for i in range(max(row.seeds for row in rows))
            for row, jobs in zip(rows, of_rows)
            for job in jobs[i * len(row.bases) : (i + 1) * len(row.bases)]
        ]
        return self.run(by_seed)


def committed_revision() -> str:
    """The current commit; empty outside a Git checkout. Ends the program if code has changed since."""
    command = ["git", "diff", "--quiet", "HEAD", "--", ".", ":!docs", ":!README.md"]  # pages and data are results
    if (name := revision()) and subprocess.run(command, cwd=ROOT).returncode:
        raise SystemExit("git: the checkout has changes; commit them, so that every run names its code")
    return name.removesuffix("+")


def with_seeds(row: Row, seeds: Sequence[int], known: Known) -> list[Job]:
    """The runs of a row with these seeds on its first base model, with as many more on each further one."""
    setting = compared_jobs(row, known)[0].setting
    return [
        Job("compare", row, base, seed + SEEDS_PER_BASE * i, setting)
        for seed in seeds
        for i, base in enumerate(row.bases)
    ]


def main() -> None:
    parser = argument_parser(__doc__, "ablation")
    parser.add_argument("--minutes", type=float, default=55, help="start no run after this time (default: 55)")
    parser.add_argument("--part", choices=["sweep", *PARTS], action="append", help="repeatable (default: all in turn)")
    parser.add_argument("--row", choices=BY_NAME, metavar="NAME", action="append", help="a row, repeatable")
    parser.add_argument(
        "--seeds",
        type=int,
        nargs="+",
        action="extend",
        help="with --row: other seeds, on the first base model; + 10 on the next",
    )
    parser.add_argument("--data", type=Path, default=DATA, help="the records (default: docs/data/runs.csv)")
    args = parser.parse_args()
    if args.seeds and not args.row:
        parser.error("--seeds: needs --row NAME")
    os.chdir(ROOT)
    campaign = Campaign(args.data.resolve(), args.folder.resolve(), args.processes, args.minutes)
    if args.row:
        rows = [BY_NAME[name] for name in args.row]
        done = campaign.sweep(rows)
        jobs = [job for row in rows for job in with_seeds(row, args.seeds, campaign.records)] if args.seeds else None
        done = done and (campaign.run(jobs) if jobs else campaign.compare(rows))
    else:
        parts = args.part or ["sweep", *PARTS]
        every_row = [row for rows in PARTS.values() for row in rows]
        done = all(campaign.sweep(every_row) if p == "sweep" else campaign.compare(PARTS[p]) for p in parts)
    print("all runs are recorded" if done else "runs are left: call again", f"in {args.data}")


if __name__ == "__main__":
    main()
