"""The experiments on learning: intervals against simulation, tables against hand figures; a cell run through train.py;
the ablation on runs that are made up, and every cell of it a valid configuration."""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.learning import ablation, demo_results, search
from benchmarks.learning import time_to_target as bench_learning
from benchmarks.learning.intervals import crossed_interval, quantile
from benchmarks.learning.kl_to_base import kl_to_base, mean_kl
from benchmarks.learning.runs import Cell, crossing, curve, scores, train, train_all
from d3s.config.load import dump_config, load_config
from d3s.report.runs import load_runs

ROOT = Path(__file__).resolve().parents[2]


def make_run(folder: Path, passes: list[float], tokens: int, seconds: float, problems: int = 10):
    """Two steps between evaluations; every step trains as many tokens and takes as long. Ten samples a problem, of
    which every problem has as many right."""
    folder.mkdir(parents=True)
    evals = [
        {"step": 2 * i, "data": "x", "wall_time": 9.0 * i, "n": 10, "pass@1": p, "right": [round(10 * p)] * problems}
        for i, p in enumerate(passes)
    ]
    costs = {"wall_time": 9.0, "selection/tokens": tokens, "time/cpu": seconds, "grad_norm": 0.5}
    shares = {"selection/usefulness": 0.75, "policy/clip_low": 0.01, "policy/clip_high": 0.02}
    metrics = [
        {"step": s, "tokens_trained": s * tokens, "tokens_generated": 100 * s} | costs | shares
        for s in range(1, 2 * len(passes) - 1)
    ]
    for name, content in (("eval", evals), ("metrics", metrics)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in content))
    return load_runs([folder])[0]


def test_a_crossing_is_interpolated_between_evaluations(tmp_path):
    run = make_run(tmp_path / "run", [0.2, 0.4, 0.8], tokens=100, seconds=10.0)
    assert [x.tolist() for x in curve(run, "pass@1", "tokens")] == [[0, 200, 400], [0.2, 0.4, 0.8]]
    assert [crossing(run, 0.5, axis) for axis in ("step", "tokens", "seconds")] == pytest.approx([2.5, 250, 25])
    assert crossing(run, 0.9, "step") is None


def test_intervals_are_students():
    assert bench_learning.interval([1000.0, 2000.0, 3000.0]) == "2,000 ± 2,484"  # 4.303 / sqrt(3)
    assert bench_learning.interval([None, None]) == "never"


@pytest.mark.parametrize("bases, seeds", [(1, 5), (2, 3)])
@pytest.mark.parametrize("run_sd, problem_sd, rest_sd", [(2, 0, 10), (0, 15, 30), (2, 15, 30), (0, 0, 30)])
def test_interval_covers_new_runs_and_problems(bases, seeds, run_sd, problem_sd, rest_sd):
    """Points of differences whose truth is 0, as drawn from a model with an effect of the run, of the problem, and a
    rest. Student's interval over run means does not know that the problems are a sample."""
    rng = np.random.default_rng(0)
    draws, problems, covered, of_runs = 600, 64, 0, 0
    for _ in range(draws):
        values = rng.normal(0, rest_sd, (bases, seeds, problems)) + rng.normal(0, run_sd, (bases, seeds, 1))
        values += rng.normal(0, problem_sd, problems)
        interval = crossed_interval(values)
        assert interval.value == pytest.approx(values.mean())
        covered += interval.low <= 0 <= interval.high
        if problem_sd and not run_sd:
            runs = values.mean(2).ravel()
            of_runs += abs(runs.mean()) <= quantile(runs.size - 1) * runs.std(ddof=1) / runs.size**0.5
    assert 0.93 <= covered / draws <= 0.99
    assert of_runs / draws < 0.9


def test_interval_follows_students_without_problem_effects():
    """Two runs whose problems are all alike: mean 0, t(1) = 12.706, deviation sqrt(2), of two runs: 1."""
    values = np.array([[[-1.0] * 7, [1.0] * 7]])
    interval = crossed_interval(values)
    assert (interval.low, interval.high) == pytest.approx((-12.706, 12.706), rel=1e-3)
    assert crossed_interval(values[:, :1]).low is None


