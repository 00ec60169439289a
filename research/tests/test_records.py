"""Records of runs against hand-computed values, and the file that keeps them."""

from dataclasses import fields, replace

import numpy as np
import pytest

from d3s.evaluation.estimators import pass_at_k
from d3s.report.runs import load_runs
from d3s.tracking.metrics import update_metrics
from research.records import LOGGED, PEAKS, norm_variance_correlation, read, record_run, write
from research.tests.experiments import make_record, write_run
from tests.helpers.training import EVALUATED, train

TEXTS = {"part": "compare", "row": "a, |b|", "base": "tiny:precedence", "seed": 3, "arguments": "x.yaml a.b=[1, 2]"}
TEXTS |= {"revision": "abc", "cpu": "a CPU"}


@pytest.fixture
def run(tmp_path):
    """Five steps, evaluated after 0, 2 and 5 of them; steps 1 and 4 have no update."""
    costs = (
        ("selection/tokens_total", 10),
        ("selection/tokens", 1),
        ("selection/tokens_forwarded", 2),
        ("time/cpu", 0.5),
    )
    lines = [{"step": step} | update_metrics([]) | {key: cost * step for key, cost in costs} for step in range(1, 6)]
    for step, norm, low, high in ((2, 0.4, 0.1, 0.2), (3, 0.9, 0.0, 0.1), (5, 0.3, 0.2, 0.3)):
        update = {"grad_norm": norm, "policy/clip_low": low, "policy/clip_high": high, "advantage/var_selected": norm}
        lines[step - 1] |= update | {"optimizer_steps": 1}
    for line in lines:
        line["reward/accuracy"] = line["step"] / 10
    evaluations = [{"step": step, "n": 8, "right": [step, 8, 0]} for step in (0, 2, 5)]
    return write_run(tmp_path / "run", lines[::-1], evaluations)


def test_record_sums_what_was_spent(run):
    record = record_run(run, {}, **TEXTS)
    assert record.steps.tolist() == [0, 2, 5]
    assert record.generated.tolist() == [0, 30, 150]
    assert record.trained.tolist() == [0, 3, 15]
    assert record.forwarded.tolist() == [0, 6, 30]
    assert record.seconds.tolist() == [0, 1.5, 7.5]
    assert {name: getattr(record, name) for name in TEXTS} == TEXTS


def test_record_averages_over_intervals(run):
    logged = record_run(run, {}, **TEXTS).logged
    assert logged["reward"] == pytest.approx([0.15, 0.4])
    assert logged["grad_norm"] == pytest.approx([0.4, 0.6])  # steps without an update do not count
    assert logged["grad_norm_peak"] == pytest.approx([0.4, 0.9])
    assert logged["clipped"] == pytest.approx([0.3, 0.3])
    assert np.isnan(logged["entropy"]).tolist() == [True, True]
    assert logged.keys() == {*LOGGED, *PEAKS}


def test_every_column_is_of_a_real_run(tied_model, tmp_path):
    _, steps = train(tied_model, tmp_path, overrides=[*EVALUATED, "train.steps=3", "eval.every=2"])
    record = record_run(load_runs([tmp_path])[0], {}, **TEXTS)
    assert record.steps.tolist() == [0, 2, 3]
    for name, key in (("generated", "tokens_generated"), ("trained", "tokens_trained")):
        assert getattr(record, name).tolist() == [0, steps[1][key], steps[2][key]]
    assert record.seconds[1:] == pytest.approx(np.cumsum([step["time/cpu"] for step in steps])[1:])
    assert all(np.isfinite(values).all() for values in record.logged.values())
    assert record.logged["reward"][0] == pytest.approx((steps[0]["reward/accuracy"] + steps[1]["reward/accuracy"]) / 2)


def test_record_places_kl_and_right_answers(run):
    record = record_run(run, {0: 0.0, 5: 0.25}, **TEXTS)
    np.testing.assert_array_equal(record.kl_to_base, [0, np.nan, 0.25])
    assert record.right.tolist() == [[0, 8, 0], [2, 8, 0], [5, 8, 0]]
    assert np.isnan(record.norm_follows_variance)  # two changes are too few


@pytest.mark.parametrize("k", [1, 2, 4, 8])
def test_scores_agree_with_pass_at_k(k):
    record = make_record([0, 6], [list(range(9)), [8] * 9])
    expected = [pass_at_k(8, right, k) for right in range(9)]
    np.testing.assert_array_equal(record.scores(k), [expected, [1.0] * 9])
    assert record.levels(k) == pytest.approx([np.mean(expected), 1])


def lines_of(norms, variances) -> list[dict]:
    return [{"grad_norm": norm, "advantage/var_selected": v} for norm, v in zip(norms, variances)]


def test_norm_variance_correlation_with_ties():
    """Changes 1 2 2 -1 3 and 1 1 3 0 2 have ranks 2 3.5 3.5 1 5 and 2.5 2.5 5 1 4: 7.25 / 9.5."""
    lines = lines_of(np.cumsum([1, 1, 2, 2, -1, 3]), np.cumsum([5, 1, 1, 3, 0, 2]))
    assert norm_variance_correlation(lines) == pytest.approx(7.25 / 9.5)
    assert norm_variance_correlation([{"loss": 0.0}, *lines]) == pytest.approx(7.25 / 9.5)  # a step without update


@pytest.mark.parametrize("norms, variances", [([], []), ([1, 3, 2], [1, 3, 2]), ([1, 3, 2, 5], [2, 2, 2, 2])])
def test_norm_variance_correlation_needs_changes(norms, variances):
    assert np.isnan(norm_variance_correlation(lines_of(norms, variances)))


def test_file_returns_every_field(tmp_path):
    """Values of at most four digits, with what is not a number, and names with the separators of the file."""
    rng = np.random.default_rng(0)
    logged = {name: rng.integers(1, 9999, 2) / 100 for name in (*LOGGED, *PEAKS)} | {"entropy": np.array([np.nan, 1])}
    curves = {name: np.array([0.0, 1234.5, 98765]) for name in ("generated", "trained", "forwarded", "seconds")}
    kl = np.array([0.0, np.nan, 0.25])
    expected = make_record([0, 12, 24], [[0, 8], [4, 1], [3, 3]], **TEXTS, **curves, logged=logged, kl_to_base=kl)
    expected = replace(expected, norm_follows_variance=-0.125)
    write(tmp_path / "new" / "runs.csv", [expected])
    (got,) = read(tmp_path / "new" / "runs.csv")
    for field in fields(expected):
        np.testing.assert_equal(getattr(got, field.name), getattr(expected, field.name), field.name)


def test_equal_records_make_equal_files(tmp_path):
    records = [
        make_record([0, 7], [[1], [2]], part=part, row=row, base=base, seed=seed)
        for part in ("compare", "sweep")
        for row in "ab"
        for base in ("x", "y")
        for seed in (2, 10)
    ]
    write(tmp_path / "a.csv", records)
    write(tmp_path / "b.csv", reversed(records))
    write(tmp_path / "c.csv", read(tmp_path / "a.csv"))
    contents = {(tmp_path / f"{name}.csv").read_bytes() for name in "abc"}
    assert len(contents) == 1
    assert [r.seed for r in read(tmp_path / "a.csv")[:3]] == [2, 10, 2]  # seeds are sorted as numbers
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csv", "b.csv", "c.csv"]


def test_missing_file_has_no_records(tmp_path):
    assert read(tmp_path / "runs.csv") == []
