"""Test the files of a tracker against strict JSON, kills, full disks and uninterrupted runs."""

import json
import math
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from d3s.common import read_json_lines
from tests.helpers.training_steps import metrics, sample, tracker


def write_run(directory: Path, steps: range, resume_step: int = 0) -> None:
    with tracker(directory, 12, resume_step=resume_step) as log:
        for step in steps:
            if step % 3 == 0:
                log.log_samples(step, [sample(step)])
            log.log(metrics(step, reward__timeouts=5 if step in (4, 9) else 0))
            if step % 4 == 0:
                log.log_eval({"step": step, "wall_time": step + 0.5, "data": "test", "pass@1": step / 20})


def contents(directory: Path) -> dict[str, bytes]:
    return {str(p.relative_to(directory)): p.read_bytes() for p in sorted(directory.rglob("*")) if p.is_file()}


def test_log_writes_strict_json(tmp_path):
    with tracker(tmp_path, 2) as log:
        log.log({"step": 1, "loss": math.nan, "grad_norm": math.inf, "x": torch.tensor(0.25), "n": 3})
    text = (tmp_path / "metrics.jsonl").read_text()
    assert text.endswith("\n") and text.count("\n") == 1
    line = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert line.pop("wall_time") >= 0
    assert line == {"step": 1, "loss": None, "grad_norm": None, "x": 0.25, "n": 3}


@given(st.integers(1, 11), st.integers(0, 11))
@settings(max_examples=40)
def test_resumed_run_has_files_of_uninterrupted_run(tmp_path_factory, killed_after, lost):
    """Kill after a step, resume from a checkpoint `lost` steps older; every file ends in an incomplete line."""
    directory = tmp_path_factory.mktemp("run")
    write_run(directory / "uninterrupted", range(1, 13))
    write_run(directory / "killed", range(1, killed_after + 1))
    for name in ("metrics", "eval", "warnings"):
        with open(directory / "killed" / f"{name}.jsonl", "a") as file:
            file.write('{"step": 99, "reward/me')
    checkpoint = max(0, killed_after - lost)
    write_run(directory / "killed", range(checkpoint + 1, 13), resume_step=checkpoint)
    assert contents(directory / "killed") == contents(directory / "uninterrupted")


def test_wall_time_continues_from_last_kept_line(tmp_path):
    with tracker(tmp_path, 9) as log:
        log.log({"step": 1, "wall_time": 100.0})
        log.log_eval({"step": 1, "wall_time": 130.0})
        log.log({"step": 2, "wall_time": 200.0})
    with tracker(tmp_path, 9, resume_step=1) as log:
        log.log({"step": 2})
    first, second = read_json_lines(tmp_path / "metrics.jsonl")
    assert (first["step"], second["step"]) == (1, 2) and 130.0 <= second["wall_time"] < 140.0


def test_new_run_empties_the_files(tmp_path):
    """Lines of step 0, the evaluation before training, are removed too."""
    write_run(tmp_path, range(1, 7))
    with tracker(tmp_path, 12) as log:
        assert log.wall_time < 5
        log.log_eval({"step": 0, "pass@1": 0.5})
    tracker(tmp_path, 12).close()
    assert contents(tmp_path) == {f"{name}.jsonl": b"" for name in ("metrics", "eval", "warnings")}


def warnings_of(directory: Path) -> dict[str, dict]:
    return {line["key"]: line for line in read_json_lines(directory / "warnings.jsonl")}


def test_resumed_run_warns_of_evaluations_once(tmp_path):
    """A run that is resumed after any step has the warnings of a whole one."""

    for stop in range(1, 8):
        for steps in (range(1, stop + 1), range(stop + 1, 8)):
            with tracker(tmp_path / str(stop), 9, resume_step=steps.start - 1) as log:
                for step in steps:
                    log.log(metrics(step))
                    right = [8 if step == 2 else problem % 3 for problem in range(30)]
                    log.log_eval({"step": step, "data": "math", "n": 8, "right": right})
        assert [(line["step"], key) for key, line in warnings_of(tmp_path / str(stop)).items()] == [(4, "worse/math")]
        assert len(read_json_lines(tmp_path / str(stop) / "warnings.jsonl")) == 1


def test_resumed_run_quotes_the_newest_sample(tmp_path):
    zero = {"reward__mean": 0.0, "reward__std": 0.0}
    with tracker(tmp_path, 20) as log:
        for step, response in ((2, "too old"), (3, "the newest"), (4, "removed")):
            log.log_samples(step, [sample(step, response)])
            log.log(metrics(step, **zero))
    with tracker(tmp_path, 20, resume_step=3) as log:
        for step in range(4, 8):
            log.log(metrics(step, **zero))
    message = warnings_of(tmp_path)["zero_reward"]["message"]
    assert "'the newest'" in message and "too old" not in message and "removed" not in message


def test_warning_is_shown_once_until_it_clears(tmp_path, capsys):
    with tracker(tmp_path, 100, console=True) as log:
        for step in range(1, 31):
            log.log(metrics(step, reward__timeouts=2 if step <= 8 or step > 20 else 0))
    warnings = [line for line in read_json_lines(tmp_path / "warnings.jsonl") if line["key"] == "verifier_timeouts"]
    assert [line["step"] for line in warnings] == [1, 22]  # 4 of 320 rollouts at step 22; only 2 at step 21
    assert capsys.readouterr().out.count("warning: ") == 2


def test_every_decision_is_written_and_shown(tmp_path, capsys):
    """Unlike warnings, of which the same key is given once; a resumed run removes the later ones."""
    decisions = [{"step": step, "key": "cross_share", "message": f"to 0.{step}"} for step in (1, 2, 3)]
    with tracker(tmp_path, 9, console=True) as log:
        for decision in decisions:
            log.decide(**decision)
            log.log(metrics(decision["step"]))
    assert read_json_lines(tmp_path / "warnings.jsonl") == decisions
    assert [line for line in capsys.readouterr().out.splitlines() if "to 0." in line] == ["to 0.1", "to 0.2", "to 0.3"]
    write_run(tmp_path, range(3, 4), resume_step=2)
    assert read_json_lines(tmp_path / "warnings.jsonl") == decisions[:2]


def test_collapse_is_relative_to_the_first_step(tmp_path):
    """A slow decline: the entropy never falls to 2 % within a few steps."""
    with tracker(tmp_path, 100) as log:
        for step in range(1, 61):
            log.log(metrics(step, policy__entropy=0.9 ** (step - 1)))
    assert warnings_of(tmp_path)["entropy_collapsed"]["step"] == 1 + 38 + 4  # 0.9^38 = 0.018, in 5 steps
