"""Test the lock of a run directory with real processes, and every option against the resume rule."""

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


def other_value(key: str, config: Config):
    """Return an allowed value of `key` other than the configured one."""
    special = {
        "model.name": "other", "data.path": "other.jsonl", "rollout.engine": "transformers", "optim.weight_decay": 0.5,
        "reward.functions": ["some:function"], "schedule.n_init": 4, "schedule.n_final": 16, "train.output_dir": "else",
        "loss.normalizer": "all", "data.limit": 7, "eval.limit": 7, "eval.k": [1], "data.decontaminate": ["aime24"],
        "eval.data": ["aime24"], "schedule.k_init": 0.1, "model.dtype": "bfloat16", "rollout.temperature": 0.5,
        "selector.cross_share": 0.5, "rollout.num_generations": 64, "rollout.top_p": 0.5, "rollout.top_k": 5,
    }  # fmt: skip
    if key in special:
        return special[key]
    section, name = key.split(".")
    value, allowed = (
        getattr(getattr(config, section), name),
        type(getattr(config, section)).model_fields[name].annotation,
    )
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1 if isinstance(value, int) else value / 2 if value else 0.5
    choices = [word for part in getattr(allowed, "__args__", ()) for word in getattr(part, "__args__", [part])]
    return next(
        (word for word in choices if isinstance(word, str) and word != value), 0.5 if value is None else "other"
    )


def saved(folder, config: Config, step: int = 3):
    """Write the state and the settings of a checkpoint, without weights."""
    path = folder / "checkpoints" / f"step_{step:06d}"
    path.mkdir(parents=True)
    state = {"step": step, "position": 9, "tokens_trained": 1, "tokens_generated": 2, "processes": 1, "zero3": False}
    (path / "state.json").write_text(json.dumps(state))
    dump_config(config, path / "config.yaml")
    return path


KEYS = [f"{section}.{name}" for section, values in Config().model_dump().items() for name in values]


@pytest.mark.filterwarnings("ignore:Pydantic serializer")  # some of the other values have another type
@pytest.mark.parametrize("key", KEYS)
def test_resume_allows_only_changeable_settings(key, tmp_path):
    section, name = key.split(".")
    config = Config()
    checkpoint = saved(tmp_path, config)
    old, new = getattr(getattr(config, section), name), other_value(key, config)
    changed = config.model_copy(update={section: getattr(config, section).model_copy(update={name: new})})
    assert check_resume(checkpoint, config) == []
    if key in CHANGEABLE or section in CHANGEABLE:
        assert any(line.startswith(f"resumed with {key} ") for line in check_resume(checkpoint, changed))
        return
    with pytest.raises(UserError) as refused:
        check_resume(checkpoint, changed)
    shown = json.loads(json.dumps(old)) if isinstance(old, tuple | list) else old
    assert f"{key}: got {new!r}, expected {shown!r}" in str(refused.value) and "RUN/model" in str(refused.value)


BATCH_SETTINGS = ("max_num_seqs", "tensor_parallel_size", "gpu_memory_utilization", "kv_cache_gb")


@pytest.mark.parametrize("key", [f"rollout.{name}" for name in BATCH_SETTINGS])
def test_batch_settings_are_fixed_with_engine_seeds(key, tmp_path):
    config = load_config([], ["rollout.seeds=engine"])
    checkpoint, name = saved(tmp_path, config), key.removeprefix("rollout.")
    rollout = config.rollout.model_copy(update={name: other_value(key, config)})
    with pytest.raises(UserError, match=f"{key}: got "):
        check_resume(checkpoint, config.model_copy(update={"rollout": rollout}))


def test_changeable_settings_never_affect_learning():
    assert set(KEYS) | set(Config.model_fields) >= CHANGEABLE
    learned = ("model.name", "data.path", "train.seed", "rollout.num_generations", "loss.kind", "optim.learning_rate")
    assert not CHANGEABLE & {
        *learned,
        "selector",
        "schedule",
        "data",
        "loss",
        "optim",
        "model",
        "rollout",
        "train",
        "reward",
    }


def test_steps_may_change_but_not_below_steps_done(tmp_path):
    checkpoint = saved(tmp_path, load_config([], ["train.steps=5"]))
    messages = check_resume(checkpoint, load_config([], ["train.steps=9"]))
    assert messages == [
        "resumed with train.steps 9, before 5",
        "from step 3 on, N, K and the learning rate follow a run of 9 steps",
    ]
    assert len(check_resume(checkpoint, load_config([], ["train.steps=3"]))) == 2  # no step remains
    with pytest.raises(UserError, match=r"train.steps: got 2, expected at least 3, .*step_000003$"):
        check_resume(checkpoint, load_config([], ["train.steps=2"]))


def test_record_settings_keeps_changes_of_resumed_runs(tmp_path):
    old, new = load_config([], ["train.steps=5", "eval.n=8"]), load_config([], ["train.steps=7", "eval.n=16"])
    checkpoint = saved(tmp_path, old)
    record_settings(tmp_path, None, old, {"data.path": "0a"}, 1)
    assert load_config([tmp_path / "config.yaml"]) == old and not (tmp_path / "resumes.jsonl").exists()
    record_settings(tmp_path, checkpoint, new, {"data.path": "0a"}, 2)
    machine = json.loads((tmp_path / "machine.json").read_text())
    assert (machine["processes"], machine["content"]) == (2, {"data.path": "0a"}) and machine["machine"]
    assert load_config([tmp_path / "config.yaml"]) == new
    [line] = lines(tmp_path / "resumes.jsonl")
    assert line["step"] == 3 and line["checkpoint"] == str(checkpoint)
    assert line["changed"] == {"train.steps": {"old": 5, "new": 7}, "eval.n": {"old": 8, "new": 16}}
    record_settings(tmp_path, checkpoint, load_config([], ["train.steps=3"]), {}, 1)  # takes no step
    assert load_config([tmp_path / "config.yaml"]) == new and len(lines(tmp_path / "resumes.jsonl")) == 1
    (tmp_path / "config.yaml").unlink()  # every run directory has one
    record_settings(tmp_path, checkpoint, load_config([], ["train.steps=3"]), {}, 1)
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


def test_unsupported_lock_is_a_warning(tmp_path, monkeypatch, capsys):
    def unsupported(*_):
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", unsupported)
    with lock_run_directory(tmp_path / "run"):
        assert "run: cannot be locked (Function not implemented)" in capsys.readouterr().out


def test_checkpoint_of_another_version_is_refused(tmp_path):
    checkpoint = saved(tmp_path, Config())
    (checkpoint / "config.yaml").write_text("loss: {gone: 1}\n")
    with pytest.raises(UserError, match=r"step_000003/config.yaml: does not match this version .*loss.gone"):
        check_resume(checkpoint, Config())


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
