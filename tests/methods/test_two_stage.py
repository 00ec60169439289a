"""Selection in two stages against brute force: all subsets of every group, then all subsets of what these kept."""

import itertools
import random

import pytest
import torch

from d3s.common import UserError
from d3s.methods.two_stage import two_stage
from d3s.plan.trials import attempt_rules
from d3s.selector import select_rollouts
from tests.helpers.selection import ALL, REWARDS, config, downsample
from tests.helpers.subsets import seeded, variance


def best(cells: dict[tuple[int, int], float], size: int) -> set[tuple[int, int]]:
    """The subset of this size with the largest variance, or all of fewer."""
    subsets = itertools.combinations(cells, min(size, len(cells)))
    return set(max(subsets, key=lambda subset: variance([cells[cell] for cell in subset]) if subset else 0.0))


def test_two_stages_match_brute_force():
    """Values are drawn from a continuum, so that no two subsets tie; some rollouts are not eligible."""
    rng, differs = random.Random(0), 0
    for _ in range(150):
        groups, size, keep = rng.choice([(2, 6, 2), (3, 5, 2), (3, 4, 1), (2, 7, 3)])
        scales = [rng.choice([0.1, 1.0, 3.0]) for _ in range(groups)]
        table = [[scale * rng.gauss(0, 1) for _ in range(size)] for scale in scales]
        eligible = [[rng.random() < 0.9 for _ in row] for row in table]
        first = {}
        for g, row in enumerate(table):
            cells = {(g, i): value for i, value in enumerate(row) if eligible[g][i]}
            first |= {cell: cells[cell] for cell in best(cells, 2 * keep)}
        values = torch.tensor(table, dtype=torch.float64)
        chosen = two_stage(values, keep, torch.tensor(eligible), seeded(0))
        assert {tuple(cell) for cell in chosen.nonzero().tolist()} == best(first, keep * groups)
        differs += not torch.equal(chosen, select_rollouts(values, keep, 1.0, seeded(0), torch.tensor(eligible)))
    assert differs > 10


def test_first_stage_of_all_is_the_plain_selection():
    values = torch.randint(0, 2, (4, 8), generator=seeded(1)).double()
    for stage in (2, 4, 9):
        expected = select_rollouts(values, 4, 1.0, seeded(2))
        assert torch.equal(two_stage(values, 4, torch.ones(4, 8, dtype=torch.bool), seeded(2), stage), expected)


def test_rule_is_an_option():
    settings = config("selector.rollouts={rule: d3s.methods.two_stage:two_stage, stage: 3}")
    attempt_rules(settings)
    advantages, kept = downsample(settings, REWARDS, ALL, 2, seeded(5))
    assert torch.equal(kept, two_stage(advantages, 2, ALL, seeded(5), 3))


@pytest.mark.parametrize("stage", ["1", "1.5", "true", "null"])
def test_wrong_stages_are_refused(stage):
    settings = config(f"selector.rollouts={{rule: d3s.methods.two_stage:two_stage, stage: {stage}}}")
    with pytest.raises(
        UserError, match=r"^selector\.rollouts: d3s\.methods\.two_stage:two_stage .*stage must be an integer above"
    ):
        attempt_rules(settings)
