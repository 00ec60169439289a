"""Test the pages of a report with a parser: complete, self-contained, safe against hostile text."""

import json
import re

import pytest

from d3s.report.panels import panels_for
from d3s.report.report import write_report
from d3s.report.runs import group_runs, load_runs
from tests.helpers.html_page import check_page
from tests.helpers.run_directories import HOSTILE, write_run, write_samples


def test_page_of_a_single_run(tmp_path):
    run = write_run(tmp_path / "my run")
    (run / "warnings.jsonl").write_text(json.dumps({"step": 7, "key": "k", "message": HOSTILE}) + "\n")
    (run / "machine.json").write_text('{"processes": 1, "machine": "a GPU", "content": {}}')
    write_samples(run, 140, (HOSTILE, "</span></div></main>", "plain", "x" * 5000))
    write_report([run], axes=["step", "time"])
    page = check_page(run / "report.html")
    text = "".join(page.texts)
    assert "At step 130 of 130. 1 process, a GPU." in text and "step 7: <script>alert(1)</script>" in text
    assert page.tags.count("svg") == 2 * len(panels_for(group_runs(load_runs([run])))) + 1
    assert {"by-step", "by-time"} <= set(page.ids)
    assert {p.name for p in run.glob("*.png")} == {"report.png", "curves.png"}
    markdown = (run / "report.md").read_text()
    assert "![summary](report.png)" in markdown and "![all curves](curves.png)" in markdown


def test_comparison_of_runs_with_hostile_names(tmp_path):
    names = ["<script>alert(1)<|b> $x$", "plain"]
    for name in names:
        write_run(tmp_path / name, kind=name, steps=60 if name == "plain" else 130)
    runs = [str(tmp_path / name) for name in names]
    write_report(runs, tmp_path / "out", HOSTILE, ["tokens"])
    page = check_page(tmp_path / "out/report.html")
    text = "".join(page.texts)
    assert "2 runs in 2 groups. Not finished: plain (step 60 of 130)." in text
    assert "\x1b" not in text and "\u202e" not in text
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["report.html", "report.md", "report.png"]
    markdown = (tmp_path / "out/report.md").read_text()
    assert "<script>" not in markdown.replace(f"`python -m d3s.report {' '.join(runs)}`", "")
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
