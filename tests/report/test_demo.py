"""Test the results of the demo against summaries and metrics written by hand."""

import json

from d3s.common import exit_code
from d3s.report.demo import main
from tests.helpers.run_directories import write_run

STEPS = [
    {"step": 1, "time/step": 1.75, "tokens_trained": 100, "tokens_generated": 1000},
    {"step": 2, "time/step": 2.0, "tokens_trained": 250, "tokens_generated": 2000},
]


def result(value: float) -> dict:
    metrics = {key: value for key in ("pass@1", "pass@8", "maj@n")}
    intervals = {f"{key}_ci": [value - 0.05, value + 0.05] for key in metrics}
    return {"problems": 256, "n": 8, "mean_length": 33.25} | metrics | intervals


def test_demo_command_prints_results_and_next_commands(tmp_path, capsys):
    run = write_run(tmp_path / "run", steps=20)
    for name, value in (("before", 0.25), ("after", 0.75)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "summary.json").write_text(json.dumps({"results": [result(value)]}))
    main([str(run), str(tmp_path / "before"), str(tmp_path / "after")])
    out = capsys.readouterr().out
    assert "base model" in out and f"Picture: {run / 'report.png'}" in out and (run / "report.png").exists()
    assert f"python -m d3s.report {run} runs/grpo" in out


def test_missing_run_is_exit_code_2(tmp_path, capsys):
    assert exit_code(lambda: main([str(tmp_path)] * 3)) == 2
    assert "metrics.jsonl: no metrics; run make demo" in capsys.readouterr().err
