"""Q-Tuning's choice of samples and tokens, against loops over plain numbers that follow the paper's steps."""

import itertools
import math
import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy import quantile

from d3s.common import UserError
from d3s.methods.q_tuning import context_scores, divide_samples, prune_tokens
from d3s.packing import supervised_batch
from d3s.sft.pruning import PRUNE_RULES, needs_scores, prune
from d3s.trials import attempt

SHELF, HERE = "d3s.methods.q_tuning:", "tests.methods.test_q_tuning:"


def direct_quadrants(ppl, ent, ratio):
    """Indices of misconceptions, of calibration samples and of those added to reach the ratio."""
    count, low, high = len(ppl), 0.0, 0.49
    for _ in range(10):
        a = (low + high) / 2
        q2 = [i for i in range(count) if ppl[i] > quantile(ppl, 1 - a) and ent[i] <= quantile(ent, a)]
        q4 = [i for i in range(count) if ppl[i] <= quantile(ppl, a) and ent[i] > quantile(ent, 1 - a)]
        share = (len(q2) + len(q4)) / count
        if abs(share - ratio) < 0.01:
            break
        if share < ratio:
            low = a
        else:
            high = a

    def normalized(values):
        span = max(values) - min(values)
        return [(value - min(values)) / span if span else 0.0 for value in values]

    p, e = normalized(ppl), normalized(ent)
    rest = [i for i in range(count) if i not in q2 and i not in q4]
    rest.sort(key=lambda i: -max(p[i] - e[i], e[i] - p[i]))
    missing = max(1, round(ratio * count)) - len(q2) - len(q4)
    return set(q2), set(q4), set(rest[: max(0, missing)])


@pytest.mark.parametrize("correlation", [-0.9, 0.0, 0.95])
@pytest.mark.parametrize("ratio", [0.05, 0.125, 0.2, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("count", [1, 2, 7, 24, 101])
def test_quadrants_match_a_direct_implementation(count, ratio, correlation):
    rng = random.Random(f"{count}/{ratio}/{correlation}")
    nll = [rng.gauss(0, 1) for _ in range(count)]
    ent = [correlation * x + math.sqrt(1 - correlation**2) * rng.gauss(0, 1) for x in nll]
    ppl = [math.exp(x) for x in nll]
    q2, q4, added = direct_quadrants(ppl, ent, ratio)
    ppl, ent = torch.tensor(ppl, dtype=torch.float64), torch.tensor(ent, dtype=torch.float64)
    assert [set(mask.nonzero()[:, 0].tolist()) for mask in divide_samples(ppl, ent, ratio)] == [q2, q4, added]
    assert len(q2 | q4 | added) >= max(1, round(ratio * count))


def test_context_scores_match_a_loop():
    responses = [[0.4], [0.1, 0.9, 0.5, 0.7], [0.2, 0.3]]
    expected = []
    for nll in responses:
        padded = [0.0, *map(math.exp, nll), 0.0]
        expected += [0.5 * padded[i] + 0.5 * (padded[i - 1] + padded[i + 1]) for i in range(1, len(nll) + 1)]
    ids = torch.tensor([0, 1, 1, 1, 1, 2, 2])
    assert context_scores(torch.tensor([*itertools.chain(*responses)]), ids).tolist() == pytest.approx(expected)


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans(), st.booleans()), min_size=1), st.integers(0, 9))
def test_tokens_are_dropped_to_the_budget(tokens, budget):
    """The prunable tokens of largest score, the first of equal ones; what is not prunable stays."""
    scores, kept, prunable = zip(*((float(score), kept, kept and prunable) for score, kept, prunable in tokens))
    order = sorted((i for i, may in enumerate(prunable) if may), key=lambda i: -scores[i])
    dropped = order[: max(0, sum(kept) - budget)]
    remaining = prune_tokens(torch.tensor(scores), torch.tensor(kept), torch.tensor(prunable), budget).tolist()
    assert remaining == [keeps and i not in dropped for i, keeps in enumerate(kept)]


def pruned(lengths, logprobs, entropies, rule, seed=0):
    batch = supervised_batch([([1], [2] * length) for length in lengths])
    return batch, prune(batch, rule, logprobs, entropies, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("drop", "kept"), [("large", 4), ("small", 5)])
def test_batch_is_pruned_by_sample_and_token(drop, kept):
    """Samples 1 and 3 stay. The budget is 3 of 16 tokens: sample 1 loses all but its token of least or largest score.

    Its second token is the least perplexing one, between the two most perplexing ones.
    """
    nll = torch.tensor([9.0] * 4 + [9.1, 1.0, 9.3, 9.0] + [0.1] * 6 + [0.2] * 2)
    entropies = torch.tensor([5.0] * 4 + [1.0] * 4 + [2.0] * 6 + [6.0] * 2)
    rule = {"rule": SHELF + "q_tuning", "samples": 0.5, "tokens": 0.375, "drop": drop}
    batch, metrics = pruned([4, 4, 6, 2], -nll, entropies, rule)
    assert batch.selected.nonzero()[:, 0].tolist() == [kept, 14, 15]
    shares = {"misconception": 0.25, "calibration": 0.25, "topped_up": 0, "samples": 0.5, "tokens": 3 / 16}
    assert metrics == {f"pruning/{name}": share for name, share in shares.items()}


def test_random_control_keeps_the_same_shares():
    rule, unknown = {"rule": SHELF + "random_parts", "samples": 0.5, "tokens": 0.75}, torch.full((200,), math.nan)
    batches, metrics = zip(*(pruned([10] * 20, unknown, unknown, rule, seed) for seed in range(5)))
    assert {m["pruning/samples"] for m in metrics} == {0.5} and {int(b.selected.sum()) for b in batches} == {75}
    assert {len(b.sequence_ids[b.selected].unique()) for b in batches} == {10}
    assert len({tuple(b.selected.tolist()) for b in batches}) == 5


def least_certain(entropies):
    return entropies > entropies.median()


def nothing(sequence_ids):
    return sequence_ids < 0


def test_own_rules_prune_by_scores_they_read():
    entropies = torch.tensor([0.1, 0.2, 0.9, 0.3])
    batch, metrics = pruned([2, 2], -entropies, entropies, HERE + "least_certain")
    assert batch.selected.tolist() == [False, False, True, True] and metrics == {"pruning/tokens": 0.5}
    own = [{"rule": SHELF + name, "samples": 0.5, "tokens": 1} for name in ("q_tuning", "random_parts")]
    assert [needs_scores(rule) for rule in (*own, HERE + "least_certain", "none")] == [True, False, True, False]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"rule": SHELF + "random_parts", "samples": 1, "tokens": 1.5}, "tokens must be in .0, 1., not 1.5"),
        ({"rule": SHELF + "q_tuning", "samples": 1, "tokens": 1, "drop": "x"}, "drop must be large or small, not 'x'"),
        (HERE + "nothing", "nothing returned no token, expected at least one"),
    ],
)
def test_impossible_rules_are_refused(value, message):
    with pytest.raises(UserError, match=message):
        attempt(PRUNE_RULES, value, None)
