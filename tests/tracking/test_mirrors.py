"""Mirrors that cannot be used, and what wandb is given; test_tracker.py has the files of TensorBoard."""

import math
import subprocess
import sys
from types import SimpleNamespace

import pytest

from d3s.config.load import load_config
from d3s.tracking.mirrors import check_mirrors
from tests.helpers.configs import ROOT
from tests.helpers.training_steps import tracker


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
