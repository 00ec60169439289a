"""What a training step costs as G, the responses' length, the vocabulary and the model's width double.

    python -m benchmarks.speed.scaling [--doublings 3] [--rounds 5]      (make bench-scaling)

From one base point each of the four is doubled alone. N = G / 4 and K = 12.5 % throughout, so the update grows with G
as generation does. Fits seconds = c x^e by least squares on logarithms, for generation, update and the whole step, and
draws runs/benchmarks/scaling.png. Exponents tell how one size grows and end at the measured range; for prediction the
same points also give the seconds of a unit of each kind of work (d3s/plan/step_time.py), which train.py --dry-run
multiplies.
"""

import argparse
import tempfile
from itertools import combinations
from pathlib import Path

from benchmarks.harness import RESULTS, median, publish, race
from benchmarks.speed.step import ours, write_work
from d3s.plan.memory import ModelShape
from d3s.plan.step_time import Amounts, predict, step_work

BASE = {"group": 16, "response_tokens": 64, "vocabulary": 8000, "hidden": 128}
PROMPTS, LAYERS = 4, 4
NAMES = {"group": "G", "response_tokens": "response length", "vocabulary": "vocabulary", "hidden": "width of the model"}
PARTS = {"generate": "generate", "update": "update", "wall": "step"}


def time_steps(settings: dict[str, int], rounds: int) -> list[dict]:
    """The turns of one side at one point."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_work(folder, argparse.Namespace(prompts=PROMPTS, micro_batch=16, layers=LAYERS, **settings))
        side = ours(folder, max(2, settings["group"] // 4), 0.125)
        try:
            return race({"": side}, rounds, warmup=2)[""]
        finally:
            side.close()


def amounts(settings: dict[str, int], turns: list[dict]) -> Amounts:
    """The work of a step at one point."""
    heads, hidden = max(1, settings["hidden"] // 64), settings["hidden"]
    shape = ModelShape(hidden, LAYERS, heads, heads, hidden // heads, 4 * hidden, settings["vocabulary"], True, True)
    return step_work(
        shape,
        rollouts=PROMPTS * settings["group"],
        length=settings["response_tokens"],
        forwarded=median(turns, "forwarded"),
        selected=median(turns, "selected"),
        engine_rows=256,
    )


def fit(points: list[tuple[dict[str, float], float]]) -> dict[str, float]:
    """Seconds per unit of each kind of work, none negative: least squares of relative errors over (amounts, seconds).

    The best of all subsets of the kinds whose plain least squares has no negative unit; there are few kinds.
    """
    import numpy as np

    kinds = list(points[0][0])
    table = np.array([[amounts[kind] / seconds for kind in kinds] for amounts, seconds in points])
    scale = table.max(0)
    best, units = np.inf, np.zeros(len(kinds))
    for used in (list(c) for n in range(1, len(kinds) + 1) for c in combinations(range(len(kinds)), n)):
        found = np.linalg.lstsq(table[:, used] / scale[used], np.ones(len(points)), rcond=None)[0]
        error = ((table[:, used] / scale[used] @ found - 1) ** 2).sum()
        if (found >= 0).all() and error < best:
            best, units = error, np.zeros(len(kinds))
            units[used] = found / scale[used]
    return dict(zip(kinds, map(float, units)))


def exponent(sizes: list[int], seconds: list[float]) -> float:
    """The slope of log seconds over log size."""
    import numpy as np

    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def draw(measured: dict[str, dict[int, list[dict]]], fits: dict[str, dict[str, float]], path: Path) -> None:
    """One panel per size, both axes logarithmic; bars from the fastest to the slowest turn."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, len(measured), figsize=(4 * len(measured), 3.6), sharey=True, squeeze=False)
    for panel, (axis, points) in zip(panels[0], measured.items()):
        for part, label in PARTS.items():
            middles = [median(turns, part) for turns in points.values()]
            values = [[turn[part] for turn in turns] for turns in points.values()]
            low = [m - min(v) for m, v in zip(middles, values)]
            high = [max(v) - m for m, v in zip(middles, values)]
            name = f"{label} ~ x^{fits[axis][part]:.2f}"
            panel.errorbar(list(points), middles, yerr=[low, high], marker="o", capsize=3, label=name)
        panel.set(xscale="log", yscale="log", xlabel=NAMES[axis], xticks=list(points))
        panel.set_xticklabels([f"{x:,}" for x in points])
        panel.minorticks_off()
        panel.legend(fontsize=8)
    panels[0, 0].set_ylabel("seconds")
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--doublings", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--axes", default=",".join(BASE), help="which of them to double")
    args = parser.parse_args()
    base = time_steps(BASE, args.rounds)
    measured = {}
    for axis in args.axes.split(","):
        measured[axis] = {BASE[axis]: base}
        for size in (BASE[axis] * 2**i for i in range(1, args.doublings + 1)):
            measured[axis][size] = time_steps(BASE | {axis: size}, args.rounds)
    fits = {
        axis: {part: exponent(list(points), [median(turns, part) for turns in points.values()]) for part in PARTS}
        for axis, points in measured.items()
    }
    rows = []
    for axis, points in measured.items():
        seconds = [" / ".join(f"{median(turns, part):.2f}" for turns in points.values()) for part in PARTS]
        cells = [f"{text} (^{fits[axis][part]:.2f})" for text, part in zip(seconds, PARTS)]
        rows.append([NAMES[axis], " / ".join(f"{x:,}" for x in points), *cells])
    draw(measured, fits, RESULTS / "scaling.png")
    points = [(BASE | {axis: size}, turns) for axis, sizes in measured.items() for size, turns in sizes.items()]
    works = [(amounts(settings, turns), turns) for settings, turns in points]
    units = {phase: fit([(work[phase], median(turns, phase)) for work, turns in works]) for phase in works[0][0]}
    told = [sum(predict(work, units).values()) / sum(median(turns, p) for p in units) - 1 for work, turns in works]
    notes = (
        f"Units of work (d3s/plan/step_time.py, used by --dry-run) give these steps within {max(map(abs, told)):.0%}."
    )
    start = ", ".join(f"{NAMES[key]} {value:,}" for key, value in BASE.items())
    title = f"Seconds of a step and fitted exponents; from {start}; medians of {args.rounds} turns"
    columns = ["doubled", "sizes", *PARTS.values()]
    record = {"measured": measured, "exponents": fits, "units": units, "dtype": "float32"}
    publish("scaling", title, columns, rows, record, notes)


if __name__ == "__main__":
    main()