def test_seeds_are_compared_within_their_base_model():
    """A base model that is better by 50 points tells nothing about the seeds."""
    values = np.random.default_rng(1).normal(0, 1, (2, 3, 20))
    shifted = values + np.array([0.0, 50.0])[:, None, None]
    near, far = crossed_interval(values), crossed_interval(shifted)
    assert far.value == pytest.approx(near.value + 25)
    assert far.high - far.low == pytest.approx(near.high - near.low)


def test_problems_are_paired(tmp_path):
    """Problems differ by up to 70 points and seeds by 10, every pair by exactly 20."""
    low, high = ([make_run(tmp_path / f"{name}{i}", [0, 0.1], 10, 1.0, 4) for i in range(2)] for name in "ab")
    for seed in range(2):
        low[seed].evaluations[-1]["right"] = [seed, 1, 4, 7 + seed]
        high[seed].evaluations[-1]["right"] = [2 + seed, 3, 6, 9 + seed]
    assert scores([low], 1)[0, 1].tolist() == pytest.approx([0.1, 0.1, 0.4, 0.8])
    assert scores([low], 2)[0, 1, 3] == pytest.approx(1 - 1 / 45)  # 2 wrong of 10: one pair of 45
    assert ablation.difference([high], [low], 1) == "+20.0 (+20.0 to +20.0)"


def test_rows_of_other_lengths_are_compared_in_equal_time_only(tmp_path):
    """Two steps of 10 s against four of 4.8, 5.2 and 5.4 s: 4 % less, 4 % and 8 % more."""
    first = make_run(tmp_path / "first", [0.1, 0.5], 10, 10.0)
    others = {x: make_run(tmp_path / str(x), [0.1, 0.3, 0.6], 10, x) for x in (4.8, 5.2, 5.4)}
    lines = ablation.learned([("first", [[first]]), *((str(x), [[run]]) for x, run in others.items())]).splitlines()
    assert lines[2] == "| first | 2 | 20.0 | 50.0 | 100.0 | – | – |"
    assert lines[3].startswith("| 4.8 | 4 | 19.2 | 60.0 ") and lines[3].endswith(" | +10.0 | +0.0 |")
    assert lines[4].endswith(" | +10.0 | +0.0 |")
    assert lines[5].endswith(" | not compared: +8% seconds | – |")
    dear = make_run(tmp_path / "dear", [0.1, 0.4], 10, 30.0)  # at equal steps seconds do not matter
    assert ablation.comparison([[dear]], [[first]]) == ["-10.0", "+0.0"]


def test_kl_of_logits_against_the_library():
    import torch
    from torch.distributions import Categorical, kl_divergence

    own, ref = (torch.randn(7, 11, generator=torch.Generator().manual_seed(i)) for i in range(2))
    expected = kl_divergence(Categorical(logits=own), Categorical(logits=ref)).mean().item()
    assert mean_kl(own, ref) == pytest.approx(expected, rel=1e-5) and expected > 0.1


def kl_one_by_one(run: Path, base: Path) -> float:
    """Each response alone, without padding, by the library's divergence."""
    import torch
    from torch.distributions import Categorical, kl_divergence
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from d3s.config.schema import RolloutConfig
    from d3s.data.problems import load_problems
    from d3s.rollout import build_engine
    from d3s.rollout.engine import SamplingParams

    problems = load_problems("synthetic:precedence", split="validation", limit=2)
    prompts = AutoTokenizer.from_pretrained(base)([p.problem for p in problems]).input_ids
    settings = RolloutConfig(engine="transformers")
    engine = build_engine(str(run / "model"), settings, dtype="float32", max_model_len=256, seed=0)
    rollouts = engine.generate(prompts, 1, SamplingParams(max_tokens=8), seeds=[0, 1])
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
    names = {m.name for m in ablation.METHODS}
    assert {of for study in ablation.STUDIES for _, of in study.cells} <= names
    assert {name for _, *pair in ablation.PAIRS for name in pair} <= names


