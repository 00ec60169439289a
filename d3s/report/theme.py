"""Colors, fonts and the matplotlib style of every picture and page."""

from matplotlib.font_manager import fontManager

INK, MUTED, GRID = "#1b1f27", "#6c7480", "#e4e7eb"

SERIES = ("#2463c9", "#d4572a", "#14866d", "#9a45ad", "#a87a12", "#c93a70", "#2f93b3", "#7b6a5d")
DARK_SERIES = ("#7aa9f7", "#f08f66", "#4fc3a4", "#cf8fde", "#dcb455", "#f284ab", "#74c8e3", "#b9a898")

_PHASES = {  # of a training step, in the order in which they run: on a light page, on a dark page
    "generate": ("#2461c8", "#5b8fe8"),
    "reward": ("#7fa8e8", "#9dbdf0"),
    "exchange": ("#b9b2d8", "#8d86b3"),
    "logprobs": ("#8a63b8", "#a887d6"),
    "select": ("#c293d6", "#d0a8e2"),
    "update": ("#d4592b", "#e9794c"),
    "sync": ("#e2a07f", "#f0b394"),
    "checkpoint": ("#a6adb8", "#8d95a1"),
    "evaluate": ("#159070", "#3fb694"),
    "other": ("#d3d7dd", "#59616d"),
}
PHASES, DARK_PHASES = ({name: pair[i] for name, pair in _PHASES.items()} for i in (0, 1))

FONTS = ("Inter", "Helvetica Neue", "Helvetica", "Arial", "Liberation Sans", "DejaVu Sans")


def css_variables(dark: bool = False) -> dict[str, str]:
    """Return the CSS variables of curves and phases with their colors: {"series-0": "#...", "phase-update": "#..."}."""
    series, phases = (DARK_SERIES, DARK_PHASES) if dark else (SERIES, PHASES)
    variables = {f"series-{i}": color for i, color in enumerate(series)}
    return variables | {f"phase-{name}": color for name, color in phases.items()}


def style() -> dict:
    """Return the matplotlib settings of every figure, for `with matplotlib.rc_context(style()):`."""
    installed = {font.name for font in fontManager.ttflist}
    preferred = [name for name in FONTS[:-1] if name in installed][:1]
    return {
        "font.family": [*preferred, FONTS[-1]],  # matplotlib ships the last font
        "font.size": 8.5, "lines.solid_capstyle": "round", "svg.fonttype": "none",
        "text.color": INK, "text.parse_math": False,  # run names are not formulas
        "axes.edgecolor": GRID, "axes.labelcolor": MUTED, "axes.labelsize": 8.5,
        "axes.spines.top": False, "axes.spines.right": False, "axes.spines.left": False,
        "axes.grid": True, "axes.axisbelow": True, "grid.color": GRID, "grid.linewidth": 0.7,
        "xtick.color": GRID, "xtick.labelcolor": MUTED, "xtick.major.size": 3,
        "ytick.color": GRID, "ytick.labelcolor": MUTED, "ytick.major.size": 0,
        "legend.frameon": False, "legend.handlelength": 1.0, "legend.handleheight": 1.0, "legend.columnspacing": 1.2,
    }  # fmt: skip
