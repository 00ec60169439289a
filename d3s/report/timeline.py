"""Timeline of a run: seconds per step by phase, over the steps or as one bar per group."""

from collections.abc import Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from d3s.report.panels import figure_svg, shorten, style_axes
from d3s.report.runs import Group, Run, is_single_run
from d3s.report.theme import INK, PHASES, style


def phase_seconds(lines: Sequence[dict]) -> dict[str, np.ndarray]:
    """Return the seconds of each phase per step, [len(lines)], in running order. "other" is the rest of the wall time.

    Phases that took no time are left out.
    """

    def values(key: str) -> np.ndarray:
        return np.array([float(line.get(key) or 0.0) for line in lines])

    seconds = {name: values(f"time/{name}") for name in PHASES if name != "other"}
    total = values("time/step")
    total[1:] = np.maximum(total[1:], np.diff(values("wall_time")))  # includes the time between two steps
    seconds["other"] = np.maximum(0.0, total - sum(seconds.values()))
    return {name: durations for name, durations in seconds.items() if durations.sum() > 0}


def mean_phases(group: Group) -> dict[str, float]:
    """Return the mean seconds per step of each phase, averaged over the runs of the group."""
    means = [{name: v.mean() for name, v in phase_seconds(run.metrics).items()} for run in group.runs if run.metrics]
    return {name: total / len(means) for name in PHASES if (total := sum(mean.get(name, 0.0) for mean in means))}


def timeline_svg(groups: Sequence[Group]) -> str:
    """Return the timeline for a page: over the steps of a single run, else one bar per group."""
    with matplotlib.rc_context(style()):
        single = is_single_run(groups)
        height = 2.6 if single else 0.85 + 0.36 * len(groups)
        figure = Figure(figsize=(8.4, height))
        left, width, above = (0.06, 0.78, 0.1) if single else (0.2, 0.76, 0.35)
        ax = figure.add_axes((left, 0.45 / height, width, 1 - (0.45 + above) / height))
        draw_timeline(ax, groups)
        return figure_svg(figure, "seconds per step by phase")


def draw_timeline(ax: Axes, groups: Sequence[Group]) -> None:
    """Draw stacked seconds per step: over the steps of a single run, else a bar per group (mean of steps and seeds)."""
    if is_single_run(groups):
        shares = draw_time_stack(ax, groups[0].runs[0])
        for i, (name, share) in enumerate(reversed(shares)):
            at = {"xycoords": "axes fraction", "textcoords": "offset points", "va": "top", "annotation_clip": False}
            ax.annotate("■", (1, 1), (10, -13 * i), color=PHASES[name], **at)
            ax.annotate(f"{name} {share:.0%}", (1, 1), (22, -13 * i), color=INK, **at)
    else:
        _draw_time_bars(ax, groups)


def draw_time_stack(ax: Axes, run: Run, bins: int = 65) -> list[tuple[str, float]]:
    """Stack the mean seconds per step in `bins` parts of the run. Return (phase, share of time) from bottom to top."""
    seconds = phase_seconds(run.metrics)
    steps = np.array([line["step"] for line in run.metrics], dtype=float)
    if not seconds or not len(steps):
        return []
    parts = np.array_split(np.arange(len(steps)), min(bins, len(steps)))
    edges = np.array([steps[part[0]] - 0.5 for part in parts] + [steps[-1] + 0.5])
    base, total = np.zeros(len(parts)), sum(values.sum() for values in seconds.values())
    shares = []
    for name, values in seconds.items():
        height = np.array([values[part].mean() for part in parts])
        ax.stairs(base + height, edges, baseline=base, fill=True, color=PHASES[name], lw=0)
        base, share = base + height, values.sum() / total
        if share >= 0.01:
            shares.append((name, share))
    style_axes(ax, "number", "step")
    ax.set_xlim(edges[0], edges[-1])
    ax.set_ylim(0, base.max() * 1.05)
    return shares


def _draw_time_bars(ax: Axes, groups: Sequence[Group]) -> None:
    drawn: dict[str, float] = {}
    for row, group in enumerate(groups):
        left = 0.0
        for name, seconds in mean_phases(group).items():
            ax.barh(row, seconds, left=left, color=PHASES[name], height=0.62, lw=0)
            left += seconds
            drawn[name] = drawn.get(name, 0.0) + seconds
        ax.text(left, row, f"  {left:.3g} s", va="center", color=INK, fontsize=8.5)
    ax.set_yticks(range(len(groups)), [shorten(group.name, 24) for group in groups], color=INK)
    ax.invert_yaxis()
    ax.grid(False, axis="y")
    ax.margins(x=0.12)
    ax.set_xlim(left=0)
    ax.set_xlabel("mean seconds per step")
    shown = [name for name in PHASES if drawn.get(name, 0.0) >= 0.01 * sum(drawn.values())]
    handles = [matplotlib.patches.Patch(color=PHASES[name], label=name, lw=0) for name in shown]
    place = {"loc": "lower left", "bbox_to_anchor": (0, 1), "borderaxespad": 0.4, "borderpad": 0}
    ax.legend(handles=handles, ncols=len(handles), **place)
