"""The objectives. This is the file to edit: every loss is one short function on flat tensors of the selected tokens.

What the arguments mean, for all of them (T selected tokens of one micro-batch, whatever sequences they come from):

    logprobs            [T]  log pi_theta(token), with gradient, at the sampling temperature
    old_logprobs        [T]  log pi_old(token), the policy at the start of the step; no gradient
    advantages          [T]  one per token; importance weights, where used, are already multiplied in
    sequence_log_ratio  [T]  the mean of (logprobs - old_logprobs) over ALL response tokens of the token's sequence
    denominator         what a token's loss is divided by: a number, or one per token [T]. It is counted over the global
                        batch of the optimizer step, so that any split into micro-batches or ranks adds up to the same.

Each returns (loss, stats): a scalar to backpropagate, and what is worth watching, by name: sums over the tokens, which
are logged as means per token, or Largest(values), of which the largest is logged. `clip_low` and `clip_high` appear as
policy/NAME, everything else as loss/NAME.

To add an objective: write the function, name it in LOSSES, name it in SEQUENCE_LOSSES too if it reads
sequence_log_ratio, and allow the name in LossConfig.kind (d3s/config/schema.py). docs/hacking.md has an example.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

MAX_LOG_RATIO = 20.0  # its exponential is finite in float32, and far outside of any trust region


class Largest(NamedTuple):
    """A statistic of which the largest value counts, over tokens, micro-batches, ranks and updates of a step."""

    values: Tensor  # [T], T may be 0


Stats = dict[str, Tensor | Largest]


class Clip(NamedTuple):
    """The trust region of the ratio: [1 - low, 1 + high]; `high_is_bound` reads `high` as the upper bound itself."""

    low: float
    high: float
    high_is_bound: bool = False

    @property
    def bounds(self) -> tuple[float, float]:
        return 1.0 - self.low, self.high if self.high_is_bound else 1.0 + self.high


# L = -sum_t min( r_t A_t, clip(r_t, 1 - eps_low, 1 + eps_high) A_t ) / denominator,   r_t = pi_theta / pi_old
# GRPO, arXiv 2402.03300, eq. 3 (eps_low = eps_high = 0.2); DAPO's clip-higher, arXiv 2503.14476 (0.2, 0.28).
# The two differ, and Dr. GRPO with them, only in the denominator and in how advantages are scaled.
def grpo_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    sequence_log_ratio: Tensor | None,
    clip: Clip,
    denominator: Tensor | float,
) -> tuple[Tensor, Stats]:
    """Token-level clipped surrogate."""
    ratio = (logprobs - old_logprobs).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    return _clipped_surrogate(ratio, advantages, clip, denominator)


# s_i = exp( 1/|y_i| sum_t (log pi_theta - log pi_old) ),   s_{i,t} = sg[s_i] pi_theta(t) / sg[pi_theta(t)]
# L = -sum_t min( s_{i,t} A_t, clip(s_{i,t}, 1 - eps_low, 1 + eps_high) A_t ) / denominator
# GSPO, arXiv 2507.18071, in its token form: the value of every token's ratio is that of the whole sequence, unselected
# tokens included, while the gradient flows through the selected tokens alone.
def gspo_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    sequence_log_ratio: Tensor | None,
    clip: Clip,
    denominator: Tensor | float,
) -> tuple[Tensor, Stats]:
    """Sequence-level clipped surrogate (eps 3e-4 / 4e-4 in the paper)."""
    log_ratio = sequence_log_ratio.detach() + logprobs - logprobs.detach()
    return _clipped_surrogate(log_ratio.clamp(max=10.0).exp(), advantages, clip, denominator)


# L = -sum_t sg[ clip(r_t, 1 - eps_low, 1 + eps_high) ] A_t log pi_theta(t) / denominator
# CISPO, MiniMax-M1, arXiv 2506.13585: the ratio is a clipped weight, so no token's gradient is ever zeroed. ScaleRL
# (arXiv 2510.13786) and TRL clamp only above and read epsilon_high as the bound: epsilon 1, epsilon_high_is_bound.
def cispo_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    sequence_log_ratio: Tensor | None,
    clip: Clip,
    denominator: Tensor | float,
) -> tuple[Tensor, Stats]:
    """REINFORCE with a clipped importance weight."""
    ratio = (logprobs.detach() - old_logprobs).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    low, high = clip.bounds
    loss = -ratio.clamp(low, high) * advantages * logprobs
    return (loss / denominator).sum(), {"clip_low": (ratio < low).sum(), "clip_high": (ratio > high).sum()}


def _clipped_surrogate(
    ratio: Tensor, advantages: Tensor, clip: Clip, denominator: Tensor | float
) -> tuple[Tensor, Stats]:
    low, high = clip.bounds
    loss = -torch.min(ratio * advantages, ratio.clamp(low, high) * advantages)
    with torch.no_grad():  # only where the clipped branch is the smaller one does clipping stop a gradient
        stats = {
            "clip_low": ((ratio < low) & (advantages < 0)).sum(),
            "clip_high": ((ratio > high) & (advantages > 0)).sum(),
        }
    return (loss / denominator).sum(), stats


LOSSES = {"grpo": grpo_loss, "gspo": gspo_loss, "cispo": cispo_loss}
SEQUENCE_LOSSES = {"gspo"}  # they read sequence_log_ratio, so the unselected tokens of their rollouts are computed too


# k1 = log pi - log pi_ref;   k2 = k1^2 / 2;   k3 = exp(-k1) + k1 - 1        J. Schulman, "Approximating KL divergence"
# As a loss, k2 has the right gradient in expectation, k1 and k3 have not; k3 is what GRPO prints.
def kl_penalty(logprobs: Tensor, ref_logprobs: Tensor, estimator: str = "k3") -> Tensor:
    """Estimate of KL(pi || pi_ref) at each token, [T]; its sum over tokens, divided and times beta, joins the loss."""
    k1 = logprobs - ref_logprobs
    if estimator == "k1":
        return k1
    if estimator == "k2":
        return 0.5 * k1.square()
    return (-k1).clamp(max=MAX_LOG_RATIO).exp() + k1 - 1.0


def denominators(
    normalizer: str, selected: Tensor, sequence_ids: Tensor, num_rollouts: int, max_completion_length: int
) -> Tensor:
    """What each token's loss is divided by, for all response tokens [T] of one optimizer step's global batch.

    Args:
        normalizer: "selected" the number of selected tokens (token mean, the default: D3S is silent here);
            "all" the number of response tokens of the kept rollouts (TRL's entropy mask, arXiv 2506.01939);
            "sequence" the mean over rollouts of the mean over their selected tokens (GRPO, GSPO);
            "constant" num_rollouts * max_completion_length (Dr. GRPO, arXiv 2503.20783).
        selected: bool [T].
        sequence_ids: [T], the rollout of each token.
        num_rollouts: rollouts in the optimizer step's batch.
        max_completion_length: the length limit in tokens.
    """
    total = torch.ones(len(selected), dtype=torch.float32)
    if normalizer == "selected":
        return total * selected.sum().clamp(min=1)
    if normalizer == "all":
        return total * len(selected)
    if normalizer == "constant":
        return total * num_rollouts * max_completion_length
    return num_rollouts * sequence_ids.bincount(selected.double())[sequence_ids].float().clamp(min=1)


def sequence_means(values: Tensor, sequence_ids: Tensor) -> Tensor:
    """The mean of `values` [T] over each sequence, at each of its tokens [T]; ids are small numbers from 0 on."""
    counts = sequence_ids.bincount()
    return (values.new_zeros(len(counts)).index_add(0, sequence_ids, values) / counts)[sequence_ids]


CORRECTION_CAPS = {"truncate": 2.0, "sequence_mask": 1.01}


# w_t = min( pi_old / pi_rollout, C ): truncated importance sampling for engines whose probabilities differ a little
# from the trainer's; sequence masking drops a rollout whose mean ratio leaves [1/C, C] (geometric, so that length does
# not decide). The ratio is trainer over engine, both at the start of the step. A mean over hundreds of tokens hardly
# leaves 1, so the two modes need different caps: verl's documentation has 2 to 5 for tokens, 1.0002 to 1.001 for
# geometric means.
def engine_correction(
    old_logprobs: Tensor, rollout_logprobs: Tensor, sequence_ids: Tensor, mode: str, cap: float | None = None
) -> Tensor:
    """Weights [T] that multiply the advantages: "truncate" per token, "sequence_mask" 0 or 1 per sequence.

    `cap` None is the mode's own of CORRECTION_CAPS.
    """
    cap = CORRECTION_CAPS[mode] if cap is None else cap
    log_ratio = old_logprobs - rollout_logprobs
    if mode == "truncate":
        return log_ratio.clamp(max=MAX_LOG_RATIO).exp().clamp(max=cap)
    return (sequence_means(log_ratio, sequence_ids).abs() <= math.log(cap)).float()
