"""Test the settings that a resumed run keeps; the lock of its directory and stop signals with real processes."""

import errno
import json
import os
import signal
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import pytest

from d3s.checkpoint import RunState
from d3s.commands import train
from d3s.common import UserError
from d3s.config.load import dump_config, load_config
from d3s.config.schema import Config
from d3s.tracking.run_directory import BATCHING, CHANGEABLE, check_resume, lock_run_directory, record_settings
from d3s.tracking.stop_signals import SAME_SIGNAL_S, StopSignals, stoppable
from tests.helpers.command_line import lines
from tests.helpers.configs import flat
from tests.helpers.processes import in_child


def saved(folder, config: Config):
    """Write the settings of a checkpoint after three steps."""
    path = folder / "checkpoints" / "step_000003"
    path.mkdir(parents=True)
    dump_config(config, path / "config.yaml")
    return path


def test_resume_refuses_what_learning_depends_on(tmp_path):
    """Settings of the batches of an engine are among it with the engine's seeds alone."""
    checkpoint, engine = saved(tmp_path, Config()), ["rollout.seeds=engine"]
    assert check_resume(checkpoint, 3, Config()) == []
    changed = load_config([], ["model.compile=true", "rollout.max_num_seqs=7"])
    expected = ["resumed with model.compile True, before False", "resumed with rollout.max_num_seqs 7, before 256"]
    assert check_resume(checkpoint, 3, changed) == expected
    dump_config(load_config([], engine), checkpoint / "config.yaml")
    for fixed in ("train.seed=1", "data.path=other.jsonl", "model.dtype=bfloat16", "rollout.max_num_seqs=7"):
        with pytest.raises(UserError, match=rf"\({fixed.partition('=')[0]}: got .*, expected .*\); .*RUN/model"):
            check_resume(checkpoint, 3, load_config([], [*engine, fixed]))
    assert flat(Config()).keys() | Config.model_fields.keys() >= CHANGEABLE | BATCHING


def test_steps_may_change_but_not_below_steps_done(tmp_path):
    checkpoint = saved(tmp_path, load_config([], ["train.steps=5"]))
    changed, followed = check_resume(checkpoint, 3, load_config([], ["train.steps=9"]))
    assert changed == "resumed with train.steps 9, before 5"
    assert followed == "from step 3 on, N, K and the learning rate follow a run of 9 steps"
    assert len(check_resume(checkpoint, 3, load_config([], ["train.steps=3"]))) == 2  # no step remains
    with pytest.raises(UserError, match=r"train.steps: got 2, expected at least 3, .*step_000003$"):
        check_resume(checkpoint, 3, load_config([], ["train.steps=2"]))
    (checkpoint / "config.yaml").write_text("loss: {gone: 1}\n")
    with pytest.raises(UserError, match=r"/config.yaml: does not match this version .*loss.gone"):
        check_resume(checkpoint, 3, Config())


def test_record_settings_keeps_changes_of_resumed_runs(tmp_path):
    """A run that takes no step writes nothing; tests/tracking/test_fingerprint.py has contents that change."""
    folder, content = f"train.output_dir={tmp_path}", {"data.path": "0a"}
    old, new, ended = (load_config([], [folder, f"train.steps={steps}"]) for steps in (5, 7, 3))
    checkpoint = saved(tmp_path, old)
    record_settings(old, None, RunState(0, fingerprint=content), {}, 1)
    record_settings(new, checkpoint, RunState(3, fingerprint=content), {}, 2)
    record_settings(ended, checkpoint, RunState(3), {}, 1)
    assert load_config([tmp_path / "config.yaml"]) == new
    machine = json.loads((tmp_path / "machine.json").read_text())
    assert (machine["processes"], machine["content"]) == (2, content) and machine["machine"]
    [line] = lines(tmp_path / "resumes.jsonl")
    assert (line["step"], line["checkpoint"]) == (3, "checkpoints/step_000003")  # so that the run may be moved
    assert line["changed"] == {"train.steps": {"old": 5, "new": 7}}
    (tmp_path / "config.yaml").unlink()  # every run directory has one
    record_settings(ended, checkpoint, RunState(3), {}, 1)
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


def test_directories_without_rights_or_locks(tmp_path, monkeypatch, capsys):
    """One that cannot be written is refused; a file system without locks is a warning."""
    (tmp_path / "file").touch()
    for path in (Path("/proc/nothing"), tmp_path / "file", tmp_path / "file/below"):
        expected = rf"^{path}: cannot be written \(.*\); choose another train.output_dir$"
        with pytest.raises(UserError, match=expected), lock_run_directory(path):
            pytest.fail("the run was started")
    monkeypatch.setattr("fcntl.flock", Mock(side_effect=OSError(errno.ENOSYS, "Function not implemented")))
    with lock_run_directory(tmp_path / "run"):
        assert "run: cannot be locked (Function not implemented)" in capsys.readouterr().out


# --- stop signals -----------------------------------------------------------------------------------------------------


def test_second_signal_ends_a_hanging_run():
    def hang(ready):
        signals = StopSignals()
        signals.ends_process = True
        signals.catch_signals()
        ready()
        while True:
            time.sleep(60)

    child, pipe = in_child(hang)
    assert os.read(pipe, 100) == b"ready\n"
    os.kill(child, signal.SIGTERM)
    assert b"stopping after this step or evaluation; a second signal ends the run at once" in os.read(pipe, 200)
    os.kill(child, signal.SIGTERM)  # a launcher may repeat a signal that the process has already received
    time.sleep(SAME_SIGNAL_S + 0.2)
    assert os.waitpid(child, os.WNOHANG) == (0, 0)
    os.kill(child, signal.SIGINT)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 130
    assert b"not saved" in os.read(pipe, 200)


class Interrupted(StopSignals):
    @stoppable
    def train(self):
        """Stopped twice in the main thread, failing in others."""
        assert threading.current_thread() is threading.main_thread()
        os.kill(os.getpid(), signal.SIGINT)
        assert self.stop_signal == signal.SIGINT
        self.stop_time -= 2 * SAME_SIGNAL_S
        os.kill(os.getpid(), signal.SIGINT)


def test_python_program_is_interrupted_by_a_second_signal():
    """It has its own handlers again, may train once more, and in a thread."""
    loop, before = Interrupted(), signal.getsignal(signal.SIGINT)
    for _ in range(2):
        loop.catch_signals()
        with pytest.raises(KeyboardInterrupt):
            loop.train()
        assert signal.getsignal(signal.SIGINT) is before
    with ThreadPoolExecutor() as pool:
        assert isinstance(pool.submit(loop.train).exception(), AssertionError)


def test_hangup_stops_unless_it_is_ignored():
    """Also without a terminal to write to; nohup leaves SIGHUP ignored."""

    def follow(ready):
        os.close(2)
        for ignored in (False, True):
            if ignored:
                signal.signal(signal.SIGHUP, signal.SIG_IGN)
            signals = StopSignals()
            signals.catch_signals()
            os.kill(os.getpid(), signal.SIGHUP)
            assert signals.stop_signal == (0 if ignored else signal.SIGHUP)
            signals.restore_signals()
        ready()

    child, pipe = in_child(follow)
    assert os.read(pipe, 100) == b"ready\n"
    os.waitpid(child, 0)
