"""Around an engine: seeds, groups, shared prefixes, the sync of weights; by hand or search.

tests/test_collector.py has the groups of several ranks, tests/test_trainer_faults.py stale weights in a real engine.
"""

import random
from types import SimpleNamespace

import pytest
import torch
from accelerate import Accelerator

from d3s.common import UserError
from d3s.config.load import load_config
from d3s.groups import Rollout, RolloutGroups
from d3s.methods.latr import TreeRollout, prefix_advantages
from d3s.rollout.engine import rollout_seed, rollout_seeds
from d3s.rollout.sync import PROBE_CONTEXT, PROBE_TOKENS, sync_engine


def test_seeds_of_runs_and_streams_are_distinct():
    """Every one of the low 32 bits of the index counts; torch's generator would ignore more bits of a seed."""
    for first in (0, 2**31, 2**32 - 10_000):  # including indices beyond 32 bits
        seeds = [rollout_seed(3, "train", first + i) for i in range(20_000)]
        assert len(set(seeds)) == 20_000 and min(seeds) >= 0 and max(seeds) < 2**32
    assert len({rollout_seed(3, "train", index) for index in (0, *(1 << bit for bit in range(32)))}) == 33
    every = [rollout_seed(seed, stream, i) for seed in range(10) for stream in ("train", "eval") for i in range(500)]
    assert len(set(every)) >= len(every) - 3  # by chance 0.01 of these pairs are equal
    assert rollout_seeds(1, "eval", [7, 2], 3) == [rollout_seed(1, "eval", i) for i in (21, 22, 23, 6, 7, 8)]


def test_seeds_are_those_of_earlier_versions():
    """A resumed run samples what it would have sampled."""
    assert rollout_seeds(0, "train", [0], 3) == [1014827045, 1765949675, 935593870]
    assert rollout_seed(7, "eval/gsm8k", 2**31 + 5) == 1128844913


def test_signal_is_a_difference_of_verdicts():
    verdicts = torch.tensor([[1.0, 1, 1], [0, 0, 0], [0, 1, 0], [0.5, 0.5, 0.25]])
    rewards, zeros = verdicts - torch.tensor([0.0, 0.1, 0.2]), torch.zeros(4, 3)
    groups = RolloutGroups([0, 1, 2, 3], [], rewards, verdicts, zeros, zeros.bool(), zeros)
    assert groups.has_signal().tolist() == [False, False, True, True]


def test_parts_of_some_groups_are_nan_in_others():
    """A function need not return the same parts every time."""
    table = torch.zeros(1, 2)
    both = RolloutGroups([0], [], *[table] * 5, {"a": table + 1}) + RolloutGroups([0], [], *[table] * 5, {"b": table})
    assert {name: repr(values.tolist()) for name, values in both.parts.items()} == {
        "a": "[[1.0, 1.0], [nan, nan]]", "b": "[[nan, nan], [0.0, 0.0]]"
    }  # fmt: skip
    assert both.take([1]).parts["b"].tolist() == [[0.0, 0.0]]


# --- shared prefixes --------------------------------------------------------------------------------------------------


def random_group(draw, group, size):
    """Responses of a random tree, and a plain one. A token's id names the response that sampled it."""
    branches = [TreeRollout(0, [1], [100] * draw.randint(4, 9), [], [], True, 0, row=group, lineage=[(0, 0)])]
    while len(branches) < size:
        parent, number = draw.choice(branches), len(branches)
        own = parent.lineage[-1][1] + (number > 0 and parent.lineage[-1][0] > 0)  # after the parent's forced token
        if own >= len(parent.response_ids):
            continue
        fork = draw.randrange(own, len(parent.response_ids))
        ids = parent.response_ids[:fork] + [200 + number] + [100 + number] * draw.randint(0, 6)
        lineage = [*parent.lineage, (number, fork)]
        branches.append(TreeRollout(0, [1], ids, [], [], True, number, row=group, lineage=lineage))
    return [*branches, TreeRollout(0, [1], [99] * 3, [], [], True, size, row=group)]


def shares(first, second, position):
    """Whether two responses have the token at this position in common."""
    if first is second or not (first.lineage and second.lineage):
        return first is second
    prefixes = [(r.row, r.response_ids[: position + 1]) for r in (first, second)]
    return prefixes[0] == prefixes[1]


