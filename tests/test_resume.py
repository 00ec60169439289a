"""A run that is interrupted and resumed ends as one that was not: the same metrics, bit for bit the same parameters."""

import sys

import pytest
import torch
from safetensors.torch import load_file

import train
from d3s.errors import UserError
from tests.command_line import kill_group, lines, run, start, timeless, wait_for

STEPS = 5


def arguments(model, folder, *more):
    return [
        "train.py", "--config", "configs/tiny.yaml", f"model.name={model}", f"train.output_dir={folder}",
        f"train.steps={STEPS}", "train.prompts_per_step=4", "rollout.max_completion_length=40",
        "reward.function=tests.test_methods:even_length", "eval.limit=8", "eval.every=2",
        "checkpoint.every=2", "checkpoint.keep=2", "data.limit=64", "reward.workers=1", *more,
    ]  # fmt: skip


def checkpoints(folder):
    return sorted(path.name for path in (folder / "checkpoints").iterdir() if not path.name.startswith("."))


def assert_same_run(left, right):
    for name in ("metrics.jsonl", "eval.jsonl"):
        assert timeless(lines(left / name)) == timeless(lines(right / name))
    first, second = load_file(left / "model" / "model.safetensors"), load_file(right / "model" / "model.safetensors")
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert sorted(p.name for p in (left / "samples").iterdir()) == sorted(p.name for p in (right / "samples").iterdir())


@pytest.fixture(scope="module", params=["single", "zero3"])  # tests/test_faults.py has DDP
def uninterrupted(request, tied_model, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param) / "run"
    code, output = run(arguments(tied_model, folder), request.param)
    assert code == 0, output
    assert [line["step"] for line in lines(folder / "metrics.jsonl")] == [1, 2, 3, 4, 5]
    assert all(line["grad_norm"] > 0 for line in lines(folder / "metrics.jsonl"))
    assert checkpoints(folder) == ["step_000002", "step_000004"]
    return request.param, folder


def test_interrupted_and_resumed_is_bitwise_the_same(uninterrupted, tied_model, tmp_path, no_process_stays):
    """One process by Ctrl-C to begin with, which finishes the step and saves it; then all by SIGKILL in step 5, and the
    checkpoint of step 4 is damaged as well, so that two finished steps are lost."""
    launcher, reference = uninterrupted
    folder = tmp_path / "run"
    options = [*arguments(tied_model, folder), "--resume", "auto"]
    if launcher == "single":
        code, output = run(["tests/faulty_train.py", "interrupt:update:1:0", *options[1:]])
        assert code == 130 and "Traceback" not in output, output
        assert output.count("stopping after this step; a second signal") == 1
        assert checkpoints(folder) == ["step_000001"] and len(lines(folder / "metrics.jsonl")) == 1
    process = start(["tests/faulty_train.py", "pause:generate:5:0", *options[1:]], launcher)
    wait_for((tmp_path / "struck").exists, process)
    kill_group(process)
    newest = folder / "checkpoints" / "step_000004"
    assert checkpoints(folder)[-1] == newest.name and len(lines(folder / "metrics.jsonl")) == 4
    largest = max(newest.rglob("*"), key=lambda p: p.stat().st_size)
    content = largest.read_bytes()
    middle = len(content) // 2
    largest.write_bytes(content[:middle] + bytes(4096) + content[middle + 4096 :])
    code, output = run([*options, "checkpoint.keep=3"], launcher)
    assert code == 0, output
    assert "step_000004 is not whole" in output and "resumed with checkpoint.keep 3, before 2" in output
    assert_same_run(reference, folder)
    changes = [(line["step"], line["changed"]) for line in lines(folder / "resumes.jsonl")]
    assert changes[-1] == (2, {"checkpoint.keep": {"old": 2, "new": 3}})
    assert changes[:-1] == ([(1, {})] if launcher == "single" else [])


def test_a_run_is_neither_overwritten_nor_resumed_with_other_settings(uninterrupted, tied_model, monkeypatch):
    launcher, reference = uninterrupted
    if launcher != "single":
        pytest.skip("the check comes before any rank is started")
    before = {p: p.stat().st_mtime_ns for p in reference.rglob("*") if p.name != ".lock"}
    for more, message in (
        ([], "holds a run already"),
        (
            ["train.seed=7", "loss.kind=gspo", "--resume", "auto"],
            r"loss.kind was 'grpo' and is 'gspo', train.seed was 0",
        ),
        (["train.steps=3", "--resume", "auto"], r"train.steps is 3, but .*step_000004 has 4 steps done"),
    ):
        monkeypatch.setattr(sys, "argv", [*arguments(tied_model, reference), *more])
        with pytest.raises(UserError, match=message):
            train.main()
    assert before == {p: p.stat().st_mtime_ns for p in reference.rglob("*") if p.name != ".lock"}
