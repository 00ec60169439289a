"""Runs whose share, N and K react to training: against static runs, the choice made, and uninterrupted runs."""

import shutil

import pytest
import torch
from safetensors.torch import load_file

from d3s import trainer as module
from d3s.methods import auto_share
from d3s.schedule import planned_curve
from tests.helpers.command_line import lines, timeless
from tests.helpers.small_run import same_run
from tests.helpers.training import EVALUATED, B, train

AUTO = "schedule.follow=d3s.methods.auto_share:AutoShare"
PLATEAU = "schedule.follow={rule: d3s.methods.plateau:Plateau, patience: 1}"
COVERAGE = "schedule.follow={rule: d3s.methods.coverage:Coverage, n: 0.6, k: 0.5}"
OWN = ("selection/cross_share", "control/")  # metrics of the automatic share


def static(records):
    """Metrics without those that only the automatic share logs."""
    return [{k: v for k, v in record.items() if not k.startswith(OWN)} for record in timeless(records)]


@pytest.mark.parametrize(("share", "same_as"), [(0.0, "selector.cross_share=0"), (1.0, "selector.cross_share=1")])
def test_pinned_share_is_bitwise_the_static_method(share, same_as, tied_model, tmp_path):
    """D3S-I at 0, D3S at 1: the first steps decide nothing."""
    follow = f"schedule.follow={{rule: d3s.methods.auto_share:AutoShare, share: {share}}}"
    _, automatic = train(tied_model, tmp_path / "auto", overrides=[follow])
    _, expected = train(tied_model, tmp_path / "static", overrides=[same_as])
    assert static(automatic) == timeless(expected)
    left, right = (load_file(tmp_path / name / "model" / "model.safetensors") for name in ("auto", "static"))
    assert all(torch.equal(left[name], right[name]) for name in left)
    assert [(line["selection/cross_share"], line["control/change"]) for line in automatic] == [(share, 0)] * 3


def test_share_follows_the_logged_metrics(tied_model, tmp_path, monkeypatch):
    """Every change is the controller's on the run's own metrics, acts in the next step, and is logged with a reason."""
    for name, value in (("FIRST_STEPS", 1), ("DWELL", 1), ("CALM", 0.05), ("ALARM", 0.2)):
        monkeypatch.setattr(auto_share, name, value)
    config, metrics = train(tied_model, tmp_path, overrides=[AUTO, "train.steps=8", "optim.learning_rate=3e-3"])
    controller, reasons = auto_share.AutoShare(config), []
    for step, line in enumerate(metrics, 1):
        before, reason = controller.share, controller.observe(line)
        assert line["selection/cross_share"] == before and line["control/deviation"] == controller.deviation
        assert line["control/change"] == (controller.share > before) - (controller.share < before)
        reasons += [(step, f"schedule.follow: d3s.methods.auto_share:AutoShare: {reason}")] if reason else []
    warnings = lines(tmp_path / "warnings.jsonl")
    assert [(w["step"], w["message"]) for w in warnings if w["key"] == "schedule.follow"] == reasons
    assert len({line["selection/cross_share"] for line in metrics}) > 2


def test_coverage_decides_n_and_k_of_each_step(tied_model, tmp_path, monkeypatch):
    """Its decisions, which tests/test_controllers.py compares with all others, are what a step keeps and logs."""
    decided, downsample_tokens = [], module.downsample_tokens

    def recorded(selector, batch, k, generator):
        downsample_tokens(selector, batch, k, generator)
        decided.append((k, (batch.priorities[batch.selected].sum() / batch.priorities.sum()).item()))

    monkeypatch.setattr(module, "downsample_tokens", recorded)
    config, metrics = train(tied_model, tmp_path, overrides=[COVERAGE, "schedule.k_final=0.9", "train.steps=4"])
    numbers, planned = [line["schedule/n"] for line in metrics], planned_curve(config)
    assert [line["selection/rollouts"] for line in metrics] == [n * B for n in numbers]
    assert any(4 < n < 16 for n in numbers) and numbers != [planned(step / 3)[0] for step in range(4)]
    assert [line["schedule/k"] for line in metrics] == [k for k, _ in decided]
    assert all(0.05 < k < 0.9 and held >= 0.5 for k, held in decided)


def test_plateau_advances_the_schedule(tied_model, tmp_path):
    """Every response counts as right, so every evaluation after the first is one without progress."""
    options = [*EVALUATED, "eval.every=1", PLATEAU, "train.steps=5", "schedule.n_final=8"]
    options += ["reward.functions=[tests.helpers.rewards:always]", "eval.reward=tests.helpers.rewards:always"]
    config, metrics = train(tied_model, tmp_path, overrides=options)
    progress = [line["schedule/progress"] for line in metrics]
    assert progress == [0, 0.25, 0.5, 0.75, 1]
    assert [(line["schedule/n"], line["schedule/k"]) for line in metrics] == list(map(planned_curve(config), progress))
    warnings = [w for w in lines(tmp_path / "warnings.jsonl") if w["key"] == "schedule.follow"]
    assert [w["step"] for w in warnings] == [1, 2, 3, 4] and "0.75 to 1;" in warnings[-1]["message"]


def test_schedule_without_evaluations_warns(tied_model, tmp_path):
    train(tied_model, tmp_path, overrides=[PLATEAU, "train.steps=1"])
    assert ["needs evaluations" in w["message"] for w in lines(tmp_path / "warnings.jsonl") if w["key"] == "schedule"]


@pytest.mark.parametrize(
    "options",
    [[AUTO, "optim.learning_rate=3e-3"], [*EVALUATED, "eval.every=1", PLATEAU], [COVERAGE]],
    ids=lambda options: options[-1],
)
def test_resumed_run_decides_as_the_whole_run(options, tied_model, tmp_path, monkeypatch):
    monkeypatch.setattr(auto_share, "FIRST_STEPS", 1)
    monkeypatch.setattr(auto_share, "DWELL", 2)
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    overrides = [*options, "train.steps=6", "checkpoint.every=3", "checkpoint.keep=9"]
    train(tied_model, whole, overrides=overrides)
    shutil.copytree(whole, resumed)
    shutil.rmtree(resumed / "model")
    train(tied_model, resumed, overrides=overrides, checkpoint=resumed / "checkpoints" / "step_000003")
    assert same_run(whole, resumed)
    assert lines(whole / "warnings.jsonl") == lines(resumed / "warnings.jsonl")
