"""Test the frame of the HTML pages with a parser: self-contained, escaped, colors of both modes."""

from d3s.report.html import html_text, render_page
from d3s.report.theme import DARK_SERIES, SERIES
from tests.helpers.html_page import check_page
from tests.helpers.run_directories import HOSTILE


def test_page_is_self_contained_and_escapes_its_title(tmp_path):
    path = tmp_path / "page.html"
    path.write_text(render_page(HOSTILE, '<p style="color: var(--series-7)">body</p>'), encoding="utf-8")
    page = check_page(path)
    assert page.texts.count(HOSTILE) == 2 and "body" in page.texts  # in the title and in the heading
    assert page.tags.count("html") == page.tags.count("main") == 1


def test_page_defines_the_colors_of_both_modes():
    page = render_page("title", "")
    light, dark = page.split("prefers-color-scheme: dark", 1)
    assert f"--series-0: {SERIES[0]};" in light and f"--series-0: {DARK_SERIES[0]};" in dark
    assert "default-src 'none'" in light


def test_html_text_escapes_markup_and_control_characters():
    assert html_text('<a href="x">&\x1b\u202e') == "&lt;a href=&quot;x&quot;&gt;&amp;␛�"
    assert html_text(3) == "3"
