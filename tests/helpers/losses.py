"""Calls of a loss by position, for tests that compare formulas."""

from torch import Tensor

from d3s.loss import LOSS_RULES, Clip, Stats


def compute_loss(
    kind: str,
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    sequence_log_ratio: Tensor | None,
    clip: Clip,
    denominator: Tensor | float,
) -> tuple[Tensor, Stats]:
    """The loss that loss.kind names."""
    return LOSS_RULES.rule(kind)(
        logprobs=logprobs,
        old_logprobs=old_logprobs,
        advantages=advantages,
        sequence_log_ratio=sequence_log_ratio,
        clip=clip,
        denominator=denominator,
    )
