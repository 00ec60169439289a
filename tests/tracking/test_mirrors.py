"""Mirrors of a run against its JSON lines: TensorBoard's own reader, and what wandb is given."""

import math
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from d3s.config.load import load_config
from d3s.tracking.mirrors import check_mirrors
from tests.helpers.event_files import expected_points, read_points
from tests.helpers.training_steps import metrics, tracker

ROOT = Path(__file__).resolve().parents[2]


def write_run(directory: Path, steps: range, resume_step: int = 0) -> None:
    """Steps, and evaluations of two benchmarks every third step."""
    with tracker(directory, 12, "tracker.mirrors=[tensorboard]", resume_step=resume_step) as log:
        for step in steps:
            if step % 3 == 0:
                for data in ("sums", "words"):
                    record = {"step": step, "wall_time": 10.0 * step, "data": data, "pass@1": step / 20, "right": [1]}
                    log.log_eval(record | {"pass@1_ci": [0, 1]})
            if step:
                log.log(metrics(step, loss=math.nan if step == 2 else 0.1 * step, n=2**20 + step))


@pytest.mark.parametrize(("killed_after", "checkpoint"), [(7, 4), (6, 6), (2, 0)])
def test_events_are_those_of_the_lines(tmp_path, killed_after, checkpoint):
    """Also after a kill and a resumption: every point once, none of the steps that were lost."""
    write_run(tmp_path, range(killed_after + 1))
    write_run(tmp_path, range(checkpoint + 1 if checkpoint else 0, 13), resume_step=checkpoint)
    points = read_points(tmp_path)
    assert points == expected_points(tmp_path)
    assert [step for step, _ in points["reward/mean"]] == list(range(1, 13))
    assert [step for step, _ in points["loss"]] == [1, *range(3, 13)]  # null has no point
    assert points["eval/words/pass@1"] == [(step, np.float32(step / 20)) for step in (0, 3, 6, 9, 12)]
    assert "eval/sums/step" not in points and "step" not in points


def wandb_with(login):
    """A stand-in of the package, in which `login` fails or returns False."""

    def refuse(prompt):
        assert not prompt  # a run must not wait for input
        if login:
            raise ValueError(login)
        return False

    return SimpleNamespace(login=refuse, Error=ValueError, __spec__=object())


@pytest.mark.parametrize(
    ("name", "module", "problem"),
    [
        ("tensorboard", None, "the package tensorboard is not installed; run pip install tensorboard"),
        ("wandb", None, "the package wandb is not installed; run pip install wandb"),
        ("wandb", wandb_with(""), "wandb has no API key; run wandb login, or set WANDB_MODE=offline"),
        ("wandb", wandb_with("key refused.\n\nHelp"), "wandb: key refused; correct it, or set WANDB_MODE=offline"),
    ],
)
def test_unusable_mirrors_are_refused_before_the_run(name, module, problem, tmp_path, monkeypatch, refusal):
    monkeypatch.setitem(sys.modules, name, module)
    options = [f"tracker.mirrors=[{name}]", f"train.output_dir={tmp_path / 'run'}"]
    assert refusal(["train.py", "--config", "configs/tiny.yaml", *options]) == f"tracker.mirrors: {problem}"
    assert not (tmp_path / "run").exists()
    check_mirrors(load_config([]).tracker)


def test_packages_are_imported_only_when_on(tmp_path):
    code = (
        "import sys; from tests.helpers.training_steps import tracker\n"
        "tracker(sys.argv[1], 1).close()\n"
        "print(*(name for name in ('tensorboard', 'wandb', 'torch') if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "\n"), done.stderr


def test_wandb_receives_numbers_under_one_run(tmp_path, monkeypatch):
    """Missing values are left out, and a resumed run keeps its id; a new run gets another."""
    started, logged = [], []

    def init(**options):
        started.append(options)
        return SimpleNamespace(log=logged.append, define_metric=lambda *_, **__: None, finish=lambda: None)

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init, Settings=dict))
    for resume_step in (0, 1, 0):
        with tracker(tmp_path / "run", 9, "tracker.mirrors=[wandb]", resume_step=resume_step) as log:
            log.log({"step": resume_step + 1, "wall_time": 1.0, "loss": math.nan, "x": 2})
            log.log_eval({"step": 1, "wall_time": 1.0, "data": "sums", "pass@1": 0.25, "pass@1_ci": [0.1, 0.4]})
    assert logged[0] == {"step": 1, "wall_time": 1.0, "x": 2}
    assert logged[1] == {"step": 1, "eval/sums/wall_time": 1.0, "eval/sums/pass@1": 0.25}
    assert [options["name"] for options in started] == ["run"] * 3 and started[0]["resume"] == "allow"
    assert started[0]["id"] == started[1]["id"] != started[2]["id"]
