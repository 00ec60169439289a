"""Interrupted and resumed runs, with vLLM on one process and under ZeRO-3, against an uninterrupted run, bitwise."""

import shutil
from types import SimpleNamespace

import pytest

from tests.helpers.command_line import complete, kill_group, lines, run, timeless, wait_for
from tests.helpers.small_run import (
    assert_readable,
    checkpoint_names,
    run_with_fault,
    same_parameters,
    same_run,
    start_with_fault,
)
from tests.helpers.training import EVALUATED


def arguments(model, folder, *more):
    """train.py and its arguments: five steps, evaluations and checkpoints every two steps."""
    return [
        "train.py", "--config", "configs/tiny.yaml", "tests/helpers/small.yaml",
        f"model.name={model}", f"train.output_dir={folder}",
        "train.steps=5", "train.prompts_per_step=4", "rollout.max_completion_length=16",
        "rollout.kv_cache_gb=0.1", "reward.functions=[tests.helpers.rewards:even_length]", *EVALUATED, "eval.every=2",
        "eval.keep_best=true", "checkpoint.every=2", "checkpoint.keep=2", "data.limit=64", *more,
    ]  # fmt: skip


@pytest.fixture(scope="module")
def uninterrupted(tied_model, tmp_path_factory):
    """The directory of a complete run on one process. test_faults.py has DDP."""
    folder = tmp_path_factory.mktemp("uninterrupted") / "run"
    complete(arguments(tied_model, folder))
    assert [line["step"] for line in lines(folder / "metrics.jsonl") if line["grad_norm"] > 0] == [1, 2, 3, 4, 5]
    assert checkpoint_names(folder) == ["step_000004", "step_000005"]
    return folder


def damage(checkpoint):
    """Overwrite the middle of its largest file with zeros."""
    largest = max(checkpoint.rglob("*"), key=lambda p: p.stat().st_size)
    content = largest.read_bytes()
    middle = len(content) // 2
    largest.write_bytes(content[:middle] + bytes(4096) + content[middle + 4096 :])


def test_single_run_resumes_bitwise(uninterrupted, tied_model, tmp_path, no_process_stays):
    """After SIGINT, which finishes and saves the step; after SIGKILL in step 5 with a damaged checkpoint of step 4.

    The damage costs two finished steps.
    """
    folder = tmp_path / "run"
    options = [*arguments(tied_model, folder), "--resume", "auto"]
    code, output = run_with_fault("interrupt:update:1:0", options)
    assert code == 130 and "Traceback" not in output, output
    assert output.count("stopping after this step or evaluation; a second signal") == 1
    assert output.count("stopped after step 1, which is saved; continue with --resume auto") == 1
    assert checkpoint_names(folder) == ["step_000001"] and len(lines(folder / "metrics.jsonl")) == 1
    process = start_with_fault("pause:generate:5:0", options)
    wait_for((tmp_path / "paused").exists, process)
    kill_group(process)
    assert_readable(folder, 4)
    damage(folder / "checkpoints" / "step_000004")
    output = complete([*options, "checkpoint.keep=3"])
    assert "step_000004 is damaged" in output and "resumed with checkpoint.keep 3, before 2" in output
    assert same_run(uninterrupted, folder) and same_parameters(uninterrupted / "best", folder / "best")
    assert timeless(lines(uninterrupted / "eval.jsonl")) == timeless(lines(folder / "eval.jsonl"))
    assert len({(run / "best" / "evaluation.json").read_text() for run in (uninterrupted, folder)}) == 1
    assert len({tuple(sorted(p.name for p in (run / "samples").iterdir())) for run in (uninterrupted, folder)}) == 1
    changes = [(line["step"], line["changed"]) for line in lines(folder / "resumes.jsonl")]
    assert changes == [(1, {}), (2, {"checkpoint.keep": {"old": 2, "new": 3}})]


def test_zero3_run_resumes_bitwise(tied_model, tmp_path, no_process_stays, refusal, monkeypatch):
    """After a rank was killed while it wrote its part of the checkpoint of step 4, and past a damaged checkpoint.

    Against the lost steps: the second one has the weights and moments that the first one left. A single ZeRO-3 rank
    resumes it too, and repeats the lost step to rounding; a run without ZeRO-3 is refused.
    """
    folder, single_rank = tmp_path / "run", tmp_path / "single"
    more = ["rollout.engine=transformers", "--resume", "auto"]  # test_ranks.py has ZeRO-3 with vLLM
    options, options_of_one = ([*arguments(tied_model, path), *more] for path in (folder, single_rank))
    code, output = run_with_fault("kill:checkpoint:4:1", options, "zero3")
    assert code == 1, output
    assert_readable(folder, 2)
    lost, lost_evaluations = (timeless(lines(folder / f"{name}.jsonl")) for name in ("metrics", "eval"))
    assert [step["step"] for step in lost] == [1, 2, 3, 4] and [line["step"] for line in lost_evaluations] == [0, 2]
    saved = folder / "checkpoints"
    damage(shutil.copytree(saved / "step_000002", saved / "step_000004"))
    shutil.copytree(folder, single_rank)

    with monkeypatch.context() as patch:
        engine = SimpleNamespace(sleep=lambda: None, stop_token_ids=[])  # not used
        patch.setattr("d3s.trainer.build_engine", lambda *_, **__: engine)
        message = refusal(options_of_one)
    assert "under ZeRO-3" in message and "without" in message
    code, output = run(options_of_one, "one zero3 rank", python="new")
    assert code == 0 and "step_000004 is damaged" in output, output
    assert not list(single_rank.glob("checkpoints/*/universal"))
    steps = timeless(lines(single_rank / "metrics.jsonl"))
    assert steps[:2] == lost[:2] and [step["step"] for step in steps] == [1, 2, 3, 4, 5]
    for key in ("reward/mean", "selection/tokens", "tokens_generated", "loss", "grad_norm"):
        assert steps[2][key] == pytest.approx(lost[2][key], rel=1e-3, abs=1e-5)

    code, output = run(options, "zero3")
    assert code == 0 and "step_000004 is damaged" in output, output
    assert timeless(lines(folder / "metrics.jsonl"))[:4] == lost
    assert timeless(lines(folder / "eval.jsonl"))[:2] == lost_evaluations
    assert [(line["step"], line["changed"]) for line in lines(folder / "resumes.jsonl")] == [(2, {})]


def test_changed_settings_are_refused_before_writing(uninterrupted, tied_model, refusal):
    written = {p: p.stat().st_mtime_ns for p in uninterrupted.rglob("*") if p.name != ".lock"}
    changed = "loss.kind: got 'gspo', expected 'grpo', train.seed: got 7, expected 0"
    command = arguments(tied_model, uninterrupted)
    assert "holds a run already" in refusal(command)
    assert changed in refusal([*command, "train.seed=7", "loss.kind=gspo", "--resume", "auto"])
    assert written == {p: p.stat().st_mtime_ns for p in uninterrupted.rglob("*") if p.name != ".lock"}
