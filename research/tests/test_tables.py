"""Marked sections of pages."""

from research.tables import write_between_marks


def test_text_between_marks_is_replaced(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- x -->\nold\n<!-- /x -->\nb\n<!-- y -->\nkept\n<!-- /y -->\n")
    write_between_marks(page, "x", "new\n")
    assert page.read_text() == "a\n<!-- x -->\nnew\n<!-- /x -->\nb\n<!-- y -->\nkept\n<!-- /y -->\n"
