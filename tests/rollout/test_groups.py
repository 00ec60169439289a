"""Tables and lists of a step's groups, against given cells; tests/test_collector.py has those of several ranks."""

import math

import torch

from d3s.rollout.engine import Rollout
from d3s.rollout.groups import RolloutGroups

B, G = 3, 2


def groups_of(**options) -> RolloutGroups:
    """B groups of G responses."""
    values = torch.zeros(B, G)
    rollouts = [Rollout(row, [1], [7], [0.0], [0.5], True, column) for row in range(B) for column in range(G)]
    return RolloutGroups([0, 1, 2], rollouts, values, values, values, values > -1, values, **options)


def test_signal_is_a_difference_of_verdicts():
    verdicts = torch.tensor([[1.0, 1, 1], [0, 0, 0], [0, 1, 0], [0.5, 0.5, 0.25]])
    rewards, zeros = verdicts - torch.tensor([0.0, 0.1, 0.2]), torch.zeros(4, 3)
    groups = RolloutGroups([0, 1, 2, 3], [], rewards, verdicts, zeros, zeros.bool(), zeros)
    assert groups.has_signal().tolist() == [False, False, True, True]


def test_parts_of_some_groups_are_nan_in_others():
    """A function need not return the same parts every time."""
    first = groups_of(parts={"a": torch.ones(B, G)})
    both = first + groups_of(parts={"b": torch.full((B, G), 2.0)})
    expected = {"a": [1, 1, 1, math.nan, math.nan, math.nan], "b": [math.nan, math.nan, math.nan, 2, 2, 2]}
    for name, rows in expected.items():
        table = torch.tensor(rows)[:, None].expand(2 * B, G)
        torch.testing.assert_close(both.parts[name], table, equal_nan=True)
    assert torch.equal(both.take([1]).parts["a"], torch.ones(1, G))


def test_kept_rollouts_keep_their_order():
    groups = groups_of(dense=True).take([2, 0])
    kept = torch.tensor([[True, False], [False, True]])
    assert [(r.prompt_index, r.sample) for r in groups.of_rank(kept)] == [(1, 1), (0, 0)]
    assert groups.dense and not (groups_of() + groups_of()).dense
