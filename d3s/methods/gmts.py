"""GMTS, OpenReview JGvOicAo3g: train the tokens with the largest gradient magnitude, |A| (1 - pi).

    selector: {tokens: "d3s.methods.gmts:gmts"}          # configs/method/gmts.yaml

With pi the probability of the sampled token, -A log pi has the gradient A (pi_v - [v is the token]) with respect to the
logits, whose entries sum to 2 |A| (1 - pi) in absolute value. |A| x H ranks a token by what the policy could have said,
this by what it did say: a sampled token of high probability ranks low, however undecided the rest is.

The paper ranks by the gradient with respect to the parameters; this is its factor in the logits, which needs no pass.

Worth using? As good as |A| x H, without entropies: +2.7 points (0.2 to 5.2) in ten runs, +0.4 (-2.6 to 3.3) in ten
others (docs/beyond.md).
"""

from torch import Tensor


def gmts(advantages: Tensor, logprobs: Tensor) -> Tensor:
    """|advantage| x (1 - probability of the sampled token), the priority of each token, [T]."""
    return -advantages.abs() * logprobs.expm1()
