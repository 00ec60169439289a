"""Each benchmark, through its command line, at the smallest size: that it runs, compares what it says, and prints its
table. What it measures at that size says nothing. And the parts that compute something, against independent answers."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks import harness
from benchmarks.harness import TRL_PYTHON, make_rollouts, with_spread
from benchmarks.speed import gpu
from benchmarks.speed import scaling as bench_scaling
from benchmarks.speed.dense_grpo import DenseGrpo
from benchmarks.speed.scaling import exponent, fit
from tests.helpers.models import save_random_model

ROOT = Path(__file__).resolve().parents[2]
needs_trl = pytest.mark.skipif(not TRL_PYTHON.exists(), reason="TRL is not installed (make .venv-trl/.installed)")
TINY = ["--hidden", "32", "--layers", "1", "--rounds", "1"]


def run(results: Path, script: str, *options: str) -> str:
    """The script's output; its files go to `results`."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "200", "D3S_RESULTS": str(results)}
    command = [sys.executable, "-m", f"benchmarks.{script}", *options]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


@needs_trl
def test_the_update_benchmark_shows_equal_losses_and_times_all_sides(tmp_path):
    small = ["--rollouts", "8", "--group", "4", "--micro-batch", "4", "--prompt-tokens", "4", "--response-tokens", "8"]
    text = run(tmp_path, "speed.update", "--vocabularies", "300", *small, *TINY)
    assert "grpo: ours" in text and "dapo: ours" in text
    for side in ("D3S, N = G/4", "ours, N = G", "dense GRPO", "TRL"):
        assert side in text
    record = json.loads((tmp_path / "update.json").read_text())
    for compared in record["equal"].values():
        assert compared["gap"] < 1e-5 and compared["norm_gap"] < 1e-3
        assert max(map(abs, compared["d3s"]["loss"])) > 1e-3  # equal, and not all zero


@needs_trl
def test_the_step_benchmark_times_whole_steps_with_vllm_on_both_sides(tmp_path):
    small = ["--prompts", "1", "--group", "8", "--micro-batch", "4", "--response-tokens", "8", "--vocabulary", "300"]
    text = run(tmp_path, "speed.step", *small, *TINY)
    assert "D3S, N = 5 of 8" in text and "TRL" in text


def test_the_rollout_benchmark_times_our_engine_and_a_bare_one(tmp_path):
    small = ["--prompts", "2", "--n", "2", "--tokens", "8", "--syncs", "1"]
    text = run(tmp_path, "speed.rollout", *small, *TINY)
    assert "LLM.generate" in text and "with entropies" in text and "Weight sync" in text


def test_the_gpu_benchmark_runs_on_tiny_shapes(tmp_path):
    text = run(
        tmp_path,
        "speed.gpu",
        "--shapes",
        "tiny",
        "--lengths",
        "16",
        "--rollouts",
        "8",
        "--prompt-tokens",
        "4",
        "--rounds",
        "1",
    )
    assert "dense GRPO" in text and "MFU" in text
    results = json.loads((tmp_path / "gpu.json").read_text())["cases"]["tiny-16"]
    for side in ("D3S, N = G/4, K = 5 %", "dense GRPO"):  # without a mask a flash kernel may run, here the CPU's
        assert results[side]["attention"] == ["scaled_dot_product_flash_attention_for_cpu"]


def test_gpu_results_survive_a_kill_and_the_end_of_the_budget(tmp_path, monkeypatch):
    called = []

    def attempt(side):
        called.append(side)
        if len(called) == 2:
            raise KeyboardInterrupt
        return side()

    monkeypatch.setattr(harness, "RESULTS", tmp_path)
    monkeypatch.setattr(gpu, "attempt", attempt)
    monkeypatch.setattr(gpu, "matrix_rate", lambda: 1e9)
    command = [
        "speed.gpu",
        "--shapes",
        "tiny",
        "--lengths",
        "8",
        "--rollouts",
        "8",
        "--prompt-tokens",
        "4",
        "--rounds",
        "1",
    ]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(KeyboardInterrupt):
        gpu.main()
    (side,) = json.loads((tmp_path / "gpu.json").read_text())["cases"]["tiny-8"].values()
    assert side["seconds"][0] > 0 and "| tiny | 8 | D3S, N = G/4, K = 5 % | " in (tmp_path / "gpu.md").read_text()
    ticks = iter([0.0, 1.0, 2.0, 4.0, 4.0, 4.0])  # started, then before each side
    monkeypatch.setattr(gpu.time, "perf_counter", lambda: next(ticks))
    monkeypatch.setattr(gpu, "attempt", lambda side: {"failed": "tried"})
    monkeypatch.setattr(sys, "argv", [*command, "--budget", "3"])
    gpu.main()
    text = (tmp_path / "gpu.md").read_text()
    assert text.count("| tried |") == 2 and "no time was left for: tiny at 8, ours" in text and "8, TRL" in text