def test_steps_that_fit_into_the_seconds_of_grpo(tmp_path):
    """GRPO takes 2 steps of 40 s; what takes 4 s a step gets 20 steps, what takes 10 s gets 8."""
    names = [ablation.FEW, "PODS", "D1S-Cross", "D3S", "D3S, fixed"]
    rows = {"GRPO": [[make_run(tmp_path / "GRPO", [0.1, 0.5], 10, 40.0)]]}
    rows |= {name: [[make_run(tmp_path / name, [0.1, 0.5], 10, 4.0 if name == "D3S" else 10.0)]] for name in names}
    study = ablation.equal_time(rows)
    assert {name: config_of(cell).train.steps for cell, name in study.cells} == dict.fromkeys(names, 8) | {
        "GRPO": 48,
        "D3S": 20,
    }


def config_of(cell: Cell):
    words = cell.command()[1:]
    return load_config([w for w in words if "=" not in w], [w for w in words if "=" in w])


def test_ratios_of_sequences_have_one_denominator_and_several_clips():
    gspo, d3s = (config_of(ablation.NAMED[name]) for name in ("GSPO", "D3S on GSPO"))
    assert gspo.loss == d3s.loss and gspo.optim == d3s.optim and d3s.schedule.n_final == 16
    for name in ("GSPO", "D3S on GSPO"):
        method = ablation.NAMED[name]
        tried = [config_of(method.also(*words)).loss for words in ablation.candidates(method, [1e-4, 2e-4]).values()]
        assert [(loss.epsilon, loss.epsilon_high) for loss in tried] == 2 * list(ablation.CLIPS)
    assert len(ablation.candidates(ablation.NAMED["D3S"], [1e-4, 2e-4])) == 2


def pretend(runs, root: Path, processes: int) -> dict:
    """In the place of train_all: runs of which only the figures are made up, GRPO's 0.2 above the others, the wider
    clip better than others."""
    made = {}
    for cell, seed in runs:
        folder = cell.folder(root) / f"seed{seed}"
        if not folder.exists():
            config = config_of(cell.also(f"train.seed={seed}"))
            end = 0.4 + (0.2 if cell.name.startswith("GRPO") else 0.0) + (0.1 if config.loss.epsilon == 0.03 else 0.0)
            make_run(folder, [0.1, end / 2, end], tokens=20, seconds=1.0)
            dump_config(config, folder / "config.yaml")
        made[cell, seed] = load_runs([folder])[0]
    return made


