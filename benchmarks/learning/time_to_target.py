"""Steps, trained tokens and seconds until GRPO, PODS and D3S reach a fixed Pass@1 on the embedded default.

    python -m benchmarks.learning.time_to_target [--seeds 5] [--target 0.55] [--processes 2]      (make bench-learning)

Methods, base models and the sweep of rates are those of benchmarks/learning/ablation.py; the runs are its own, for
they are evaluated every 12 steps. What is there is read, what is missing is run. The crossing of the target is
interpolated between evaluations. A run that never reaches it is counted, not averaged: a mean over those that did
flatters a method of which few do.
"""

import os
from collections.abc import Sequence

from benchmarks.harness import ROOT, publish
from benchmarks.learning.ablation import BASES, NAMED, arguments, on_bases, show, sweep
from benchmarks.learning.runs import AXES, crossing, curve, final, record, train_all
from d3s.evaluate.intervals import student_interval
from d3s.report.runs import Run

NAMES = ("GRPO", "PODS", "D3S")


def interval(values: Sequence[float | None]) -> str:
    """Mean and half-width of Student's 95 % interval, over the runs that have a value."""
    there = [value for value in values if value is not None]
    if not there:
        return "never"
    value = student_interval(there)
    return f"{value.value:,.0f}" + ("" if value.low is None else f" ± {value.value - value.low:,.0f}")


def row(name: str, runs: Sequence[Run], target: float) -> list[str]:
    """A line of the table."""
    reached = [crossing(run, target, "step") is not None for run in runs]
    cells = [interval([crossing(run, target, axis) for run in runs]) for axis in AXES]
    seconds = interval([float(curve(run, "pass@1", "seconds")[0][-1]) for run in runs])
    return [
        name,
        f"{sum(reached)} of {len(runs)}",
        *cells,
        show(student_interval([final(r, "pass@1") for r in runs])),
        seconds,
    ]


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--target", type=float, default=0.55)
    args = parser.parse_args()
    os.chdir(ROOT)
    taken, _ = sweep([NAMED[name] for name in NAMES], args.folder, args.processes)
    cells = {name: on_bases(NAMED[name].also(*taken[name], "eval.every=12"), BASES) for name in NAMES}
    seeds = range(args.seeds)
    wanted = [(cell, seed) for seed in seeds for copies in cells.values() for cell in copies]
    runs = train_all(wanted, args.folder, args.processes)
    of = {name: [runs[cell, seed] for cell in copies for seed in seeds] for name, copies in cells.items()}
    title = f"To Pass@1 = {args.target} on the embedded default: mean ± 95 % interval over {len(BASES)} base models x "
    columns = ["method", "reached", "steps", "trained tokens", "seconds", "Pass@1 at the end, %", "seconds in all"]
    rows = [row(name, found, args.target) for name, found in of.items()]
    publish("learning", f"{title}{args.seeds} seeds", columns, rows, {"taken": taken, "runs": record(runs)})


if __name__ == "__main__":
    main()
