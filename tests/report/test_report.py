"""Test reports and the demo's results: pages complete, self-contained and safe against hostile text, by a parser."""

import json
import re
import shlex
from functools import partial

import pytest

from d3s.common import exit_code
from d3s.report.__main__ import main as report
from d3s.report.demo import main as demo
from d3s.report.panels import panels_for
from d3s.report.report import write_report
from d3s.report.runs import group_runs, load_runs
from d3s.report.theme import DARK_SERIES, SERIES
from tests.helpers.html_page import check_page
from tests.helpers.run_directories import HOSTILE, write_lines, write_run, write_samples, write_small_run


def test_page_of_a_single_run(tmp_path):
    """Panels are those of the logged metrics."""
    run = write_run(tmp_path / "my run")
    decided = {"step": 8, "key": "schedule.follow", "message": "N 4 to 8"}
    notes = [{"step": 7, "key": "k", "message": HOSTILE}, decided]
    (run / "warnings.jsonl").write_text("".join(json.dumps(note) + "\n" for note in notes))
    (run / "machine.json").write_text('{"processes": 1, "machine": "a GPU", "content": {}}')
    write_samples(run, 140, (HOSTILE, "</span></div></main>", "plain", "x" * 5000))
    write_report([run], axes=["step", "time"])
    page = check_page(run / "report.html")
    text, html = "".join(page.texts), (run / "report.html").read_text()
    assert "At step 130 of 130. 1 process, a GPU." in text and "step 7: <script>alert(1)</script>" in text
    places = [text.index(words) for words in ("Warnings during", "step 7: ", "Decisions of rules", "N 4 to")]
    assert places == sorted(places)
    assert re.search('<td data-label="group">', html)
    keys = [panel.key for panel in panels_for(group_runs(load_runs([run])))]
    assert keys[:3] == ["eval/precedence/pass@1", "eval/precedence/pass@8", "reward/mean"]
    assert page.tags.count("svg") == 2 * len(keys) + 1 and "policy/kl_ref" not in keys
    assert {"by-step", "by-time"} <= set(page.ids) and SERIES[1] in html and DARK_SERIES[1] in html
    assert {p.name for p in run.glob("*.png")} == {"report.png", "curves.png"}
    markdown = (run / "report.md").read_text()
    assert "![summary](report.png)" in markdown and "![all curves](curves.png)" in markdown


def test_comparison_of_runs_with_hostile_names(tmp_path):
    names = ["<script>alert(1)<|b> $x$", "plain"]
    for name in names:
        write_run(tmp_path / name, kind=name, steps=60 if name == "plain" else 130)
    runs = [str(tmp_path / name) for name in names]
    write_report(runs, tmp_path / "out", HOSTILE, ["tokens"])
    text = "".join(check_page(tmp_path / "out/report.html").texts)
    assert "2 runs in 2 groups. Not finished: plain (step 60 of 130)." in text
    assert "\x1b" not in text and "\u202e" not in text
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["report.html", "report.md", "report.png"]
    markdown = (tmp_path / "out/report.md").read_text()
    assert "<script>" not in markdown.replace(f"`python -m d3s.report {shlex.join(runs)}`", "")
    for line in re.findall(r"^\|.*\|$", markdown, re.MULTILINE):
        assert len(re.findall(r"(?<!\\)\|", line)) in (4, 14)  # three tables; no name adds a cell


@pytest.mark.parametrize("missing", [("eval.jsonl", "config.yaml"), ("metrics.jsonl",)])
def test_run_after_its_first_step_has_a_report(tmp_path, missing):
    run = write_run(tmp_path / "young", steps=1)
    for name in missing:
        (run / name).unlink()
    with open(run / "eval.jsonl", "a") as file:
        file.write('{"step": 20, "data')
    write_report([run], axes=["step"])
    check_page(run / "report.html")


def test_run_that_reached_its_goal_is_finished(tmp_path):
    run = write_run(tmp_path / "goal", steps=20)
    for step, is_finished in ((20, True), (10, False)):  # a run that was continued after step 10
        write_lines(run / "warnings.jsonl", [{"step": step, "key": "stop_at", "message": "reached"}])
        write_report([run], axes=["step"])
        assert ("At step 20 of 130: not finished" in (run / "report.md").read_text()) != is_finished


def test_user_errors_are_one_line_and_exit_code_2(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_small_run(tmp_path / "run", None)
    (tmp_path / "empty").mkdir()
    for main, arguments, words in (
        (report, ["nowhere"], "nowhere: no such run directory"),
        (report, ["empty"], "empty: no metrics yet; expected lines in metrics.jsonl"),
        (report, ["run", "--by", "steps"], "--by: got 'steps', expected step, tokens, time, joined by commas"),
        (report, ["run", "--output", "run/metrics.jsonl"], "run/metrics.jsonl: cannot be written (File exists); "),
        (demo, ["empty"], "no metrics or evaluations of a whole run; run make demo"),
    ):
        assert exit_code(partial(main, arguments)) == 2
        error = capsys.readouterr().err
        assert error.startswith("error: ") and words in error and error.count("\n") == 1


def test_demo_command_prints_results_and_next_commands(tmp_path, capsys):
    run = write_run(tmp_path / "run", steps=20)
    demo([str(run)])
    out = capsys.readouterr().out
    assert "before D3S" in out and f"Picture: {run / 'report.png'}" in out and (run / "report.png").exists()
    assert f"python -m d3s.report {run} runs/grpo" in out and f"eval.py --run {run} --limit" in out
    lines = (run / "eval.jsonl").read_text().replace("pass@8", "pass@4")  # of eval.k=[1,4]
    (run / "eval.jsonl").write_text(lines)
    demo([str(run)])
    assert "Pass@4" in (out := capsys.readouterr().out) and "Pass@8" not in out