@pytest.fixture
def made_up(tmp_path, monkeypatch):
    """The ablation but for its runs: three methods, one study. Called with arguments, it writes below tmp_path."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "results.md").write_text("before\n<!-- ablation -->\nold\n<!-- /ablation -->\nafter\n")
    (tmp_path / "README.md").write_text("# A project\n<!-- ablation -->\n<!-- /ablation -->\nits end\n")
    grpo, d3s, gspo = (ablation.NAMED[name] for name in ("GRPO", "D3S", "GSPO"))
    monkeypatch.setattr(ablation, "METHODS", [grpo, d3s, gspo])
    monkeypatch.setattr(ablation, "PAIRS", [("a question", "D3S", "GRPO")])
    study = ablation.Study("A study", ("tiny:countdown",), [(d3s, "D3S"), (grpo, "GRPO")])
    monkeypatch.setattr(ablation, "STUDIES", [study])
    monkeypatch.setattr(
        ablation, "equal_time", lambda rows: ablation.Study("Equal time", ablation.BASES, [(d3s, "D3S")])
    )
    monkeypatch.setattr(ablation, "train_all", pretend)
    monkeypatch.setattr(ablation, "kl_to_base", lambda path: 0.25)
    monkeypatch.setattr(ablation, "ensure_base", lambda name, steps=None: name)
    monkeypatch.setattr(ablation, "DOCS", tmp_path / "docs")
    monkeypatch.setattr(ablation, "RESULTS", tmp_path)
    monkeypatch.chdir(ROOT)

    def call(*options: str) -> tuple[str, str]:
        monkeypatch.setattr(sys, "argv", ["ablation", *options, "--folder", str(tmp_path / "runs")])
        ablation.main()
        return (tmp_path / "docs" / "results.md").read_text(), (tmp_path / "README.md").read_text()

    return call


def test_the_ablation_ends_with_tables_and_a_picture(made_up, tmp_path):
    text, readme = made_up("--seeds", "2")
    assert text.startswith("before\n<!-- ablation -->\n2 base models x 2 seeds a row, code at ")
    assert text.endswith("<!-- /ablation -->\nafter\n") and "old" not in text
    assert readme.startswith("# A project\n<!-- ablation -->\n2 base models")
    assert readme.endswith("|\n<!-- /ablation -->\nits end\n")
    same, less = "40.0 (40.0 to 40.0)", "-20.0 (-20.0 to -20.0)"
    assert f"| D3S | {same} | 100.0 (100.0 to 100.0) | 20.0 | {less} |" in readme
    assert f"| D3S | 4 | 4.0 | {same} | 100.0 (100.0 to 100.0) | {less} |" in text
    assert f"| a question | D3S over GRPO | {less} |" in text
    assert "| D3S | 20.0 | 75.0 | 3.0 | 0.50 | 0.250 (0.250 to 0.250) |" in text
    assert "| GRPO | – | 60.0 taken | 60.0 | 60.0 |" in text  # of three equal rates the first
    assert "| GSPO | 0.03 / 0.04 | 50.0 taken | 50.0 | 50.0 |" in text
    assert "| GSPO | 0.1 / 0.13 | 40.0 | 40.0 | 40.0 |" in text
    assert "**Equal time** (4 runs a row)" in text and "**A study** (2 runs a row)" in text
    assert (tmp_path / "docs" / "ablation.png").stat().st_size > 10_000
    assert len(json.loads((tmp_path / "ablation.json").read_text())["runs"]) == 3 * 2 * 2 + 2 * 2 + 2 * 2
    runs = [load_config([path], []) for path in (tmp_path / "runs").glob("*/seed*/config.yaml")]
    assert {(c.eval.split, c.train.seed) for c in runs} == {("test", 0), ("test", 1)}
    assert {c.model.name for c in runs} == {*ablation.BASES, "tiny:countdown"}
    assert {c.loss.epsilon for c in runs if c.loss.kind == "gspo"} == {0.03}
    swept = [load_config([path], []) for path in (tmp_path / "runs" / "sweep").glob("*/*/config.yaml")]
    assert len(swept) == 3 * (1 + 1 + 3) and {(c.eval.split, c.train.seed) for c in swept} == {("validation", 100)}
    assert {c.optim.learning_rate for c in swept} == set(ablation.RATES)


def test_main_comparison_alone_makes_a_third_of_the_runs(made_up, tmp_path):
    text, _ = made_up("--only", "main", "--seeds", "1", "--bases", "1")
    assert "1 base model x 1 seeds a row" in text and "learning rate 0.0002.\n" in text
    assert "| D3S over GRPO | -20.0 |" in text and "A study" not in text
    assert len(list((tmp_path / "runs").glob("*/seed*"))) == 3
    assert len(list((tmp_path / "runs" / "sweep").glob("*/*"))) == 3  # the clips of GSPO


def test_demo_results_are_those_of_its_files(tmp_path):
    for when, value in (("before", 0.25), ("after", 0.75)):
        result = {"problems": 40, "n": 8, "mean_length": 33.4} | {m: value for m in demo_results.METRICS}
        result |= {f"{m}_ci": [value - 0.05, value + 0.05] for m in demo_results.METRICS}
        (tmp_path / f"eval-{when}").mkdir()
        (tmp_path / f"eval-{when}" / "summary.json").write_text(json.dumps({"results": [result]}))
    lines = [{"step": i, "time/step": 2.5, "tokens_trained": 9 * i, "tokens_generated": 1000 * i} for i in (1, 2)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    sentence, text = demo_results.tables(tmp_path)
    assert sentence.startswith("Pass@1 goes from 25% to 75% on 40 test problems; 1% of the sampled tokens")
    assert "2 steps, 5 s of training" in text and "Of 2,000 sampled tokens 18 (0.9%) were trained" in text
    assert "| after D3S | 75.0 (70.0 to 80.0) | 75.0 (70.0 to 80.0) | 75.0 (70.0 to 80.0) | 33.4 |" in text
