"""Loading of functions that options name: every refusal message."""

import re

import pytest

from d3s.common import UserError, shown
from d3s.functions import accepts, load_function

OPTION = "section.option"


def three(response, answer, row):
    return 1.0


def test_other_signatures_are_refused_at_load():
    message = r"section.option: .*:three has the signature \(response, answer, row\), expected \(response, answer\)"
    with pytest.raises(UserError, match=message):
        load_function(f"{__name__}:three", OPTION, ("response", "answer"))
    assert load_function(f"{__name__}:three", OPTION, ("a", "b", "c")) is three
    assert load_function("builtins:print", OPTION, ("a", "b")) is print  # its signature accepts any arguments
    assert load_function("builtins:max", OPTION, ("a", "b")) is max  # it has no signature


def yields(response, answer):
    yield 1.0


def test_names_of_no_plain_function_are_refused(tmp_path, monkeypatch):
    (tmp_path / "broken_reward.py").write_text("import sys; sys.exit(4)")
    monkeypatch.syspath_prepend(tmp_path)
    for name, problem in {
        "json.dumps": "expected module:function",
        "json:decoder": "expected module:function",
        "no_such_module:reward": "expected module:function (ModuleNotFoundError",
        "broken_reward:reward": "expected module:function (SystemExit: 4)",
        "asyncio:sleep": "is an async function, expected a plain function",
        f"{__name__}:yields": "is a generator, expected a plain function",
        "collections:Counter": "is a class, expected a plain function",
    }.items():
        with pytest.raises(UserError, match=rf"^section.option: .*{name} ?.*{re.escape(problem)}"):
            load_function(name, OPTION, ("response", "answer"))


def test_accepts_reads_positions_and_keywords():
    assert accepts(three, ("a", "b"), "row") and not accepts(three, ("a", "b")) and not accepts(three, ("a",), "other")


def test_shown_values_are_one_short_line():
    assert shown("a\x1b[2J\nb" * 99).isprintable() and len(shown("a" * 999)) == 60
