"""Test the results of the demo against an artificial run."""

from d3s.common import exit_code
from d3s.report.demo import main
from tests.helpers.run_directories import write_run


def test_demo_command_prints_results_and_next_commands(tmp_path, capsys):
    run = write_run(tmp_path / "run", steps=20)
    main([str(run)])
    out = capsys.readouterr().out
    assert "base model" in out and f"Picture: {run / 'report.png'}" in out and (run / "report.png").exists()
    assert f"python -m d3s.report {run} runs/grpo" in out


def test_missing_run_is_exit_code_2(tmp_path, capsys):
    assert exit_code(lambda: main([str(tmp_path)])) == 2
    assert "no metrics or evaluations of a whole run; run make demo" in capsys.readouterr().err
