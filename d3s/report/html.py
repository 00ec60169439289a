"""Frame of every HTML page: one self-contained file without scripts, light and dark, wide and narrow."""

from html import escape
from pathlib import Path

from d3s.common import printable
from d3s.report.theme import css_variables


def render_page(title: str, body: str) -> str:
    """Return a complete HTML page. `body` is HTML, `title` is plain text."""
    style = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
    light, dark = _declarations(css_variables()), _declarations(css_variables(dark=True))
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
    """Return any text as HTML: escaped, without control characters."""
    return escape(printable(str(value)))


def _declarations(variables: dict[str, str]) -> str:
    return " ".join(f"--{name}: {color};" for name, color in variables.items())
