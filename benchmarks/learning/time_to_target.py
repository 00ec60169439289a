"""Count steps, trained tokens and CPU seconds until GRPO, PODS and D3S reach a fixed Pass@1.

    python -m benchmarks.learning.time_to_target [--seeds 5] [--target 0.55] [--processes 2]      (make bench-learning)

Methods, base models and the learning-rate sweep are those of benchmarks/learning/ablation.py; the runs are separate,
because they are evaluated every 12 steps. Finished runs are read, missing ones are trained. The crossing of the target
is interpolated between evaluations. Runs that never reach the target are counted, and the means are over those that do,
which flatters a method of which few do: read both columns.
"""

import os
from collections.abc import Sequence

from benchmarks.harness import ROOT, publish
from benchmarks.learning.ablation import argument_parser, on_bases, sweep
from benchmarks.learning.methods import BASES, BY_NAME
from benchmarks.learning.runs import AXES, crossing, curve, final, record, train_all
from benchmarks.learning.tables import show
from d3s.evaluate.intervals import student_interval
from d3s.report.runs import Run

COLUMNS = ["method", "reached", "steps", "trained tokens", "seconds", "Pass@1 at the end, %", "seconds in all"]
NAMES = ("GRPO", "PODS", "D3S")


def interval(values: Sequence[float | None]) -> str:
    """Mean and half-width of Student's 95 % interval, over the runs that have a value."""
    present = [value for value in values if value is not None]
    if not present:
        return "never"
    estimate = student_interval(present)
    return f"{estimate.value:,.0f}" + ("" if estimate.low is None else f" ± {estimate.value - estimate.low:,.0f}")


def row(name: str, runs: Sequence[Run], target: float) -> list[str]:
    """The table row of one method."""
    reached = sum(crossing(run, target, "step") is not None for run in runs)
    crossings = [interval([crossing(run, target, axis) for run in runs]) for axis in AXES]
    accuracy = show(student_interval([final(run, "pass@1") for run in runs]))
    total_seconds = interval([float(curve(run, "pass@1", "seconds")[0][-1]) for run in runs])
    return [name, f"{reached} of {len(runs)}", *crossings, accuracy, total_seconds]


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--target", type=float, default=0.55, help="Pass@1 to reach (default: 0.55)")
    args = parser.parse_args()
    os.chdir(ROOT)
    chosen, _ = sweep([BY_NAME[name] for name in NAMES], args.folder, args.processes)
    cells = {name: on_bases(BY_NAME[name].extended(*chosen[name], "eval.every=12"), BASES) for name in NAMES}
    seeds = range(args.seeds)
    pairs = [(cell, seed) for seed in seeds for copies in cells.values() for cell in copies]
    runs = train_all(pairs, args.folder, args.processes)
    runs_of = {name: [runs[cell, seed] for cell in copies for seed in seeds] for name, copies in cells.items()}
    title = f"To Pass@1 = {args.target} on tiny:precedence: mean ± 95 % interval over {len(BASES)} base models x "
    rows = [row(name, method_runs, args.target) for name, method_runs in runs_of.items()]
    publish("learning", f"{title}{args.seeds} seeds", COLUMNS, rows, {"chosen": chosen, "runs": record(runs)})


if __name__ == "__main__":
    main()
