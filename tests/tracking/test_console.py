"""Test the console view against hand-written rows; runs whose output is closed; hostile text."""

import io
import os
import sys
import time

import pytest

from d3s.common import read_json_lines
from d3s.tracking.console import ConsoleView
from tests.helpers.processes import in_child
from tests.helpers.training_steps import metrics, sample, tracker


def test_rows_are_sparse_without_a_terminal(tmp_path, capsys):
    """Evaluations are ordered by k; an interval may be missing. Rows have the Pass@1 of the first data set."""
    evaluation = {"step": 0, "data": "sums", "pass@16": 0.875, "pass@2": 0.25, "pass@2_ci": [0.2, 0.3]}
    with tracker(tmp_path, 100) as log:
        log.log_eval(evaluation | {"pass@1": 0.125, "pass@1_ci": [0.2, None]})
        log.log_eval({"step": 0, "data": "words", "pass@1": 0.75})
        for step in range(1, 101):
            log.log(metrics(step, completion__truncated=0.25 * (step == 100)))
    rows = capsys.readouterr().out.splitlines()
    assert rows[0] == "evaluation at step 0  sums  pass@1 0.125  pass@2 0.250 [0.200, 0.300]  pass@16 0.875"
    assert rows.pop(1) == "evaluation at step 0  words  pass@1 0.750"
    assert rows[1] == "step   1/100  reward 0.401  pass@1 0.125  N 8 K 5%  1,234 tok/s"
    assert rows[-1] == "step 100/100  reward 0.500 (25% cut)  pass@1 0.125  N 8 K 5%  1,234 tok/s"
    assert [int(row[5:8]) for row in rows[1:]] == [1, *range(5, 101, 5)]


@pytest.mark.parametrize("output", ["pipe", "terminal"])
def test_run_outlives_its_reader(tmp_path, output, monkeypatch):
    """With `| head -1`, and after the terminal was closed, which progress bars also write to."""
    monkeypatch.setenv("TERM", "xterm")
    reader, writer = os.openpty() if output == "terminal" else os.pipe()

    def log_steps(_):
        os.close(reader)
        with open(writer, "w") as sys.stdout, open(2, "w", closefd=False) as sys.stderr:
            with tracker(tmp_path, 20) as log:
                for step in range(1, 21):
                    time.sleep(0.05)
                    log.log(metrics(step))
            print("done", flush=True)
        os._exit(0)

    child, errors = in_child(log_steps)
    os.close(writer)
    text = b""
    while b"/20" not in text:  # the number of a step, in a row or beside the progress bar
        text += os.read(reader, 100)
    os.close(reader)
    reason = {"pipe": "Broken pipe", "terminal": "Input/output error"}[output]
    assert os.waitpid(child, 0)[1] == 0
    assert os.read(errors, 1000).decode() == f"warning: the output is closed ({reason}); the run goes on\n"
    assert len(read_json_lines(tmp_path / "metrics.jsonl")) == 20


def test_sudden_end_leaves_a_usable_terminal(monkeypatch):
    """Beside a progress bar errors go to stderr, and the cursor is never left hidden."""
    monkeypatch.setenv("TERM", "xterm")
    reader, writer = os.openpty()
    with open(writer, "w") as output, monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", output)
        patched.setattr(sys, "stderr", io.StringIO())
        view = ConsoleView(2, 0)
        print("error: refused", file=sys.stderr)
        assert sys.stderr.getvalue() == "error: refused\n"
        text = b""
        for _ in range(20):  # a terminal passes output on in pieces; the bar is drawn ten times a second
            if (text := text + os.read(reader, 10_000)).count(b"\x1b[?25") > 1:
                break
        assert text.rfind(b"\x1b[?25h") > text.rfind(b"\x1b[?25l") > -1
        view.close()
    os.close(reader)


def test_model_output_cannot_control_the_terminal(tmp_path, capsys):
    hostile = "\x1b[2J\x1b]0;owned\x07 [bold red]x[/] \u202egnp.exe \ud800"
    with tracker(tmp_path, 1) as log:
        log.log_samples(1, [sample(1, hostile)])
        log.log(metrics(1, reward__mean=0.0, reward__std=0.0))
        log.decide(1, "schedule.follow", f"decided {hostile}")
    out = capsys.readouterr().out
    assert "every reward" in out and "decided" in out and out.count("[bold red]x[/]") == 2
    assert not set(out) & set("\x1b\x07\u202e\ud800")
