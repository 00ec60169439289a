"""What schedule.follow decides in a step, against the static choices."""

import pytest
import torch

from d3s.actor.logprobs import forward_passes
from d3s.controllers import Controllers
from d3s.packing import Batch
from tests.helpers.selection import ALL, REWARDS, config, downsample
from tests.helpers.subsets import seeded

COVERAGE = "d3s.methods.coverage:Coverage"


@pytest.mark.parametrize("share", [None, 0.0, 0.5, 1.0])
def test_covering_number_measures_the_choice_made(share):
    """With variable shares and ineligible rollouts."""
    settings = config(f"schedule.follow={{rule: {COVERAGE}, n: 0.7}}", "schedule.n_init=2")
    eligible = ALL.clone()
    eligible[0, 6:], eligible[1, 2] = False, False

    def choose(number, generator):
        return downsample(settings, REWARDS, eligible, number, generator, share)

    generator = seeded(3)
    n = Controllers(settings, []).n_of(8, choose, generator)
    assert torch.equal(generator.get_state(), seeded(3).get_state()) and n in (2, 4, 6)
    held = []
    for number in (n - 2, n):
        advantages, kept = choose(max(number, 1), seeded(3))
        held.append((advantages[kept].square().sum() / advantages.square().sum()).item())
    assert held[1] >= 0.7 and (n == 2 or held[0] < 0.7)
    assert Controllers(config(), []).n_of(6, choose, generator) == 6


def test_covering_fraction_counts_trainable_tokens():
    """The scores are 8, 4, 2, 1, 1 of 16, and an untrainable one of 99."""
    batch = Batch(
        [[1]], [[2] * 6], torch.tensor([-1.0, 1, 1, 1, 1, 1]), torch.zeros(6), torch.tensor([8.0, 4, 2, 1, 1, 99])
    )
    batch.trainable = torch.tensor([True] * 5 + [False])
    for cover, k in ((0.5, 0.2), (0.75, 0.4), (0.8, 0.6), (0.1, 0.2), (1.0, 0.9)):
        settings = config(f"schedule.follow={{rule: {COVERAGE}, k: {cover}}}", "schedule.k_final=0.9")
        assert Controllers(settings, []).k_of(0.9, batch) == pytest.approx(k)
    assert Controllers(config(), []).k_of(0.3, batch) == 0.3
    fixed = config(f"schedule.follow={COVERAGE}", "schedule.k_shape=constant", "selector.tokens=random")
    assert Controllers(fixed, []).k_of(0.05, batch) == 0.05


def test_coverage_needs_entropies_whenever_k_may_be_below_1():
    """Its plan is the upper bound, and K is known only after the passes."""
    options = ["selector.entropy_source=actor", "schedule.k_final=1"]
    assert not forward_passes(config(*options), 1.0).kept_rollouts
    assert forward_passes(config(*options, f"schedule.follow={COVERAGE}"), 1.0).kept_rollouts
    fixed = ["schedule.k_init=1", f"schedule.follow={COVERAGE}"]
    assert not forward_passes(config(*options, *fixed), 1.0).kept_rollouts
