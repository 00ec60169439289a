"""Test the results of the demo against summaries and metrics written by hand."""

import json

import pytest
from rich.console import Console

from d3s.common import UserError, exit_code
from d3s.report.demo import main, read_summary, results_table, training_summary
from tests.helpers.run_directories import write_run

STEPS = [
    {"step": 1, "time/step": 1.75, "tokens_trained": 100, "tokens_generated": 1000},
    {"step": 2, "time/step": 2.0, "tokens_trained": 250, "tokens_generated": 2000},
]


def result(value: float) -> dict:
    metrics = {key: value for key in ("pass@1", "pass@8", "maj@n")}
    intervals = {f"{key}_ci": [value - 0.05, value + 0.05] for key in metrics}
    return {"problems": 256, "n": 8, "mean_length": 33.25} | metrics | intervals


def test_results_table_shows_percent_and_intervals():
    console = Console(width=80)
    with console.capture() as capture:
        console.print(results_table(result(0.25), result(0.75)))
    lines = capture.get().splitlines()
    assert lines[0].strip() == "Accuracy on 256 test problems, 8 samples each: % (95% interval)"
    cells = {
        line.split("│")[1].strip(): [cell.strip() for cell in line.split("│")[2:6]] for line in lines if "│" in line
    }
    assert cells["base model"] == ["25.0 (20.0-30.0)"] * 3 + ["33.2"]
    assert cells["after D3S"] == ["75.0 (70.0-80.0)"] * 3 + ["33.2"]


def test_training_summary_counts_steps_and_tokens():
    assert training_summary(STEPS).splitlines() == [
        "Training took 2 steps and 4 s, without evaluations.",
        "It generated 2,000 tokens and trained on 250 of them (12.5%).",
    ]


def test_demo_command_prints_results_and_next_commands(tmp_path, capsys):
    run = write_run(tmp_path / "run", steps=20)
    for name, value in (("before", 0.25), ("after", 0.75)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "summary.json").write_text(json.dumps({"results": [result(value)]}))
    main([str(run), str(tmp_path / "before"), str(tmp_path / "after")])
    out = capsys.readouterr().out
    assert "base model" in out and f"Picture: {run / 'report.png'}" in out and (run / "report.png").exists()
    assert f"python -m d3s.report {run} runs/grpo" in out


@pytest.mark.parametrize("text", ["", "[]", '{"results": []}'])
def test_damaged_summary_is_a_user_error(tmp_path, text):
    (tmp_path / "summary.json").write_text(text)
    with pytest.raises(UserError, match=r"summary.json: cannot be read \(.*\); run make demo"):
        read_summary(tmp_path)


def test_missing_run_is_exit_code_2(tmp_path, capsys):
    assert exit_code(lambda: main([str(tmp_path)] * 3)) == 2
    assert "metrics.jsonl: no metrics; run make demo" in capsys.readouterr().err
