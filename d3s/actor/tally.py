"""Statistics of an optimizer step, added over its micro-batches and reduced over the ranks."""

import math

import torch
from accelerate import Accelerator
from torch import Tensor

from d3s.loss import Largest, Stats


class Tally:
    """Sums and maxima over the micro-batches of an optimizer step, kept on the device until its end."""

    def __init__(self) -> None:
        self.sums: dict[str, Tensor] = {}
        self.largest: dict[str, Tensor] = {}

    def add(self, stats: Stats) -> None:
        """Add a micro-batch's statistics; every micro-batch has the same names."""
        for name, value in stats.items():
            if isinstance(value, Largest):
                values = value.values.detach().float().flatten()
                largest = self.largest.get(name, values.new_full((), -math.inf))
                self.largest[name] = torch.cat([values, largest[None]]).max()
            else:
                self.sums[name] = self.sums.get(name, 0.0) + value.detach().float().sum()

    def gathered(self, accelerator: Accelerator) -> dict[str, float | Largest]:
        """Reduce over all ranks, with one copy from the device. Collective."""
        sums, largest = sorted(self.sums), sorted(self.largest)  # a rule may return its names in any order
        values = torch.stack([self.sums[name] for name in sums] + [self.largest[name] for name in largest])
        gathered = accelerator.gather(values.to(accelerator.device)[None]).cpu()  # [ranks, names]
        added, highest = gathered.split([len(sums), len(largest)], dim=1)
        return dict(zip(sums, added.sum(0).tolist())) | {
            name: Largest(value) for name, value in zip(largest, highest.amax(0))
        }
