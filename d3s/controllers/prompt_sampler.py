"""Choose the problems of a step: in shuffled order, or by the outcomes of their earlier responses.

`take` chooses problems, `learn` receives their verdicts. Every rank makes the same choice: it depends on the verdicts
of all ranks, and its random numbers on the seed and the number of problems asked before, as the rollouts' seeds do.
"""

from collections.abc import Sequence
from hashlib import sha256
from itertools import cycle, islice

import numpy as np
import torch
from torch import Tensor

from d3s.common import UserError
from d3s.config.schema import ORDER_DECAYS, Config
from d3s.data.problems import Problem, ProblemOrder


class Shuffled:
    """All problems in random order, reshuffled every epoch."""

    def __init__(self, size: int, seed: int) -> None:
        self._order = ProblemOrder(size, seed)

    def take(self, count: int, position: int) -> list[int]:
        """Indices of the next `count` problems, after `position` problems that the run has asked before."""
        return self._order.take(position, count)

    def learn(self, problems: Sequence[int], verdicts: Tensor) -> None:
        """Ignore the verdicts."""

    def metrics(self) -> dict[str, float]:
        """No metrics: every problem is asked equally often."""
        return {}


# --- posteriors ------------------------------------------------------------------------------------------------------

PRIOR = 1.0  # Beta(1, 1), the uniform prior of VADE and MoPPS


# VADE (arXiv 2511.18902), problem i with r of G responses right:
#   alpha_i <- decay_1 alpha_i + r, beta_i <- decay_1 beta_i + G - r    if the step asks it
#   alpha_i <- decay_2 alpha_i,     beta_i <- decay_2 beta_i            otherwise
# MoPPS (arXiv 2507.04632) counts its prior in, a_i = alpha_i + 1: a_i <- decay a_i + (1 - decay) 1 + r if the step asks
# it, unchanged otherwise. That is the same update with decay_2 = 1.
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


def vade_scores(rates: np.ndarray) -> np.ndarray:
    """VADE's p (1 - p)^2, largest at p = 1/3."""
    return rates * (1 - rates) ** 2


def mopps_scores(rates: np.ndarray) -> np.ndarray:
    """MoPPS's -(p - 1/2)^2, largest at p = 1/2."""
    return -((rates - 0.5) ** 2)


SCORES = {"vade": vade_scores, "mopps": mopps_scores}


class PosteriorSampler:
    """Problems chosen by the posterior Beta(alpha + 1, beta + 1) of each success rate, with decayed counts of outcomes.

    Draw a success rate from every posterior (Thompson sampling) and take the problems of the best score. Of the
    problems, data.uniform_share are the next of the shuffled order, whatever their posterior.
    """

    def __init__(self, config: Config, problems: Sequence[Problem]) -> None:
        data = config.data
        self.kind, self.uniform_share = data.order, data.uniform_share
        self.decay = data.decay or ORDER_DECAYS[data.order]
        self.seed, self.g, self.size = config.train.seed, config.rollout.num_generations, len(problems)
        self.alpha, self.beta = torch.zeros(self.size), torch.zeros(self.size)  # decayed counts of right and wrong
        self.visits = torch.zeros(self.size, dtype=torch.long)
        self.cursor = 0  # place in the shuffled order
        self._order = ProblemOrder(self.size, self.seed)
        self._fingerprint = sha256("\0".join(p.problem for p in problems).encode()).hexdigest()
        self._expected: list[Tensor] = []  # probability of mixed outcomes of the problems taken since the last metrics

    def posterior(self) -> tuple[Tensor, Tensor]:
        """Parameters a and b of the posterior of each success rate, [P] each."""
        return self.alpha + PRIOR, self.beta + PRIOR

    def take(self, count: int, position: int) -> list[int]:
        """Indices of the next `count` problems, after `position` problems that the run has asked before."""
        share = self.uniform_share
        uniform = int((position + count) * share) - int(position * share)  # also right if count x share is no integer
        taken = self._order.take(self.cursor, uniform)
        self.cursor += uniform
        rng = np.random.default_rng([self.seed, position])
        scores = SCORES[self.kind](rng.beta(*(x.double().numpy() for x in self.posterior())))
        scores[taken] = -np.inf
        best_first = np.argsort(-scores, kind="stable").tolist()
        taken += islice(cycle(best_first), count - uniform)  # repeats only if there are fewer problems than count
        self._expected.append(1 - all_equal_probability(*(x[taken] for x in self.posterior()), self.g))
        return taken

    def learn(self, problems: Sequence[int], verdicts: Tensor) -> None:
        """Update the posteriors by the verdicts of the responses to these problems.

        Args:
            verdicts: [B, G], clipped to [0, 1]: a verdict of 0.3 is 0.3 right and 0.7 wrong responses. Not the rewards,
                as format and length terms say nothing about success.
        """
        right = verdicts.clamp(0, 1).sum(1)
        asked = torch.tensor(problems, dtype=torch.long)
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

    def state_dict(self) -> dict:
        """What a resumed run needs, with a fingerprint of the problems that the counts belong to."""
        counts = {"alpha": self.alpha, "beta": self.beta, "visits": self.visits}
        return counts | {"cursor": self.cursor, "problems": self._fingerprint}

    def load_state_dict(self, state: dict) -> None:
        """Restore `state_dict`. Raises UserError if it belongs to other problems."""
        if state["problems"] != self._fingerprint:
            raise UserError(
                "data.path: got other problems than those of the checkpoint, whose outcomes data.order: "
                f"{self.kind} needs; resume with the same problems, or start a new run"
            )
        self.alpha, self.beta, self.visits = (state[name].clone() for name in ("alpha", "beta", "visits"))
        self.cursor = state["cursor"]


def build_sampler(config: Config, problems: Sequence[Problem]) -> Shuffled | PosteriorSampler:
    """The sampler of data.order."""
    if config.data.order == "shuffle":
        return Shuffled(len(problems), config.train.seed)
    return PosteriorSampler(config, problems)
