"""Advantages of shared tokens against a search over all pairs of responses, and the update against a loop."""

import random

import torch
from transformers import AutoModelForCausalLM

from d3s.packing import Batch
from d3s.rollout.engine import Rollout
from d3s.rollout.prefixes import prefix_advantages
from tests.helpers.actors import make_actor, update


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


def test_plain_rollouts_keep_their_advantage():
    rollouts = [Rollout(0, [1], [5, 6], [], [], True, i) for i in range(2)]
    values = prefix_advantages(rollouts, torch.tensor([[0.3, -0.7]]))
    assert torch.stack(values).tolist() == torch.tensor([[0.3, 0.3], [-0.7, -0.7]]).tolist()
    assert all(r.untrainable == [] for r in rollouts)


def test_update_trains_every_token_of_a_tree_once(tied_model):
    """The gradient against a loop over the nodes of two trees, each with the mean advantage of what follows it."""
    draw, advantages = random.Random(3), torch.randn(2, 7, generator=torch.Generator().manual_seed(3))
    rollouts = [r for g in range(2) for r in random_group(draw, g, 6) if r.sample != 1]  # one is not kept
    values = prefix_advantages(rollouts, advantages)
    unused = torch.zeros(sum(map(len, values)))
    trainable = [i not in r.untrainable for r in rollouts for i in range(len(r.response_ids))]
    batch = Batch(
        prompts=[r.prompt_ids for r in rollouts],
        responses=[r.response_ids for r in rollouts],
        advantages=torch.cat(values),
        rollout_logprobs=unused,
        entropies=unused,
        trainable=torch.tensor(trainable),
    )
    batch.selected = batch.trainable_tokens()
    _, (gradients,) = update(make_actor(tied_model), batch)

    lm, nodes = AutoModelForCausalLM.from_pretrained(tied_model, dtype=torch.float32), {}
    for r in rollouts:
        for i in range(len(r.response_ids)):
            tree = (r.prompt_index, None if r.lineage else r.sample)
            nodes.setdefault((tree, *r.response_ids[: i + 1]), []).append(advantages[r.prompt_index, r.sample])
    sampled = {key: torch.stack(following).mean() for key, following in nodes.items() if key[-1] < 200}
    assert len(sampled) < len(nodes) < len(trainable)
    logprobs = {key: lm(torch.tensor([[1, *key[1:-1]]])).logits[0, -1].log_softmax(-1)[key[-1]] for key in sampled}
    loss = -sum(value * logprobs[key] for key, value in sampled.items()) / len(sampled)
    loss.backward()
    for name, parameter in lm.named_parameters():
        torch.testing.assert_close(gradients[name], parameter.grad, rtol=1e-3, atol=1e-5)
