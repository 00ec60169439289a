"""Groups of overrides resolve to the shapes and constants that their names say."""

import pytest

from benchmarks.harness import ROOT
from d3s.downsampling import schedule_bounds
from research.methods import D3S, GRPO, GSPO, fixed, method, shape
from research.runs import Cell
from research.tests.experiments import config_of


def test_overlays_exist():
    assert all((ROOT / name).is_file() for name in (D3S, GRPO, GSPO, method("pods")))


@pytest.mark.parametrize("group", [2, 4, 32])
def test_shape_fills_the_responses_of_a_step(group):
    config = config_of(Cell("x", (GRPO, *shape(128, group))))
    assert (config.rollout.num_generations, config.train.prompts_per_step) == (group, 128 // group)


def test_fixed_shares_do_not_follow_the_steps():
    assert schedule_bounds(config_of(Cell("x", fixed(8, 0.1)))) == ((8, 8), (0.1, 0.1))
