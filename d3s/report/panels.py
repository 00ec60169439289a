"""Small multiples of training curves, drawn for a PNG or as SVG for a page.

Both use the same drawing functions with the hex colors of the theme. In an SVG each color becomes a CSS variable, so
that one SVG fits the light and the dark page.
"""

import html
import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from d3s.report.runs import Group, Run, benchmark_name, mean_and_spread, smooth
from d3s.report.theme import GRID, INK, MUTED, SERIES, css_variables, style

RAW_ALPHA = 0.28  # opacity of the unsmoothed curve of a single run
MAX_POINTS = 240  # per curve
AXIS_NAMES = {"step": "training step", "tokens": "trained tokens", "time": "wall time"}


@dataclass(frozen=True)
class Panel:
    """One small multiple of the metric `key`.

    form: how values are written: "number", "share" or "count". note: a subtitle. background: a second metric, drawn as
    a thin line behind the first.
    """

    title: str
    key: str
    form: str = "number"
    note: str = ""
    background: str | None = None


PANELS = (
    Panel("Reward", "reward/mean", note="mean over all rollouts of a step"),
    Panel(
        "Entropy",
        "policy/entropy",
        note="nats per token; thin: of the selected tokens",
        background="policy/entropy_selected",
    ),
    Panel("KL to the reference", "policy/kl_ref", note="nats per token"),
    Panel(
        "KL of the update",
        "policy/approx_kl",
        note="nats per token, before each update of the step, without the last one",
    ),
    Panel("Gradient norm", "grad_norm", note="before clipping"),
    Panel("Var(A)", "advantage/var_selected", note="after selection; thin: before", background="advantage/var_all"),
    Panel("Sample usefulness", "selection/usefulness", "share", "kept rollouts with an advantage"),
    Panel("Mean selected advantage", "advantage/mean_selected", note="0 where right and wrong balance"),
    Panel("Effective groups", "selection/effective_groups", note="groups that the kept rollouts are spread over"),
    Panel("N, rollouts kept", "schedule/n", "count", "per prompt"),
    Panel("K, tokens kept", "schedule/k", "share", "of the kept rollouts' tokens"),
    Panel("Trained tokens", "tokens_trained", "count", "cumulative"),
    Panel("Seconds per step", "time/step", note="without evaluation and checkpoints"),
    Panel("Response length", "completion/length", "count", "tokens"),
    Panel("Cut responses", "completion/truncated", "share", "at the length limit"),
    Panel("Equal-reward groups", "reward/zero_std_groups", "share", "all right or all wrong: no advantage"),
    Panel("Held-out loss", "held_out/loss", note="nats per token of demonstrations that are not trained"),
    Panel("Engine mismatch", "mismatch/mean_abs", note="mean |log-probability difference|"),
)
UNSMOOTHED = ("schedule/n", "schedule/k", "tokens_trained", "tokens_generated")


def panels_for(groups: Sequence[Group]) -> list[Panel]:
    """Return the panels with data: Pass@k of every benchmark (smallest and largest k), then the training metrics."""
    panels = []
    runs = [run for group in groups for run in group.runs]
    for data in dict.fromkeys(name for run in runs for name in run.benchmarks):
        keys = {key for run in runs for r in run.evaluations if benchmark_name(r) == data for key in r}
        ks = sorted(int(key[5:]) for key in keys if re.fullmatch(r"pass@\d+", key))
        for k in dict.fromkeys(ks[:1] + ks[-1:]):
            panels.append(Panel(f"Pass@{k}", f"eval/{data}/pass@{k}", "share", data))
    panels += PANELS
    return [panel for panel in panels if any(group.curves(panel.key) for group in groups)]


def draw_panel(ax: Axes, panel: Panel, groups: Sequence[Group], axis: str) -> None:
    """Draw one panel: a single run raw and smoothed, several runs as mean and a band of one standard deviation."""
    for i, group in enumerate(groups):
        color = SERIES[i % len(SERIES)]
        dashes = (None, None) if i < len(SERIES) else (4, 1.5)
        if panel.background:
            for x, y, _ in _aggregate(group, panel.background, axis):
                ax.plot(x, y, color=MUTED if len(groups) == 1 else color, lw=0.9, alpha=0.8, zorder=2)
        for x, y, spread in _aggregate(group, panel.key, axis):
            marker = "o" if panel.key.startswith("eval/") or len(x) == 1 else None
            ax.plot(x, y, color=color, lw=1.6, dashes=dashes, marker=marker, ms=2.6, zorder=4)
            if len(group.runs) > 1:
                alpha = 0.16 if len(groups) <= 4 else 0.07
                ax.fill_between(x, y - spread, y + spread, color=color, alpha=alpha, lw=0, zorder=3)
        if len(group.runs) == 1 and len(groups) <= 2:
            draw_noise(ax, group.runs[0], panel.key, axis, color)
    style_axes(ax, panel.form, axis)


