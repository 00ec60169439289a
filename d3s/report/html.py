"""The frame of every HTML page: one file, no script, nothing fetched; light and dark, wide and narrow."""

from html import escape
from pathlib import Path

from d3s.common import printable
from d3s.report.theme import DARK_PHASES, DARK_SERIES, PHASES, SERIES


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
    colors = {f"series-{i}": color for i, color in enumerate(series)}
    colors |= {f"phase-{name}": color for name, color in phases.items()}
    return " ".join(f"--{name}: {color};" for name, color in colors.items())
