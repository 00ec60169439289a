"""Q-Tuning: train a part of a batch's demonstrations and of their tokens, by perplexity and entropy.

Source: arXiv 2509.23873 and its code. A sample of the batch lies in one of four quadrants of perplexity and entropy:
harmful (high perplexity, high entropy), misconception (high, low), redundant (low, low) and calibration (low, high).
Harmful and redundant samples are dropped, calibration samples are kept whole, and misconception samples lose the tokens
beyond the token budget. Where the paper and its code differ or leave a choice, docs/beyond.md names the reading.

    sft: {prune: {rule: "d3s.methods.q_tuning:q_tuning", samples: 0.5, tokens: 0.75}}      # configs/sft_q_tuning.yaml

Its control is random_parts with the same options, which needs no first pass.

Worth using? No: at equal CPU seconds full training came first, random parts second, see docs/beyond.md.
"""

from typing import NamedTuple

import torch
from torch import Tensor

LARGEST_TAIL = 0.49  # of the batch on either side of a quantile: above 1/2 the tails would overlap
ROUNDS = 10
TOLERANCE = 0.01
NEIGHBOR_WEIGHT = 0.5


class Samples(NamedTuple):
    """Disjoint sets of samples, bool [S] each. The samples outside all three are dropped."""

    misconception: Tensor  # high perplexity, low entropy
    calibration: Tensor  # low perplexity, high entropy
    topped_up: Tensor  # kept to reach the share, in neither quadrant


# misconception = {PPL > q_{1-a}(PPL), H <= q_a(H)},  calibration = {PPL <= q_a(PPL), H > q_{1-a}(H)}
# a in [0, 0.49] is bisected until the share of both is within 0.01 of the ratio, at most 10 rounds; the last counts.
# If fewer than K = max(1, round(ratio S)) are in them, those of largest max(p - h, h - p) join, where p and h are the
# perplexity and the entropy scaled to [0, 1] over the batch.                          Q-Tuning, arXiv 2509.23873
def divide_samples(perplexity: Tensor, entropy: Tensor, ratio: float) -> Samples:
    """Divide a batch of samples so that about ratio x S of them are kept.

    Args:
        perplexity: [S], exp of a sample's mean negative log-likelihood.
        entropy: [S], mean entropy of the model's distributions over the sample's tokens.
        ratio: share of the samples to keep, in (0, 1].
    """
    low, high = 0.0, LARGEST_TAIL
    for _ in range(ROUNDS):
        tail = (low + high) / 2
        misconception = (perplexity > perplexity.quantile(1 - tail)) & (entropy <= entropy.quantile(tail))
        calibration = (perplexity <= perplexity.quantile(tail)) & (entropy > entropy.quantile(1 - tail))
        share = float((misconception | calibration).float().mean())
        if abs(share - ratio) < TOLERANCE:
            break
        low, high = (tail, high) if share < ratio else (low, tail)
    kept = misconception | calibration
    missing = max(1, round(ratio * len(kept))) - int(kept.sum())
    topped_up = torch.zeros_like(kept)
    if missing > 0:
        contrast = (scaled(perplexity) - scaled(entropy)).abs().masked_fill(kept, -1.0)
        topped_up[contrast.argsort(descending=True, stable=True)[:missing]] = True
    return Samples(misconception, calibration, topped_up)


def scaled(values: Tensor) -> Tensor:
    """Values scaled linearly to [0, 1]; all 0 if they are equal."""
    low, high = values.min(), values.max()
    return (values - low) / (high - low) if high > low else torch.zeros_like(values)


# s_i = (1 - l) PPL_i + l (PPL_{i-1} + PPL_{i+1}),  PPL_i = exp(-log pi(y_i)),  l = 0.5     Q-Tuning, arXiv 2509.23873
def context_scores(nll: Tensor, sequence_ids: Tensor) -> Tensor:
    """Perplexity of each token with that of its neighbors, [T]; a neighbor outside the response counts 0.

    Args:
        nll: negative log-likelihood of each token, [T].
        sequence_ids: the response of each token, [T], in ascending order.
    """
    perplexity = nll.exp()
    together = sequence_ids[1:] == sequence_ids[:-1]  # [T - 1]: tokens i and i + 1 are of one response
    neighbors = torch.zeros_like(perplexity)
    neighbors[1:] += perplexity[:-1] * together
    neighbors[:-1] += perplexity[1:] * together
    return (1 - NEIGHBOR_WEIGHT) * perplexity + NEIGHBOR_WEIGHT * neighbors


