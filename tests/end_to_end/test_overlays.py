"""Method overlays and LoRA, through train.py: a run keeps the rollouts and tokens that its method defines, and resumed
from its second step it equals the whole one bitwise.
"""

import shutil
from pathlib import Path

import pytest

from d3s.config.load import load_config
from d3s.schedule import curve_at, schedule_bounds
from d3s.trainer import Trainer
from tests.helpers.command_line import lines
from tests.helpers.forked_runs import run_forked
from tests.helpers.small_run import arguments, same_run

OVERLAYS = sorted(Path("configs/method").glob("*.yaml"))
OVERLAYS.append(Path("configs/lora.yaml"))
OVERLAYS.remove(Path("configs/method/latr.yaml"))  # needs vLLM: tests/end_to_end/test_latr.py


@pytest.fixture(scope="module")
def whole_runs(tied_model, tmp_path_factory):
    """The run directory, exit code and output of each overlay's command line, by its name."""
    root, commands = tmp_path_factory.mktemp("overlays"), []
    for overlay in OVERLAYS:
        command = arguments(tied_model, root / overlay.stem)
        files = command.index("tests/helpers/small.yaml") + 1
        command[files:files] = [str(overlay)]  # before the overrides, as its own B and G are for larger models
        commands.append([*command, "rollout.num_generations=8", "checkpoint.every=2"])
    results = run_forked(commands)
    return {overlay.stem: (root / overlay.stem, *result) for overlay, result in zip(OVERLAYS, results, strict=True)}


@pytest.mark.parametrize("overlay", [overlay.stem for overlay in OVERLAYS])
def test_overlay_keeps_what_it_defines(overlay, whole_runs):
    whole, code, output = whole_runs[overlay]
    assert code == 0, output
    config, steps = load_config([whole / "config.yaml"]), lines(whole / "metrics.jsonl")
    prompts, total = config.train.prompts_per_step, config.train.prompts_per_step * config.rollout.num_generations
    if config.schedule.follow == "none":
        ends = [curve_at(config, progress) for progress in (0, 1)]
        assert [(steps[i]["schedule/n"], steps[i]["schedule/k"]) for i in (0, -1)] == [pytest.approx(e) for e in ends]
    (n_low, n_high), (k_low, k_high) = schedule_bounds(config)
    for step in steps:
        n, k, kept = step["schedule/n"], step["schedule/k"], step["selection/rollouts"]
        assert n_low <= n <= n_high and k_low <= k <= k_high
        if overlay == "variance_mass":
            assert kept <= n * prompts and kept % n == 0  # all of some problems
        elif config.loss.overlong_filtering or config.selector.drop_zero_advantage:
            assert kept <= n * prompts
        else:
            assert kept == n * prompts
        if k == 1:
            selected = step["selection/tokens"] + step["selection/tokens_skipped"]
            assert (selected == step["selection/tokens_total"]) == (kept == total)
        elif kept:
            assert step["selection/tokens"] < max(step["selection/tokens_forwarded"], 2)
        assert step["grad_norm"] < float("inf") and step["sync/max_abs_dlogp"] < 1e-4


@pytest.mark.parametrize("overlay", [overlay.stem for overlay in OVERLAYS])
def test_overlay_trains_and_resumes(overlay, whole_runs, tmp_path):
    whole, code, output = whole_runs[overlay]
    resumed = tmp_path / "resumed"
    assert code == 0, output
    steps = lines(whole / "metrics.jsonl")
    assert [step["step"] for step in steps] == [1, 2, 3, 4]
    assert any(step["grad_norm"] > 0 for step in steps)  # a step of groups without signal has no gradient
    shutil.copytree(whole, resumed)
    shutil.rmtree(resumed / "model")
    shutil.rmtree(resumed / "checkpoints" / "step_000004")
    trainer = Trainer(
        load_config([whole / "config.yaml"], [f"train.output_dir={resumed}"]), resumed / "checkpoints" / "step_000002"
    )
    assert trainer.train() == 0
    trainer.close()
    assert same_run(whole, resumed)
