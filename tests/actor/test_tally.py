"""Statistics of an optimizer step against sums and maxima over all of its tokens at once."""

import math

import torch
from accelerate import Accelerator

from d3s.actor.tally import Tally
from d3s.loss import Largest


def test_micro_batches_add_to_sums_and_maxima():
    """Three micro-batches; the second one has no token, and no one has a value of "none"."""
    parts, tally, none = [torch.tensor([0.5, -3.0]), torch.zeros(0), torch.tensor([2.0])], Tally(), torch.zeros(0)
    for part in parts:
        tally.add({"sum": part, "largest": Largest(part), "scalar": torch.tensor(1.5), "none": Largest(none)})
    gathered = tally.gathered(Accelerator(cpu=True))
    assert gathered["sum"] == torch.cat(parts).sum() and gathered["scalar"] == 4.5
    assert gathered["largest"].values == torch.cat(parts).max() and gathered["none"].values == -math.inf