def style_axes(ax: Axes, form: str, axis: str) -> None:
    """Set a few ticks, written as `form` asks for, and a margin around flat curves."""
    ax.margins(x=0.02, y=0.08)
    left, right = ax.get_xlim()
    if axis != "time" and right - left < 1:
        ax.set_xlim((left + right) / 2 - 0.5, (left + right) / 2 + 0.5)
    low, high = ax.get_ylim()
    if form == "share":
        ax.set_ylim(max(low, -0.02), min(high, 1.02) if high <= 1.1 else high)
    low, high = ax.get_ylim()
    if high - low < 1e-3 * max(abs(high), abs(low)):
        ax.set_ylim(low - 0.05 * abs(low) - 1e-9, high + 0.05 * abs(high) + 1e-9)
    ax.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10], integer=form == "count"))
    ax.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10], integer=axis != "time"))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: format_value(value, form)))
    unit, factor = _time_unit(ax.get_xlim()[1]) if axis == "time" else ("", 1.0)
    ax.xaxis.set_major_formatter(
        FuncFormatter(lambda value, _: f"{value / factor:g}" if axis == "time" else format_value(value, "count"))
    )
    ax.set_xlabel(AXIS_NAMES[axis] + (f" ({unit})" if unit else ""))


def format_value(value: float, form: str) -> str:
    """Write 0.123 as "12%" (share), 12345 as "12.3k", 0.00025 as "2.5e-4", and the rest in at most three digits."""
    if form == "share":
        return f"{value:.0%}" if abs(value) >= 0.1 or value == 0 else f"{100 * value:.2g}%"
    if abs(value) >= 1000:
        power = min(3, int(math.log10(abs(value)) // 3))
        return f"{value / 1000**power:.3g}{' kMG'[power]}"
    if 0 < abs(value) < 1e-3:
        digits, exponent = f"{value:.1e}".split("e")
        return f"{digits.removesuffix('.0')}e{int(exponent)}"
    return f"{value:.3g}"


def format_duration(seconds: float) -> str:
    """Write a duration as "74 s", "12.3 min" or "3.4 h"."""
    unit, factor = _time_unit(seconds)
    return f"{seconds / factor:.3g} {unit}"


def panel_svg(panel: Panel, groups: Sequence[Group], axis: str) -> str:
    """Return one panel without its title, for a page."""
    with matplotlib.rc_context(style()):
        figure = Figure(figsize=(3.7, 2.2))
        ax = figure.add_axes((0.135, 0.2, 0.845, 0.76))
        draw_panel(ax, panel, groups, axis)
        return figure_svg(figure, f"{panel.title} ({panel.key}) against {AXIS_NAMES[axis]}")


def shorten(name: str, length: int) -> str:
    """Shorten `name` to `length` characters by an ellipsis in the middle."""
    return name if len(name) <= length else f"{name[: length // 2]}…{name[-(length - length // 2 - 1) :]}"


def _aggregate(group: Group, key: str, axis: str) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Return [] or one (x, mean, spread): each run smoothed, averaged over runs, and thinned to MAX_POINTS points."""
    curves = []
    for x, y in group.curves(key, axis):
        window = 1 if key.startswith("eval/") or key in UNSMOOTHED else max(1, len(y) // 20)
        curves.append((x, smooth(y, window)))
    if not curves:
        return []
    x, mean, spread = mean_and_spread(curves)
    stride = max(1, len(x) // MAX_POINTS)
    keep = np.unique(np.append(np.arange(0, len(x), stride), len(x) - 1)) if len(x) else []
    return [(x[keep], mean[keep], spread[keep])] if len(x) else []


def draw_noise(ax: Axes, run: Run, key: str, axis: str, color: str) -> None:
    """Draw what smoothing hides: every step of a training metric, or the interval over problems of an evaluation."""
    if key.startswith("eval/"):
        x, low, high = run.interval(key, axis)
        ax.fill_between(x, low, high, color=color, alpha=0.14, lw=0, zorder=1)
        return
    x, y = run.curve(key, axis)
    if key not in UNSMOOTHED and len(y) >= 40:
        keep = _extremes(y)
        ax.plot(x[keep], y[keep], color=color, lw=0.6, alpha=RAW_ALPHA, zorder=1)


def _extremes(y: np.ndarray) -> np.ndarray:
    """Return the indices of the lowest and highest point in each of MAX_POINTS / 2 parts, so that no spike is lost."""
    if len(y) <= MAX_POINTS:
        return np.arange(len(y))
    parts = np.array_split(np.arange(len(y)), MAX_POINTS // 2)
    return np.unique([part[pick(y[part])] for part in parts for pick in (np.argmin, np.argmax)])


def _time_unit(seconds: float) -> tuple[str, float]:
    return ("s", 1.0) if seconds < 300 else ("min", 60.0) if seconds < 3 * 3600 else ("h", 3600.0)


def figure_svg(figure: Figure, label: str) -> str:
    """Return the figure as an <svg> element that scales with its column and uses the colors and the font of the page.

    `label` is the text for screen readers, and makes the ids of the figures on one page distinct.
    """
    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": label}):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->|<style.*?</style>", "", text, flags=re.DOTALL)
    text = re.sub(r' (width|height)="[\d.]+pt"', "", text, count=2)
    text = re.sub(r' (xmlns(:xlink)?|version)="[^"]*"', "", text)
    text = re.sub(
        r' id="(?:figure|axes|patch|text|xtick|ytick|line2d|matplotlib\.axis|legend|FillBetween\w*)_\d+"', "", text
    )
    text = re.sub(r"(\.\d\d)\d+", r"\1", text)  # coordinates to hundredths of a point
    text = re.sub(r"font-family: [^;\"]*", "font-family: inherit", text)
    for name, color in ({"ink": INK, "muted": MUTED, "grid": GRID} | css_variables()).items():
        text = text.replace(color, f"var(--{name})")
    return text.replace("<svg", f'<svg role="img" aria-label="{html.escape(label)}"', 1).strip()
