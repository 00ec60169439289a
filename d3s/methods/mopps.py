"""MoPPS (arXiv 2507.04632): the problems of medium difficulty, by the outcomes of earlier responses.

    data: {order: {rule: "d3s.methods.mopps:Mopps", uniform_share: 0}}     # configs/method/mopps.yaml

A rule of data.order. Worth using? No gain on the built-in tasks, see docs/beyond.md.
"""

from collections.abc import Sequence

import numpy as np

from d3s.data.problems import Problem
from d3s.methods.vade import Vade


# MoPPS counts its prior in, a = alpha + 1: a <- decay a + (1 - decay) 1 + r if the step asks the problem, unchanged
# otherwise. That is VADE's update without a decay of the others. lambda is 0.5 in the paper's countdown recipe.
class Mopps(Vade):
    """Problems with the smallest (p - 1/2)^2, p drawn from the posterior of each success rate."""

    def __init__(
        self,
        problems: Sequence[Problem],
        seed: int,
        num_generations: int,
        uniform_share: float = 0.125,
        decay: float = 0.5,
    ) -> None:
        super().__init__(problems, seed, num_generations, uniform_share, asked=decay, others=1.0)

    @staticmethod
    def score(rates: np.ndarray) -> np.ndarray:
        """-(p - 1/2)^2, largest at p = 1/2."""
        return -((rates - 0.5) ** 2)
