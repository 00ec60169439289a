"""Test sample records: why each response and token was trained or not, against decisions made by hand."""

from types import SimpleNamespace

import pytest
import torch

from d3s.config.load import load_config
from d3s.groups import Rollout, RolloutGroups
from d3s.packing import Batch
from d3s.tracking.metrics import TrainingStep
from d3s.tracking.samples import sample_records
from tests.helpers.selection import selection_of

RESPONSES = [[0], [1, 2], [3, 4, 5], [6, 7, 8, 9], [10] * 5, [11] * 5]
NAN = float("nan")


class CharacterTokenizer:
    """Token i is the i-th letter of the alphabet."""

    def decode(self, ids):
        return "".join(chr(ord("a") + i) for i in ids)


def make_samples(*overrides, limit=6, advantages=((1.0, -1.0), (1.0, 2.0), (0.0, 0.0)), trained=(1, 2, 5), **options):
    """Records of three groups of two, of which the second rollout of the first two is kept, with some tokens selected.

    The first token of the batch is not trainable; in "trained" are the places of the tokens with a gradient.
    """
    rollouts = [
        Rollout(
            (7, 2, 5)[i // 2], [99], ids, [-1.0] * len(ids), [0.5] * len(ids), True, i % 2, row=i // 2, text=f"text {i}"
        )
        for i, ids in enumerate(RESPONSES)
    ]
    tables = {name: torch.zeros(3, 2) for name in ("verdicts", "lengths", "finished", "entropies")}
    rewards = torch.tensor([[1.0, 0.0], [1.0, 0.5], [0.0, 0.0]])
    groups = RolloutGroups([7, 2, 5], rollouts, rewards, **tables)
    batch = Batch([[99]] * 2, [RESPONSES[1], RESPONSES[3]], *[torch.zeros(6)] * 3)
    chosen = torch.tensor([False, True, True, False, False, True])
    batch.select(chosen, priorities=options.get("priorities", torch.tensor([NAN, 3.0, 2.0, 0.5, 1.0, 4.0])))
    problems = [SimpleNamespace(problem=f"problem {i}", answer=f"answer {i}") for i in range(8)]
    prompts = SimpleNamespace(problems=problems, texts=[f"prompt {i}" for i in range(8)])
    batch.trained = torch.tensor([place in trained for place in range(6)])
    config = load_config([], [f"tracker.samples={limit}", *overrides])
    selection = selection_of(
        torch.tensor(advantages),
        torch.tensor([[False, True], [False, True], [False, False]]),
        eligible=torch.tensor(options.get("eligible", [[True] * 2] * 3)),
        cross_share=options.get("cross_share", config.selector.cross_share),
    )
    return sample_records(config, TrainingStep(0.5, groups, selection, batch, [], {}), prompts, CharacterTokenizer())


def test_record_holds_what_was_decided():
    records = make_samples()
    assert records[1] == {
        "problem": "problem 2", "answer": "answer 2", "prompt": "prompt 2", "response": "text 3", "reward": 0.5,
        "right": False, "advantage": 2.0, "n": 1, "k": 0.5, "rank": [1, 1, 6], "compared": "batch", "selected": True,
        "tokens": ["g", "h", "i", "j"], "entropies": [0.5] * 4, "token_advantages": [],
        "trained": [True, False, False, True], "priority": "advantage_entropy", "priorities": [2.0, 0.5, 1.0, 4.0],
        "threshold": 2.0, "reason": "",
    }  # fmt: skip
    assert records[0]["priorities"] == [None, 3.0] and records[0]["trained"] == [False, True]
    assert records[0]["threshold"] == 2.0  # the lowest priority that was chosen, here in another response
    assert make_samples("selector.token_scope=sample")[0]["threshold"] == 3.0
    marked = make_samples(priorities=None)[0]
    assert marked["threshold"] is None and marked["priorities"] == [] and marked["trained"] == [False, True]
    dropped = records[4]
    assert dropped["trained"] == [False] * 5 and dropped["priorities"] == [] and dropped["threshold"] is None
    assert [record["selected"] for record in records] == [True, True] + [False] * 4


def test_rank_is_among_what_selection_compares():
    """Equal values share their places; rewards are compared where they are normalized after the selection."""

    def ranks(*overrides, **options):
        records = make_samples(*overrides, **options)
        return {(record["response"][-1], record["compared"]): record["rank"] for record in records}

    def expected(compared, *places):
        return {(str(i), compared): place for i, place in enumerate(places)}

    assert ranks() == expected("batch", [2, 3, 6], [6, 6, 6], [2, 3, 6], [1, 1, 6], [4, 5, 6], [4, 5, 6])
    first, last, equal = [1, 1, 2], [2, 2, 2], [1, 2, 2]
    assert ranks("selector.cross_share=0") == expected("group", first, last, last, first, equal, equal)
    assert ranks(cross_share=0.0) == ranks("selector.cross_share=0")
    after = ranks("selector.cross_share=0", "selector.normalize=after", advantages=[[0.0] * 2] * 3)
    assert after == expected("group, by reward", first, last, first, last, equal, equal)
    unfinished = ranks(eligible=[[True, True], [False, True], [True, True]])
    assert unfinished["2", "batch"] is None and unfinished["0", "batch"] == [2, 2, 5]


@pytest.mark.parametrize(
    ("overrides", "options", "response", "reason"),
    [
        ([], {}, 0, "not chosen by max_variance"),
        (["selector.rollouts=a:b"], {}, 4, "not chosen by a:b"),
        ([], {"eligible": [[False, True], [True] * 2, [True] * 2]}, 0, "cut at the length limit"),
        ([], {"trained": [5], "advantages": [[0.0, 0.0], [1, 2], [0, 0]]}, 1, "advantage 0 in 1 of 1 selected"),
        (["loss.engine_correction=token_mask"], {"trained": [1, 5]}, 3, "loss.engine_correction masks 1 of 2"),
        (["loss.engine_correction=token_mask"], {}, 3, ""),
    ],
)
def test_reason_names_what_was_in_the_way(overrides, options, response, reason):
    (record,) = (r for r in make_samples(*overrides, **options) if r["response"] == f"text {response}")
    assert record["reason"].startswith(reason) and bool(record["reason"]) == bool(reason)


def test_records_are_spread_kept_ones_first():
    """Half of the records are of the two rollouts with trained tokens, as far as they reach."""
    for limit, indices in {1: "1", 2: "10", 3: "130", 4: "1304", 5: "13024", 99: "130245"}.items():
        assert [record["response"] for record in make_samples(limit=limit)] == [f"text {i}" for i in indices]
    untrained = make_samples(limit=4, trained=[])
    assert [record["response"] for record in untrained] == [f"text {i}" for i in (0, 1, 3, 4)]
