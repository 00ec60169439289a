"""The FLOP tables against published parameter counts, sums by hand and the page that prints them."""

import pytest

from benchmarks.speed.flops import bench_shape, d3s_share, qwen_shape, rollout_flops, speedup, tables
from tests.helpers.pages import ROOT


@pytest.mark.parametrize(
    "name, weights, total", [("0.5B", 0.36e9, 0.49e9), ("1.5B", 1.31e9, 1.54e9), ("7B", 6.53e9, 7.61e9)]
)
def test_shapes_have_published_parameter_counts(name, weights, total):
    """The counts of the model cards: without the embeddings, and all."""
    shape = qwen_shape(name)
    assert shape.matrix_weights == pytest.approx(weights, rel=0.01)
    assert shape.parameters == pytest.approx(total, rel=0.01)


def test_share_matches_sum_over_tokens():
    """Two of eight rollouts of 3 + 5 tokens, one token of each trained: 7 tokens run, each attends to those before."""
    shape = bench_shape(1000)
    layer = 4 * 256 * 256 + 3 * 256 * 1024
    run = sum(2 * 4 * layer + 4 * 4 * 256 * (t + 1) for t in range(7))
    head = 2 * 256 * 1000
    expected = 2 * (run + head) / (8 * (run + 5 * head))
    assert d3s_share(rollout_flops(shape, 3, 5), kept=2 / 8, k=1 / 5) == pytest.approx(expected)


def test_speedup_is_bounded_by_the_rest_of_the_step():
    """A step of 10 seconds, of which 4 are not generation; half of these are saved, or all."""
    assert speedup(0.4, 1.0) == 1
    assert speedup(0.4, 0.5) == pytest.approx(10 / 8)
    assert speedup(0.4, 0.0) == pytest.approx(10 / 6)


def test_page_has_the_tables():
    assert f"<!-- flops -->\n{tables()}<!-- /flops -->" in (ROOT / "docs/gpu.md").read_text()
