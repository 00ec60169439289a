"""Two-stage reading of D3S's cross-group selection (arXiv 2509.22115): a rule for selector.rollouts.

    selector: {rollouts: {rule: "d3s.methods.two_stage:two_stage", stage: 2}}     # configs/method/d3s_two_stage.yaml

Public notes on the paper write |S| = N_s within a query and |S| = N for the batch, and call the choice across the batch
a second, further selection. They do not give the ratio of the two numbers, which is `stage` here. The rule does
not read selector.cross_share: at a ratio of 1 it would be D3S-I, and at G / N it is D3S.

Worth using? No difference seen: Pass@1 over the one-stage schedule +1.3 points (-1.2 to +3.8), 5 seeds, precedence,
60 steps (research/results-tables.md; its runs are of a later commit and another CPU, so its seconds do not compare).
"""

import torch
from torch import Tensor

from d3s.selector import select_rollouts


# S_g = argmax_{S of group g, |S| = min(stage * N, G)} Var(A_S),   S* = argmax_{S of all S_g, |S| = N * B} Var(A_S)
def two_stage(
    advantages: Tensor, keep: int, eligible: Tensor, generator: torch.Generator | None, stage: int = 2
) -> Tensor:
    """Select stage * keep rollouts of every group, then keep * B of these across the batch. Returns: bool [B, G].

    Arguments are those of select_rollouts. Raises: ValueError if `stage` is no integer above 1.
    """
    if type(stage) is not int or stage < 2:
        raise ValueError(f"stage must be an integer above 1, not {stage}")
    if stage * keep < advantages.shape[1]:
        eligible = select_rollouts(advantages, stage * keep, 0.0, generator, eligible)
    return select_rollouts(advantages, keep, 1.0, generator, eligible)
