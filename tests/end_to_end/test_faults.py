"""Runs with faults (killed process, full disk, lost worker) against an uninterrupted run, bitwise.

The run ends with an error, its directory stays readable, no process is left, and --resume auto completes it. DDP is
tested in test_rank_faults.py, ZeRO-3 and vLLM in test_resume.py.
"""

from tests.helpers.command_line import complete, lines
from tests.helpers.pages import CONDITIONAL_METRICS, documented_metrics
from tests.helpers.small_run import arguments, assert_matches_manifest, assert_readable, run_with_fault, same_run


def test_single_run_survives_kills_and_a_full_disk(finished_runs, tied_model, tmp_path, no_process_stays):
    """Killed also right before a complete checkpoint gets its name; after a full disk, earlier checkpoints remain."""
    folder = tmp_path / "run"
    checkpoints = folder / "checkpoints"
    options = [*arguments(tied_model, folder), "--resume", "auto"]
    for fault, saved in (("kill:logprobs:2:0", 1), ("kill:rename:3:0", 2)):
        code, output = run_with_fault(fault, options)
        assert code == -9, f"{fault}\n{output}"
        assert_readable(folder, saved)
    [unnamed] = checkpoints.glob(".*000003*")
    assert_matches_manifest(unnamed)
    code, output = run_with_fault("full:checkpoint:4:0", options)
    assert code == 2 and "Traceback" not in output
    [error] = [line for line in output.splitlines() if line.startswith("error: ")]
    assert "step_000004" in error and "free some space" in error
    assert_readable(folder, 3)
    assert not list(checkpoints.glob("*000004*"))
    complete(options)
    assert same_run(finished_runs("single"), folder)


def test_killed_verifier_worker_costs_one_answer(tied_model, tmp_path, no_process_stays):
    options = [*arguments(tied_model, tmp_path / "run"), "reward.functions=[d3s.reward:verify]"]
    code, output = run_with_fault("worker:generate:2:0", options)
    assert code == 0, output
    steps = lines(tmp_path / "run" / "metrics.jsonl")
    assert [step["reward/crashes"] for step in steps] == [0, 1, 0, 0]


def test_logged_metrics_are_the_documented_ones(finished_runs):
    steps = lines(finished_runs("single") / "metrics.jsonl")
    logged = {key for step in steps for key in step if not key.startswith("time/")}
    assert logged == documented_metrics() - CONDITIONAL_METRICS - {"time/*"}
