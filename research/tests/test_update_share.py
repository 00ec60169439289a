"""Equal time over the share of the update, on artificial runs whose Pass@1 is linear in steps, against closed forms."""

from dataclasses import replace

import numpy as np
import pytest

from research import update_share
from research.padded_base import SUFFIX
from research.records import Record
from research.tests.experiments import make_record
from research.update_share import (
    LENGTHS,
    PROMPT,
    PUBLISHED,
    cost,
    distinct,
    draw,
    gains,
    kept_share,
    layer_tokens,
    layers_share,
    marks,
    marks_table,
    measured_share,
    padded_shape,
    qwen_shape,
)

BASE = "tiny:precedence"
STEPS, TOKENS = np.array([0, 50, 100]), 4000  # evaluations, and generated tokens of a step
SHARES = np.linspace(0, 0.9, 19)


@pytest.fixture(autouse=True)
def kept_shares(monkeypatch):
    """PODS keeps a quarter of the rollouts; the others, which are no rows of the results, keep all."""
    monkeypatch.setattr(update_share, "kept_share", lambda row: 0.25 if row == "PODS" else 1.0)


def record(row: str, end: int, kept: float = 1.0, top: float | None = None, **fields) -> Record:
    """A run that trains and forwards a share of its tokens and has `end` / 8 right at step 100, from 0 at step 0."""
    count = float(TOKENS) * STEPS
    values = {"seconds": (3.0 * kept + 2.0) * STEPS, "generated": count, "trained": kept * count}
    right = np.linspace(0, end, 3).round().astype(int)[:, None] * np.ones((1, 6), int)
    run = make_record(STEPS, right, **{"row": row, "base": BASE, "forwarded": kept * count} | values | fields)
    run.logged["generate_seconds"][:], run.logged["update_seconds"][:] = 2.0, 3.0 * kept
    run.logged["usefulness"][:] = kept if top is None else top
    return run


def runs(row: str, end: int, kept: float = 1.0, **fields) -> dict[str, list[Record]]:
    return {BASE: [record(row, end, kept, seed=seed, **fields) for seed in range(3)]}


def test_share_of_layers_by_hand():
    """Multiply-adds of Qwen2.5 7B and of the padded model: matrices, causal attention, head."""
    tokens = PROMPT + 1023
    layer = 2 * 3584**2 + 2 * 3584 * 512 + 3 * 3584 * 18944
    layers, head = 28 * (layer * tokens + 3584 * tokens * (tokens + 1)), 152_064 * 3584 * 1024
    assert LENGTHS[0] == 1024
    assert layers_share(qwen_shape("7B"), PROMPT, LENGTHS[0]) == pytest.approx(layers / (layers + head))
    layers, head = 2 * ((4 * 96**2 + 3 * 96 * 256) * 42 + 96 * 42 * 43), 32_768 * 96 * 35
    assert layers_share(padded_shape(), 8, 35) == pytest.approx(layers / (layers + head))


def test_kept_share_is_that_of_the_configuration():
    rows = {"GRPO, G = 16": 1.0, "PODS": 0.25, "D2S": 0.25, "NAT: prefixes": 1.0, "CPPO, N = 2 of 4": 0.5}
    assert {name: kept_share(name) for name in rows} == rows


def test_cost_is_one_step_for_the_reference():
    """All tokens trained: a step costs 1 at every share. A quarter trained: 1 - 3/4 u. Twice the tokens: twice that."""
    reference = runs("GRPO", 8)[BASE]
    quarter = record("a", 8, 0.25)
    double = replace(quarter, generated=2 * quarter.generated, trained=2 * quarter.trained)
    double = replace(double, forwarded=2 * double.forwarded)
    for share in (0.0, 0.4, 1.0):
        np.testing.assert_allclose(cost(reference[0], reference, 0.7, share), STEPS)
        np.testing.assert_allclose(cost(quarter, reference, 0.7, share), (1 - 0.75 * share) * STEPS)
        np.testing.assert_allclose(cost(double, reference, 0.7, share), 2 * (1 - 0.75 * share) * STEPS)


def test_head_and_layers_are_weighed_by_alpha():
    """Layers run half of the tokens, the head a tenth: an update of 0.5 alpha + 0.1 (1 - alpha)."""
    reference = runs("GRPO", 8)[BASE]
    method = record("a", 8, 0.1, top=1.0, forwarded=0.5 * TOKENS * STEPS)
    for alpha in (0.0, 0.3, 1.0):
        np.testing.assert_allclose(cost(method, reference, alpha, 1.0), (0.1 + 0.4 * alpha) * STEPS)


def test_layer_tokens_undo_prompts_and_shared_beginnings():
    """The reference forwards 0.6 of what it trains, by shared beginnings and prompts."""
    count = float(TOKENS) * STEPS
    reference = [record("GRPO", 8, 0.8, forwarded=0.48 * count)]
    np.testing.assert_allclose(layer_tokens(reference[0], reference), 0.8 * count)
    # 0.24 / 0.6 = 0.4 of the tokens, but a quarter of the rollouts is kept and 0.9 of these have a gradient
    kept = record("PODS", 8, 0.05, top=0.9, forwarded=0.24 * count)
    np.testing.assert_allclose(layer_tokens(kept, reference), 0.225 * count)
    few = replace(kept, forwarded=0.09 * count)  # most kept rollouts end early
    np.testing.assert_allclose(layer_tokens(few, reference), 0.15 * count)
    least = replace(kept, forwarded=0.01 * count)  # the trained tokens have run
    np.testing.assert_allclose(layer_tokens(least, reference), 0.05 * count)
    unknown = replace(kept, logged=kept.logged | {"usefulness": np.array([np.nan, 0.9])})
    np.testing.assert_allclose(np.diff(layer_tokens(unknown, reference)), [0.25 * 50 * TOKENS, 0.225 * 50 * TOKENS])


