"""The best model and the early end of a run, on scripted evaluations, against its checkpoints and an unbroken run."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file

from d3s import trainer as module
from d3s.checkpoint import find_resume
from d3s.common import UserError
from d3s.pretrained import load_pretrained
from d3s.tracking.run_directory import check_resume
from tests.helpers.command_line import lines, timeless
from tests.helpers.evaluations import scripted_result
from tests.helpers.event_files import expected_points, read_points
from tests.helpers.small_run import same_parameters, same_run
from tests.helpers.training import EVALUATED, train

OPTIONS = [
    *EVALUATED, "eval.every=1", "checkpoint.every=1", "checkpoint.keep=9", "train.steps=5",
    "tracker.mirrors=[tensorboard]",
]  # fmt: skip


@pytest.fixture
def evaluate(monkeypatch):
    """evaluate(values) lets the evaluations of the next run have these values of Pass@1."""

    def script(*values):
        remaining = iter(values)
        monkeypatch.setattr(module, "evaluate_on_ranks", lambda *_: [scripted_result("precedence", next(remaining))])

    return script


def best_evaluation(folder):
    return json.loads((folder / "best" / "evaluation.json").read_text())


def test_adapter_of_the_best_model_is_kept(tied_model, tmp_path, evaluate):
    """Beside that of the last one, which has learned more."""
    evaluate(0.2, 0.5, 0.1)
    options = [*OPTIONS, "train.steps=2", "eval.keep_best=true", "lora.rank=2", "optim.learning_rate=1e-2"]
    train(tied_model, tmp_path, overrides=options)
    best, last = (load_file(tmp_path / f / "adapter_model.safetensors") for f in ("best-adapter", "adapter"))
    assert best.keys() == last.keys() and any(not torch.equal(best[name], last[name]) for name in best)


def test_run_ends_at_the_target_and_resumes_to_nothing(tied_model, tmp_path, evaluate):
    """As at its last step: a checkpoint, the model, exit code 0. A higher target continues as an unbroken run."""
    whole, ended = tmp_path / "whole", tmp_path / "ended"
    values = (0.1, 0.2, 0.5, 0.3, 0.4, 0.5)
    evaluate(*values)
    train(tied_model, whole, overrides=[*OPTIONS, "eval.stop_at=0.9"])
    evaluate(*values[:3])
    options = [*OPTIONS, "checkpoint.every=3"]
    config, metrics = train(tied_model, ended, overrides=[*options, "eval.stop_at=0.5"])
    assert len(metrics) == 2
    (line,) = [line for line in lines(ended / "warnings.jsonl") if line["key"] == "stop_at"]
    expected = "eval.stop_at: avg@n of precedence is 0.5 after step 2, at least 0.5; training ends"
    assert (line["step"], line["message"]) == (2, expected)
    assert same_parameters(ended / "model", whole / "checkpoints" / "step_000002")

    checkpoint = find_resume(ended, "auto")
    assert checkpoint.name == "step_000002" and check_resume(checkpoint, 2, config) == []
    written = {path: path.read_bytes() for path in (ended / "metrics.jsonl", ended / "eval.jsonl")}
    train(tied_model, ended, overrides=[*options, "eval.stop_at=0.5"], checkpoint=checkpoint)
    assert all(path.read_bytes() == content for path, content in written.items())
    assert "takes no step; raise eval.stop_at" in lines(ended / "warnings.jsonl")[-1]["message"]
    assert not (ended / "resumes.jsonl").exists()

    evaluate(*values[3:])
    train(tied_model, ended, overrides=[*options, "eval.stop_at=0.9"], checkpoint=checkpoint)
    assert same_run(whole, ended)


def test_base_model_at_the_target_is_not_trained(tied_model, tmp_path, evaluate):
    evaluate(0.7)
    _, metrics = train(tied_model, tmp_path, overrides=[*OPTIONS, "eval.stop_at=0.7", "eval.keep_best=true"])
    assert metrics == [] and best_evaluation(tmp_path)["step"] == 0 and (tmp_path / "model" / "config.json").exists()
    with pytest.raises(UserError, match=r"choose a new train\.output_dir"):
        find_resume(tmp_path, "auto")


def test_best_model_is_kept_also_by_a_resumed_run(tied_model, tmp_path, evaluate):
    """Killed after step 4, whose model was the best, and resumed from step 2. A tie keeps the earlier one."""
    values = (0.2, 0.3, 0.1, 0.4, 0.6, 0.6)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    evaluate(*values)
    train(tied_model, whole, overrides=[*OPTIONS, "eval.keep_best=true"])
    assert best_evaluation(whole)["step"] == 4
    assert same_parameters(whole / "best", whole / "checkpoints" / "step_000004")
    assert not same_parameters(whole / "best", whole / "model") and not list(whole.glob(".*partial*"))
    load_pretrained(str(whole / "best"), 8)
    shutil.copytree(whole, killed)
    shutil.rmtree(killed / "model")
    evaluate(*values[3:])
    checkpoint = killed / "checkpoints" / "step_000002"
    train(tied_model, killed, overrides=[*OPTIONS, "eval.keep_best=true"], checkpoint=checkpoint)
    assert best_evaluation(killed) == best_evaluation(whole)
    assert same_parameters(killed / "best", whole / "best") and same_run(whole, killed)
    assert timeless(lines(killed / "eval.jsonl")) == timeless(lines(whole / "eval.jsonl"))
    points = read_points(killed)
    assert points == expected_points(killed) and len(points["eval/precedence/pass@1"]) == 6


def test_resumption_forgets_the_best_of_a_lost_future(tied_model, tmp_path, evaluate):
    """The resumed run never gets as good as the one that was lost: its own best model is kept."""
    evaluate(0.2, 0.3, 0.1, 0.9)
    train(tied_model, tmp_path, overrides=[*OPTIONS, "eval.keep_best=true", "train.steps=3"])
    assert best_evaluation(tmp_path)["step"] == 3
    evaluate(0.25, 0.2)
    options = [*OPTIONS, "eval.keep_best=true", "train.steps=4"]
    train(tied_model, tmp_path, overrides=options, checkpoint=tmp_path / "checkpoints" / "step_000002")
    assert best_evaluation(tmp_path)["value"] == 0.25


def test_options_can_be_turned_on_by_a_resumption(tied_model, tmp_path, evaluate):
    evaluate(0.2, 0.3, 0.1)
    train(tied_model, tmp_path, overrides=[*OPTIONS, "train.steps=2"])
    evaluate(0.0, 0.1)
    options = [*OPTIONS, "train.steps=4", "eval.keep_best=true", "eval.stop_at=0.2"]
    train(tied_model, tmp_path, overrides=options, checkpoint=tmp_path / "checkpoints" / "step_000002")
    assert best_evaluation(tmp_path)["step"] == 4
    assert "parts/best" in [line["key"] for line in lines(tmp_path / "warnings.jsonl")]
