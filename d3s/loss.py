"""The objectives: the file to edit. A loss is a short function on flat tensors of selected tokens.

A rule of loss.kind takes, by name, what it needs of (T selected tokens of one micro-batch, of any number of sequences):

    logprobs            [T]  log pi_theta(token), with gradient, at the sampling temperature
    old_logprobs        [T]  log pi_old(token) of the policy at the start of the step; no gradient
    advantages          [T]  one per token
    sequence_log_ratio  [T]  the mean of (logprobs - old_logprobs) over ALL response tokens of the token's sequence; for
                             a rule that takes it, their unselected tokens are computed too, without gradient
    rollout_logprobs    [T]  log pi_engine(token) of the engine that sampled it; no gradient
    ref_logprobs        [T]  log pi_ref(token); for a rule that takes it, the reference runs also with loss.beta: 0, and
                             tokens with advantage 0 are computed too
    sequence_ids        [T]  the rollout of each token, an index into the batch
    epsilon                  loss.epsilon
    epsilon_high             loss.epsilon_high, None where it is not set (the same as epsilon)
    denominator         [T]  what a token's loss is divided by: a count over the global batch of the optimizer step, so
                             that the losses of micro-batches and ranks add up to the same sum however it is split, over
                             the token's weight, if it has one

It returns (loss, stats): a scalar to backpropagate, and statistics by name. A tensor is a sum over the tokens, logged
as a mean per token; of Largest(values) the largest value is logged. `clip_low` and `clip_high` are logged as
policy/NAME, every other statistic as loss/NAME. T may be 0; return the same names from every call.

A rule of loss.engine_correction takes, by name, what it needs of (T tokens that the update would train)

    log_ratios    [T]  log pi_old - log pi_engine of each token, both at the start of the step
    sequence_ids  [T]  the rollout of each token, ascending; for a rule that takes it, T are ALL tokens of the rollouts
    counted       [T]  bool, False for tokens that the policy did not sample or that another rollout trains

and returns (weights, metrics): what multiplies the loss of each token, its KL penalty included, float32 [T], and finite
numbers by name, logged as mismatch/NAME. Tokens of weight 0 are not run.
"""

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from d3s.common import UserError
from d3s.rules import Contract, Rule, Value, metrics_problem, tensor_problem

MAX_LOG_RATIO = 20.0  # exp of it is finite in float32, and far outside any trust region


class Largest(NamedTuple):
    """A statistic that is reduced by its maximum over tokens, micro-batches, ranks and updates of a step."""

    values: Tensor  # [T], T may be 0


Stats = dict[str, Tensor | Largest]


# L = -sum_t min( r_t A_t, clip(r_t, 1 - eps_low, 1 + eps_high) A_t ) / denominator,   r_t = pi_theta / pi_old
# GRPO, arXiv 2402.03300, eq. 3 (eps_low = eps_high = 0.2); DAPO's clip-higher, arXiv 2503.14476 (0.2, 0.28).
# GRPO, DAPO and Dr. GRPO differ only in the clip range, the denominator and the scaling of the advantages.
def grpo_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    epsilon: float,
    epsilon_high: float | None,
    denominator: Tensor | float,
) -> tuple[Tensor, Stats]:
    """Token-level clipped surrogate."""
    ratio = (logprobs - old_logprobs).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    return _clipped_surrogate(ratio, advantages, epsilon, epsilon_high, denominator)


# s_i = exp( 1/|y_i| sum_t (log pi_theta - log pi_old) ),   s_{i,t} = sg[s_i] pi_theta(t) / sg[pi_theta(t)]
# L = -sum_t min( s_{i,t} A_t, clip(s_{i,t}, 1 - eps_low, 1 + eps_high) A_t ) / denominator
# GSPO, arXiv 2507.18071, in its token form: every token's ratio has the value of its full sequence, unselected tokens
# included, while the gradient flows through the selected tokens alone.
def gspo_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    sequence_log_ratio: Tensor,
    epsilon: float,
    epsilon_high: float | None,
    denominator: Tensor | float,
) -> tuple[Tensor, Stats]:
    """Sequence-level clipped surrogate (eps 3e-4 / 4e-4 in the paper)."""
    log_ratio = sequence_log_ratio.detach() + logprobs - logprobs.detach()
    return _clipped_surrogate(log_ratio.clamp(max=10.0).exp(), advantages, epsilon, epsilon_high, denominator)


