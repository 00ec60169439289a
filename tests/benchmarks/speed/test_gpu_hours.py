"""The commands of docs/gpu.md, as bash runs them, against train.py's plan; its hours against sums by hand."""

import os
import re
import subprocess
from io import StringIO

import pytest
from rich.console import Console

from benchmarks.speed.gpu_hours import LENGTH, MFU, MODELS, PAGE, PEAK, page_rows, row_config, run_hours, table
from d3s.config.load import load_config
from d3s.plan.dry_run import print_plan
from tests.helpers.pages import ROOT

BLOCK = re.search(r"```bash\n(model=.*?)```", PAGE.read_text(), re.S)[1]
HEAD, REST = BLOCK[: BLOCK.index("row()")], BLOCK[BLOCK.index("row()") :]
SETTINGS = {"paper": "", "strong": "configs/strong.yaml"}
BY_NAME = {name: (g, arguments) for name, g, arguments in page_rows()}


def commands(tmp_path, head):
    """The words of each `accelerate` command of the page after `head`, run in an empty directory."""
    log, folder = tmp_path / "log", tmp_path / "bin"
    folder.mkdir()
    for name, action in (("accelerate", f'printf "%s\\n" "$*" >> {log}; false'), ("nvidia-smi", "true")):
        (folder / name).write_text(f"#!/bin/sh\n{action}\n")
        (folder / name).chmod(0o755)
    path = f"{folder}:{os.environ['PATH']}"
    subprocess.run(["bash", "-c", f"{head}\n{REST}"], cwd=tmp_path, env={"PATH": path}, timeout=60)
    return [line.split() for line in log.read_text().splitlines()]


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("model, responses", [(model, responses) for model, responses, _ in MODELS.values()])
def test_commands_of_page_have_plans(model, responses, setting, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    responses = responses if setting == "paper" else 2048
    head = f"model={model} launch=gpu1 setting={setting} responses={responses} overlay={SETTINGS[setting]}"
    calls = commands(tmp_path, head)
    assert len(calls) == 5 * len(BY_NAME) and len({" ".join(call) for call in calls}) == len(calls)
    for call in calls[::5]:
        start, end = call.index("--config") + 1, call.index("--resume")
        sources = call[start:end]
        config = load_config([s for s in sources if "=" not in s], [s for s in sources if "=" in s])
        assert config.train.prompts_per_step * config.rollout.num_generations == responses
        assert config.train.seed == 1 and config.train.output_dir.parts[1:3] == (setting, model)
        text = StringIO()
        print_plan(config, Console(file=text, width=120))
        assert f"= {responses:,} per step" in text.getvalue()


def test_head_of_page_is_the_first_combination(tmp_path):
    first = commands(tmp_path, HEAD)[0]
    assert "configs/accelerate/zero3_8gpu.yaml" in first and "configs/qwen2.5-math-7b.yaml" in first
    assert "rollout.num_generations=32" in first and "train.prompts_per_step=128" in first


@pytest.mark.parametrize("model", [model for model, *_ in MODELS.values()])
def test_rows_have_different_settings(model):
    """Two rows with one configuration would be a mistake in the page: overlays restore what a base file changed."""
    assert len(BY_NAME) == len(page_rows()) == 16
    assert len({row_config(model, 4096, *row).model_dump_json() for row in BY_NAME.values()}) == 16


def test_strong_setting_is_the_published_run():
    """The values in Reinforce-Ada's run_grpo.sh at 05be605, and verl's defaults for what it leaves out."""
    config = row_config("qwen2.5-math-7b", 2048, *BY_NAME["grpo-g4"], "strong")
    assert (config.train.prompts_per_step, config.rollout.num_generations, config.train.steps) == (512, 4, 400)
    assert (config.data.max_prompt_length, config.rollout.max_completion_length) == (1024, 2048)
    assert (config.optim.learning_rate, config.optim.warmup_steps, config.optim.weight_decay) == (1e-6, 0, 0.01)
    assert (config.loss.epsilon, config.loss.epsilon_high, config.loss.beta) == (0.2, 0.28, 0)
    assert config.optim.num_minibatches == 512 // 128 and config.rollout.temperature == 1
    assert config.loss.normalizer == "selected" and config.schedule.k_init == config.schedule.k_final == 1  # token mean


def test_hours_match_sums_by_hand():
    """200 steps of 4,096 responses and 9 evaluations of 500 x 8, at 5,000 tokens per second.

    An update of GRPO is three forward passes over every token, and one before it for log-probabilities; the head's
    logits are computed twice.
    """
    generate, update = run_hours(row_config("qwen2.5-math-7b", 4096, *BY_NAME["grpo"]), 5000)
    assert generate == pytest.approx((200 * 4096 + 9 * 4000) * LENGTH / 5000 / 3600)
    tokens = 200 * 4096 * LENGTH
    flops = 2 * tokens * (4 * 6.53e9 + 5 * 3584 * 152_064)
    assert update == pytest.approx(flops / MFU / PEAK / 3600, rel=0.01)
    kept = sum(8 + 24 * step / 199 for step in range(200)) / 200 / 32
    d3s = run_hours(row_config("qwen2.5-math-7b", 4096, *BY_NAME["d3s"]), 5000)
    assert d3s[0] == generate and kept * 0.9 * update < d3s[1] < kept * update


def test_page_has_the_hours():
    assert f"<!-- hours -->\n{table()}<!-- /hours -->" in PAGE.read_text()
