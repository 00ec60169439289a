"""Test the lock of a run directory with real processes, and the settings that a resumed run keeps."""

import errno
import json
import os
import signal
import socket
import sys
import time

import pytest

from d3s.commands import train
from d3s.common import UserError
from d3s.config.load import dump_config, load_config
from d3s.config.schema import Config
from d3s.tracking.run_directory import CHANGEABLE, check_resume, lock_run_directory, record_settings
from tests.helpers.command_line import lines
from tests.helpers.processes import in_child


def saved(folder, config: Config, step: int = 3):
    """Write the state and the settings of a checkpoint, without weights."""
    path = folder / "checkpoints" / f"step_{step:06d}"
    path.mkdir(parents=True)
    state = {"step": step, "position": 9, "tokens_trained": 1, "tokens_generated": 2, "processes": 1, "zero3": False}
    (path / "state.json").write_text(json.dumps(state))
    dump_config(config, path / "config.yaml")
    return path


@pytest.mark.parametrize("fixed", ["train.seed=1", "data.path=other.jsonl", "model.dtype=bfloat16", "loss.beta=0.1"])
def test_resume_refuses_what_learning_depends_on(fixed, tmp_path):
    checkpoint, key = saved(tmp_path, Config()), fixed.partition("=")[0]
    assert check_resume(checkpoint, 3, Config()) == []
    with pytest.raises(UserError, match=rf"\({key}: got .*, expected .*\); .*RUN/model"):
        check_resume(checkpoint, 3, load_config([], [fixed]))


def test_batch_settings_are_fixed_with_engine_seeds_alone(tmp_path):
    for seeds in ("request", "engine"):
        folder, options = tmp_path / seeds, [f"rollout.seeds={seeds}"]
        checkpoint, changed = (
            saved(folder, load_config([], options)),
            load_config([], [*options, "rollout.max_num_seqs=7"]),
        )
        if seeds == "request":
            assert check_resume(checkpoint, 3, changed) == ["resumed with rollout.max_num_seqs 7, before 256"]
        else:
            with pytest.raises(UserError, match=r"rollout\.max_num_seqs: got 7, expected 256"):
                check_resume(checkpoint, 3, changed)


def test_changeable_settings_exist(tmp_path):
    checkpoint, compiled = saved(tmp_path, load_config([])), load_config([], ["model.compile=true"])
    assert check_resume(checkpoint, 3, compiled) == ["resumed with model.compile True, before False"]
    flat = {f"{section}.{name}" for section, values in Config().model_dump().items() for name in values}
    assert flat | set(Config.model_fields) >= CHANGEABLE


def test_steps_may_change_but_not_below_steps_done(tmp_path):
    checkpoint = saved(tmp_path, load_config([], ["train.steps=5"]))
    messages = check_resume(checkpoint, 3, load_config([], ["train.steps=9"]))
    assert messages == [
        "resumed with train.steps 9, before 5",
        "from step 3 on, N, K and the learning rate follow a run of 9 steps",
    ]
    assert len(check_resume(checkpoint, 3, load_config([], ["train.steps=3"]))) == 2  # no step remains
    with pytest.raises(UserError, match=r"train.steps: got 2, expected at least 3, .*step_000003$"):
        check_resume(checkpoint, 3, load_config([], ["train.steps=2"]))


def test_record_settings_keeps_changes_of_resumed_runs(tmp_path):
    folder, content = f"train.output_dir={tmp_path}", {"data.path": "0a"}
    old, new = (load_config([], [folder, *options]) for options in (["train.steps=5"], ["train.steps=7", "eval.n=16"]))
    ended = load_config([], [folder, "train.steps=3"])
    checkpoint = saved(tmp_path, old)
    record_settings(old, None, 0, content, {}, 1)
    assert load_config([tmp_path / "config.yaml"]) == old and not (tmp_path / "resumes.jsonl").exists()
    record_settings(new, checkpoint, 3, content, {"data.path": ("00", "0a")}, 2)
    machine = json.loads((tmp_path / "machine.json").read_text())
    assert (machine["processes"], machine["content"]) == (2, content) and machine["machine"]
    assert load_config([tmp_path / "config.yaml"]) == new
    [line] = lines(tmp_path / "resumes.jsonl")
    assert line["step"] == 3 and line["checkpoint"] == str(checkpoint)
    changed = {key: tuple(pair.values()) for key, pair in line["changed"].items()}
    assert changed == {"train.steps": (5, 7), "eval.n": (8, 16), "data.path": ("00", "0a")}
    record_settings(ended, checkpoint, 3, {}, {}, 1)  # takes no step
    assert load_config([tmp_path / "config.yaml"]) == new and len(lines(tmp_path / "resumes.jsonl")) == 1
    (tmp_path / "config.yaml").unlink()  # every run directory has one
    record_settings(ended, checkpoint, 3, {}, {}, 1)
    assert load_config([tmp_path / "config.yaml"]).train.steps == 3


def test_lock_is_exclusive_and_freed_by_a_kill(tmp_path, monkeypatch):
    run = tmp_path / "run"

    def hold(ready):
        with lock_run_directory(run):
            ready()
            time.sleep(60)

    child, pipe = in_child(hold)
    assert os.read(pipe, 6) == b"ready\n"
    monkeypatch.setattr(train, "run", lambda *_: pytest.fail("the run was started"))
    monkeypatch.setattr(sys, "argv", ["train.py", "--config", "configs/tiny.yaml", f"train.output_dir={run}"])
    with pytest.raises(UserError) as refused:
        train.main()
    assert f"{run}: in use by process {child} on {socket.gethostname()}" in str(refused.value)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with lock_run_directory(run):
        (run / "metrics.jsonl").touch()
    assert (run / "metrics.jsonl").exists()


def test_checkpoint_of_another_version_is_refused(tmp_path):
    checkpoint = saved(tmp_path, Config())
    (checkpoint / "config.yaml").write_text("loss: {gone: 1}\n")
    with pytest.raises(UserError, match=r"step_000003/config.yaml: does not match this version .*loss.gone"):
        check_resume(checkpoint, 3, Config())


@pytest.mark.parametrize("place", ["/proc/nothing", "file", "file/below"])
def test_unwritable_directory_is_refused_before_loading(place, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setattr(train, "run", lambda *_: pytest.fail("the run was started"))
    path = tmp_path / place  # an absolute `place` replaces tmp_path
    monkeypatch.setattr(sys, "argv", ["train.py", "--config", "configs/tiny.yaml", f"train.output_dir={path}"])
    with pytest.raises(
        UserError, match=rf"{path}: cannot be written \(.*\); choose another train.output_dir"
    ) as refused:
        train.main()
    assert "--resume" not in str(refused.value)


def test_unsupported_lock_is_a_warning(tmp_path, monkeypatch, capsys):
    def unsupported(*_):
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", unsupported)
    with lock_run_directory(tmp_path / "run"):
        assert "run: cannot be locked (Function not implemented)" in capsys.readouterr().out
