"""Which problems a step samples: decided before generation, from what earlier responses taught."""

from torch import Tensor

from d3s.data.problems import ProblemOrder


class Shuffled:
    """Every problem once per epoch, in an order that the seed fixes. It has no state and learns nothing."""

    def __init__(self, num_problems: int, seed: int) -> None:
        self.order = ProblemOrder(num_problems, seed)

    def take(self, count: int, position: int) -> list[int]:
        """The next `count` problems; `position` is how many the run has asked for before."""
        return self.order.take(position, count)

    def learn(self, problems: list[int], verdicts: Tensor, present: Tensor) -> None:
        """Observe the verdicts [B, G] of these problems' responses, where present (bool [B, G])."""
