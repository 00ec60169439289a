"""The complete command line with vLLM, on the built-in task and on real problems; refused settings."""

import pytest
import yaml

from tests.helpers.command_line import complete, lines

SMALL = [
    "train.steps=3", "train.prompts_per_step=2", "rollout.num_generations=4", "rollout.max_completion_length=24",
    "schedule.n_init=2", "schedule.n_final=4", "eval.n=2", "eval.k=[1,2]", "eval.limit=4", "tracker.samples_every=1",
    "reward.workers=1", "optim.num_minibatches=2",
]  # fmt: skip


def test_run_writes_directory_and_loadable_model(base_model, tmp_path, monkeypatch):
    """Files and console lines of a run. tests/commands/test_runs.py evaluates exported models."""
    folder = tmp_path / "run"
    monkeypatch.setenv("WANDB_MODE", "offline")
    arguments = ["--config", "configs/tiny.yaml", "tests/helpers/small.yaml", f"model.name={base_model}", *SMALL]
    options = [f"train.output_dir={folder}", "checkpoint.every=2", "tracker.mirrors=[wandb]"]
    output = complete(["train.py", *arguments, *options])
    assert "Traceback" not in output
    shown = output.splitlines()
    [first] = [line for line in shown if line.startswith(f"{base_model}: ")]
    assert "3 steps (0 done) of 2 x 4 responses" in first and first.endswith(f"writes to {folder}")
    assert [line for line in shown if str(folder / "model") in line and f"python -m d3s.report {folder}" in line]
    steps = lines(folder / "metrics.jsonl")
    for step, expected in zip(steps, ((2, 0.05), (4, 0.125), (4, 0.2)), strict=True):
        assert (step["schedule/n"], step["schedule/k"]) == pytest.approx(expected)
    evaluations = [(line["step"], line["tokens_trained"]) for line in lines(folder / "eval.jsonl")]
    assert evaluations == [(0, 0), (3, steps[-1]["tokens_trained"])]
    assert (folder / "checkpoints" / "step_000002" / "manifest.json").exists()
    assert list((folder / "wandb").glob("offline-run-*"))
    sample = lines(folder / "samples" / "step_000001.jsonl")[0]
    assert len(sample["tokens"]) == len(sample["entropies"]) == len(sample["trained"])
    assert yaml.safe_load((folder / "config.yaml").read_text())["rollout"]["num_generations"] == 4
    assert (folder / "model" / "model.safetensors").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["data.path=nowhere.jsonl"], "nowhere.jsonl: no such file"),
        (["model.name=runs/none"], "runs/none"),
        (["rollout.max_completion_length=2048"], "less than the model's 512 positions"),
        (["reward.functions=[d3s.common:printable]"], "d3s.common:printable needs 'text', which is no argument"),
        (["reward.functions=[tests.helpers.rewards:as_text]"], "as_text returned '1', expected a finite number"),
        (["data.max_prompt_length=3", "data.overlong_prompts=error"], "expected at most 3;"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_wrong_settings_are_refused_at_once(arguments, message, tied_model, tmp_path, refusal, monkeypatch):
    """Also by --dry-run; before a directory is created or an engine is built."""
    overrides = [f"model.name={tied_model}", f"train.output_dir={tmp_path / 'run'}", *SMALL, *arguments]
    monkeypatch.setattr("d3s.trainer.build_engine", None)
    for more in ([], ["--dry-run"]):
        assert message in refusal(["train.py", "--config", "configs/tiny.yaml", *overrides, *more])
    assert not (tmp_path / "run").exists()
