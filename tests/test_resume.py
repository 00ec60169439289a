"""A run that is killed and resumed ends as one that was not: the same metrics, bit for bit the same parameters."""

import shutil

import pytest
from safetensors.torch import load_file

from tests.command_line import finish, kill_group, lines, run, start, timeless, wait_for

STEPS = 5


def arguments(base, folder, *more):
    return [
        "train.py", "--config", "configs/tiny.yaml", f"model.name={base}", f"train.output_dir={folder}",
        f"train.steps={STEPS}", "train.prompts_per_step=4", "rollout.max_completion_length=40",
        "eval.limit=8", "eval.every=2",
        "checkpoint.every=2", "checkpoint.keep=2", "data.limit=64", *more,
    ]  # fmt: skip


def assert_same_run(left, right):
    assert timeless(lines(left / "metrics.jsonl")) == timeless(lines(right / "metrics.jsonl"))
    assert timeless(lines(left / "eval.jsonl")) == timeless(lines(right / "eval.jsonl"))
    first, second = load_file(left / "model" / "model.safetensors"), load_file(right / "model" / "model.safetensors")
    assert first.keys() == second.keys()
    assert all((first[name] == second[name]).all() for name in first)
    assert sorted(p.name for p in (left / "samples").iterdir()) == sorted(p.name for p in (right / "samples").iterdir())


@pytest.fixture(scope="module", params=["single", "zero3"])  # tests/test_faults.py has DDP
def uninterrupted(request, weak_base, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param) / "run"
    code, output = run(arguments(weak_base, folder), request.param)
    assert code == 0, output
    assert [line["step"] for line in lines(folder / "metrics.jsonl")] == [1, 2, 3, 4, 5]
    assert sorted(p.name for p in (folder / "checkpoints").iterdir()) == ["step_000002", "step_000004"]
    return request.param, folder


def test_killed_and_resumed_is_bitwise_the_same(uninterrupted, weak_base, tmp_path):
    launcher, reference = uninterrupted
    folder = tmp_path / "run"
    process = start(arguments(weak_base, folder), launcher)
    wait_for(lambda: len(lines(folder / "metrics.jsonl")) == 3, process)  # one step past the checkpoint of step 2
    kill_group(process)
    assert [p.name for p in (folder / "checkpoints").iterdir() if not p.name.startswith(".")] == ["step_000002"]
    code, output = run([*arguments(weak_base, folder), "--resume", "auto"], launcher)
    assert code == 0, output
    assert_same_run(reference, folder)


def test_truncated_newest_checkpoint_falls_back(uninterrupted, weak_base, tmp_path):
    launcher, reference = uninterrupted
    folder = tmp_path / "run"
    shutil.copytree(reference, folder)
    shutil.rmtree(folder / "model")
    largest = max((folder / "checkpoints" / "step_000004").rglob("*"), key=lambda p: p.stat().st_size)
    largest.write_bytes(largest.read_bytes()[:-100])
    code, output = run([*arguments(weak_base, folder), "--resume", "auto"], launcher)
    assert code == 0, output
    assert "step_000004 is not whole" in output
    assert_same_run(reference, folder)


def test_run_directory_is_not_overwritten(uninterrupted, weak_base):
    launcher, reference = uninterrupted
    if launcher != "single":
        pytest.skip("the check comes before any rank is started")
    before = {p: p.stat().st_mtime_ns for p in reference.rglob("*")}
    code, output = run(arguments(weak_base, reference))
    assert code == 2
    assert "holds a run already" in output and "Traceback" not in output
    assert before == {p: p.stat().st_mtime_ns for p in reference.rglob("*")}


@pytest.mark.parametrize(("signal_name", "code"), [("SIGTERM", 143), ("SIGINT", 130)])
def test_signals_finish_the_step_and_save(signal_name, code, weak_base, tmp_path):
    import signal

    folder = tmp_path / "run"
    process = start(arguments(weak_base, folder, "checkpoint.every=0", "train.steps=50"))
    wait_for(lambda: len(lines(folder / "metrics.jsonl")) >= 2, process)
    process.send_signal(getattr(signal, signal_name))
    exit_code, output = finish(process)
    assert exit_code == code, output
    steps = len(lines(folder / "metrics.jsonl"))
    assert [p.name for p in (folder / "checkpoints").iterdir()] == [f"step_{steps:06d}"]
    assert "Traceback" not in output
