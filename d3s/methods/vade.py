"""VADE (arXiv 2511.18902): the problems whose responses are likely to differ, by the outcomes of earlier ones.

    data: {order: {rule: "d3s.methods.vade:Vade", uniform_share: 0}}     # configs/method/vade.yaml

A rule of data.order; problems must come at least twice. Worth using? No gain on the built-in tasks, see docs/beyond.md.
"""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from itertools import cycle, islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from d3s.common import UserError
from d3s.data.problems import Problem, problem_order

PRIOR = 1.0  # Beta(1, 1), the uniform prior of VADE and MoPPS


# VADE (arXiv 2511.18902), problem i with r of G responses right:
#   alpha_i <- asked alpha_i + r, beta_i <- asked beta_i + G - r    if the step asks it
#   alpha_i <- others alpha_i,    beta_i <- others beta_i           otherwise
def update_counts(counts: Tensor, asked: Tensor, outcomes: Tensor, decay: tuple[float, float]) -> Tensor:
    """Return the decayed counts of right (or of wrong) responses [P] after a batch.

    Args:
        asked: [B] problems of the batch; a problem that is in it twice decays once.
        outcomes: [B] right (or wrong) responses to each.
        decay: share of its count that a problem keeps if it is asked, and if it is not.
    """
    factors = torch.full_like(counts, decay[1])
    factors[asked] = decay[0]
    return (counts * factors).index_add(0, asked, outcomes.to(counts))


# For p ~ Beta(a, b) the number of right responses is beta-binomial, and
#   P(G of G) = B(a + G, b) / B(a, b), P(0 of G) = B(a, b + G) / B(a, b)
def all_equal_probability(a: Tensor, b: Tensor, g: int) -> Tensor:
    """Probability that g responses are all right or all wrong, for success rates with posterior Beta(a, b)."""
    a, b = a.double(), b.double()
    total = torch.lgamma(a + b) - torch.lgamma(a + b + g)
    all_right, all_wrong = (torch.lgamma(x + g) - torch.lgamma(x) + total for x in (a, b))
    return all_right.exp() + all_wrong.exp()


class Vade:
    """Problems with the largest p (1 - p)^2, p drawn from the posterior of each success rate.

    The posterior is Beta(alpha + 1, beta + 1), with the decayed counts of right and wrong responses.

    Args:
        uniform_share: share of the problems that are the next of the shuffled order, whatever their posterior.
        asked, others: share of its counts that a problem keeps in a step that asks it, and in one that does not.
    """

    def __init__(
        self,
        problems: Sequence[Problem],
        seed: int,
        num_generations: int,
        uniform_share: float = 0.125,
        asked: float = 0.2,
        others: float = 0.999,
    ) -> None:
        if not all(0 <= share <= 1 for share in (uniform_share, asked, others)):
            raise ValueError("uniform_share and decays must be from 0 to 1")
        self.uniform_share, self.decay = uniform_share, (asked, others)
        self.seed, self.g, size = seed, num_generations, len(problems)
        self.alpha, self.beta = torch.zeros(size), torch.zeros(size)  # decayed counts of right and wrong responses
        self.visits = torch.zeros(size, dtype=torch.long)
        self.cursor = 0  # place in the shuffled order
        self._fingerprint = sha256("\0".join(p.problem for p in problems).encode()).hexdigest()
        self._expected: list[Tensor] = []  # probability of mixed outcomes of the problems taken since the last metrics

    @staticmethod
    def score(rates: np.ndarray) -> np.ndarray:
        """p (1 - p)^2, largest at p = 1/3."""
        return rates * (1 - rates) ** 2

    def posterior(self) -> tuple[Tensor, Tensor]:
        """Parameters a and b of the posterior of each success rate, [P] each."""
        return self.alpha + PRIOR, self.beta + PRIOR

    def take(self, count: int, position: int) -> list[int]:
        """Indices of the next `count` problems: a shuffled share, then the best scores of rates drawn at random."""
        share = self.uniform_share
        uniform = int((position + count) * share) - int(position * share)  # also right if count x share is no integer
        taken = problem_order(len(self.visits), self.seed, self.cursor, uniform)
        self.cursor += uniform
        rng = np.random.default_rng([self.seed, position])
        scores = self.score(rng.beta(*(x.double().numpy() for x in self.posterior())))
        scores[taken] = -np.inf
        best_first = np.argsort(-scores, kind="stable").tolist()
        taken += islice(cycle(best_first), count - uniform)  # repeats only if there are fewer problems than count
        self._expected.append(1 - all_equal_probability(*(x[taken] for x in self.posterior()), self.g))
        return taken

    def learn(self, problems: Sequence[int], verdicts: Tensor) -> None:
        """Update the posteriors by verdicts [B, G], clipped to [0, 1]: 0.3 is 0.3 right and 0.7 wrong responses."""
        right, asked = verdicts.clamp(0, 1).sum(1), torch.tensor(problems, dtype=torch.long)
        self.alpha = update_counts(self.alpha, asked, right, self.decay)
        self.beta = update_counts(self.beta, asked, verdicts.shape[1] - right, self.decay)
        self.visits = self.visits.index_add(0, asked, torch.ones_like(asked))

    def metrics(self) -> dict[str, float]:
        """How often problems were asked, and what the posteriors predicted for those taken since the last call."""
        predicted, self._expected = self._expected, []
        return {
            "prompts/seen": int((self.visits > 0).sum()),
            "prompts/visits_max": int(self.visits.max()),
            "prompts/expected_mixed": torch.cat(predicted).mean().item(),
        }

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run needs, with a fingerprint of the problems that the counts belong to."""
        counts = {"alpha": self.alpha, "beta": self.beta, "visits": self.visits}
        return counts | {"cursor": self.cursor, "problems": self._fingerprint}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`. Raises UserError if it belongs to other problems."""
        if state["problems"] != self._fingerprint:
            raise UserError(
                "data.path: got other problems than those of the checkpoint, whose outcomes data.order needs; resume "
                "with the same problems, or start a new run"
            )
        self.alpha, self.beta, self.visits = (state[name].clone() for name in ("alpha", "beta", "visits"))
        self.cursor = state["cursor"]