# --- what the benchmarks compute themselves --------------------------------------------------------------------------


def test_the_dense_update_has_the_loss_of_a_loop_over_tokens(tmp_path):
    from transformers import AutoModelForCausalLM

    path = save_random_model(tmp_path / "model", seed=3)
    work = make_rollouts(257, prompts=2, group=3, prompt_tokens=6, response_tokens=9, ragged=True)
    advantages = torch.randn(6, generator=torch.Generator().manual_seed(0))
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    expected = 0.0
    for prompt, response, advantage in zip(work["prompts"], work["responses"], advantages):
        with torch.no_grad():
            logprobs = model(torch.tensor([prompt + response])).logits[0].log_softmax(-1)
        new = [logprobs[len(prompt) - 1 + t, token].item() for t, token in enumerate(response)]
        expected -= sum(float(advantage) for _ in new) / len(response) / 6  # on policy every ratio is 1
    before = model.lm_head.weight.detach().clone()
    side = DenseGrpo(model, micro_batch=4)
    assert side.update(work["prompts"], work["responses"], advantages) == pytest.approx(expected, abs=1e-5)
    assert not torch.equal(before, side.model.lm_head.weight)
    last = torch.cat([logprobs[len(prompt) - 1 + t][None] for t in range(len(response))])
    ids, rows, _ = side._padded([prompt], [response])
    with torch.no_grad():
        entropies = side._logprobs(ids, rows)[1][0]
    torch.testing.assert_close(entropies, -(last.exp() * last).sum(-1), atol=1e-3, rtol=1e-3)  # after a step of 1e-6


def test_the_scaling_benchmark_fits_what_a_dry_run_reads(tmp_path, monkeypatch, capsys):
    """From a smaller base than on its command line."""
    monkeypatch.setattr(bench_scaling, "BASE", {"group": 4, "response_tokens": 8, "vocabulary": 300, "hidden": 64})
    for module in (bench_scaling, harness):
        monkeypatch.setattr(module, "RESULTS", tmp_path)
    options = ["--doublings", "1", "--rounds", "1", "--axes", "response_tokens"]
    monkeypatch.setattr(sys, "argv", ["speed.scaling", *options])
    bench_scaling.main()
    text = capsys.readouterr().out
    assert "8 / 16" in text and "Units of work" in text
    record = json.loads((tmp_path / "scaling.json").read_text())
    assert (tmp_path / "scaling.png").stat().st_size > 10_000
    assert {"generate", "update", "sync"} == set(record["units"]) and record["machine"]["gpu"]
    assert all(unit >= 0 for kinds in record["units"].values() for unit in kinds.values())


def test_units_of_work_are_found_and_never_negative():
    works = [{"calls": 1, "tokens": t, "weights": w} for t, w in ((10, 5), (20, 5), (40, 5), (40, 50), (10, 90))]
    exact = [(work, 2.0 + 0.5 * work["tokens"] + 0.1 * work["weights"]) for work in works]
    assert fit(exact) == pytest.approx({"calls": 2.0, "tokens": 0.5, "weights": 0.1})
    falling = fit([(work, 30.0 + work["tokens"] - 0.2 * work["weights"]) for work in works])
    assert falling["weights"] == 0 and falling["tokens"] > 0.5


def test_exponents_and_spread():
    assert exponent([1, 2, 4], [3.0, 12.0, 48.0]) == pytest.approx(2)
    assert with_spread([{"x": 1.0}, {"x": 3.0}, {"x": 2.0}], "x", 1) == "2.0 (1.0-3.0)"