# L = -sum_t sg[ clip(r_t, 1 - eps_low, 1 + eps_high) ] A_t log pi_theta(t) / denominator
# CISPO, MiniMax-M1, arXiv 2506.13585: the ratio is a clipped weight, so no token's gradient is ever zeroed. ScaleRL
# (arXiv 2510.13786) and TRL clamp only above (epsilon 1), and epsilon_high is the bound of the ratio itself, such as 5.
def cispo_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    epsilon: float,
    epsilon_high: float | None,
    denominator: Tensor | float,
) -> tuple[Tensor, Stats]:
    """REINFORCE with a clipped importance weight."""
    ratio = (logprobs.detach() - old_logprobs).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    low, high = 1.0 - epsilon, 1.0 + epsilon if epsilon_high is None else epsilon_high
    loss = -ratio.clamp(low, high) * advantages * logprobs
    return (loss / denominator).sum(), {"clip_low": (ratio < low).sum(), "clip_high": (ratio > high).sum()}


# L = -sum_t A_t log pi_theta(t) / denominator,   A_t = 1 for demonstrations
def cross_entropy_loss(logprobs: Tensor, advantages: Tensor, denominator: Tensor | float) -> tuple[Tensor, Stats]:
    """The loss of train_sft.py; it is no rule, as it corrects no ratio."""
    return (-advantages * logprobs / denominator).sum(), {}


def _clipped_surrogate(
    ratio: Tensor, advantages: Tensor, epsilon: float, epsilon_high: float | None, denominator: Tensor | float
) -> tuple[Tensor, Stats]:
    low, high = 1.0 - epsilon, 1.0 + (epsilon if epsilon_high is None else epsilon_high)
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
    wrong = [k for k, value in stats.items() if not (isinstance(k, str) and isinstance(value, Tensor | Largest))]
    return f"the statistic {wrong[0]!r}, expected a tensor (a sum over tokens) or Largest(values)" if wrong else None


def _examples() -> Iterable[dict[str, Any]]:
    logprobs, far = -torch.linspace(0.1, 3.0, 6), torch.linspace(-0.4, 0.3, 6)
    tensors = {
        "logprobs": logprobs,
        "old_logprobs": logprobs + far,
        "advantages": torch.tensor([-1.0, 0.5, 1.5, -0.5, 1.0, 2.0]),
        "sequence_log_ratio": -far.view(3, 2).mean(1).repeat_interleave(2),
        "rollout_logprobs": logprobs + 0.5 * far,
        "ref_logprobs": logprobs - far.square(),
        "sequence_ids": torch.arange(6) // 2,
        "denominator": torch.tensor([4.0, 4.0, 6.0, 6.0, 12.0, 12.0]),
    }
    whole, first, second, empty = slice(6), slice(4), slice(4, 6), slice(0)
    for tokens, factor in ((whole, 1), (whole, 1), (first, 1), (second, 1), (whole, 2), (empty, 1)):
        of_call = {name: values[tokens].clone() for name, values in tensors.items()}
        of_call["denominator"] *= factor
        of_call["logprobs"].requires_grad_()
        yield of_call | {"epsilon": 0.2, "epsilon_high": 0.28}


def _together(calls: list[dict[str, Any]], results: list[tuple[Tensor, Stats]], drew: bool) -> str | None:
    """What is wrong between the calls of `_examples`: gradients of parts are parts of the gradient."""
    if len({frozenset(stats) for _, stats in results}) > 1:
        return "other statistics in some calls; return the same from every call"
    gradients = (torch.autograd.grad(loss, call["logprobs"])[0] for call, (loss, _) in zip(calls, results))
    whole, again, first, second, half, _ = gradients

    def differs(gradient: Tensor) -> bool:
        return not torch.allclose(gradient, whole, rtol=1e-3, atol=1e-3 * whole.abs().max().item())

    if drew or differs(again):  # random numbers of torch, or of another library
        return None
    if differs(torch.cat([first, second])):
        return (
            "a gradient that depends on which sequences share a micro-batch; let the loss of a token read its own "
            "sequence alone, and return (loss / denominator).sum()"
        )
    if differs(2 * half):
        return (
            "a gradient that does not halve with twice the denominators; return (loss / denominator).sum(), as they "
            "include the weights of tokens"
        )
    return None


LOSS_RULES = Contract(
    "loss.kind",
    {"grpo": grpo_loss, "gspo": gspo_loss, "cispo": cispo_loss},
    (
        "logprobs",
        "old_logprobs",
        "advantages",
        "sequence_log_ratio",
        "rollout_logprobs",
        "ref_logprobs",
        "sequence_ids",
        "epsilon",
        "epsilon_high",
        "denominator",
    ),
    _problem,
    examples=_examples,
    together=_together,
)


def reads_sequences(rule: Rule) -> bool:
    """Whether a loss reads the ratio of full sequences: unselected tokens of its rollouts are then computed too."""
    return "sequence_log_ratio" in rule.takes


