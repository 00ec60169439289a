"""Decisions of a look-ahead tree on scripted tokens: candidates, capacity, pruning, and the order of the reports."""

import math
import random
from collections import Counter

import pytest

from d3s.config.load import load_config
from d3s.methods.latr import LATR, Tree, edit_distance
from d3s.rollout.engine import Progress, Rollout

STOP = 0


def tree_of(capacity, limit=12, first=0, **options):
    """A tree for slots first, first + 1, ..."""
    rule = LATR(load_config([]), **{"lookahead": 0} | options)
    empty = {first + i: Rollout(0, [7], [], [], [], False, i) for i in range(capacity)}
    return Tree(rule, empty, limit, [STOP], Counter())


def report(branch, token, probabilities, limit=12):
    """Append a sampled token to a branch. `probabilities` has those of the two likeliest tokens."""
    candidates = [(t, math.log(p)) for t, p in probabilities.items()]
    length = len(branch.rollout.response_ids) + 1
    reason = "stop" if token == STOP else "length" if length == limit else None
    branch.extend(Progress(0, [token], [-1.0], [candidates], reason))


@pytest.mark.parametrize(
    ("sampled", "probabilities", "forced"),
    [
        (1, {1: 0.4, 2: 0.3}, 2),
        (2, {1: 0.4, 2: 0.3}, 1),  # the response took the second candidate
        (3, {1: 0.4, 2: 0.3}, 1),  # the response took neither
        (1, {1: 0.6, 2: 0.3}, None),  # too far apart
        (1, {1: 0.2, 2: 0.14}, None),  # too unlikely
        (1, {1: 0.75, 2: 0.25}, None),
        (STOP, {STOP: 0.4, 2: 0.3}, 2),
    ],
)
def test_branch_takes_the_candidate_not_sampled(sampled, probabilities, forced):
    tree = tree_of(2)
    (root,) = tree.growing
    report(root, 5, {5: 0.99, 6: 0.01})
    report(root, sampled, probabilities)
    started, pruned, finished = tree.advance()
    assert not pruned and finished == [root] * (sampled == STOP)
    if forced is None:
        assert not started and tree.growing == [root]
        return
    (branch,) = started
    assert (branch.rollout.response_ids, branch.start, branch.slot) == ([5, forced], 1, 1)
    assert branch.rollout.logprobs == [-1.0, math.log(probabilities[forced])]
    assert branch.rollout.lineage == [(0, 0), (1, 1)] and root.rollout.lineage == [(0, 0)]
    assert not branch.ended and tree.growing[-1] is branch


def test_branch_may_end_with_its_forced_token():
    for limit, token in ((12, STOP), (1, 4)):
        tree = tree_of(2, limit)
        (root,) = tree.growing
        report(root, 5, {5: 0.5, token: 0.4}, limit)
        started, _, finished = tree.advance()
        assert not started and finished[-1].rollout.response_ids == [token]
        assert finished[-1].rollout.finished == (token == STOP)


def test_capacity_limits_the_branches():
    tree = tree_of(4, first=10)
    (root,) = tree.growing
    report(root, 1, {1: 0.5, 2: 0.4})
    (child,) = tree.advance()[0]
    report(root, 3, {3: 0.5, 4: 0.4})
    assert tree.advance() == ([], [], [])  # the child has no token there yet
    report(child, 5, {5: 0.5, 6: 0.4})
    third, fourth = tree.advance()[0]
    assert [b.slot for b in (root, child, third, fourth)] == [10, 11, 12, 13]
    assert [b.rollout.sample for b in (third, fourth)] == [2, 3]
    assert [b.rollout.response_ids for b in (third, fourth)] == [[1, 4], [2, 6]]
    for branch in (root, child, third, fourth):
        report(branch, 8, {8: 0.5, 9: 0.4})
    assert tree.advance() == ([], [], [])  # full
    for branch in (root, child, third, fourth):
        report(branch, STOP, {STOP: 0.5, 9: 0.4})
    assert tree.advance() == ([], [], [root, child, third, fourth])


