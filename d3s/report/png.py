"""PNG files: a sheet with all curves of a comparison, and the summary picture of a single run."""

import math
from collections.abc import Sequence
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Annotation

from d3s.report.panels import (
    AXIS_NAMES,
    Panel,
    draw_noise,
    draw_panel,
    format_duration,
    format_value,
    panels_for,
    shorten,
    style_axes,
)
from d3s.report.runs import Group, Run, benchmark_name, group_runs, is_single_run, load_runs, smooth
from d3s.report.theme import INK, MUTED, PHASES, SERIES, style
from d3s.report.timeline import draw_time_stack, draw_timeline

DPI = 160
WIDTH, COLUMNS, CELL = 13.0, 4, (3.16, 2.3)  # of the sheet in inches, and of a panel with its captions
LEGEND_WIDTH = 125  # characters per line of group names


def draw_sheet(groups: Sequence[Group], axes: Sequence[str], title: str, path: Path) -> Path:
    """Draw all panels on one PNG: Pass@1 against each of `axes`, the rest against the first, and the timeline."""
    panels = panels_for(groups)
    first = panels[:1]
    cells = [(panel, axis) for panel in first for axis in axes]
    cells += [(panel, axes[0]) for panel in panels if panel not in first]
    names = _legend_lines(groups)
    header, rows = 1.0 + 0.25 * len(names), math.ceil(len(cells) / COLUMNS)
    bars = 1.0 if is_single_run(groups) else 0.3 + 0.32 * len(groups)
    height = header + CELL[1] * rows + 1.35 + bars
    with matplotlib.rc_context(style()):
        figure = Figure(figsize=(WIDTH, height), dpi=DPI, facecolor="white")
        _draw_header(figure, height, title, names, _reading_aid(groups))
        for i, (panel, axis) in enumerate(cells):
            left, bottom = 0.6 + CELL[0] * (i % COLUMNS), height - header - 1.85 - CELL[1] * (i // COLUMNS)
            ax = figure.add_axes((left / WIDTH, bottom / height, 2.55 / WIDTH, 1.35 / height))
            draw_panel(ax, panel, groups, axis)
            plain = axis == axes[0]
            _caption(ax, panel.title if plain else f"{panel.title} by {AXIS_NAMES[axis]}", panel.note)
            if plain and len(axes) <= i < len(cells) - COLUMNS:
                ax.set_xlabel("")
        left, width = (0.6, 10.8) if is_single_run(groups) else (2.2, 10.0)
        ax = figure.add_axes((left / WIDTH, 0.55 / height, width / WIDTH, bars / height))
        draw_timeline(ax, groups)
        _caption(ax, "Where the time goes: seconds per step, by phase", "")
        figure.savefig(path)
    return path


def draw_demo_picture(run_dir: Path, path: Path | None = None) -> Path:
    """Draw the summary of one run to `path`, by default run_dir/report.png, and return the path.

    Raises: UserError if there is no run in `run_dir`.
    """
    (run,) = load_runs([Path(run_dir)])
    (group,) = group_runs([run])
    data = run.benchmarks[0] if run.benchmarks else None
    with matplotlib.rc_context(style() | {"font.size": 9.5, "axes.labelsize": 9.5}):
        figure = Figure(figsize=(12.8, 6.4), dpi=DPI, facecolor="white")
        figure.text(0.04, 0.925, summary_title(run, data), fontsize=20, fontweight="bold", color=INK)
        figure.text(0.04, 0.872, "   ·   ".join(summary_facts(run, data)), fontsize=10.5, color=MUTED)
        _draw_result(figure.add_axes((0.053, 0.1, 0.335, 0.64)), run, group, data)
        places = [(0.497 + 0.178 * column, 0.5 - 0.4 * row, 0.137, 0.24) for row in (0, 1) for column in (0, 1, 2)]
        _draw_small([figure.add_axes(place) for place in places], run, group)
        path = path or Path(run_dir) / "report.png"
        figure.savefig(path)
    return path


def summary_title(run: Run, data: str | None) -> str:
    """Return the change of Pass@1 on `data`, or the name of the run if it has no evaluation yet."""
    x, y = run.curve(f"eval/{data}/pass@1")
    if not len(y):
        return f"{shorten(run.path.resolve().name, 50)} at step {run.last_step}"
    if len(y) == 1:
        when = f"at step {x[0]:.0f}" if x[0] else "before training"
        now = f", now at step {run.last_step}" if run.last_step > x[0] else ""
        return f"Pass@1 {format_value(y[0], 'share')} {when}{now}"
    change = f"from {format_value(y[0], 'share')} to {format_value(y[-1], 'share')}"
    return f"Pass@1 {change} in {x[-1] - x[0]:.0f} steps"


def summary_facts(run: Run, data: str | None) -> list[str]:
    """Return the evaluation set, the share of tokens trained on, and the training time, as far as they are known."""
    facts = []
    if data:
        record = next(r for r in run.evaluations if benchmark_name(r) == data)
        counts = {"problems": "held-out problems", "n": "samples each"}
        known = [f"{record[key]} {label}" for key, label in counts.items() if key in record]
        facts.append(", ".join([shorten(data, 30), *known]))
    trained, generated = run.curve("tokens_trained")[1], run.curve("tokens_generated")[1]
    if len(trained) and len(generated) and generated[-1]:
        share = format_value(trained[-1] / generated[-1], "share")
        facts.append(f"trained on {share} of {format_value(generated[-1], 'count')} generated tokens")
    seconds = run.curve("time/step")[1]
    return facts + ([f"{format_duration(seconds.sum())} of training"] if len(seconds) else [])


def _draw_result(ax: Axes, run: Run, group: Group, data: str | None) -> None:
    """Draw Pass@k of the first benchmark with its first and last values, or the reward of a run without evaluations."""
    curves = {}
    for panel in panels_for([group]):
        if data and panel.key.startswith(f"eval/{data}/"):
            curves[panel] = run.curve(panel.key)
    if not curves:
        draw_panel(ax, Panel("Reward", "reward/mean"), [group], "step")
        _caption(ax, "Reward", "mean over all rollouts of a step")
        return
    for (panel, (x, y)), color in zip(curves.items(), SERIES):
        ax.plot(x, y, color=color, lw=2.4, marker="o", ms=4.5, mec="white", mew=0.8, zorder=4)
        draw_noise(ax, run, panel.key, "step", color)
    style_axes(ax, "share", "step")
    last = max(x[-1] for x, _ in curves.values())
    ax.set_xlim(-0.14 * last - 0.5, last + 0.5)
    ax.set_ylim(0, 1.02)
    ax.set_yticks([0, 0.25, 0.5, 0.75, 1.0])
    ax.set_xticks([tick for tick in ax.get_xticks() if 0 <= tick <= last])
    starts = separate_labels([y[0] for _, y in curves.values()], 0.05)
    ends = separate_labels([y[-1] for _, y in curves.values()], 0.125)
    for (panel, (x, y)), color, start, end in zip(curves.items(), SERIES, starts, ends):
        label = {"color": color, "va": "center", "textcoords": "offset points", "annotation_clip": False}
        if len(y) > 1:
            ax.annotate(format_value(y[0], "share"), (x[0], start), (-8, 0), ha="right", fontweight="bold", **label)
        ax.annotate(format_value(y[-1], "share"), (x[-1], end), (10, 0), fontweight="bold", fontsize=17, **label)
        ax.annotate(panel.title, (x[-1], end), (11, -16), fontsize=9.5, **label)
    _caption(ax, "Held-out problems solved", "before, during and after training; band: 95% interval over problems")


def _draw_small(axes: Sequence[Axes], run: Run, group: Group) -> None:
    draw_panel(axes[0], Panel("Reward", "reward/mean"), [group], "step")
    _caption(axes[0], "Reward", "mean of a step's rollouts")
    draw_panel(axes[1], Panel("Entropy", "policy/entropy"), [group], "step")
    axes[1].set_ylim(bottom=0)
    _caption(axes[1], "Entropy", "nats per token")
    _draw_pair(axes[2], run, "Kept", "share", {"rollouts": "selection/rollouts_share", "tokens": "schedule/k"})
    _draw_pair(axes[3], run, "Tokens so far", "count", {"generated": "tokens_generated", "trained": "tokens_trained"})
    variances = {"before": "advantage/var_all", "after": "advantage/var_selected"}
    _draw_pair(axes[4], run, "Var(A) and selection", "number", variances)
    shares = draw_time_stack(axes[5], run, bins=40)
    largest = sorted(shares, key=lambda pair: -pair[1])[:2]
    legend = [(f"{name} {share:.0%}", MUTED if name == "other" else PHASES[name]) for name, share in largest]
    _caption(axes[5], "Seconds per step", legend)
    for i, ax in enumerate(axes):
        if i < 3:
            ax.set_xlabel("")
        if not ax.has_data():
            ax.set_axis_off()
            ax.text(0, 0.9, "nothing logged yet", transform=ax.transAxes, color=MUTED)


def _draw_pair(ax: Axes, run: Run, title: str, form: str, keys: dict[str, str]) -> None:
    """Draw two curves in one panel. The caption names them with their last values."""
    legend = []
    for (name, key), color in zip(keys.items(), (MUTED, SERIES[0])):
        x, y = run.curve(key)
        if len(y):
            ax.plot(x, smooth(y, max(1, len(y) // 20)), color=color, lw=1.6, marker="o" if len(y) == 1 else None)
            legend.append((f"{name} {format_value(y[-1], form)}", color))
    style_axes(ax, form, "step")
    ax.set_ylim(bottom=0)
    _caption(ax, title, legend)


def separate_labels(values: Sequence[float], gap: float) -> list[float]:
    """Return heights for labels of `values`: in the same order, lowered until all are at least `gap` apart."""
    heights, ceiling = list(values), math.inf
    for i in sorted(range(len(values)), key=lambda i: -values[i]):
        heights[i] = ceiling = min(heights[i], ceiling - gap)
    return heights


def _caption(ax: Axes, title: str, subtitle: str | Sequence[tuple[str, str]]) -> None:
    """Write a bold title above the axes, and below it muted text or (text, color) pairs that serve as a legend."""
    ax.annotate(title, (0, 1), (-2, 20), "axes fraction", "offset points", fontweight="bold", fontsize=10, color=INK)
    previous = None
    for text, color in [(subtitle, MUTED)] if isinstance(subtitle, str) else subtitle:
        at = {"xy": (0, 1), "xytext": (-2, 8), "xycoords": "axes fraction"}
        if previous is not None:
            at = {"xy": (1, 0), "xytext": (8, 0), "xycoords": previous, "va": "bottom"}
        previous = ax.annotate(text, textcoords="offset points", fontsize=8.5, color=color, **at)


def _draw_header(figure: Figure, height: float, title: str, names: list[list[tuple[str, str]]], aid: str) -> None:
    """Write the title, the group names in the colors of their curves, and how to read the curves."""
    left, top = 0.57 / WIDTH, height - 0.42
    figure.text(left, top / height, shorten(title, 90), fontsize=17, fontweight="bold", color=INK)
    for i, line in enumerate(names):
        previous = None
        for name, color in line:
            at = {"xy": (left, (top - 0.3 - 0.25 * i) / height), "xytext": (0, 0), "xycoords": "figure fraction"}
            if previous is not None:
                at = {"xy": (1, 0), "xytext": (16, 0), "xycoords": previous, "va": "bottom"}
            look = {"textcoords": "offset points", "fontsize": 11, "fontweight": "bold", "color": color}
            previous = Annotation(name, annotation_clip=False, **at, **look)
            figure.add_artist(previous)
    figure.text(left, (top - 0.28 - 0.25 * len(names)) / height, aid, fontsize=9, color=MUTED)


def _legend_lines(groups: Sequence[Group]) -> list[list[tuple[str, str]]]:
    """Return the (name, color) pairs of the groups in lines, [] for a single group."""
    lines: list[list[tuple[str, str]]] = []
    for i, group in enumerate(groups if len(groups) > 1 else []):
        seeds = f" ({len(group.runs)} seeds)" if len(group.runs) > 1 else ""
        dashed = " (dashed)" if i >= len(SERIES) else ""
        name = shorten(group.name, 60) + seeds + dashed
        if not lines or sum(len(n) + 4 for n, _ in lines[-1]) + len(name) > LEGEND_WIDTH:
            lines.append([])
        lines[-1].append((name, SERIES[i % len(SERIES)]))
    return lines


def _reading_aid(groups: Sequence[Group]) -> str:
    if any(len(group.runs) > 1 for group in groups):
        return "Curves: smoothed means over seeds, up to the end of the shortest run. Bands: one standard deviation."
    return "Curves are smoothed; the faint line behind is every step. Bands of Pass@k: 95% interval over problems."
