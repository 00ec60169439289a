"""The objectives: the file to edit. A loss is a short function on flat tensors of selected tokens.

A rule of loss.kind takes, by name, what it needs of (T selected tokens of one micro-batch, of any number of sequences):

    logprobs            [T]  log pi_theta(token), with gradient, at the sampling temperature
    old_logprobs        [T]  log pi_old(token) of the policy at the start of the step; no gradient
    advantages          [T]  one per token, including the importance weights, if any
    sequence_log_ratio  [T]  the mean of (logprobs - old_logprobs) over ALL response tokens of the token's sequence; for
                             a rule that takes it, their unselected tokens are computed too, without gradient
    clip                     Clip of loss.epsilon and loss.epsilon_high
    denominator         [T]  what a token's loss is divided by, counted over the global batch of the optimizer step, so
                             that the losses of micro-batches and ranks add up to the same sum however it is split

It returns (loss, stats): a scalar to backpropagate, and statistics by name. A tensor is a sum over the tokens, logged
as a mean per token; of Largest(values) the largest value is logged. `clip_low` and `clip_high` are logged as
policy/NAME, every other statistic as loss/NAME. T may be 0; return the same names from every call.
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from d3s.rules import Contract, Rule, tensor_problem

MAX_LOG_RATIO = 20.0  # exp of it is finite in float32, and far outside any trust region


class Largest(NamedTuple):
    """A statistic that is reduced by its maximum over tokens, micro-batches, ranks and updates of a step."""

    values: Tensor  # [T], T may be 0


Stats = dict[str, Tensor | Largest]


class Clip(NamedTuple):
    """The options loss.epsilon and loss.epsilon_high."""

    epsilon: float
    epsilon_high: float | None = None

    @property
    def bounds(self) -> tuple[float, float]:
        """The trust region of the ratio, [1 - epsilon, 1 + epsilon_high]. By default epsilon_high is epsilon."""
        return 1.0 - self.epsilon, 1.0 + (self.epsilon if self.epsilon_high is None else self.epsilon_high)


# L = -sum_t min( r_t A_t, clip(r_t, 1 - eps_low, 1 + eps_high) A_t ) / denominator,   r_t = pi_theta / pi_old
# GRPO, arXiv 2402.03300, eq. 3 (eps_low = eps_high = 0.2); DAPO's clip-higher, arXiv 2503.14476 (0.2, 0.28).
# GRPO, DAPO and Dr. GRPO differ only in the clip range, the denominator and the scaling of the advantages.
def grpo_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    clip: Clip,
    denominator: Tensor | float,
) -> tuple[Tensor, Stats]:
    """Token-level clipped surrogate."""
    ratio = (logprobs - old_logprobs).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    return _clipped_surrogate(ratio, advantages, clip, denominator)


# s_i = exp( 1/|y_i| sum_t (log pi_theta - log pi_old) ),   s_{i,t} = sg[s_i] pi_theta(t) / sg[pi_theta(t)]
# L = -sum_t min( s_{i,t} A_t, clip(s_{i,t}, 1 - eps_low, 1 + eps_high) A_t ) / denominator
# GSPO, arXiv 2507.18071, in its token form: every token's ratio has the value of its full sequence, unselected tokens
# included, while the gradient flows through the selected tokens alone.
def gspo_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    sequence_log_ratio: Tensor,
    clip: Clip,
    denominator: Tensor | float,
) -> tuple[Tensor, Stats]:
    """Sequence-level clipped surrogate (eps 3e-4 / 4e-4 in the paper)."""
    log_ratio = sequence_log_ratio.detach() + logprobs - logprobs.detach()
    return _clipped_surrogate(log_ratio.clamp(max=10.0).exp(), advantages, clip, denominator)


# L = -sum_t sg[ clip(r_t, 1 - eps_low, 1 + eps_high) ] A_t log pi_theta(t) / denominator
# CISPO, MiniMax-M1, arXiv 2506.13585: the ratio is a clipped weight, so no token's gradient is ever zeroed. ScaleRL
# (arXiv 2510.13786) and TRL clamp only above (epsilon 1), and epsilon_high is the bound of the ratio itself, such as 5.
def cispo_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    clip: Clip,
    denominator: Tensor | float,
) -> tuple[Tensor, Stats]:
    """REINFORCE with a clipped importance weight."""
    ratio = (logprobs.detach() - old_logprobs).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    low, high = clip.bounds
    high = high if clip.epsilon_high is None else clip.epsilon_high
    loss = -ratio.clamp(low, high) * advantages * logprobs
    return (loss / denominator).sum(), {"clip_low": (ratio < low).sum(), "clip_high": (ratio > high).sum()}


# L = -sum_t A_t log pi_theta(t) / denominator,   A_t = 1 for demonstrations
def cross_entropy_loss(logprobs: Tensor, advantages: Tensor, denominator: Tensor | float) -> tuple[Tensor, Stats]:
    """The loss of train_sft.py; it is no rule, as it corrects no ratio."""
    return (-advantages * logprobs / denominator).sum(), {}


def _clipped_surrogate(
    ratio: Tensor, advantages: Tensor, clip: Clip, denominator: Tensor | float
) -> tuple[Tensor, Stats]:
    low, high = clip.bounds
    loss = -torch.min(ratio * advantages, ratio.clamp(low, high) * advantages)
    with torch.no_grad():  # clipping stops a gradient only where the clipped term is the smaller one
        stats = {
            "clip_low": ((ratio < low) & (advantages < 0)).sum(),
            "clip_high": ((ratio > high) & (advantages > 0)).sum(),
        }
    return (loss / denominator).sum(), stats


def _problem(result: Any, logprobs: Tensor, **_: Any) -> str | None:
    if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict)):
        return f"{type(result).__name__}, expected (loss, statistics by name)"
    loss, stats = result
    if problem := tensor_problem(loss, ()):
        return f"as the loss {problem}"
    if logprobs.requires_grad and not loss.requires_grad:
        return "a loss without a gradient; compute it from logprobs, not from logprobs.detach()"
    wrong = [name for name, value in stats.items() if not isinstance(value, Tensor | Largest)]
    return f"the statistic {wrong[0]!r}, expected a tensor (a sum over tokens) or Largest(values)" if wrong else None


def _examples() -> Iterator[dict[str, Any]]:
    for count in (6, 0):
        logprobs = -torch.linspace(0.1, 3.0, count)
        yield {
            "logprobs": logprobs.clone().requires_grad_(),
            "old_logprobs": logprobs + 0.1,
            "advantages": torch.linspace(-1.0, 1.5, count),
            "sequence_log_ratio": torch.full((count,), -0.1),
            "clip": Clip(0.2, 0.28),
            "denominator": torch.full((count,), 6.0),
        }


ARGUMENTS = ("logprobs", "old_logprobs", "advantages", "sequence_log_ratio", "clip", "denominator")
LOSS_RULES = Contract(
    "loss.kind", {"grpo": grpo_loss, "gspo": gspo_loss, "cispo": cispo_loss}, ARGUMENTS, _problem, _examples
)


def reads_sequences(rule: Rule) -> bool:
    """Whether a loss reads the ratio of full sequences: unselected tokens of its rollouts are then computed too."""
    return "sequence_log_ratio" in rule.takes


# k2 = x^2 / 2;   k3 = exp(-x) + x - 1;   x = log pi - log pi_ref            J. Schulman, "Approximating KL divergence"
# As a loss, only k2 has the right gradient in expectation; k3 is GRPO's. k1 = x would have the gradient 0.
def kl_penalty(logprobs: Tensor, ref_logprobs: Tensor, estimator: str = "k3") -> Tensor:
    """Estimate KL(pi || pi_ref) at each token, [T]. The loss adds beta times its sum over the denominator."""
    log_ratio = logprobs - ref_logprobs
    if estimator == "k2":
        return 0.5 * log_ratio.square()
    return (-log_ratio).clamp(max=MAX_LOG_RATIO).exp() + log_ratio - 1.0


def denominators(normalizer: str, selected: Tensor, counted: Tensor, max_completion_length: int) -> Tensor:
    """Denominators of the loss for the tokens of each rollout of one optimizer step's global batch, float32 [rollouts].

    Args:
        normalizer: "selected" the number of selected tokens (token mean; the default, as the D3S paper names none);
            "all" the number of response tokens of the kept rollouts (TRL's entropy mask, arXiv 2506.01939);
            "sequence" the mean over rollouts of the mean over their selected tokens (GRPO, GSPO);
            "constant" the number of rollouts * max_completion_length (Dr. GRPO, arXiv 2503.20783).
        selected: [rollouts], the number of selected tokens of each.
        counted: [rollouts], the number of its response tokens that may be trained.
        max_completion_length: the length limit in tokens.
    """
    total = torch.ones(len(selected), dtype=torch.float32)
    if normalizer == "selected":
        return total * selected.sum().clamp(min=1)
    if normalizer == "all":
        return total * counted.sum().clamp(min=1)
    if normalizer == "constant":
        return total * len(selected) * max_completion_length
    return len(selected) * selected.float().clamp(min=1)


def sequence_means(values: Tensor, sequence_ids: Tensor, counted: Tensor | None = None) -> Tensor:
    """The mean of `values` [T] over each sequence, repeated at each of its tokens [T]; ids count from 0.

    Only the counted tokens (bool [T], by default all) enter the mean; that of none is 0.
    """
    counts = sequence_ids.bincount()  # of floats it would have no deterministic kernel on GPUs
    if counted is not None:
        values = values.where(counted, 0.0)
        counts = values.new_zeros(len(counts)).index_add(0, sequence_ids, counted.to(values.dtype)).clamp(min=1)
    return (values.new_zeros(len(counts)).index_add(0, sequence_ids, values) / counts)[sequence_ids]


# floor and cap of the ratio by loss.engine_correction; sequence_mask has the inverse of the cap as its floor
CORRECTION_BOUNDS = {"truncate": (0.0, 2.0), "token_mask": (0.5, 5.0), "sequence_mask": (0.0, 1.01)}


def correction_bounds(mode: str, floor: float | None, cap: float | None) -> tuple[float, float]:
    """The given floor and cap of the ratio, where None stands for the default of CORRECTION_BOUNDS."""
    low, high = CORRECTION_BOUNDS[mode]
    return low if floor is None else floor, high if cap is None else cap


# With r_t = pi_old / pi_rollout, trainer over engine, both at the start of the step:
# truncate       w_t = min(r_t, C), truncated importance sampling for engines whose probabilities differ a little
# token_mask     w_t = r_t where c <= r_t <= C, else 0: IcePop, arXiv 2510.18855, with its c = 0.5 and C = 5
# sequence_mask  w_t = 1 where the geometric mean of the rollout's r_t, which does not depend on length, is in [1/C, C]
# A mean over hundreds of tokens stays near 1, so the modes need different caps: verl's documentation has 1.5 to 5
# for tokens, 0.999 to 1.001 for geometric means.
def engine_correction(
    old_logprobs: Tensor,
    rollout_logprobs: Tensor,
    sequence_ids: Tensor,
    mode: str,
    cap: float | None = None,
    counted: Tensor | None = None,
    floor: float | None = None,
) -> Tensor:
    """Weights [T] that multiply the advantages: per token ("truncate", "token_mask"), or per sequence 0 and 1.

    Without a cap or a floor, which only "token_mask" reads, those of CORRECTION_BOUNDS apply. Only the counted tokens
    (bool [T], by default all) enter the mean of a sequence.
    """
    floor, cap = correction_bounds(mode, floor, cap)
    log_ratio = old_logprobs - rollout_logprobs
    if mode != "sequence_mask":
        ratio = log_ratio.clamp(max=MAX_LOG_RATIO).exp()
        if mode == "truncate":
            return ratio.clamp(max=cap)
        return ratio.masked_fill((ratio < floor) | (ratio > cap), 0.0)  # NaN stays, so that the update refuses it
    return (sequence_means(log_ratio, sequence_ids, counted).abs() <= math.log(cap)).float()