def test_places_that_are_left_are_plain():
    """An ended tree names the places that no branch took; a tree of one response is plain and never branches."""
    tree = tree_of(3)
    (root,) = tree.growing
    report(root, STOP, {STOP: 0.99, 9: 0.01})
    assert tree.advance() == ([], [], [root]) and tree.free == [1, 2] and not tree.growing
    plain = Tree(tree.rule, {1: tree.empty[1]}, 12, [STOP], tree.attempts).growing[0]
    assert plain.rollout.lineage == [] and plain.attempt == 0 and root.rollout.lineage == [(0, 0)]


@pytest.mark.parametrize(
    ("own", "other", "ends", "dropped"),
    [
        ([5, 6, 7], [5, 6, 7], None, True),  # one of four tokens differs: 0.25 < 0.4
        ([5, 6, 8], [5, 6, 7], None, False),  # 0.5
        ([4, 5, 6], [5, 6, 7], None, False),  # 0.5: replace the first token, then insert one and delete one
        ([5, 6, STOP], [5, 6, 7], "branch", False),
        ([5, 6, 7], [5, 6, STOP], "root", False),
    ],
)
def test_look_alikes_are_pruned(own, other, ends, dropped):
    tree = tree_of(2, lookahead=4, similarity=0.4)
    (root,) = tree.growing
    report(root, 9, {9: 0.99, 1: 0.01})
    report(root, 1, {1: 0.5, 2: 0.4})
    (branch,) = tree.advance()[0]
    for a, b in zip(other, own):
        report(root, a, {a: 0.5, 3: 0.4})
        report(branch, b, {b: 0.99, 3: 0.01})
    started, pruned, finished = tree.advance()
    assert pruned == [branch] * dropped
    assert finished == ([root] if ends == "root" else [branch] if ends == "branch" else [])
    if dropped:  # its place goes to the next branch, at the same position
        (successor,) = started
        assert (successor.slot, successor.attempt) == (1, 1)
        assert successor.rollout.response_ids == [9, 1, *other[:-1], 3]
        assert successor.rollout.lineage == [(0, 0), (2, 4)]


def test_tree_does_not_depend_on_the_order_of_reports():
    """Tokens and candidates are functions of the tokens before them; 20 orders in which the engine may report."""

    def sample(branch):
        draw = random.Random(str((branch.slot, branch.attempt, branch.rollout.response_ids)))
        first, second = draw.sample(range(1, 5), 2)
        token = draw.choice([first, second, first, second, 5, STOP])
        report(branch, token, {first: 0.4, second: draw.choice([0.3, 0.01])}, limit=30)

    def grow(seed):
        order, tree = random.Random(seed), tree_of(6, 30, lookahead=3, similarity=0.7)
        active, results, pruned = [*tree.growing], [], 0
        while active:
            for branch in order.sample(active, order.randint(1, len(active))):
                sample(branch)
            active = [b for b in active if not b.ended]
            started, dropped, finished = tree.advance()
            active = [b for b in active if b not in dropped] + started
            pruned += len(dropped)
            results += [(b.slot, b.attempt, b.rollout.response_ids, b.rollout.lineage) for b in finished]
        assert sorted([slot for slot, *_ in results] + tree.free) == list(range(6))
        return sorted(results), pruned

    shapes = {str(grow(seed)) for seed in range(20)}
    results, pruned = grow(0)
    assert len(shapes) == 1 and pruned > 0 and max(len(lineage) for *_, lineage in results) > 2


def test_edit_distance_matches_known_values():
    for first, second, distance in (
        ("kitten", "sitting", 3),
        ("flaw", "lawn", 2),
        ("", "abc", 3),
        ("intention", "execution", 5),
    ):
        assert edit_distance([*map(ord, first)], [*map(ord, second)]) == distance
        assert edit_distance([*map(ord, second)], [*map(ord, first)]) == distance
