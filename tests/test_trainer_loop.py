"""The training loop: when it evaluates and saves, and what it counts, against the options and plain sums."""

import itertools
import json

import pytest

from d3s import trainer as module
from d3s.collector import Collector
from d3s.config.schema import VERIFIER
from tests.helpers.command_line import lines
from tests.helpers.training import EVALUATED, B, G, train


def saved_steps(folder) -> list[int]:
    return sorted(int(path.name.removeprefix("step_")) for path in (folder / "checkpoints").glob("step_*"))


@pytest.mark.parametrize(("every", "evaluated", "saved"), [(2, [0, 2, 4, 5], [2, 4]), (0, [0, 5], [])])
def test_evaluations_and_checkpoints_follow_the_options(every, evaluated, saved, tied_model, tmp_path):
    options = [*EVALUATED, f"eval.every={every}", f"checkpoint.every={every}", "checkpoint.keep=9", "train.steps=5"]
    train(tied_model, tmp_path, overrides=options)
    assert [line["step"] for line in lines(tmp_path / "eval.jsonl")] == evaluated
    assert saved_steps(tmp_path) == saved and (tmp_path / "model" / "config.json").exists()


def test_counts_and_times_are_sums_over_steps(tied_model, tmp_path, monkeypatch):
    """Seconds spent waiting for rewards are not seconds of generation."""
    collect = Collector.collect

    def delayed(*arguments, **options):
        groups = collect(*arguments, **options)
        groups.waited += 1000.0
        return groups

    monkeypatch.setattr(Collector, "collect", delayed)
    _, metrics = train(tied_model, tmp_path, overrides=["checkpoint.every=3", "train.steps=3"])
    for name, total in (("selection/tokens", "tokens_trained"), ("selection/tokens_total", "tokens_generated")):
        assert [line[total] for line in metrics] == list(itertools.accumulate(line[name] for line in metrics))
    state = json.loads((tmp_path / "checkpoints" / "step_000003" / "state.json").read_text())
    assert (state["step"], state["position"]) == (3, 3 * B)
    assert sum(line["time/step"] for line in metrics) <= metrics[-1]["wall_time"]
    assert [line["progress"] for line in metrics] == [0, 0.5, 1]
    for line in metrics:
        assert line["throughput/tokens_per_s"] == pytest.approx(line["selection/tokens_total"] / line["time/step"])
        assert line["time/reward"] >= 1000 and line["time/generate"] + line["time/reward"] <= line["time/step"]


def test_selection_is_seeded_by_run_and_step(tied_model, tmp_path, monkeypatch):
    """Runs of neighboring seeds share no step's random numbers."""
    seeds, downsample_rollouts = [], module.downsample_rollouts

    def recorded(*arguments):
        seeds.append(arguments[-1].initial_seed())
        return downsample_rollouts(*arguments)

    monkeypatch.setattr(module, "downsample_rollouts", recorded)
    for seed in (0, 1):
        train(tied_model, tmp_path / str(seed), overrides=[f"train.seed={seed}", "train.steps=3"])
    assert len(set(seeds)) == 6


def test_verifications_of_evaluations_are_not_counted(tied_model, tmp_path):
    options = [*EVALUATED, "eval.every=1", "eval.reward=null", f"reward.functions=[{VERIFIER}]", "train.steps=3"]
    _, metrics = train(tied_model, tmp_path, overrides=options)
    assert [line["reward/decided"] for line in metrics] == [B * G] * 3


def test_one_problem_fills_a_step(tied_model, tmp_path):
    """Its groups have seeds of their own: the responses of one group, repeated, would be at most G distinct ones."""
    options = ["data.limit=1", "train.steps=1", "tracker.samples_every=1", f"tracker.samples={B * G}"]
    _, (metrics,) = train(tied_model, tmp_path, overrides=options)
    samples = lines(tmp_path / "samples" / "step_000001.jsonl")
    assert metrics["selection/rollouts_total"] == len(samples) == B * G
    assert len({sample["problem"] for sample in samples}) == 1
    assert len({sample["response"] for sample in samples}) > 2 * G
    assert any("a step repeats problems" in line["message"] for line in lines(tmp_path / "warnings.jsonl"))
