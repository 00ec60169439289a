"""The frame of every HTML page: one file, no script, nothing fetched; light and dark, wide and narrow."""

from html import escape
from pathlib import Path

from d3s.report.panels import PHASES, SERIES
from d3s.tracking.tracker import printable

DARK_SERIES = ("#7aa9f7", "#f08f66", "#4fc3a4", "#cf8fde", "#dcb455", "#f284ab", "#74c8e3", "#b9a898")
DARK_PHASES = {
    "generate": "#5b8fe8",
    "reward": "#9dbdf0",
    "exchange": "#8d86b3",
    "score": "#a887d6",
    "select": "#d0a8e2",
    "update": "#e9794c",
    "sync": "#f0b394",
    "checkpoint": "#8d95a1",
    "evaluate": "#3fb694",
    "other": "#59616d",
}


def render_page(title: str, body: str) -> str:
    """A whole page around `body`, which must be HTML already; `title` is text."""
    style = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
    light, dark = _variables(SERIES, PHASES), _variables(DARK_SERIES, DARK_PHASES)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<title>{escape(title)}</title>
<style>
:root {{ {light} }}
@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}
{style}</style>
</head>
<body>
<main>
<h1>{escape(title)}</h1>
{body}
</main>
</body>
</html>
"""


def html_text(value: object) -> str:
    """Any text as HTML: escaped, and without control characters."""
    return escape(printable(str(value)))


def _variables(series: tuple[str, ...], phases: dict[str, str]) -> str:
    colours = {f"series-{i}": colour for i, colour in enumerate(series)}
    colours |= {f"phase-{name}": colour for name, colour in phases.items()}
    return " ".join(f"--{name}: {colour};" for name, colour in colours.items())
