"""Loading of functions that options name: every refusal message."""

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


@pytest.mark.parametrize("name", ["json.dumps", "json:decoder", "json:absent", "no_such_module:reward"])
def test_names_of_no_function_are_refused(name):
    with pytest.raises(UserError, match=f"section.option: got '{name}', expected module:function"):
        load_function(name, OPTION, ("response", "answer"))


def test_other_callables_and_modules_that_exit_are_refused_at_load(tmp_path, monkeypatch):
    source = (
        "async def waits(r, a): pass\nasync def streams(r, a): yield 1.0\ndef yields(r, a): yield 1.0\n"
        "class Made:\n    def __init__(self, r, a): pass\n"
    )
    kinds = {"waits": "an async function", "streams": "an async generator", "yields": "a generator", "Made": "a class"}
    (tmp_path / "odd_reward.py").write_text(source)
    (tmp_path / "broken_reward.py").write_text("import sys; sys.exit(4)")
    monkeypatch.syspath_prepend(tmp_path)
    for name, kind in kinds.items():
        with pytest.raises(UserError, match=f"odd_reward:{name} is {kind}, expected a plain function"):
            load_function(f"odd_reward:{name}", OPTION, ("response", "answer"))
    with pytest.raises(UserError, match=r"module:function \(SystemExit: 4\)"):
        load_function("broken_reward:reward", OPTION, ("response", "answer"))


def test_accepts_reads_positions_and_keywords():
    assert accepts(three, ("a", "b"), "row") and not accepts(three, ("a", "b")) and not accepts(three, ("a",), "other")


def test_shown_values_are_one_short_line():
    assert shown("a\x1b[2J\nb" * 99).isprintable() and len(shown("a" * 999)) == 60
