"""Train every token that a tree sampled once, although several of its responses contain it."""

from collections import defaultdict
from itertools import pairwise

import torch
from torch import Tensor

from d3s.groups import Rollout


# A token that k kept responses share was drawn once, and its value is what follows it: A_t = mean of their advantages
# (the Monte Carlo estimate at that node, as in VinePPO, arXiv 2410.01679). Trained k times, it would count k-fold.
def prefix_advantages(rollouts: list[Rollout], advantages: Tensor) -> list[Tensor]:
    """Compute each response token's advantage, and set `untrainable` of the rollouts.

    A shared token is trained in the response that sampled it, or if that was not kept, in the kept response that left
    it last. Forced tokens are trained nowhere.

    Args:
        rollouts: the kept ones, with all kept responses of their groups.
        advantages: [B, G].

    Returns: one tensor [length] per rollout.
    """
    own = [advantages[r.prompt_index, r.sample].item() for r in rollouts]
    values = [torch.full((len(r.response_ids),), value) for r, value in zip(rollouts, own)]
    sharing: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)  # (group, branch) -> (end, rollout)
    starts = {}
    for i, r in enumerate(rollouts):
        r.untrainable = [start for branch, start in r.lineage if branch]  # forced
        for (branch, start), (_, end) in pairwise([*r.lineage, (-1, len(r.response_ids))]):
            sharing[r.prompt_index, branch].append((end, i))
            starts[r.prompt_index, branch] = start
    for key, members in sharing.items():
        (longest, trained), *others = sorted(members, key=lambda member: (-member[0], rollouts[member[1]].sample))
        for position in range(starts[key], longest):
            sharers = [own[i] for end, i in members if end > position]
            values[trained][position] = sum(sharers) / len(sharers)
        for end, i in others:
            rollouts[i].untrainable += range(starts[key], end)
    for r in rollouts:
        r.untrainable = sorted(set(r.untrainable))
    return values
