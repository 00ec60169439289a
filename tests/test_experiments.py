"""The experiments on learning: where curves are compared, against hand figures; a cell run through train.py; the
ablation on runs that are made up, and every cell of it a valid configuration."""

import json
import shutil
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import ablation, bench_learning, search  # noqa: E402
from benchmarks.drift import kl_to_base, mean_kl  # noqa: E402
from benchmarks.experiments import Cell, at_equal, crossing, curve, train, train_all  # noqa: E402
from d3s.config import dump_config, load_config  # noqa: E402
from d3s.runs import load_runs  # noqa: E402


def make_run(folder: Path, passes: list[float], tokens: int, seconds: float):
    """Two steps between evaluations; every step trains as many tokens and takes as long."""
    folder.mkdir(parents=True)
    evals = [{"step": 2 * i, "data": "x", "wall_time": 9.0 * i, "pass@1": p, "pass@8": p} for i, p in enumerate(passes)]
    costs = {"wall_time": 9.0, "selection/tokens": tokens, "time/cpu": seconds, "tokens_generated": 100}
    metrics = [{"step": s} | costs for s in range(1, 2 * len(passes) - 1)]
    for name, content in (("eval", evals), ("metrics", metrics)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in content))
    return load_runs([folder])[0]


def test_curves_are_compared_where_the_cheaper_one_ends(tmp_path):
    quick = make_run(tmp_path / "quick", [0.2, 0.4, 0.8], tokens=10, seconds=1.0)
    slow = make_run(tmp_path / "slow", [0.2, 0.6, 0.9], tokens=100, seconds=2.0)
    assert [x.tolist() for x in curve(slow, "pass@1", "tokens")] == [[0, 200, 400], [0.2, 0.6, 0.9]]
    assert at_equal(quick, slow, "step") == pytest.approx(0.8 - 0.9)
    assert at_equal(quick, slow, "seconds") == pytest.approx(0.8 - 0.6)  # after 4 s
    assert at_equal(slow, quick, "seconds") == pytest.approx(0.6 - 0.8)
    assert at_equal(quick, slow, "tokens") == pytest.approx(0.8 - (0.2 + 0.4 * 40 / 200))


def test_a_crossing_is_interpolated_between_evaluations(tmp_path):
    run = make_run(tmp_path / "run", [0.2, 0.4, 0.8], tokens=100, seconds=10.0)
    assert [crossing(run, 0.5, axis) for axis in ("step", "tokens", "seconds")] == pytest.approx([2.5, 250, 25])
    assert crossing(run, 0.9, "step") is None


def test_intervals_are_students():
    assert bench_learning.interval([1000.0, 2000.0, 3000.0]) == "2,000 ± 2,484"  # 4.303 / sqrt(3)
    assert bench_learning.interval([None, None]) == "never"


def test_paired_differences_do_not_see_what_seeds_share(tmp_path):
    """The seeds differ by 30 points, every pair by exactly 10."""
    low = [make_run(tmp_path / f"low{i}", [0.0, 0.1 + 0.3 * i], 10, 1.0) for i in range(3)]
    high = [make_run(tmp_path / f"high{i}", [0.0, 0.2 + 0.3 * i], 10, 1.0) for i in range(3)]
    row = ablation.compare(high, low)
    assert row[2:] == ["20.0", "1.00", *["+10.0 (+10.0 to +10.0)"] * 3]


def test_the_search_pairs_each_row_with_the_first_by_seed(tmp_path):
    first = [make_run(tmp_path / f"first{i}", [0.0, 0.1 + 0.3 * i], 10, 1.0) for i in range(3)]
    second = [make_run(tmp_path / f"second{i}", [0.0, 0.1, 0.05 + 0.3 * i], 10, 2.0) for i in range(3)]
    lines = search.table({"one": first, "two": second}).splitlines()[2:]
    assert lines[0].startswith("| one | 2 | 2 | 40.0 (") and lines[0].endswith(" | – |")
    assert lines[1].startswith("| two | 4 | 8 | 35.0 (") and lines[1].endswith(" | -5.0 (-5.0 to -5.0) |")


