"""What shared beginnings save: the ratio of hand-made seconds, and a paired run against an ordinary one."""

import math

import pytest
import torch

from benchmarks.speed.sharing import PairedTrainer, ratio, run_each
from tests.helpers.small_run import parameters
from tests.helpers.training import STEPS, train


def test_ratio_is_the_median_of_pairs():
    """The pairs have the ratios 1/2, 3/4 and 1; the ratio of the two medians would be 1/2."""
    assert ratio([(2.0, 1.0), (4.0, 3.0), (1.0, 1.0)]) == pytest.approx(3 / 4)


def test_run_each_gives_every_rollout_its_own_pass():
    assert run_each(None, [3, 0, 1], [5, 0, 2, 4]) == {3: [3], 0: [0]}


def test_paired_run_equals_an_ordinary_run(tied_model, tmp_path, monkeypatch):
    """Each update is made twice, and the run goes on as if it had been made once."""
    trainers = []

    class Recorded(PairedTrainer):
        def __init__(self, *arguments):
            super().__init__(arguments[0])
            trainers.append(self)

    overrides = ["optim.learning_rate=1e-3", "optim.num_minibatches=2"]
    train(tied_model, tmp_path / "once", overrides=overrides)
    monkeypatch.setattr("d3s.trainer.Trainer", Recorded)
    train(tied_model, tmp_path / "twice", overrides=overrides)
    once, twice = (parameters(tmp_path / name / "model") for name in ("once", "twice"))
    start = parameters(tied_model)
    for name in once:
        torch.testing.assert_close(twice[name], once[name], rtol=0, atol=1e-5)
    assert max(float((once[name] - start[name]).abs().max()) for name in once) > 1e-3
    [trainer] = trainers
    assert len(trainer.updates) == len(trainer.steps) == STEPS
    for update, step in zip(trainer.updates, trainer.steps):
        assert step[0] > update[0] > 0 and step[1] > update[1] > 0
        assert math.isclose(step[0] - update[0], step[1] - update[1])
