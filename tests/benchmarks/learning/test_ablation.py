"""The ablation from the sweep to its pages, on artificial runs with known results."""

import json
import sys
from pathlib import Path

import pytest

from benchmarks.learning import ablation, tables
from benchmarks.learning.methods import BASES, BY_NAME, RATES, Comparison, Study
from d3s.config.load import load_config
from tests.helpers.experiments import artificial_runs

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def run_ablation(tmp_path, monkeypatch):
    """run_ablation(options) runs three methods and one study below tmp_path, and returns the three pages' texts."""
    (tmp_path / "docs").mkdir()
    pages = [tmp_path / "docs" / "results-tables.md", tmp_path / "docs" / "results.md", tmp_path / "README.md"]
    for page in pages:
        page.write_text("before\n<!-- ablation -->\nold\n<!-- /ablation -->\nafter\n")
    grpo, d3s, gspo = (BY_NAME[name] for name in ("GRPO", "D3S", "GSPO"))
    replacements = {
        "METHODS": [grpo, d3s, gspo],
        "STUDIES": [Study("A study", ("tiny:countdown",), [(d3s, "D3S"), (grpo, "GRPO")])],
        "equal_time": lambda rows: Study("Equal time", BASES, [(d3s, "D3S")]),
        "train_all": artificial_runs,
        "ensure_base": lambda name, steps=None: name,
        "DOCS": tmp_path / "docs",
        "RESULTS": tmp_path,
    }
    for name, value in replacements.items():
        monkeypatch.setattr(ablation, name, value)
    monkeypatch.setattr(tables, "COMPARISONS", [Comparison("a claim", "D3S", "GRPO")])
    monkeypatch.setattr(tables, "kl_to_base", lambda path: 0.25)
    monkeypatch.chdir(ROOT)

    def call(*options: str) -> list[str]:
        monkeypatch.setattr(sys, "argv", ["ablation", *options, "--folder", str(tmp_path / "runs")])
        ablation.main()
        return [page.read_text() for page in pages]

    return call


def test_ablation_writes_pages_and_picture(run_ablation, tmp_path):
    text, results, readme = run_ablation("--seeds", "2")
    for page in (text, results, readme):
        assert page.startswith("before\n<!-- ablation -->\n") and page.endswith("\n<!-- /ablation -->\nafter\n")
        assert "\n2 base models x 2 seeds per row, code at " in page and "old" not in page
    assert "D3S trains 100.0 % of GRPO's tokens in 100 % of its CPU seconds." in results
    assert "its Pass@1 is 20.0 points lower than GRPO's." in results
    same, less = "40.0 (40.0 to 40.0)", "-20.0 (-20.0 to -20.0)"
    assert "| GRPO | 60.0 | 100.0 | 20.0 | 4.0 |\n| D3S | 40.0 | 100.0 | 20.0 | 4.0 |\n<!--" in readme
    assert "| a claim | no | -20.0 points | [comparisons](results-tables.md#comparisons) |" in results
    assert f"| D3S | 4 | 4.0 | {same} | 100.0 (100.0 to 100.0) | {less} |" in text
    assert f"| a claim | D3S over GRPO | {less} |" in text
    assert "| D3S | 20.0 | 75.0 | 3.0 | 0.50 | 0.250 (0.250 to 0.250) |" in text
    assert "| GRPO | – | 60.0 chosen | 60.0 | 60.0 |" in text  # of three equal rates the first
    assert "| GSPO | 0.03 / 0.04 | 50.0 chosen | 50.0 | 50.0 |" in text
    assert "| GSPO | 0.1 / 0.13 | 40.0 | 40.0 | 40.0 |" in text
    assert "### Equal time\n\n4 runs per row.\n" in text and "### A study\n\n2 runs per row.\n" in text
    assert (tmp_path / "docs" / "ablation.png").stat().st_size > 10_000
    assert len(json.loads((tmp_path / "ablation.json").read_text())["runs"]) == 3 * 2 * 2 + 2 * 2 + 2 * 2


def test_ablation_sweeps_validation_and_evaluates_test(run_ablation, tmp_path):
    run_ablation("--seeds", "2")
    runs = [load_config([path], []) for path in (tmp_path / "runs").glob("*/seed*/config.yaml")]
    assert {(c.eval.split, c.train.seed) for c in runs} == {("test", 0), ("test", 1)}
    assert {c.model.name for c in runs} == {*BASES, "tiny:countdown"}
    assert {c.loss.epsilon for c in runs if c.loss.kind == "gspo"} == {0.03}
    swept = [load_config([path], []) for path in (tmp_path / "runs" / "sweep").glob("*/*/config.yaml")]
    assert len(swept) == 3 * (1 + 1 + 3) and {(c.eval.split, c.train.seed) for c in swept} == {("validation", 100)}
    assert {c.optim.learning_rate for c in swept} == set(RATES)


def test_main_comparison_alone_makes_a_third_of_the_runs(run_ablation, tmp_path):
    text, *_ = run_ablation("--only", "main", "--seeds", "1", "--bases", "1")
    assert "1 base model x 1 seeds per row" in text and "learning rate 0.0002.\n" in text
    assert "| D3S over GRPO | -20.0 |" in text and "A study" not in text
    assert len(list((tmp_path / "runs").glob("*/seed*"))) == 3
    assert len(list((tmp_path / "runs" / "sweep").glob("*/*"))) == 3  # the clips of GSPO
