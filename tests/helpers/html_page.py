"""A checker for HTML pages that must be safe and self-contained."""

import re
from html.parser import HTMLParser
from pathlib import Path


class PageChecker(HTMLParser):
    """Collect the tags, ids and texts of a page. Scripts, external addresses and unclosed elements fail the test."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags, self.ids, self.texts, self.open = [], [], [], []
        self.feed(text)
        assert self.open == [] and not self.rawdata

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        if tag not in ("meta", "input"):
            self.open.append(tag)
        self.ids += [value for name, value in attributes if name == "id"]
        for name, value in attributes:
            assert not name.startswith("on") and name not in ("src", "action", "srcset")
            assert not name.endswith("href") or value.startswith("#")
            assert not re.search(r"url\((?!#)|https?:|//", value or ""), (name, value)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "style":
            assert not re.search(r"url\(|@import|https?:", data)
        self.texts.append(data)


def check_page(path: Path) -> PageChecker:
    """Check that a page is self-contained, without scripts, and colored only by its CSS variables."""
    text = path.read_text(encoding="utf-8")
    page = PageChecker(text)
    assert {"script", "iframe", "img", "link", "object", "base", "form"}.isdisjoint(page.tags)
    assert len(page.ids) == len(set(page.ids))
    used, defined = set(re.findall(r"var\(--([\w-]+)\)", text)), set(re.findall(r"--([\w-]+):", text))
    assert used <= defined
    assert not re.findall(r"(?:stroke|fill): #[0-9a-f]{6}", text)
    return page
