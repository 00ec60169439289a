"""The stages `head` and `chunks` on the CPU: they hold, and do not with wrong heads."""

import pytest
import torch

from benchmarks.gpu_check import chunks, head
from benchmarks.tests.stages import judged, not_held
from d3s.policy import CHUNK_ELEMENTS, SelectedRowHead

real = SelectedRowHead.forward


def test_head_holds_on_the_cpu():
    before = dict(CHUNK_ELEMENTS)
    rows = list(head.run("cpu", 60))
    assert not not_held(rows) and len(judged(rows)) == len(rows) == 5 * 4 + 1
    assert before == CHUNK_ELEMENTS


def without_temperature(self, hidden, targets, temperature, want_entropies):
    return real(self, hidden, targets, 1.0, want_entropies)


def half_gradient(self, hidden, *args):
    return real(self, 0.5 * hidden + 0.5 * hidden.detach(), *args)


def entropies_of_neighbors(self, *args):
    logprobs, entropies = real(self, *args)
    return logprobs, entropies.roll(1)


def first_chunk(self, hidden, *args):
    """A head that stops after its first chunk leaves what was in memory before."""
    logprobs, entropies = real(self, hidden, *args)
    size = CHUNK_ELEMENTS["cpu"] // self.out_features
    assert size < len(hidden)
    return (torch.arange(len(hidden)) < size).float() * logprobs, entropies


CASES = [case.name for case in head.CASES]
LOGPROBS = [f"{name}: largest error of log-probabilities" for name in CASES]
ENTROPIES = [f"{name}: largest error of entropies" for name in CASES]
HIDDEN, WEIGHT = ([f"{name}: relative error of the gradient of {of}" for name in CASES] for of in ("hidden", "weight"))


@pytest.mark.parametrize(
    ("wrong", "noticed"),
    [
        (without_temperature, [*LOGPROBS, *ENTROPIES, *HIDDEN, *WEIGHT]),
        (half_gradient, HIDDEN),
        (entropies_of_neighbors, ENTROPIES),
        (first_chunk, LOGPROBS),
    ],
)
def test_wrong_head_is_noticed(monkeypatch, wrong, noticed):
    monkeypatch.setattr(SelectedRowHead, "forward", wrong)
    assert set(noticed) <= set(not_held(head.run("cpu", 60)))


def test_head_dtype_without_effect_is_noticed(monkeypatch):
    monkeypatch.setattr(SelectedRowHead, "exact", property(lambda self: False, lambda self, value: None))
    broken = not_held(head.run("cpu", 60))
    assert "bfloat16: error of head_dtype auto to that of float32" in broken
    assert [name for name in broken if "head_dtype float32: largest error of log-probabilities" in name]


# --- chunks ----------------------------------------------------------------------------------------------------------


def test_chunks_are_timed_on_the_cpu():
    rows = list(chunks.run("cpu", 60))
    assert [row.what for row in rows] == [
        "width 32, bfloat16 weights, 2^12 logits",
        "width 32, bfloat16 weights, 2^13 logits",
        "width 32, float32 weights, 2^12 logits",
        "width 32, float32 weights, 2^13 logits",
        "width 32: cast of float32 weights",
    ]
    assert not judged(rows) and all(float(row.measured.split()[0]) > 0 for row in rows[:4])


@pytest.mark.parametrize(("default_ms", "held"), [(1.1, True), (1.3, False)])
def test_default_chunk_is_compared_with_the_best(monkeypatch, default_ms, held):
    """On a GPU, with measurements by hand: 1 ms for every size but the default."""

    def measure(width, elements, dtype, device):
        return default_ms if elements == CHUNK_ELEMENTS["cuda"] else 1.0, 0.5

    monkeypatch.setattr(chunks, "measure", measure)
    monkeypatch.setattr(chunks, "cast_time", lambda width, device: 0.1)
    rows = judged(chunks.run("cuda", 60))
    assert len(rows) == 4 and {row.held for row in rows} == {held}
    assert rows[0].what == "width 1536, bfloat16 weights: 2^27 to the best"
