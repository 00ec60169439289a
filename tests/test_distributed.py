"""Launch settings and the sharding of problems over ranks, against the properties they must have."""

from types import SimpleNamespace

import pytest

from d3s.common import UserError
from d3s.config.load import load_config
from d3s.distributed import shard, start_accelerator


def test_tensor_parallel_size_divides_the_ranks():
    with pytest.raises(UserError, match=r"tensor_parallel_size is 2, must divide the number of processes, 1$"):
        start_accelerator(load_config([], ["rollout.tensor_parallel_size=2"]))


@pytest.mark.parametrize(("ranks", "size"), [(1, 1), (2, 2), (4, 2), (6, 3), (4, 1)])
def test_shard_partitions_problems_over_ranks(ranks, size):
    """Each problem belongs to one rank; the ranks of one engine sample the same problems."""
    config = load_config([], [f"rollout.tensor_parallel_size={size}"])
    for count in range(9):
        accelerators = [SimpleNamespace(process_index=rank, num_processes=ranks) for rank in range(ranks)]
        sampled, own = zip(*(shard(count, accelerator, config) for accelerator in accelerators))
        assert sorted(row for rows in own for row in rows) == list(range(count))
        for rank in range(ranks):
            assert sampled[rank] == sampled[rank - rank % size] and set(own[rank]) <= set(sampled[rank])
        assert size > 1 or sampled == own
