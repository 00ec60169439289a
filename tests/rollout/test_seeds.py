"""Seeds of responses: distinct within a stream, and torch's draws from them uniform and uncorrelated."""

import torch

from d3s.rollout.seeds import rollout_seed, rollout_seeds


def test_seeds_within_a_stream_are_distinct():
    """Every one of the low 32 bits of the index counts; torch's generator would ignore more bits of a seed."""
    for first in (0, 2**31, 2**32 - 10_000):  # including indices beyond 32 bits
        seeds = [rollout_seed(3, "train", first + i) for i in range(20_000)]
        assert len(set(seeds)) == 20_000 and min(seeds) >= 0 and max(seeds) < 2**32
    assert len({rollout_seed(3, "train", index) for index in (0, *(1 << bit for bit in range(32)))}) == 33


def test_seeds_are_those_of_earlier_versions():
    """A resumed run samples what it would have sampled."""
    assert rollout_seeds(0, "train", [0], 3) == [1014827045, 1765949675, 935593870]
    assert rollout_seed(7, "eval/gsm8k", 2**31 + 5) == 1128844913


def test_runs_and_streams_have_distinct_seeds():
    every = [rollout_seed(seed, stream, i) for seed in range(10) for stream in ("train", "eval") for i in range(500)]
    assert len(set(every)) >= len(every) - 3  # by chance 0.01 of these pairs are equal
    assert rollout_seeds(1, "eval", [7, 2], 3) == [rollout_seed(1, "eval", i) for i in (21, 22, 23, 6, 7, 8)]


def test_first_draws_are_uniform_and_uncorrelated():
    """Neighbors in one run and equal indices in two runs are compared; 4,000 draws, bounds of five sigma."""

    def draws(seed):
        seeds = rollout_seeds(seed, "train", range(4000), 1)
        return torch.tensor([torch.rand(1, generator=torch.Generator().manual_seed(s)).item() for s in seeds])

    first, second = draws(0), draws(1)
    for left, right in ((first[1:], first[:-1]), (first, second)):
        assert abs(torch.corrcoef(torch.stack([left, right]))[0, 1]) < 5 / 4000**0.5
    counts = first.mul(20).long().bincount(minlength=20)
    assert ((counts - 200) ** 2 / 200).sum() < 19 + 5 * 38**0.5
