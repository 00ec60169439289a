"""Picture of one step's selection: all recorded rollouts by advantage, and the tokens of one of them by priority."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from d3s.common import UserError, printable
from d3s.report.theme import GRID, INK, MUTED, SERIES, style

WIDTH, MARGIN, DPI = 8.6, 0.3, 160  # inches; the type is large, as a phone shows the picture at a quarter of its size
DROPPED = "#d3d7dd"
HEAT = LinearSegmentedColormap.from_list("heat", ["#ffffff", "#f9c77d", "#ec8a1c"])
LINE, PADDING, CHARACTER = 0.52, 0.241, 0.159  # inches of a token: its height; its width without and per character
MOST_LINES = 6


def draw_method_picture(records: Sequence[dict], rule: str, path: Path) -> Path:
    """Draw the records of a step, as load_samples returns them.

    Args:
        rule: what the priority of a token is.

    Raises: UserError if no response of few enough tokens has priorities.
    """
    records = [record for record in records if {"advantage", "selected"} <= record.keys()]
    shown = _example(records)
    height = 4.05 + LINE * (_places(_tokens(shown))[-1][1] + 1)

    def axes(top: float, tall: float) -> Axes:
        return figure.add_axes((MARGIN / WIDTH, 1 - (top + tall) / height, 1 - 2 * MARGIN / WIDTH, tall / height))

    with matplotlib.rc_context(style()):
        figure = Figure(figsize=(WIDTH, height), dpi=DPI, facecolor="white")
        _heading(axes(0.2, 0.4), "1", "Keep the rollouts of extreme advantage")
        _draw_rollouts(axes(0.8, 2.0), records)
        _heading(axes(3.05, 0.4), "2", f"Train their tokens of highest {rule}")
        _draw_tokens(axes(3.5, height - 3.5), shown)
        figure.savefig(path, metadata={"Software": None})
    return path


def _example(records: Sequence[dict]) -> dict:
    """The right response, if there is one, whose trained tokens have the largest sum of priorities."""

    def fits(record: dict) -> bool:
        lists = [record.get(key) or [] for key in ("tokens", "priorities", "trained")]
        return len(set(map(len, lists))) == 1 and any(lists[2]) and _places(_tokens(record))[-1][1] < MOST_LINES

    def learned(record: dict) -> tuple[bool, float]:
        return record.get("right", False), sum(p or 0 for p, t in zip(record["priorities"], record["trained"]) if t)

    if fitting := [record for record in records if fits(record)]:
        return max(fitting, key=learned)
    raise UserError(f"--png: got no response of {MOST_LINES} lines with priorities; choose another --step")


def _tokens(record: dict) -> list[str]:
    """The tokens without an end token at the end, which is long and says nothing."""
    tokens = [printable(token).replace("\n", "↵") for token in record["tokens"]]
    return tokens[:-1] if tokens[-1].startswith("<|") and len(tokens) > 1 else tokens


def _places(tokens: Sequence[str]) -> list[tuple[float, int, float]]:
    """Left end, line and width of each token."""
    places, x, line = [], 0.0, 0
    for token in tokens:
        width = PADDING + CHARACTER * max(1, len(token))
        if x + width > WIDTH - 2 * MARGIN + 1e-6 and x:
            x, line = 0.0, line + 1
        places.append((x, line, width))
        x += width
    return places


def _heading(ax: Axes, number: str, text: str) -> None:
    ax.set_axis_off()
    ax.text(0, 0.5, number, fontsize=22, fontweight="bold", color=SERIES[0], va="center")
    ax.text(0.05, 0.5, text, fontsize=19, fontweight="bold", color=INK, va="center")


def _draw_rollouts(ax: Axes, records: Sequence[dict]) -> None:
    """Bars by falling advantage; of equal ones the kept are outside."""

    def place(record: dict) -> tuple[float, bool]:
        return -record["advantage"], record["selected"] == (record["advantage"] < 0)

    ordered = sorted(records, key=place)
    heights = [record["advantage"] for record in ordered]
    colors = [(SERIES[0] if a > 0 else SERIES[1]) if r["selected"] else DROPPED for a, r in zip(heights, ordered)]
    ax.bar(range(len(ordered)), heights, width=0.8, color=colors, linewidth=0)
    ax.axhline(0, color=DROPPED, linewidth=2)
    ax.set_xlim(-0.5, len(ordered) - 0.5)
    ax.set_axis_off()
    (low, high), middle = (min(heights), max(heights)), len(ordered) / 2
    above, below = colors.count(SERIES[0]), colors.count(SERIES[1])
    ax.text(0.6 * above, high, f"{above} kept", fontsize=18, color=SERIES[0], fontweight="bold", va="top")
    right = len(ordered) - 0.6 * below
    ax.text(right, low, f"{below} kept", fontsize=18, color=SERIES[1], fontweight="bold", ha="right")
    ax.text(middle, 0.12 * high, f"{colors.count(DROPPED)} dropped", fontsize=18, color=MUTED, ha="center")
    ax.text(0, low, "each bar: the advantage A\nof one rollout", fontsize=14.5, color=MUTED, linespacing=1.3)


def _draw_tokens(ax: Axes, record: dict) -> None:
    """The problem, and the response token by token; trained ones are framed."""
    tokens, top = _tokens(record), max(p for p in record["priorities"] if p is not None)
    ax.set_xlim(0, WIDTH - 2 * MARGIN)  # inches
    ax.set_ylim(ax.get_position().height * ax.figure.get_size_inches()[1], 0)
    ax.set_axis_off()
    problem = printable(record.get("problem", "")).replace("\n", " ")
    ax.text(0.02, 0.15, problem[:24], fontsize=19, color=MUTED, family="monospace", va="center")
    key = f"framed: the top {record.get('k', 1):.0%} of all their tokens"
    ax.text(WIDTH - 2 * MARGIN, 0.15, key, fontsize=14.5, color=MUTED, ha="right", va="center")
    for token, (x, line, width), priority, trained in zip(
        tokens, _places(tokens), record["priorities"], record["trained"]
    ):
        y = 0.4 + line * LINE
        frame = {"edgecolor": INK, "linewidth": 2.4} if trained else {"edgecolor": GRID, "linewidth": 1}
        box = FancyBboxPatch((x + 0.03, y), width - 0.06, LINE - 0.08, "round,pad=0,rounding_size=0.06", **frame)
        box.set_facecolor(HEAT(max(0.0, (priority or 0.0) / top) if top > 0 else 0.0))
        ax.add_patch(box)
        font = {"color": INK, "fontweight": "bold"} if trained else {"color": MUTED}
        middle = (x + width / 2, y + LINE / 2 - 0.05)
        ax.text(*middle, token, fontsize=19, family="monospace", ha="center", va="center", **font)
