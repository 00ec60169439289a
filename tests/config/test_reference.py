"""The generated page docs/configuration.md, against the schema and against the loader."""

import re

import yaml

from d3s.config.load import load_config
from d3s.config.schema import Config
from dev.reference import document
from tests.helpers.configs import ROOT, flat, rejection

ROWS = re.findall(r"^\| `(\w+\.\w+)` \| `(.*?)` \| (.*?) \| (.*) \|$", document(), re.MULTILINE)


def test_page_is_up_to_date():
    page = (ROOT / "docs/configuration.md").read_text()
    assert page == document(), "run: python -m dev.reference > docs/configuration.md"


def test_every_option_has_a_row_with_a_sentence_and_its_default():
    defaults = flat(Config())
    assert [key for key, *_ in ROWS] == list(defaults)
    for key, default, _, meaning in ROWS:
        assert meaning.endswith("."), key
        assert flat(load_config([], [f"{key}={default}"])) == defaults, key


def test_limits_on_the_page_are_those_of_the_loader():
    """A value beyond each limit of each row is rejected for this limit."""
    checked = 0
    for key, _, words, _ in ROWS:
        if words.startswith(("list", "[")):
            continue
        for sign, limit in re.findall(r"(>=|<=|>|<) ([-\d.]+)", words):
            bound = yaml.safe_load(limit)
            beyond = bound if sign in "<>" else bound - 1 if sign == ">=" else bound + 1
            message = rejection(f"{key}={beyond}")
            assert message.startswith(f"{key}: got {beyond}, expected") and f"a number {sign} {limit}" in message
            checked += 1
    assert checked > 50
