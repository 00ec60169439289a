"""A look-ahead tree that hears of tokens in any order, against a loop over positions that follows the rule."""

import math
import random
from collections import Counter
from types import SimpleNamespace

from hypothesis import example, given
from hypothesis import strategies as st

from d3s.config.load import load_config
from d3s.methods.latr import LATR, Tree, edit_distance
from d3s.rollout.engine import Progress, Rollout

STOP = 0
PAIRS = [(0.4, 0.3), (0.4, 0.3), (0.3, 0.16), (0.2, 0.14), (0.6, 0.3)]  # probabilities; the last two start no branch


def sample(seed, slot, attempt, ids):
    """A sampled token and the candidates at its position, a function of the response and the tokens before it."""
    draw = random.Random(str((seed, slot, attempt, ids)))
    first, second = draw.sample(range(5), 2)
    candidates = [(token, math.log(p)) for token, p in zip((first, second), draw.choice(PAIRS))]
    return draw.choice([first, first, second, 5]), candidates


def reference(seed, size, limit, lookahead, similarity):
    """The responses of a tree, as (slot, attempt, tokens, log-probabilities, lineage), and the places that are left."""
    free, attempts, growing, results, branches = list(range(size)), Counter(), [], [], 0

    def start(ids, logprobs, lineage, parent):
        nonlocal branches
        slot = free.pop(0)
        values = {"ids": ids, "logprobs": logprobs, "lineage": [*lineage, (branches, len(ids[:-1]))]}
        growing.append(SimpleNamespace(slot=slot, attempt=attempts[slot], parent=parent, **values))
        attempts[slot] += 1
        branches += 1

    def resembles(branch):
        first, parent = branch.lineage[-1][1], branch.parent
        if parent not in growing or len(branch.ids) != first + lookahead or branch.ended or parent.ended:
            return False
        return edit_distance(branch.ids[first:], parent.ids[first:]) < similarity * lookahead

    start([], [], [], None)
    for position in range(limit):
        for branch in growing:
            if len(branch.ids) == position:
                token, branch.candidates = sample(seed, branch.slot, branch.attempt, branch.ids)
                branch.ids.append(token)
                branch.logprobs.append(-1.0)
            branch.ended = branch.ids[-1] == STOP or position + 1 == limit
        for branch in list(filter(resembles, growing)):
            growing.remove(branch)
            free = sorted([*free, branch.slot])
        for branch in list(growing):
            (first, p), (second, q) = branch.candidates
            if free and math.exp(q) > 0.15 and math.exp(p) - math.exp(q) < 0.25:
                token, logprob = (second, q) if branch.ids[-1] == first else (first, p)
                start([*branch.ids[:-1], token], [*branch.logprobs[:-1], logprob], branch.lineage, branch)
                growing[-1].ended = token == STOP or position + 1 == limit
        results += [(b.slot, b.attempt, b.ids, b.logprobs, b.lineage) for b in growing if b.ended]
        growing = [branch for branch in growing if not branch.ended]
    return sorted(results), free


@example(6, 20, 3, 0.7, 19)  # several branches are dropped, and their places taken again
@given(
    st.integers(2, 7),
    st.sampled_from([1, 4, 12, 20]),
    st.integers(0, 4),
    st.sampled_from([0.3, 0.7, 1.0]),
    st.integers(0, 10**6),
)
def test_tree_follows_the_rule(size, limit, lookahead, similarity, seed):
    rule = LATR(load_config([]), lookahead=lookahead, similarity=similarity)
    empty = {slot: Rollout(0, [7], [], [], [], False, slot) for slot in range(size)}
    tree, order, results = Tree(rule, empty, limit, [STOP], Counter()), random.Random(seed), []
    active = list(tree.growing)
    while active:
        for branch in order.sample(active, order.randint(1, len(active))):
            token, candidates = sample(seed, branch.slot, branch.attempt, branch.rollout.response_ids)
            length = len(branch.rollout.response_ids) + 1
            reason = "stop" if token == STOP else "length" if length == limit else None
            branch.extend(Progress(0, [token], [-1.0], [candidates], reason))
        started, pruned, finished = tree.advance()
        active = [b for b in active if not b.ended and b not in pruned] + started
        for b in finished:
            r = b.rollout
            assert (r.finished, r.sample) == (r.response_ids[-1] == STOP, b.slot)
            results.append((b.slot, b.attempt, r.response_ids, r.logprobs, r.lineage))
    assert (sorted(results), tree.free) == reference(seed, size, limit, lookahead, similarity)


def test_edit_distance_matches_known_values():
    for first, second, distance in (("kitten", "sitting", 3), ("", "abc", 3), ("intention", "execution", 5)):
        assert edit_distance(first, second) == edit_distance(second, first) == distance
