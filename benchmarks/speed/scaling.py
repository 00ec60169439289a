"""Measure how the cost of a training step grows with G, response length, vocabulary and model width.

    python -m benchmarks.speed.scaling [--doublings 3] [--rounds 5]      (make bench-scaling)

Doubles each of the four alone, from one base point. N = G / 4 and K = 12.5 % throughout, so the update grows with G as
generation does. Fits seconds = c x^e by least squares on logarithms, for generation, update and the full step, and
draws runs/benchmarks/scaling.png. Exponents describe the growth with one size and hold in the measured range only. The
same points also give the seconds per unit of each kind of work (benchmarks/speed/step_time.py).
"""

import argparse
import tempfile
from itertools import combinations
from pathlib import Path

from benchmarks.harness import RESULTS, alternate, median, publish
from benchmarks.speed.step import start_d3s, write_work
from benchmarks.speed.step_time import Amounts, predict, step_work
from d3s.flops import ModelShape

BASE = {"group": 16, "response_tokens": 64, "vocabulary": 8000, "hidden": 128}
PROMPTS, LAYERS = 4, 4
NAMES = {"group": "G", "response_tokens": "response length", "vocabulary": "vocabulary", "hidden": "width of the model"}
PARTS = {"generate": "generate", "update": "update", "wall": "step"}


def time_steps(settings: dict[str, int], rounds: int) -> list[dict]:
    """The measurements of D3S steps at one point."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_work(folder, argparse.Namespace(prompts=PROMPTS, micro_batch=16, layers=LAYERS, model=None, **settings))
        side = start_d3s(folder, max(2, settings["group"] // 4), 0.125)
        return alternate({"D3S": side}, rounds, warmup=2)["D3S"]


def amounts(settings: dict[str, int], measurements: list[dict]) -> Amounts:
    """The work of a step at one point."""
    heads, hidden = max(1, settings["hidden"] // 64), settings["hidden"]
    shape = ModelShape(hidden, LAYERS, heads, heads, hidden // heads, 4 * hidden, settings["vocabulary"], True, True)
    return step_work(
        shape,
        rollouts=PROMPTS * settings["group"],
        length=settings["response_tokens"],
        forwarded=median(measurements, "forwarded"),
        selected=median(measurements, "selected"),
        engine_rows=256,
    )


def fit(points: list[tuple[dict[str, float], float]]) -> dict[str, float]:
    """Seconds per unit of each kind of work, from points (amounts, seconds), none negative.

    Minimizes the squares of the relative errors. Tries all subsets of the kinds, which are few, and takes the
    best whose plain least squares has no negative unit.
    """
    import numpy as np

    kinds = list(points[0][0])
    table = np.array([[amounts[kind] / seconds for kind in kinds] for amounts, seconds in points])
    scale = table.max(0)
    best, units = np.inf, np.zeros(len(kinds))
    for used in (list(c) for size in range(1, len(kinds) + 1) for c in combinations(range(len(kinds)), size)):
        solution = np.linalg.lstsq(table[:, used] / scale[used], np.ones(len(points)), rcond=None)[0]
        error = ((table[:, used] / scale[used] @ solution - 1) ** 2).sum()
        if (solution >= 0).all() and error < best:
            best, units = error, np.zeros(len(kinds))
            units[used] = solution / scale[used]
    return dict(zip(kinds, map(float, units)))


def exponent(sizes: list[int], seconds: list[float]) -> float:
    """The slope of log seconds over log size."""
    import numpy as np

    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def draw(measured: dict[str, dict[int, list[dict]]], fits: dict[str, dict[str, float]], path: Path) -> None:
    """Draw one panel per size, both axes logarithmic, with bars from the fastest to the slowest round."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, len(measured), figsize=(4 * len(measured), 3.6), sharey=True, squeeze=False)
    for panel, (axis, points) in zip(panels[0], measured.items()):
        for part, label in PARTS.items():
            middles = [median(measurements, part) for measurements in points.values()]
            values = [[m[part] for m in measurements] for measurements in points.values()]
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


def growth_rows(measured: dict[str, dict[int, list[dict]]], fits: dict[str, dict[str, float]]) -> list[list[str]]:
    """One row per doubled size: median seconds of each part, and the fitted exponent."""
    rows = []
    for axis, points in measured.items():
        cells = []
        for part in PARTS:
            seconds = " / ".join(f"{median(measurements, part):.2f}" for measurements in points.values())
            cells.append(f"{seconds} (^{fits[axis][part]:.2f})")
        rows.append([NAMES[axis], " / ".join(f"{size:,}" for size in points), *cells])
    return rows


def fit_units(measured: dict[str, dict[int, list[dict]]]) -> tuple[dict[str, dict[str, float]], float]:
    """Seconds per unit of work in each phase, and the largest relative error of the steps that they predict."""
    points = [(BASE | {axis: size}, runs) for axis, sizes in measured.items() for size, runs in sizes.items()]
    works = [(amounts(settings, runs), runs) for settings, runs in points]
    units = {phase: fit([(work[phase], median(runs, phase)) for work, runs in works]) for phase in works[0][0]}
    errors = []
    for work, runs in works:
        errors.append(sum(predict(work, units).values()) / sum(median(runs, phase) for phase in units) - 1)
    return units, max(map(abs, errors))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--doublings", type=int, default=3, help="times that each size is doubled (default: 3)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--axes", nargs="+", action="extend", choices=list(BASE), help="sizes to double (default: all)")
    args = parser.parse_args()
    base = time_steps(BASE, args.rounds)
    measured = {}
    for axis in args.axes or BASE:
        measured[axis] = {BASE[axis]: base}
        for size in (BASE[axis] * 2**i for i in range(1, args.doublings + 1)):
            measured[axis][size] = time_steps(BASE | {axis: size}, args.rounds)
    fits = {
        axis: {part: exponent(list(points), [median(runs, part) for runs in points.values()]) for part in PARTS}
        for axis, points in measured.items()
    }
    draw(measured, fits, RESULTS / "scaling.png")
    units, error = fit_units(measured)
    notes = f"Units of work (benchmarks/speed/step_time.py) give these steps within {error:.0%}."
    start = ", ".join(f"{NAMES[key]} {value:,}" for key, value in BASE.items())
    title = f"Seconds of a step and fitted exponents; from {start}; medians of {args.rounds} rounds"
    columns = ["doubled", "sizes", *PARTS.values()]
    record = {"measured": measured, "exponents": fits, "units": units, "dtype": "float32"}
    publish("scaling", title, columns, growth_rows(measured, fits), record, notes)


if __name__ == "__main__":
    main()