def prune_tokens(scores: Tensor, kept: Tensor, prunable: Tensor, budget: int) -> Tensor:
    """The tokens that remain, bool [T]: `budget` of the kept ones, or as many as are not prunable.

    Args:
        scores: [T]; the prunable tokens of largest score are dropped.
        kept, prunable: bool [T], the tokens of kept samples, and those of them that may be dropped.
    """
    excess = min(int(kept.sum()) - budget, int(prunable.sum()))
    remaining = kept.clone()
    if excess > 0:
        rank = scores.masked_fill(~prunable, -torch.inf)
        remaining[rank.argsort(descending=True, stable=True)[:excess]] = False
    return remaining


def q_tuning(
    logprobs: Tensor, entropies: Tensor, sequence_ids: Tensor, samples: float, tokens: float, drop: str = "large"
) -> tuple[Tensor, dict[str, Tensor]]:
    """Samples in two quadrants of perplexity and entropy, misconceptions without their tokens of large perplexity.

    The token budget is T x samples x tokens. Tokens are dropped in misconception samples and in those topped-up samples
    that resemble them (scaled perplexity at least the scaled entropy), as in the code of Q-Tuning.

    Args:
        samples, tokens: the share of the samples that is kept, and of their tokens.
        drop: "large" drops tokens of large perplexity, as the code of Q-Tuning; "small", as its project page.
    """
    budget = _budget(sequence_ids, samples, tokens)
    if drop not in ("large", "small"):
        raise ValueError(f"drop must be large or small, not {drop!r}")
    lengths = sequence_ids.bincount()
    perplexity = sample_means(-logprobs, sequence_ids, lengths).exp()
    entropy = sample_means(entropies, sequence_ids, lengths)
    chosen = divide_samples(perplexity, entropy, samples)
    kept = chosen.misconception | chosen.calibration | chosen.topped_up
    prunable = chosen.misconception | chosen.topped_up & (scaled(perplexity) >= scaled(entropy))
    scores = context_scores(-logprobs, sequence_ids) * (1 if drop == "large" else -1)
    remaining = prune_tokens(scores, kept[sequence_ids], prunable[sequence_ids], budget)
    sets = dict(zip(("misconception", "calibration", "topped_up"), chosen, strict=True)) | {"samples": kept}
    return remaining if tokens < 1 else kept[sequence_ids], sets


def random_parts(
    sequence_ids: Tensor, generator: torch.Generator, samples: float, tokens: float
) -> tuple[Tensor, dict[str, Tensor]]:
    """Random samples and tokens, as many as q_tuning keeps at least: its control."""
    budget, count = _budget(sequence_ids, samples, tokens), int(sequence_ids.max()) + 1
    kept = torch.zeros(count, dtype=torch.bool)
    kept[torch.randperm(count, generator=generator)[: max(1, round(samples * count))]] = True
    of_kept, scores = kept[sequence_ids], torch.rand(len(sequence_ids), generator=generator)
    return prune_tokens(scores, of_kept, of_kept, budget) if tokens < 1 else of_kept, {"samples": kept}


def _budget(sequence_ids: Tensor, samples: float, tokens: float) -> int:
    """The number of tokens to keep. Raises ValueError for an impossible share."""
    for name, share in (("samples", samples), ("tokens", tokens)):
        if isinstance(share, str | None) or not 0 < share <= 1:
            raise ValueError(f"{name} must be in (0, 1], not {share}")
    return max(1, round(len(sequence_ids) * samples * tokens))


def sample_means(values: Tensor, sequence_ids: Tensor, lengths: Tensor) -> Tensor:
    """Mean of each sample's tokens: values [T] -> [S]."""
    return torch.zeros(len(lengths), dtype=values.dtype).index_add(0, sequence_ids, values) / lengths
