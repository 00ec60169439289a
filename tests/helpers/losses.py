"""Calls of a loss by position, for tests that compare formulas."""

from torch import Tensor

from d3s.loss import LOSS_RULES, Stats

ARGUMENTS = ("logprobs", "old_logprobs", "advantages", "sequence_log_ratio", "clip", "denominator")


def compute_loss(kind: str, *values: object) -> tuple[Tensor, Stats]:
    """The loss that loss.kind names, of ARGUMENTS."""
    return LOSS_RULES.rule(kind)(**dict(zip(ARGUMENTS, values, strict=True)))