def reads_reference(kind: Value, beta: float) -> bool:
    """Whether an update needs the reference model: for its KL penalty, or for a loss that takes ref_logprobs."""
    return beta > 0 or "ref_logprobs" in LOSS_RULES.rule(kind).takes


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
    if normalizer == "sequence":
        return len(selected) * selected.float().clamp(min=1)
    total = {"selected": selected.sum(), "all": counted.sum(), "constant": len(selected) * max_completion_length}
    return torch.full((len(selected),), max(1.0, float(total[normalizer])))


def sequence_means(values: Tensor, sequence_ids: Tensor, counted: Tensor) -> Tensor:
    """The mean of `values` [T] over each sequence, repeated at each of its tokens [T]; ids count from 0.

    Only the counted tokens (bool [T]) enter the mean; that of none is 0.
    """
    size = len(sequence_ids.bincount())
    sums, counts = (
        values.new_zeros(size).index_add(0, sequence_ids, x)
        for x in (values.where(counted, 0.0), counted.to(values.dtype))
    )
    return (sums / counts.clamp(min=1))[sequence_ids]


# --- difference of engine and actor ----------------------------------------------------------------------------------


# w_t = min(r_t, C),   r_t = pi_old / pi_engine
def truncate(log_ratios: Tensor, cap: float = 2.0) -> tuple[Tensor, dict[str, float]]:
    """Weight each token by its ratio, at most the cap."""
    _require_cap(cap)
    ratios = log_ratios.clamp(max=MAX_LOG_RATIO).exp()
    return ratios.clamp(max=cap), {"tokens_capped": (ratios >= cap).float().mean().item()}


# w_t = r_t where c <= r_t <= C, else 0          IcePop, arXiv 2510.18855, with its c = 0.5 and C = 5
def token_mask(log_ratios: Tensor, floor: float = 0.5, cap: float = 5.0) -> tuple[Tensor, dict[str, float]]:
    """Weight each token by its ratio, and do not train tokens whose ratio is below the floor or above the cap."""
    _require_cap(cap)
    if not (isinstance(floor, int | float) and 0 <= floor < 1):
        raise UserError(f"loss.engine_correction: got the floor {floor!r}, expected a number from 0 to below 1")
    ratios = log_ratios.clamp(max=MAX_LOG_RATIO).exp()
    weights = ratios.masked_fill((ratios < floor) | (ratios > cap), 0.0)  # NaN stays, so that the update refuses it
    return weights, {"tokens_masked": (weights == 0).float().mean().item()}


# w_t = 1 where the geometric mean of the rollout's r_t, which does not depend on its length, is in [1/C, C], else 0
# A mean over hundreds of tokens stays near 1, so it needs another cap: verl's documentation has 1.5 to 5 for tokens,
# 0.999 to 1.001 for geometric means.
def sequence_mask(
    log_ratios: Tensor, sequence_ids: Tensor, counted: Tensor, cap: float = 1.01
) -> tuple[Tensor, dict[str, float]]:
    """Do not train rollouts whose geometric mean of the ratios is above the cap or below its inverse."""
    _require_cap(cap)
    weights = (sequence_means(log_ratios, sequence_ids, counted).abs() <= math.log(cap)).float()
    masked, rollouts = sequence_ids[weights == 0].unique(), sequence_ids.unique()
    return weights, {"rollouts_masked": len(masked) / max(1, len(rollouts))}


def uncorrected(log_ratios: Tensor) -> tuple[Tensor, dict[str, float]]:
    """Train every token as if the engine were the actor."""
    return torch.ones_like(log_ratios), {}


def _require_cap(cap: Any) -> None:
    if not (isinstance(cap, int | float) and cap > 1):
        raise UserError(f"loss.engine_correction: got the cap {cap!r}, expected a number above 1")


def _correction_problem(result: Any, log_ratios: Tensor, **_: Any) -> str | None:
    if not (isinstance(result, tuple) and len(result) == 2):
        return f"{type(result).__name__}, expected (weights, metrics by name)"
    return tensor_problem(result[0], tuple(log_ratios.shape), torch.float32) or metrics_problem(result[1])


def _correction_examples() -> Iterable[dict[str, Any]]:
    yield {
        "log_ratios": torch.linspace(-1.0, 1.0, 6),
        "sequence_ids": torch.tensor([0, 0, 0, 2, 2, 2]),
        "counted": torch.tensor([True, True, True, True, True, False]),
    }


CORRECTION_RULES = Contract(
    "loss.engine_correction",
    {"none": uncorrected, "truncate": truncate, "token_mask": token_mask, "sequence_mask": sequence_mask},
    ("log_ratios", "sequence_ids", "counted"),
    _correction_problem,
    examples=_correction_examples,
)
