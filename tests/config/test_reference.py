"""The generated page docs/configuration.md, against the schema and against the loader."""

import re

import yaml

from d3s.config.load import load_config
from d3s.config.reference import document
from d3s.config.schema import Config
from tests.helpers.configs import ROOT, flat, rejection

ROW = re.compile(r"^\| `(\w+\.\w+)` \| `(.*?)` \| (.*?) \| ", re.MULTILINE)
DEFAULTS = flat(Config())


def test_page_is_up_to_date():
    page = (ROOT / "docs/configuration.md").read_text()
    assert page == document(), "run: python -m d3s.config.reference > docs/configuration.md"


def test_page_has_a_row_for_every_option():
    assert [key for key, _, _ in ROW.findall(document())] == list(DEFAULTS)


def test_default_cells_load_as_the_defaults():
    for key, default, _ in ROW.findall(document()):
        assert flat(load_config([], [f"{key}={default}"])) == DEFAULTS, key


def test_limits_on_the_page_are_those_of_the_loader():
    """A value beyond each limit of each row is rejected for this limit."""
    checked = 0
    for key, _, words in ROW.findall(document()):
        if words.startswith(("list", "[")):
            continue
        for sign, limit in re.findall(r"(>=|<=|>|<) ([-\d.]+)", words):
            bound = yaml.safe_load(limit)
            beyond = bound if sign in "<>" else bound - 1 if sign == ">=" else bound + 1
            message = rejection(f"{key}={beyond}")
            assert message.startswith(f"{key}: got {beyond}, expected") and f"a number {sign} {limit}" in message
            checked += 1
    assert checked > 50
