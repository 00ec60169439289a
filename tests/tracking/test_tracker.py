"""Test the files of a tracker against uninterrupted runs; its mirrors against those files."""

import importlib
import math
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from d3s.common import read_json_lines
from d3s.config.load import load_config
from d3s.tracking.mirrors import check_mirrors
from tests.helpers.event_files import expected_points, read_points
from tests.helpers.training_steps import metrics, sample, tracker


def write_run(directory: Path, steps: range, resume_step: int = 0) -> None:
    """A note, steps with time-outs, zero rewards and a NaN, samples, evaluations that get worse, decisions."""
    with tracker(directory, 12, "tracker.mirrors=[tensorboard]", resume_step=resume_step) as log:
        log.warn("data0", "of the data")
        for step in steps:
            if step and step % 3 == 0:
                log.log_samples(step, [sample(step, f"response of step {step}")])
            if step:
                zero = {"reward__mean": 0.0, "reward__std": 0.0} if 4 <= step <= 8 else {}
                timeouts = 9 if step in (2, 9) else 0
                log.log(metrics(step, loss=math.nan if step == 2 else 0.1, reward__timeouts=timeouts, **zero))
            if step % 3 == 0:
                right = [8 if step == 0 else problem % 3 for problem in range(30)]
                record = {"step": step, "wall_time": step + 0.5, "n": 8, "right": right, "pass@1": step / 20}
                for data in ("sums", "words"):
                    log.log_eval(record | {"data": data, "pass@1_ci": [0, 1]})
                log.decide(step, "schedule.follow", f"to {step}")


def contents(directory: Path) -> dict[str, bytes]:
    """The content of every file but the events of TensorBoard."""
    files = {str(p.relative_to(directory)): p for p in sorted(directory.rglob("*")) if p.is_file()}
    return {name: path.read_bytes() for name, path in files.items() if "tfevents" not in name}


@given(st.integers(1, 11), st.integers(0, 11))
@settings(max_examples=40)
def test_resumed_run_has_files_of_uninterrupted_run(tmp_path_factory, killed_after, lost):
    """Kill after a step, resume from a checkpoint `lost` steps older; every file ends in an incomplete line.

    Without a checkpoint the run starts over with empty files. TensorBoard's own reader has every point once.
    """
    whole, killed = (tmp_path_factory.mktemp("run") / name for name in ("whole", "killed"))
    write_run(whole, range(13))
    write_run(killed, range(killed_after + 1))
    for name in ("metrics", "eval", "warnings"):
        with open(killed / f"{name}.jsonl", "a") as file:
            file.write('{"step": 99, "reward/me')
    checkpoint = max(0, killed_after - lost)
    write_run(killed, range(checkpoint + 1 if checkpoint else 0, 13), resume_step=checkpoint)
    assert contents(killed) == contents(whole)
    points = read_points(killed)
    assert points == expected_points(killed) and [step for step, _ in points["loss"]] == [1, *range(3, 13)]
    assert {"eval/sums/pass@1", "eval/words/pass@1"} < points.keys() and not points.keys() & {"step", "eval/sums/step"}


def test_warnings_are_given_once_until_they_clear(tmp_path):
    """Every decision is written, although they have the same key."""
    write_run(tmp_path, range(13))
    warnings = read_json_lines(tmp_path / "warnings.jsonl")
    found = [(0, "data0"), (2, "verifier_timeouts"), (6, "worse/sums"), (6, "worse/words"), (8, "zero_reward")]
    assert [(w["step"], w["key"]) for w in warnings if w["key"] != "schedule.follow"] == [*found, (9, found[1][1])]
    assert ["'response of step 6'" in w["message"] for w in warnings if w["key"] == "zero_reward"] == [True]
    decisions = [(w["step"], w["message"]) for w in warnings if w["key"] == "schedule.follow"]
    assert decisions == [(step, f"to {step}") for step in (0, 3, 6, 9, 12)]


def test_wall_time_continues_from_last_kept_line(tmp_path, monkeypatch):
    with tracker(tmp_path, 9) as log:
        log.log({"step": 1, "wall_time": 100.0})
        log.log_eval({"step": 1, "wall_time": 130.0})
        log.log({"step": 2, "wall_time": 200.0})
    copy = tmp_path / "samples" / "step_000002_copy.jsonl"
    copy.touch()
    with tracker(tmp_path, 9, resume_step=1) as log:
        log.log({"step": 2})
    assert copy.exists()
    first, second = read_json_lines(tmp_path / "metrics.jsonl")
    assert (first["step"], second["step"]) == (1, 2) and 130.0 <= second["wall_time"] < 140.0
    (tmp_path / "checkpoints").mkdir()
    monkeypatch.chdir(tmp_path / "checkpoints")
    with tracker(tmp_path / "branch", 9, resume_step=1, checkpoint=Path("step_1")) as branch:
        assert 100.0 <= branch.wall_time < 110.0
        branch.warn("data0", "of the data")
    assert [line["step"] for line in read_json_lines(tmp_path / "branch" / "warnings.jsonl")] == [1]


def test_collapse_is_relative_to_the_first_step(tmp_path):
    """A slow decline: the entropy never falls to 15 % within a few steps."""
    with tracker(tmp_path, 100) as log:
        for step in range(1, 61):
            log.log(metrics(step, policy__entropy=0.9 ** (step - 1)))
    [warning] = read_json_lines(tmp_path / "warnings.jsonl")
    assert (warning["step"], warning["key"]) == (1 + 19 + 4, "entropy_collapsed")  # 0.9^19 = 0.135, in 5 steps


# --- mirrors ----------------------------------------------------------------------------------------------------------


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
    importlib.reload(sys.modules[check_mirrors.__module__])  # no package is needed where its mirror is off
    check_mirrors(load_config([]).tracker)


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
