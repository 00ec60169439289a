"""Test the command line of the reports: user errors as one line each, with exit code 2."""

import pytest

from d3s.common import exit_code
from d3s.report.__main__ import main
from tests.helpers.run_directories import write_small_run


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["nowhere"], "nowhere: no such run directory"),
        (["empty"], "empty: no metrics yet; expected lines in metrics.jsonl"),
        (["run", "--by", "steps"], "--by: got 'steps', expected step, tokens, time, joined by commas"),
        (
            ["run", "--output", "run/metrics.jsonl"],
            "run/metrics.jsonl: cannot be written (File exists); choose another --output",
        ),
    ],
)
def test_user_errors_are_one_line_and_exit_code_2(tmp_path, monkeypatch, capsys, arguments, words):
    monkeypatch.chdir(tmp_path)
    write_small_run(tmp_path / "run", None)
    (tmp_path / "empty").mkdir()
    assert exit_code(lambda: main(arguments)) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and words in error and error.count("\n") == 1 and error[-2] != "."
