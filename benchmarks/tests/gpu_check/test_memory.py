"""The stage `memory` on the CPU: predictions hold, and do not for updates that allocate more or nothing."""

import math

import pytest
import torch

from benchmarks.gpu_check import memory
from benchmarks.tests.stages import not_held
from d3s.actor import Actor

PEAKS = [
    "tiny, deep: peak of an update to its prediction",
    "tiny, deep, checkpointing: peak of an update to its prediction",
]
FINITE = "tiny, deep: loss and gradient are finite, the gradient is not 0"
real = Actor.update


def test_memory_holds_on_the_cpu():
    rows = list(memory.run("cpu", 60))
    assert not not_held(rows) and len(rows) == 5
    assert rows[0].measured.endswith(" GB, micro-batches of 512 tokens)")


def test_updates_of_other_sizes_are_noticed(monkeypatch):
    """An update that does nothing, one that holds 12 MB more, and one whose loss is NaN."""

    def does_nothing(self, *args):
        return [{"loss": 0.0, "grad_norm": 1.0}]

    def holds_more(self, *args):
        more = torch.empty(12 * 2**20, dtype=torch.uint8)
        return real(self, *args) if len(more) else []

    def is_nan(self, *args):
        return [{"loss": math.nan, "grad_norm": 1.0}]

    for wrong in (does_nothing, holds_more):
        monkeypatch.setattr(Actor, "update", wrong)
        assert not_held(memory.run("cpu", 60)) == PEAKS
    monkeypatch.setattr(Actor, "update", is_nan)
    assert FINITE in not_held(memory.run("cpu", 60))


def test_models_that_do_not_fit_are_not_run(monkeypatch):
    monkeypatch.setattr(memory, "room", lambda device: 0.0)
    rows = list(memory.run("cpu", 60))
    assert [row.measured for row in rows] == ["not run: needs 0 GB of free memory"]


@pytest.mark.parametrize("megabytes", [3, 7])
def test_peak_counts_what_is_held_at_once(megabytes):
    """Two tensors one after the other, the second beside a third."""

    def allocate():
        first = torch.ones(2**20 * megabytes, dtype=torch.uint8)
        del first
        return [torch.ones(2**20 * size, dtype=torch.uint8) for size in (megabytes - 1, 1)]

    assert memory.peak_above(allocate, "cpu") == pytest.approx(megabytes * 2**20, rel=0.01)
