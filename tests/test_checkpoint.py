"""Damaged, older and foreign checkpoints, against the files of a finished run."""

import json
import shutil
from types import SimpleNamespace

import pytest
import torch
from accelerate import Accelerator

from d3s.checkpoint import MANIFEST, RunState, find_resume, load_checkpoint, save_checkpoint
from d3s.common import UserError
from d3s.config.load import load_config
from d3s.trainer import Trainer
from tests.helpers.small_run import assert_matches_manifest
from tests.helpers.training import train

FILES = ["config.yaml", "model.safetensors", "optimizer.pt", "random_0.pt", "state.json"]


@pytest.fixture(scope="module")
def finished_run(tied_model, tmp_path_factory):
    """The directory of a run with checkpoints of steps 1 to 4."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    train(tied_model, folder, overrides=["train.steps=4", "checkpoint.every=1", "checkpoint.keep=4"])
    return folder


@pytest.fixture
def copied(finished_run, tmp_path):
    """A copy of the finished run, to be damaged."""
    return shutil.copytree(finished_run, tmp_path / "run")


def test_manifest_lists_every_file(copied):
    path = copied / "checkpoints" / "step_000004"
    assert sorted(json.loads((path / MANIFEST).read_text())) == FILES
    assert_matches_manifest(path)
    assert find_resume(copied, "auto") == path


@pytest.mark.parametrize("name", FILES)
def test_changed_file_of_equal_size_is_damage(name, copied, capsys):
    file = copied / "checkpoints" / "step_000004" / name
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    assert find_resume(copied, "auto").name == "step_000003"
    assert f"step_000004 is damaged ({name} is not what {MANIFEST} says)" in capsys.readouterr().err
    with pytest.raises(UserError, match=f"{name} is not what"):
        find_resume(copied, str(file.parent))


def test_run_without_undamaged_checkpoint_is_refused(copied):
    for manifest in (copied / "checkpoints").glob(f"*/{MANIFEST}"):
        manifest.write_text("{}")
    with pytest.raises(UserError, match="has no undamaged checkpoint"):
        find_resume(copied, "auto")


def test_named_checkpoint_overwrites_no_other_run(copied, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    checkpoint = str(copied / "checkpoints" / "step_000002")
    assert find_resume(other, checkpoint).name == find_resume(copied, checkpoint).name == "step_000002"
    with pytest.raises(UserError, match=r"there is no manifest\.json in it; allowed are auto, never"):
        find_resume(other, str(other))
    (other / "metrics.jsonl").touch()
    with pytest.raises(UserError, match="other holds another run"):
        find_resume(other, checkpoint)


def test_older_manifests_list_sizes_only(copied):
    """They are accepted; damage that they do not reveal is reported when the checkpoint is loaded."""
    path = copied / "checkpoints" / "step_000004"
    (path / MANIFEST).write_text(json.dumps({name: (path / name).stat().st_size for name in FILES}))
    damaged = bytearray((path / "random_0.pt").read_bytes())
    damaged[-400:] = bytes(400)  # where a zip file lists what it contains
    (path / "random_0.pt").write_bytes(damaged)
    assert find_resume(copied, "auto") == path
    actor = SimpleNamespace(zero3=False, load=lambda *_: None, accelerator=SimpleNamespace(process_index=0))
    with pytest.raises(UserError, match=r"step_000004 cannot be loaded into this model \("):
        load_checkpoint(actor, path)
    (path / "state.json").write_text("{" + " " * ((path / "state.json").stat().st_size - 1))
    with pytest.raises(UserError, match=r"state.json is damaged"):
        load_checkpoint(actor, path)


def test_weights_of_another_shape_are_refused(copied, gqa_model):
    config = load_config([copied / "config.yaml"], [f"model.name={gqa_model}"])
    with pytest.raises(UserError, match=r"step_000004 cannot be loaded into this model .* resume with the model.name"):
        Trainer(config, copied / "checkpoints" / "step_000004")


@pytest.mark.parametrize(("device", "restored"), [(1, 11), (2, None)])
def test_random_state_lists_restore_the_own_device(tmp_path, monkeypatch, device, restored):
    """Older checkpoints list the states of all devices; a device beyond the list keeps its current state."""
    actor = SimpleNamespace(zero3=False, accelerator=Accelerator(), save=lambda folder: None, load=lambda *_: None)
    states = []
    path = save_checkpoint(actor, RunState(step=1), load_config([], []), tmp_path, keep=1)
    before = torch.load(path / "random_0.pt", weights_only=True)
    torch.save(before | {"cuda": [torch.tensor([10]), torch.tensor([11])]}, path / "random_0.pt")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: device)
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state: states.append(int(state)))
    assert load_checkpoint(actor, path) == RunState(step=1)
    assert states == ([] if restored is None else [restored])
