"""Train the rows of the results, and record every run in docs/data.

    python -m research.ablation [--minutes 55] [--processes 2]      (make ablation)
    python -m research.ablation --part heavy                        (one part: sweep, rows, heavy, studies)
    python -m research.ablation --row D3S --row PODS                (these rows)
    python -m research.ablation --section tree                      (a section of research/beyond.py)

First the learning rate of every row is searched on validation problems, then the rows are trained and evaluated on test
problems, seed by seed, so that an interrupted campaign has all rows with fewer seeds. A run whose line is in the file
is not repeated. No run starts after --minutes; call again for the rest. research/results.py makes the tables.
"""

import argparse
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
from research.beyond import SECTIONS
from research.comparisons import is_planned
from research.jobs import Job, Search, compared_jobs, folder_of, in_fork, searched_row, train
from research.kl_to_base import kl_to_base
from research.records import BEYOND_DATA, DATA, read, record_run, write
from research.row import Row
from research.rows import BY_NAME, PARTS
from research.step_shapes import METHODS, SHAPES_DATA, Climb, read_shape_costs, shapes_section


class Campaign:
    """The records so far, and how to add to them until a deadline."""

    def __init__(self, data: Path, folder: Path, processes: int, minutes: float, code: str | None = None) -> None:
        self.data, self.folder, self.processes = data, folder, processes
        folder.mkdir(parents=True, exist_ok=True)
        self.guard = (folder / "lock").open("w")  # held until this process ends
        try:
            fcntl.flock(self.guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SystemExit(f"{folder}: another campaign is running; wait for its end") from None
        self.deadline = time.monotonic() + 60 * minutes
        self.records = {record.identity: record for record in read(data)}
        self.origin = machine() | {"revision": committed_revision() if code is None else code}
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
        started = time.monotonic()
        with self.lock:  # threads that create the same base model would disturb each other
            code = folder_of(job, self.folder).with_suffix(".revision")
        if not code.exists():  # of the code that starts the run
            code.parent.mkdir(parents=True, exist_ok=True)
            code.write_text(self.origin["revision"])
        folder = train(job, self.folder)
        if job.part == "compare" and in_fork(kl_to_base, folder):
            raise RuntimeError(f"{folder}: the KL divergence from the base model could not be computed")
        record = record_run(
            load_runs([folder])[0],
            kl_to_base(folder) if job.part == "compare" else {},
            part=job.part,
            row=job.row.name,
            base=job.base,
            seed=job.seed,
            arguments=" ".join(job.arguments()),
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="runs at a time (default: all cores)")
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "ablation", help="default: runs/ablation")
    parser.add_argument("--minutes", type=float, default=55, help="start no run after this time (default: 55)")
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--part", choices=["sweep", *PARTS], action="append", help="repeatable (default: all in turn)")
    chosen.add_argument("--row", choices=BY_NAME, metavar="NAME", action="append", help="a row, repeatable")
    chosen.add_argument("--section", choices=SECTIONS, action="append", help="of beyond.py, repeatable")
    chosen.add_argument("--shapes", action="store_true", help="search the shapes of a step, see step_shapes.py")
    chosen.add_argument("--beyond", action="store_true", help="all sections")
    args = parser.parse_args()
    os.chdir(ROOT)
    sections = list(SECTIONS) if args.beyond else args.section or []
    data = BEYOND_DATA if sections else SHAPES_DATA if args.shapes else DATA
    campaign = Campaign(data, args.folder.resolve(), args.processes, args.minutes)
    if args.shapes:
        costs, done = read_shape_costs(), True
        while done and (jobs := [job for m in METHODS for job in Climb(m, campaign.records, costs).wanted()]):
            done = campaign.run(jobs)
        print(shapes_section(campaign.records))
    elif args.row or sections:
        rows = [BY_NAME[name] for name in args.row or [row.name for name in sections for row in SECTIONS[name].rows]]
        done = campaign.sweep([row for row in rows if not row.rate]) and campaign.compare(rows)
    else:
        every_row = [row for rows in PARTS.values() for row in rows]
        parts = args.part or ["sweep", *PARTS]
        done = all(campaign.sweep(every_row) if p == "sweep" else campaign.compare(PARTS[p]) for p in parts)
    print("all runs are recorded" if done else "runs are left: call again", f"in {data}")


if __name__ == "__main__":
    main()
