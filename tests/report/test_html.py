"""Test the frame of the HTML pages with a parser: self-contained, escaped, colors of both modes."""

from d3s.report.html import render_page
from tests.helpers.html_page import check_page
from tests.helpers.run_directories import HOSTILE


def test_page_is_self_contained_and_escapes_its_title(tmp_path):
    path = tmp_path / "page.html"
    path.write_text(render_page(HOSTILE, '<p style="color: var(--series-7)">body</p>'), encoding="utf-8")
    page = check_page(path)
    assert page.texts.count(HOSTILE) == 2 and "body" in page.texts  # in the title and in the heading
    assert page.tags.count("html") == page.tags.count("main") == 1