def test_crossover_of_linear_learning():
    """Slopes 4 and 6: 4 / (1 - 3/4 u) > 6 from u = 4/9 on."""
    grpo, row = runs("GRPO", 6), runs("a", 4, 0.25)
    shares = np.linspace(0, 0.6, 241)
    gap = gains({"GRPO": grpo, "a": row}, grpo, 0.5, 50, shares)["a"]
    np.testing.assert_allclose(gap[1:], gap[[0, 0]])  # equal runs: intervals without width
    np.testing.assert_array_equal(gap[0] > 0, shares > 4 / 9)


def test_copy_of_the_reference_is_never_ahead():
    grpo = runs("GRPO", 6)
    gap = gains({"GRPO": grpo, "copy": runs("copy", 6)}, grpo, 0.3, 50, SHARES)["copy"]
    np.testing.assert_allclose(gap, 0, atol=1e-12)


def test_gain_is_over_the_best_baseline_of_each_share():
    """GRPO learns faster per step, GRPO small trains half: 4 / (1 - u / 2) > 6 from u = 2/3 on."""
    rows = {"GRPO": runs("GRPO", 6), "GRPO small": runs("GRPO small", 4, 0.5), "a": runs("a", 2)}
    shares = np.array([0.0, 0.2, 0.5, 0.8])
    best = np.maximum(6, 4 / (1 - shares / 2))
    np.testing.assert_allclose(gains(rows, rows["GRPO"], 0.5, 40, shares)["a"][0], 0.4 * (2 - best) / 8)
    late = gains(rows, rows["GRPO"], 0.5, 70, shares)["a"]  # 70 / (1 - u / 2) > 100 from u = 0.6 on
    assert np.isnan(late[:, 3]).all() and not np.isnan(late[:, :3]).any()


def test_gain_needs_equal_runs_and_a_baseline():
    grpo, row = runs("GRPO", 6), runs("a", 4)
    with pytest.raises(ValueError, match="a: got base models and seeds"):
        gains({"GRPO": grpo, "a": {BASE: row[BASE][:2]}}, grpo, 0.5, 50, SHARES)
    with pytest.raises(ValueError, match="expected one whose name starts with GRPO"):
        gains({"a": row}, grpo, 0.5, 50, SHARES)


def test_interval_grows_with_the_spread_of_runs():
    grpo, ends = runs("GRPO", 4), (2, 4, 6)
    spread = {BASE: [record("a", end, seed=seed) for seed, end in enumerate(ends)]}
    value, low, high = gains({"GRPO": grpo, "a": spread}, grpo, 0.5, 100, SHARES[:1])["a"][:, 0]
    assert value == pytest.approx(0) and low < -0.1 and high > 0.1


def test_distinct_leaves_out_intervals_around_0():
    curve = np.array([[1.0, 1, -1, -1, np.nan], [0.5, -0.5, -3, -2, np.nan], [2, 2, -0.5, 0, np.nan]])
    np.testing.assert_array_equal(distinct(curve), [1, np.nan, -1, np.nan, np.nan])


def test_measured_share_counts_tokens_without_gradient():
    """3 s for all tokens and 2 s of the rest; a run that skips 60 % has the same share once they are added."""
    assert measured_share([record("GRPO", 8), record("GRPO", 8, 0.4)]) == pytest.approx(0.6)


def test_marks_are_ordered_and_sourced():
    reference = {base: [record("GRPO", 8, base=base)] for base in (BASE, BASE + SUFFIX)}
    plain, padded = marks(reference, False), marks(reference, True)
    assert [mark.name for mark in padded] == ["built-in tasks, padded, measured"] and len(plain) == len(PUBLISHED) + 1
    middles = [mark.low + mark.high for mark in plain]
    assert middles == sorted(middles) and all(0 < mark.low <= mark.high < 1 for mark in plain)
    assert all(source.startswith("https://") for mark in PUBLISHED for source in mark.sources)
    assert all(mark.sources for mark in PUBLISHED)
    assert marks_table(reference).splitlines()[2].startswith("| 7B to 8B, 8 to 32 GPUs | 27–49 | https://github.com/")
    assert marks({BASE: reference[BASE]}, True) == []


def test_picture_has_a_line_per_method(tmp_path, monkeypatch):
    from matplotlib.figure import Figure

    figures = []
    monkeypatch.setattr(
        Figure, "savefig", lambda self, path, save=Figure.savefig: figures.append(self) or save(self, path)
    )
    rows = {"GRPO": runs("GRPO", 6), "GRPO small": runs("GRPO small", 5, 0.5), "a": runs("a", 4, 0.25)}
    draw(rows, tmp_path / "share.png", 30, rows["GRPO"])
    assert (tmp_path / "share.png").read_bytes().startswith(b"\x89PNG")
    left, right = figures[0].axes
    assert [text.get_text() for text in figures[0].legends[0].get_texts()] == ["a"]
    assert len(left.texts) == len(PUBLISHED) + 1 and not right.texts
