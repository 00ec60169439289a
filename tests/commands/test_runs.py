"""Models of a run's checkpoints against the model that the run exports; settings against the run's own evaluation."""

import json

import pytest

from d3s.commands import evaluate
from d3s.commands.eval import parse_arguments
from d3s.commands.runs import CONVERTED, find_run_model
from d3s.common import UserError
from d3s.config.schema import RewardConfig
from tests.conftest import new_accelerator_state
from tests.helpers.command_line import lines
from tests.helpers.evaluations import call_eval
from tests.helpers.small_run import same_parameters
from tests.helpers.training import EVALUATED, train

EVALUATION = [*EVALUATED, "eval.limit=12", "eval.n=4", "eval.k=[1,4]", "eval.every=1"]


@pytest.mark.parametrize("option", ["lora.rank=2", "model.dtype=bfloat16"])
def test_model_of_the_last_step_is_the_exported_one(tied_model, tmp_path, option):
    small = ["train.steps=2", "rollout.num_generations=4", "schedule.n_init=2", "schedule.n_final=4"]
    with new_accelerator_state():  # which keeps the precision of its first run
        train(tied_model, tmp_path, overrides=[option, *small, "checkpoint.every=1", "checkpoint.keep=2"])
    assert find_run_model(tmp_path, None) == tmp_path / "model"
    first, last = (find_run_model(tmp_path, step) for step in (1, 2))
    made = (first / "model.safetensors").stat()
    assert (find_run_model(tmp_path, 1) / "model.safetensors").stat() == made  # another process may be reading it
    for content in ("{}", "{"):  # of an earlier step 1, or cut
        made = (first / "model.safetensors").stat()
        (first / CONVERTED).write_text(content)
        assert (find_run_model(tmp_path, 1) / "model.safetensors").stat() != made
    assert same_parameters(last, tmp_path / "model") and not same_parameters(first, last)
    assert (last / "config.json").read_bytes() == (tmp_path / "model/config.json").read_bytes()


def test_evaluation_of_a_step_repeats_that_of_the_run(base_model, tmp_path, monkeypatch):
    """The same responses and intervals, for an intermediate step and for the trained model, with the run's options."""
    folder = tmp_path / "run"
    options = ["checkpoint.every=1", "rollout.max_completion_length=48", "model.head_dtype=float32"]
    build, heads = evaluate.build_engine, []
    monkeypatch.setattr(evaluate, "build_engine", lambda *a, **o: heads.append(o["head_dtype"]) or build(*a, **o))
    train(base_model, folder, overrides=[*EVALUATION, *options])
    evaluated = {line["step"]: line for line in lines(folder / "eval.jsonl")}
    for step, words in ((2, ["--step", "2"]), (3, [])):
        output, _ = call_eval("--run", folder, *words, "--output", tmp_path / f"out{step}")
        summary = json.loads((output / "summary.json").read_text())
        (result,) = summary["results"]
        keys = result.keys() & evaluated[step].keys()
        assert {"pass@1", "pass@1_ci", "right", "mean_length", "reward"} <= keys
        assert {key: result[key] for key in keys} == {key: evaluated[step][key] for key in keys}
    assert heads == ["float32"] * 2
    assert evaluated[2]["right"] != evaluated[0]["right"] and summary["settings"]["engine"] == "transformers"


def test_impossible_arguments_are_refused():
    for arguments, message in (
        ("--data gsm8k", "--model: expected a model, or a run by --run"),
        ("--model m --run r --data gsm8k", "give one of them"),
        ("--model m --step 3 --data gsm8k", "--step: requires --run"),
        ("--run nowhere", "--run: got nowhere, expected the directory of a run"),
    ):
        with pytest.raises(UserError, match=message):
            parse_arguments(arguments.split())


def test_missing_models_are_refused(tmp_path):
    with pytest.raises(UserError, match=f"^{tmp_path}: has no model/, as .*; train it up to its first checkpoint$"):
        find_run_model(tmp_path, None)
    with pytest.raises(UserError, match=r"has no checkpoint of step 7; train it up to its first checkpoint$"):
        find_run_model(tmp_path, 7)
    for step in (2, 30):
        (tmp_path / "checkpoints" / f"step_{step:06d}").mkdir(parents=True)
    with pytest.raises(UserError, match=r"has no model/, as the run has not ended; name a checkpoint, --step 2, 30$"):
        find_run_model(tmp_path, None)
    with pytest.raises(UserError, match=r"has no checkpoint of step 7; name a checkpoint, --step 2, 30$"):
        find_run_model(tmp_path, 7)
    with pytest.raises(UserError, match=r"step_000030: is damaged \(there is no manifest.json in it\)"):
        find_run_model(tmp_path, 30)


def test_flags_override_the_settings_of_the_run(tmp_path):
    text = "eval: {data: [gsm8k], n: 4, k: [2]}\ndata: {template: base}\nrollout: {max_completion_length: 77}\n"
    text += "reward: {timeout_s: 9}\n"
    (tmp_path / "config.yaml").write_text(text)
    args = parse_arguments(["--run", str(tmp_path)])
    assert (args.data, args.n, args.k, args.template, args.max_tokens) == (["gsm8k"], 4, (2,), "base", 77)
    assert args.limits.timeout_s == 9 and parse_arguments(["--model", "m", "--data", "gsm8k"]).limits == RewardConfig()
    args = parse_arguments(["--run", str(tmp_path), "--data", "math500", "--n", "8", "--template", "r1"])
    assert (args.data, args.n, args.k, args.template, args.max_tokens) == (["math500"], 8, (2,), "r1", 77)
