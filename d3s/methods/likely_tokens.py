"""D3S without the least likely tokens, after the finding of arXiv 2505.12929 that these dominate the update.

    selector: {tokens: {rule: "d3s.methods.likely_tokens:likely_tokens", least: 0.1}}

(configs/method/likely_tokens.yaml)

That paper weights the advantage of a token by its probability, or updates by unlikely tokens apart (AR, Lopti). Here
unlikely tokens are not selected at all: |A| x H ranks those of at least the probability `least`, and tokens below it
come last, so they are trained only where K leaves room for all others.

Worth using? No: 9.8 points below |A| x H (-16.5 to -3.2), ten runs at one learning rate (docs/beyond.md).
"""

from torch import Tensor


def likely_tokens(advantages: Tensor, entropies: Tensor, logprobs: Tensor, least: float = 0.1) -> Tensor:
    """|advantage| x entropy, -1 below the probability `least`: the priority of each token, [T].

    Raises: ValueError for `least` outside [0, 1].
    """
    if not 0 <= least <= 1:
        raise ValueError(f"least must be in [0, 1], not {least}")
    return (advantages.abs() * entropies).masked_fill(logprobs.exp() < least, -1.0)
