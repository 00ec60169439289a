"""Q-Tuning: which samples and tokens of a supervised batch are trained, from their perplexity and entropy. Pure.

Source: arXiv 2509.23873 and its code. A sample of the batch lies in one of four quadrants: harmful (high perplexity,
high entropy), misconception (high, low), redundant (low, low) and calibration (low, high). Harmful and redundant
samples are dropped, calibration samples are kept whole, and misconception samples lose the tokens beyond the token
budget. docs/beyond.md names the readings where the paper and its code differ or leave a choice.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from d3s.config.schema import SftConfig
from d3s.packing import Batch

LARGEST_TAIL = 0.49  # of the batch on either side of a quantile: above 1/2 the tails would overlap
ROUNDS = 10
TOLERANCE = 0.01
NEIGHBOR_WEIGHT = 0.5


class Samples(NamedTuple):
    """Disjoint sets of samples, bool [S] each. The samples outside all three are dropped."""

    misconception: Tensor  # high perplexity, low entropy
    calibration: Tensor  # low perplexity, high entropy
    topped_up: Tensor  # kept to reach the share, in neither quadrant


def quadrants(perplexity: Tensor, entropy: Tensor, ratio: float) -> tuple[Tensor, Tensor]:
    """Kept samples and, among them, those of the misconception quadrant, bool [S] each. See `divide_samples`."""
    samples = divide_samples(perplexity, entropy, ratio)
    return samples.misconception | samples.calibration | samples.topped_up, samples.misconception


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


def prune(
    batch: Batch, options: SftConfig, logprobs: Tensor, entropies: Tensor, generator: torch.Generator
) -> dict[str, float]:
    """Restrict `batch.selected` to the tokens that are trained. Returns shares of samples and tokens as metrics.

    The token budget is tokens x sample_share x token_share. Tokens are dropped in misconception samples and in those
    topped-up samples that resemble them (scaled perplexity at least the scaled entropy), as in the code of Q-Tuning.

    Args:
        logprobs, entropies: [T], before the update; read only if options.needs_scores().
        generator: of random samples and tokens.
    """
    ids, lengths = batch.sequence_ids, torch.tensor(batch.starts).diff()
    if options.samples == "random":
        samples = random_samples(len(lengths), options.sample_share, generator)
        kept = prunable = samples.topped_up
    else:
        perplexity = sample_means(-logprobs, ids, lengths).exp()
        entropy = sample_means(entropies, ids, lengths)
        samples = divide_samples(perplexity, entropy, options.sample_share)
        kept = samples.misconception | samples.calibration | samples.topped_up
        prunable = samples.misconception | samples.topped_up & (scaled(perplexity) >= scaled(entropy))
    budget = max(1, round(len(ids) * options.sample_share * options.token_share))
    if options.tokens == "random":
        scores = torch.rand(len(ids), generator=generator)
    else:
        scores = context_scores(-logprobs, ids) * (-1 if options.tokens == "large_perplexity" else 1)
    if options.token_share < 1:
        batch.selected = prune_tokens(scores, kept[ids], prunable[ids], budget)
    else:
        batch.selected = kept[ids]
    chosen = {
        "misconception": samples.misconception,
        "calibration": samples.calibration,
        "topped_up": samples.topped_up,
        "samples": kept,
        "tokens": batch.selected,
    }
    return {f"pruning/{name}": mask.float().mean().item() for name, mask in chosen.items()}


def random_samples(count: int, share: float, generator: torch.Generator) -> Samples:
    """As many random samples as `divide_samples` keeps at least."""
    chosen, none = torch.zeros(count, dtype=torch.bool), torch.zeros(count, dtype=torch.bool)
    chosen[torch.randperm(count, generator=generator)[: max(1, round(share * count))]] = True
    return Samples(none, none, chosen)


def sample_means(values: Tensor, sequence_ids: Tensor, lengths: Tensor) -> Tensor:
    """Mean of each sample's tokens: values [T] -> [S]."""
    return torch.zeros(len(lengths), dtype=values.dtype).index_add(0, sequence_ids, values) / lengths
