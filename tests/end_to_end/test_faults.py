"""Runs with faults of a process, a rank, the launcher or a node against an uninterrupted run, bitwise.

The run ends with an error, its directory stays readable, no process is left, and --resume auto completes it. ZeRO-3 and
vLLM are tested in test_resume.py.
"""

from tests.helpers.command_line import ROOT, complete, finish, lines, run, start_nodes, wait_for
from tests.helpers.data_files import write_rows
from tests.helpers.pages import CONDITIONAL_METRICS, documented_metrics
from tests.helpers.small_run import arguments, assert_matches_manifest, assert_readable, run_with_fault, same_run

IN_OWN_FOLDER = f"""import os, runpy, sys
os.chdir(os.path.join(os.path.dirname(__file__), os.environ["RANK"]))
sys.path[:0] = ["{ROOT}", os.getcwd()]
runpy.run_path("{ROOT}/train.py", run_name="__main__")
"""


def test_single_run_survives_a_kill_and_a_full_disk(finished_runs, tied_model, tmp_path, no_process_stays):
    """Killed right before a complete checkpoint gets its name; after a full disk, earlier checkpoints remain."""
    folder = tmp_path / "run"
    checkpoints = folder / "checkpoints"
    options = [*arguments(tied_model, folder), "--resume", "auto"]
    code, output = run_with_fault("kill:rename:3:0", options)
    assert code == -9, output
    assert_readable(folder, 2)
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


def test_logged_metrics_are_the_documented_ones(finished_runs):
    steps = lines(finished_runs("single") / "metrics.jsonl")
    logged = {key for step in steps for key in step if not key.startswith("time/")}
    assert logged == documented_metrics() - CONDITIONAL_METRICS - {"time/*"}


def test_ddp_run_survives_lost_ranks(finished_runs, tied_model, tmp_path, no_process_stays):
    """One run, resumed after each fault: a rank hangs, and the one that waits too long names it; then one is killed."""
    folder = tmp_path / "run"
    options = [*arguments(tied_model, folder), "--resume", "auto"]
    for fault, more in (("sleep:generate:3:1", ["train.collective_timeout_s=12"]), ("kill:update:3:1", [])):
        code, output = run_with_fault(fault, [*options, *more], "ddp")
        assert code == 1, f"{fault}\n{output}"
        assert_readable(folder, 2)
        if more:
            error = next(line for line in output.splitlines() if line.startswith("error: "))
            assert "phase exchange: rank 1 did not respond within train.collective_timeout_s = 12 s " in error
            assert "(last seen in generate at faulty_train.py:" in error
    complete(options, "ddp")
    assert same_run(finished_runs("ddp"), folder)


def test_two_nodes_survive_a_stop_and_a_killed_node(finished_runs, tied_model, tmp_path, no_process_stays):
    """Two launchers with one directory: SIGTERM to both, as before a time limit, then one of them is killed.

    After SIGTERM ranks finish the step and save it; torchrun itself exits with 1.
    """
    folder, paused = tmp_path / "run", tmp_path / "paused"
    options = [*arguments(tied_model, folder), "--resume", "auto"]
    for fault, action, killed, codes in (
        ("pause:generate:2:1", "terminate", (0, 1), [1, 1]),
        ("pause:update:3:1", "kill", (1,), [1, -9]),
    ):
        nodes = start_nodes(["tests/helpers/faulty_train.py", fault, *options[1:]])
        wait_for(paused.exists, nodes[1])
        for node in killed:
            getattr(nodes[node], action)()
        ends = [finish(node, timeout=60) for node in nodes]
        assert [code for code, _ in ends] == codes, ends
        assert_readable(folder, 2)
        assert len(lines(folder / "metrics.jsonl")) == 2
        paused.unlink()
    ends = [finish(node) for node in start_nodes(options)]
    assert [code for code, _ in ends] == [0, 0], ends
    assert same_run(finished_runs("ddp"), folder)


def test_unequal_ranks_end_before_the_engine(tied_model, tmp_path, no_process_stays):
    """Each rank has its own directory, with other options, problems and reward function under the same names."""
    for rank, kind in enumerate(("grpo", "gspo")):
        folder = tmp_path / str(rank)
        folder.mkdir()
        (folder / "options.yaml").write_text(f"loss: {{kind: {kind}}}\n")
        (folder / "own_reward.py").write_text(f"def score(response, answer):\n    return {rank}.0\n")
        write_rows(folder / "train.jsonl", [{"problem": f"{i} - {i} =", "answer": str(rank)} for i in range(8)])
    (tmp_path / "in_own_folder.py").write_text(IN_OWN_FOLDER)
    options = arguments(tied_model, tmp_path / "run")[1:]
    options = [str(ROOT / word) if word.endswith(".yaml") else word for word in options]
    options += ["options.yaml", "data.path=train.jsonl", "reward.functions=[own_reward:score]"]
    code, output = run([str(tmp_path / "in_own_folder.py"), *options], "ddp")
    assert code == 1 and not (tmp_path / "run" / "samples").exists()
    sentence = (
        "error: rank 1 differs from rank 0: loss.kind: got 'gspo', expected 'grpo'; data.path: got another content; "
        "module own_reward: got another content; start all ranks with the same options and files\n"
    )
    assert output.count(sentence) == 1
