"""Packing, micro-batches and balance against loops and the properties they must have."""

import itertools
import statistics
from functools import cache

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from d3s.packing import (
    Batch,
    balance,
    dummy_micro_batch,
    max_over_mean,
    pack,
    packed_tokens,
    padded_tokens,
    split_by_tokens,
)
from d3s.policy import Policy

sizes = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), min_size=1, max_size=12)  # prompt, response
lengths = st.lists(st.integers(0, 50), max_size=40)


def batch_of(sizes):
    """A batch in which all tokens are different, but for prompts of equal length, which are equal."""
    counter = itertools.count()
    tokens = cache(lambda length: list(itertools.islice(counter, length)))
    prompts = [tokens(prompt) for prompt, _ in sizes]
    responses = [list(itertools.islice(counter, response)) for _, response in sizes]
    flat = torch.arange(sum(r for _, r in sizes), dtype=torch.float32)
    return Batch(prompts, responses, flat, flat, flat)


def boolean_tensors(size):
    """Boolean tensors of this many elements."""
    return st.lists(st.booleans(), min_size=size, max_size=size).map(lambda bits: torch.tensor(bits, dtype=torch.bool))


@given(sizes, st.randoms(use_true_random=False))
def test_response_tokens_are_predicted_once_in_order(sizes, random):
    batch = batch_of(sizes)
    order = list(range(len(sizes)))
    random.shuffle(order)
    cut = random.randrange(len(order) + 1)
    lengths = batch.forward_lengths()
    parts = [[i for i in part if lengths[i]] for part in (order[:cut], order[cut:])]
    micros = [pack(batch, part, lengths) for part in parts if part]
    everything = torch.tensor([token for response in batch.responses for token in response], dtype=torch.long)
    assert sorted(i for m in micros for i in m.flat.tolist()) == list(range(len(everything)))
    for m, part in zip(micros, filter(None, parts)):
        assert torch.equal(m.targets, everything[m.flat])
        edges, rows = [0, *itertools.accumulate(m.lengths)], []
        for i, (start, end) in zip(part, itertools.pairwise(edges), strict=True):
            own, whole = m.places[start:end], [*batch.prompts[i], *batch.responses[i]]
            assert m.input_ids[0, own].tolist() == whole[: lengths[i]]
            assert m.position_ids[0, own].tolist() == list(range(lengths[i]))
            rows += own[len(batch.prompts[i]) - 1 :].tolist()
        assert m.rows.tolist() == rows
        once = set(m.input_ids[0].tolist())  # no token of the batch twice, so a prompt stands in the row once
        assert len(once) == m.input_ids.shape[1] == packed_tokens(batch, part, lengths)


@given(sizes, st.data())
def test_forward_length_ends_at_last_wanted_token(sizes, data):
    batch = batch_of(sizes)
    wanted = data.draw(boolean_tensors(len(batch.sequence_ids)))
    lengths = batch.forward_lengths(wanted)
    for i, ((prompt, response), length) in enumerate(zip(sizes, lengths)):
        start = batch.starts[i]
        kept = [j for j in range(response) if wanted[start + j]]
        assert length == (prompt + kept[-1] if kept else 0)  # token j is predicted at position prompt + j - 1
        if length:
            m = pack(batch, [i], lengths)
            assert m.rows.max() == length - 1 and m.flat.tolist() == list(range(start, start + kept[-1] + 1))


@given(sizes, st.data())
def test_chosen_tokens_by_rollout_match_a_loop(sizes, data):
    batch = batch_of(sizes)
    chosen = data.draw(boolean_tensors(len(batch.sequence_ids)))
    rows = [chosen[batch.tokens_of(i)].tolist() for i in range(len(sizes))]
    assert batch.counts_of(chosen).tolist() == list(map(sum, rows))
    assert batch.rollouts_with(chosen).tolist() == [any(row) for row in rows for _ in row]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 4)), max_size=40), st.integers(1, 80), st.booleans())
def test_micro_batches_fit_the_budget(sequences, budget, padded):
    lengths, groups = map(list, zip(*sequences)) if sequences else ([], [])
    parts = split_by_tokens(list(range(len(lengths))), lengths, budget, None if padded else groups)
    order = list(itertools.chain(*parts))
    assert sorted(order) == [i for i, n in enumerate(lengths) if n]
    loads = [padded_tokens(part, lengths) if padded else sum(lengths[i] for i in part) for part in parts]
    assert all(load <= budget or len(part) == 1 for load, part in zip(loads, parts))
    assert all(parts)
    added = [lengths[(part if padded else after)[0]] for part, after in itertools.pairwise(parts)]
    assert all(load + more > budget for load, more in zip(loads, added))  # none is closed early
    if padded:
        assert [lengths[i] for i in order] == sorted(filter(None, lengths), reverse=True)
        return
    runs = [[lengths[i] for i in run] for _, run in itertools.groupby(order, key=groups.__getitem__)]
    assert len(runs) == len({groups[i] for i in order})  # sequences of a group stand next to each other
    firsts = [run[0] for run in runs]
    assert all(run == sorted(run, reverse=True) for run in [firsts, *runs])


@given(lengths, st.integers(1, 9))
def test_balance_assigns_each_sequence_once(lengths, ranks):
    shares = balance(list(range(len(lengths))), lengths, ranks)
    assert len(shares) == ranks and sorted(itertools.chain(*shares)) == list(range(len(lengths)))
    loads = [sum(lengths[i] for i in share) for share in shares]
    assert max(loads) - min(loads) <= max(lengths, default=0)


def test_balance_is_even_for_long_tailed_lengths():
    """128 prompts x 8 kept rollouts; log-normal lengths like those of reasoning models, cut at 4096."""
    for seed in range(20):
        g = torch.Generator().manual_seed(seed)
        drawn = (6.5 + 0.9 * torch.randn(1024, generator=g)).exp().clamp(1, 4096).long().tolist()
        shares = balance(list(range(1024)), drawn, 8)
        loads = [sum(drawn[i] for i in share) for share in shares]
        assert max_over_mean(shares, drawn) == pytest.approx(max(loads) / statistics.fmean(loads))
        assert max_over_mean(shares, drawn) <= 1.01
    assert max_over_mean([[], []], []) == max_over_mean([[0], [1]], [0, 0]) == 1


def test_dummy_micro_batch_gives_zero_gradients(model_path):
    policy = Policy(str(model_path), 64)
    outputs = policy(dummy_micro_batch(), torch.zeros(0, dtype=torch.bool), 1.0, True, True)
    assert all(output.shape == (0,) for output in outputs)
    outputs[0].sum().backward()
    assert all(p.grad is not None and not p.grad.any() for p in policy.parameters())
