"""Advantages of shared tokens against a search over all pairs of responses."""

import random

import torch

from d3s.rollout.engine import Rollout
from d3s.rollout.prefixes import prefix_advantages


def random_group(draw, group, size):
    """Responses of a random tree, and a plain one. A token's id names the response that sampled it."""
    branches = [Rollout(group, [1], [100] * draw.randint(4, 9), [], [], True, 0, lineage=[(0, 0)])]
    while len(branches) < size:
        parent, number = draw.choice(branches), len(branches)
        own = parent.lineage[-1][1] + (number > 0 and parent.lineage[-1][0] > 0)  # after the parent's forced token
        if own >= len(parent.response_ids):
            continue
        fork = draw.randrange(own, len(parent.response_ids))
        ids = parent.response_ids[:fork] + [200 + number] + [100 + number] * draw.randint(0, 6)
        branches.append(Rollout(group, [1], ids, [], [], True, number, lineage=[*parent.lineage, (number, fork)]))
    return [*branches, Rollout(group, [1], [99] * 3, [], [], True, size)]


def test_shared_tokens_are_trained_once_with_the_mean():
    """100 + b is a token that branch b sampled, 200 + b its forced one; equal ids from the start are shared tokens."""
    shared, orphans = 0, 0
    for seed in range(20):
        draw, advantages = random.Random(seed), torch.randn(2, 7, generator=torch.Generator().manual_seed(seed))
        kept = [r for g in range(2) for r in random_group(draw, g, 6) if draw.random() < 0.7]
        values = prefix_advantages(kept, advantages)
        assert [len(v) for v in values] == [len(r.response_ids) for r in kept]
        for r, position in ((x, position) for x in kept for position in range(len(x.response_ids))):
            same = [x for x in kept if shares(x, r, position)]
            trained = [x for x in same if position not in x.untrainable]
            assert len(trained) == (r.response_ids[position] < 200)
            shared += len(same) > 1
            if r in trained:
                expected = torch.stack([advantages[x.prompt_index, x.sample] for x in same]).mean()
                torch.testing.assert_close(values[kept.index(r)][position], expected)
                owners = [x for x in same if x.lineage and x.sample == r.response_ids[position] - 100]
                assert not owners or r in owners  # the response that sampled it, if it was kept
                orphans += len(same) > 1 and not owners
    assert shared > 50 and orphans > 10


def shares(first, second, position):
    """Whether two responses have the token at this position in common."""
    if first is second or not (first.lineage and second.lineage):
        return first is second
    prefixes = [(r.prompt_index, r.response_ids[: position + 1]) for r in (first, second)]
    return prefixes[0] == prefixes[1]