def test_shared_tokens_are_trained_once_with_the_mean():
    """100 + b is a token that branch b sampled, 200 + b its forced one; equal ids from the start are shared tokens."""
    shared, orphans = 0, 0
    for seed in range(20):
        draw, advantages = random.Random(seed), torch.randn(2, 7, generator=torch.Generator().manual_seed(seed))
        kept = [r for g in range(2) for r in random_group(draw, g, 6) if draw.random() < 0.7]
        own = torch.tensor([advantages[r.row, r.sample] for r in kept])
        values, flags = zip(*prefix_advantages(kept, own))
        assert [len(v) for v in values] == [len(r.response_ids) for r in kept]
        for r, position in ((x, position) for x in kept for position in range(len(x.response_ids))):
            same = [x for x in kept if shares(x, r, position)]
            trained = [x for x in same if flags[kept.index(x)][position]]
            assert len(trained) == (r.response_ids[position] < 200)
            shared += len(same) > 1
            if r in trained:
                expected = torch.stack([advantages[x.row, x.sample] for x in same]).mean()
                torch.testing.assert_close(values[kept.index(r)][position], expected)
                owners = [x for x in same if x.lineage and x.sample == r.response_ids[position] - 100]
                assert not owners or r in owners  # the response that sampled it, if it was kept
                orphans += len(same) > 1 and not owners
    assert shared > 50 and orphans > 10


# --- sync -------------------------------------------------------------------------------------------------------------

WEIGHTS = {"norm.weight": torch.ones(2)}
PROMPTS = [[1, 2], [3], [*range(PROBE_CONTEXT + 9)], [4, 5, 6], [7]]


class FakeEngine:
    """Notes its calls, has no checksums, and reports log-probability -1 for every token."""

    def __init__(self):
        self.calls, self.checksums = [], dict
        self.wake = self.calls.append

    def load_weights(self, weights):
        self.calls.append(dict(weights))

    def generate(self, prompts, n, params, seeds, *, entropies):
        self.calls.append("generate")
        self.prompts, self.params = prompts, params
        assert n == 1 and not entropies
        return [Rollout(i, prompt, [7, 8], [-1.0, -1.0], [], True) for i, prompt in enumerate(prompts)]


def sync(engine, gaps, *options, trained=True):
    """Sync with an actor whose log-probabilities differ from the engine's by `gaps`, one for each token.

    Its micro-batches have to be halved, for the probe alone.
    """
    config = load_config([], ["model.name=some/model", *options])
    actor = SimpleNamespace(weights=lambda: iter(WEIGHTS.items()), micro_batches=SimpleNamespace(max_tokens=64))

    def compute_logprobs(batch):
        actor.micro_batches.max_tokens = 8
        return -1 + torch.tensor(gaps[: sum(map(len, batch.responses))]), None

    actor.compute_logprobs = compute_logprobs
    try:
        return sync_engine(engine, actor, Accelerator(), PROMPTS, config, step=4, trained=trained)
    finally:
        assert actor.micro_batches.max_tokens == 64


SMALL = [1e-4, -3e-4, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]


def test_gaps_are_those_of_all_ranks(monkeypatch):
    """Of two ranks with a probe of eight tokens each, the second has a larger gap."""
    monkeypatch.setattr("d3s.rollout.sync.all_gather_objects", lambda items, accelerator: items * 2)
    metrics = sync(FakeEngine(), [*SMALL, *(3 * gap for gap in SMALL)])
    assert metrics["sync/mean_abs_dlogp"] == pytest.approx(16e-4 / 16, rel=1e-2)
    assert metrics["sync/max_abs_dlogp"] == pytest.approx(9e-4, rel=1e-2)


def test_sync_loads_between_the_two_wakes():
    """The probe samples as training does, from every server; after a first update from the ends of long prompts."""
    engine = FakeEngine()
    sync(engine, SMALL, "rollout.temperature=0.7", trained=False)
    assert engine.calls == ["weights", WEIGHTS, "kv_cache", "generate"] and engine.prompts == PROMPTS[:4]
    assert (engine.params.temperature, engine.params.max_tokens) == (0.7, PROBE_TOKENS)
    servers = "rollout.servers=[http://a:1,http://b:1,http://c:1,http://d:1,http://e:1]"
    sync(engine, [*SMALL, 0.0, 0.0], servers, "selector.entropy_source=actor")
    assert engine.prompts == [*PROMPTS[:2], PROMPTS[2][9:], *PROMPTS[3:]]


@pytest.mark.parametrize(
    ("option", "limit"),
    [("model.dtype=float32", 1e-3), ("model.dtype=bfloat16", 0.1), ("rollout.max_logprob_gap=1", 1)],
)
def test_limit_applies_to_the_mean_gap(option, limit):
    sync(FakeEngine(), [7.2 * limit, *[0.0] * 7], option)  # a mean of 0.9 of the limit, and then of 1.1
    engine, message = FakeEngine(), rf"^weight sync of step 4: .* allows {limit:g}, after 2 attempts; the weights are"
    with pytest.raises(UserError, match=message):
        sync(engine, [8.8 * limit, *[0.0] * 7], option)
    assert engine.calls == ["weights", WEIGHTS, "kv_cache", "generate"] * 2
    with pytest.raises(UserError, match=r"^some/model: .*nothing has been trained yet, .* use rollout.engine: transf"):
        sync(engine, [8.8 * limit, *[0.0] * 7], option, trained=False)