def test_kl_of_logits_against_the_library():
    import torch
    from torch.distributions import Categorical, kl_divergence

    own, ref = (torch.randn(7, 11, generator=torch.Generator().manual_seed(i)) for i in range(2))
    expected = kl_divergence(Categorical(logits=own), Categorical(logits=ref)).mean().item()
    assert mean_kl(own, ref) == pytest.approx(expected, rel=1e-5) and expected > 0.1


def test_where_steps_differ_the_table_tells_the_ends(tmp_path):
    short, long = make_run(tmp_path / "a", [0.1, 0.5], 10, 2.0), make_run(tmp_path / "b", [0.1, 0.3, 0.6], 10, 1.0)
    first, second = ablation.table([("short", [short]), ("long", [long])]).splitlines()[2:]
    assert second.endswith("| -20.0 | -20.0 | +10.0 | +10.0 | +10.0 |") and first.endswith("| – | – | – | – | – |")
    assert "end" not in ablation.table([("short", [short])])


def kl_one_by_one(run: Path, base: Path) -> float:
    """Each response alone, without padding, by the library's divergence."""
    import torch
    from torch.distributions import Categorical, kl_divergence
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from d3s.config import RolloutConfig
    from d3s.data import load_problems
    from d3s.rollout import build_engine

    problems = load_problems("synthetic:precedence", split="validation", limit=2)
    prompts = AutoTokenizer.from_pretrained(base)([p.problem for p in problems]).input_ids
    settings = RolloutConfig(engine="transformers")
    engine = build_engine(str(run / "model"), settings, dtype="float32", max_model_len=256, seed=0)
    rollouts = engine.generate(prompts, n=1, temperature=1.0, max_tokens=8, seeds=[0, 1])
    models = [AutoModelForCausalLM.from_pretrained(path) for path in (run / "model", base)]
    values = []
    for r in rollouts:
        ids = torch.tensor([r.prompt_ids + r.response_ids])
        own, ref = (Categorical(logits=m(ids).logits[0, len(r.prompt_ids) - 1 : -1]) for m in models)
        values.append(kl_divergence(own, ref))
    return torch.cat(values).mean().item()


def test_a_run_is_made_once_and_known_by_its_settings(tied_model, gqa_model, tmp_path):
    small = (
        "train.steps=2",
        "optim.warmup_steps=0",
        "train.prompts_per_step=2",
        "rollout.num_generations=2",
        "schedule.n_init=2",
    )
    small += ("schedule.n_final=2", "eval.limit=2", "eval.n=2", "eval.k=[1,2]", "rollout.max_completion_length=8")
    cell = Cell("two steps: a trial", (*small, f"model.name={tied_model}"))
    run = train_all([(cell, 3)], tmp_path, processes=1)[cell, 3]
    assert run.seed == 3 and run.last_step == 2 and all(line["time/cpu"] > 0 for line in run.metrics)
    assert (curve(run, "pass@1", "seconds")[0] > 0).tolist() == [False, True]
    before = (run.path / "metrics.jsonl").stat().st_mtime_ns
    assert train(cell, 3, tmp_path) == run.path
    assert (run.path / "metrics.jsonl").stat().st_mtime_ns == before
    assert cell.also("schedule.shape=linear").folder(tmp_path) == run.path.parent  # a default said aloud
    assert cell.also("optim.learning_rate=1e-9").folder(tmp_path) != run.path.parent
    shutil.copytree(gqa_model, run.path / "model", dirs_exist_ok=True)  # as if it had learned a lot
    expected = kl_one_by_one(run.path, tied_model)
    assert kl_to_base(run.path) == pytest.approx(expected, rel=1e-3) and expected > 0.1
    with pytest.raises(RuntimeError, match="nowhere"):
        train(cell.also("model.name=nowhere"), 0, tmp_path)


def test_every_cell_is_a_valid_configuration_of_its_own(tmp_path):
    cells = [*ablation.METHODS, *(cell for study in ablation.STUDIES for cell, _ in study.cells)]
    folders = {cell.folder(tmp_path) for cell in cells}
    assert len(folders) == len({cell.name for cell in cells})
    tried = [cell.also(*search.COMMON) for _, cells, _ in search.TABLES for cell in cells]
    assert len({cell.folder(tmp_path) for cell in tried}) == len({cell.name for cell in tried}) == len(tried)
    assert {of for study in ablation.STUDIES for _, of in study.cells} <= {m.name for m in ablation.METHODS}


def pretend(runs, root: Path, processes: int) -> dict:
    """In the place of train_all: runs of which only the figures are made up, GRPO's 0.2 above the others."""
    made = {}
    for cell, seed in runs:
        folder = cell.folder(root) / f"seed{seed}"
        if not folder.exists():
            words = [*cell.command()[1:], f"train.seed={seed}"]
            config = load_config([w for w in words if "=" not in w], [w for w in words if "=" in w])
            end = 0.4 + 0.002 * seed + (0.2 if config.loss.normalizer == "sequence" else 0.0)
            make_run(folder, [0.1, end / 2, end], tokens=20, seconds=1.0)
            dump_config(config, folder / "config.yaml")
        made[cell, seed] = load_runs([folder])[0]
    return made


def test_the_ablation_ends_with_tables_and_a_picture(tmp_path, monkeypatch):
    """The real one but for its runs: two methods, one study."""
    (tmp_path / "docs").mkdir()
    results = tmp_path / "docs" / "results.md"
    results.write_text("before\n<!-- ablation -->\nold\n<!-- /ablation -->\nafter\n")
    (tmp_path / "README.md").write_text("# A project\n<!-- ablation -->\n<!-- /ablation -->\nits end\n")
    grpo, d3s = ablation.METHODS[0], ablation.METHODS[6]
    monkeypatch.setattr(ablation, "METHODS", [grpo, d3s])
    monkeypatch.setattr(ablation, "PAIRS", [("D3S", "GRPO")])
    study = ablation.Study("A study", ("tiny:countdown",), [(d3s, "D3S"), (grpo, "GRPO")])
    monkeypatch.setattr(ablation, "STUDIES", [study])
    monkeypatch.setattr(ablation, "train_all", pretend)
    monkeypatch.setattr(ablation, "kl_to_base", lambda path: 0.25)
    monkeypatch.setattr(ablation, "ensure_base", lambda name, steps=None: name)
    monkeypatch.setattr(ablation, "DOCS", tmp_path / "docs")
    monkeypatch.setattr(ablation, "RESULTS", tmp_path)
    monkeypatch.setattr(sys, "argv", ["ablation", "--seeds", "2", "--folder", str(tmp_path / "runs")])
    monkeypatch.chdir(ROOT)
    ablation.main()
    text = results.read_text()
    assert text.startswith("before\n<!-- ablation -->\n2 base models x 2 seeds a row")
    assert text.endswith("<!-- /ablation -->\nafter\n") and "old" not in text
    readme = (tmp_path / "README.md").read_text()
    assert readme.startswith("# A project\n<!-- ablation -->\n|")
    assert readme.endswith("|\n<!-- /ablation -->\nits end\n")
    row = "| D3S | 40.1 (39.9 to 40.3) | 40.1 (39.9 to 40.3) | 80.0 | 1.00 | -20.0 (-20.0 to -20.0) |"
    assert row in text and row in readme
    assert "| D3S over GRPO | -20.0 (-20.0 to -20.0) |" in text
    assert "| D3S | 0.250 (0.250 to 0.250) | +0.000 (+0.000 to +0.000) |" in text
    assert "| GRPO | 80.0 | 80.0 | 80.0 | 0.0001 |" in text  # of three equal rates the first
    assert "**A study** (2 runs a row)" in text and text.count("| GRPO | ") >= 4
    assert (tmp_path / "docs" / "ablation.png").stat().st_size > 10_000
    assert len(json.loads((tmp_path / "ablation.json").read_text())["runs"]) == 2 * 2 * 2 + 2 * 2
    runs = [load_config([path], []) for path in (tmp_path / "runs").glob("*/seed*/config.yaml")]
    assert {(c.eval.split, c.train.seed) for c in runs} == {("test", 0), ("test", 1)}
    assert {c.model.name for c in runs} == {*ablation.BASES, "tiny:countdown"}
    swept = [load_config([path], []) for path in (tmp_path / "runs" / "sweep").glob("*/*/config.yaml")]
    assert len(swept) == 6 and {(c.eval.split, c.train.seed) for c in swept} == {("validation", 100)}
    assert {c.optim.learning_rate for c in swept} == set(ablation.RATES)
