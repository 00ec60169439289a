"""Checkpoints of an actor that saves fixed bytes: atomicity, damage, resuming, against the files.

tests/end_to_end/test_faults.py and tests/end_to_end/test_resume.py kill and resume real runs.
"""

import itertools
import json
import os
import random
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from safetensors import SafetensorError
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from d3s import checkpoint as checkpoints
from d3s.actor import Actor
from d3s.checkpoint import (
    MANIFEST,
    RunState,
    export_model,
    find_resume,
    load_checkpoint,
    random_states,
    read_state,
    restore_parts,
    save_checkpoint,
    saved_after,
    saved_steps,
)
from d3s.common import UserError
from d3s.config.load import load_config
from d3s.pretrained import load_pretrained
from d3s.tracking.run_directory import set_aside
from tests.helpers.small_run import assert_matches_manifest

FILES = ["config.yaml", "model.safetensors", "optimizer.pt", "random_0.pt", "state.json"]


def fake_actor(**changes):
    """An actor that saves two files of 100 bytes and loads nothing."""

    def save(folder):
        for name in ("model.safetensors", "optimizer.pt"):
            (folder / name).write_bytes(bytes(100))

    settings = {"zero3": False, "accelerator": Accelerator(), "save": save, "load": lambda *_: None}
    settings["micro_batches"] = SimpleNamespace(wanted=512)
    return SimpleNamespace(**settings | changes)


def save(run, step, actor=None, keep=9):
    state = RunState(step, 10 * step, tokens_trained=3, tokens_generated=4, fingerprint={"data.path": "0a"})
    return save_checkpoint(actor or fake_actor(), state, load_config([], [f"checkpoint.keep={keep}"]), run)


@pytest.fixture
def run(tmp_path):
    """A run directory with two checkpoints, which holds a started run."""
    for step in (1, 2):
        save(tmp_path / "run", step)
    (tmp_path / "run" / "metrics.jsonl").touch()
    return tmp_path / "run"


@pytest.fixture
def path(run):
    """Its second checkpoint."""
    return run / "checkpoints" / "step_000002"


def names(run):
    return sorted(path.name for path in (run / "checkpoints").iterdir())


# --- saving -----------------------------------------------------------------------------------------------------------


def test_newest_checkpoints_are_kept(run, path):
    assert sorted(json.loads((path / MANIFEST).read_text())) == FILES
    save(run, 10, keep=2)
    assert names(run) == ["step_000002", "step_000010"]
    save(run, 1_000_000, keep=1)  # seven digits sort by number
    assert names(run) == ["step_1000000"]


@pytest.mark.parametrize("error", [OSError(28, "No space left"), RuntimeError("failed"), SafetensorError("full")])
def test_failed_save_leaves_earlier_checkpoints(run, path, error):
    def fail(folder):
        (folder / "model.safetensors").write_bytes(bytes(50))
        raise error

    with pytest.raises(UserError, match=r"step_000003: cannot be written \(.*\); free some space and rerun"):
        save(run, 3, fake_actor(save=fail))
    assert names(run) == ["step_000001", "step_000002"] and find_resume(run, "auto") == path


def test_all_is_on_the_disk_before_it_is_published(run, monkeypatch):
    """Every file and the folder that names them, then the folder of checkpoints. ResumedRun, below, has the kills."""
    events, replace = [], checkpoints.replace_directory
    monkeypatch.setattr(checkpoints, "flush_to_disk", lambda path: events.append(path.name))
    monkeypatch.setattr(checkpoints, "replace_directory", lambda *paths: events.append("published") or replace(*paths))
    save(run, 3)
    assert sorted(events[:-2]) == sorted([*FILES, MANIFEST, ".step_000003.partial"])
    assert events[-2:] == ["published", "checkpoints"]


class Counter(SimpleNamespace):
    """A part whose state is a tensor of a fixed length."""

    def load_state_dict(self, state):
        self.counts = state["counts"].view_as(self.counts)


def test_state_and_parts_return(run, path):
    """A part without a saved state is named; one that does not fit is refused in a sentence."""
    counters = {"step": 2, "position": 20, "tokens_trained": 3, "tokens_generated": 4, "evaluation_due": False}
    expected = RunState(**counters, parts={}, fingerprint={"data.path": "0a"})
    assert load_checkpoint(fake_actor(), path) == expected
    rest = {"fingerprint": {"data.path": "0a"}, "processes": 1, "zero3": False, "microbatch": 512}
    assert read_state(path) == counters | rest
    parts = {"seen": {"counts": torch.arange(3.0)}, "old": {"share": 0.5}}
    third = save_checkpoint(fake_actor(), RunState(step=3, parts=parts), load_config([], []), run)
    assert_matches_manifest(third)
    state = load_checkpoint(fake_actor(), third)
    current = {"seen": Counter(counts=torch.zeros(3)), "new": Counter()}
    assert restore_parts(current, state.parts, None) == ["new"]
    assert current["seen"].counts.tolist() == [0, 1, 2] and state.parts["old"] == {"share": 0.5}
    with pytest.raises(UserError, match="the checkpoint's state of seen does not fit this run"):
        restore_parts({"seen": Counter(counts=torch.zeros(4))}, state.parts, None)


def test_exported_model_loads_in_transformers(tied_model, tmp_path):
    """The tensors are those of the actor, rounded to model.dtype; an earlier export is replaced."""
    actor = Actor(str(tied_model), load_config([], []), Accelerator(), 64)
    actor.config = load_config([], ["model.dtype=bfloat16"])
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "old").touch()
    tokenizer, _ = load_pretrained(tied_model, 10)
    export_model(actor, tokenizer, tmp_path / "model")
    weights, expected = (load_file(path / "model.safetensors") for path in (tmp_path / "model", tied_model))
    assert weights.keys() >= expected.keys()
    assert all(torch.equal(weights[name], expected[name].bfloat16()) for name in expected)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "model")  # in the precision that its config.json names
    assert loaded.dtype == torch.bfloat16
    assert torch.equal(loaded.lm_head.weight, expected["model.embed_tokens.weight"].bfloat16())
    assert [x.name for x in tmp_path.iterdir()] == ["model"] and not (tmp_path / "model" / "old").exists()


# --- resuming ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FILES)
def test_damaged_file_is_detected(name, run, path, capsys):
    """A bit that changed at the same size, and a file that is missing."""
    content = bytearray((path / name).read_bytes())
    content[len(content) // 2] ^= 1
    (path / name).write_bytes(content)
    assert find_resume(run, "auto").name == "step_000001"
    assert f"step_000002 is damaged ({name} is not what {MANIFEST} says)" in capsys.readouterr().err
    with pytest.raises(UserError, match=f"{name} is not what"):
        find_resume(run, str(path))
    (path / name).unlink()
    assert find_resume(run, "auto").name == "step_000001"
    assert "step_000002 is damaged (FileNotFoundError" in capsys.readouterr().err


def test_no_run_is_overwritten(run, path, tmp_path, capsys):
    other = tmp_path / "other"
    (other / "best").mkdir(parents=True)
    with pytest.raises(UserError, match=r"other: is no run, but has best, which a run replaces; change train"):
        find_resume(other, "never")
    (other / "best").rmdir()
    assert find_resume(other, str(path)) == find_resume(run, str(path)) == path
    with pytest.raises(UserError, match=r"got .*other \(there is no manifest\.json in it\), expected auto, never"):
        find_resume(other, str(other))
    (other / "metrics.jsonl").touch()  # of a start that failed before its first step
    assert find_resume(other, "never") is None and find_resume(other, str(path)) == path
    (other / "metrics.jsonl").write_text('{"step": 1}\n')
    with pytest.raises(UserError, match="other holds another run"):
        find_resume(other, str(path))
    with pytest.raises(UserError, match=r"run: holds a run already; continue it with --resume auto"):
        find_resume(run, "never")
    assert find_resume(tmp_path / "new", "never") is find_resume(tmp_path / "new", "auto") is None
    assert find_resume(other, "auto") is None  # killed before its first checkpoint
    assert f"{other}: no checkpoint yet, starting over" in capsys.readouterr().out
    (other / "model").mkdir()  # finished, so its record would be lost
    with pytest.raises(UserError, match=r"other: holds a run already; change train.output_dir"):
        find_resume(other, "never")
    with pytest.raises(UserError, match="has a finished run without a checkpoint"):
        find_resume(other, "auto")
    for manifest in run.rglob(MANIFEST):
        manifest.write_text("{}")
    with pytest.raises(UserError, match="has no undamaged checkpoint"):
        find_resume(run, "auto")


def test_checkpoint_that_does_not_fit_is_one_sentence(path):
    """It changed after the check, or another launcher or model has saved it."""

    def load(*_):
        raise RuntimeError("The size of tensor a (96) must match the size of tensor b (64)\nat dimension 1")

    with pytest.raises(UserError, match=r"step_000002: cannot be loaded .*\(96.*\(64\)\); resume with the model.name"):
        load_checkpoint(fake_actor(load=load), path)
    message = "step_000002: was saved without ZeRO-3, this run is under ZeRO-3; use the launcher of that run"
    with pytest.raises(UserError, match=message):
        load_checkpoint(fake_actor(zero3=True), path)
    damaged = bytearray((path / "random_0.pt").read_bytes())
    damaged[-400:] = bytes(400)  # where a zip file lists what it contains
    (path / "random_0.pt").write_bytes(damaged)
    with pytest.raises(UserError, match=r"step_000002: cannot be loaded into this model \(") as error:
        load_checkpoint(fake_actor(), path)
    assert "\n" not in str(error.value)
    (path / "state.json").write_text("{")
    with pytest.raises(UserError, match=r"state.json: damaged; resume from an earlier checkpoint"):
        load_checkpoint(fake_actor(), path)


def test_killed_fork_goes_on_from_its_origin(run, path, tmp_path):
    """A run that began with another run's checkpoint and was killed before its first own one."""
    fork = tmp_path / "fork"
    fork.mkdir()
    (fork / "metrics.jsonl").write_text('{"step": 3}\n')
    (fork / "resumes.jsonl").write_text(json.dumps({"checkpoint": str(path)}) + "\n")
    assert find_resume(fork, "auto") == find_resume(fork, str(path)) == path
    with pytest.raises(UserError, match="fork holds another run"):
        find_resume(fork, str(run / "checkpoints" / "step_000001"))
    moved = fork.rename(tmp_path / "moved")  # a checkpoint of its own is no other run's, wherever it lies
    (moved / "resumes.jsonl").write_text(json.dumps({"checkpoint": f"checkpoints/{path.name}"}) + "\n")
    with pytest.raises(UserError, match="moved holds another run"):
        find_resume(moved, str(path))
    (moved / "resumes.jsonl").write_text(json.dumps({"checkpoint": str(path)}) + "\n")
    (path / MANIFEST).unlink()
    with pytest.raises(UserError, match="moved has no undamaged checkpoint"):
        find_resume(moved, "auto")


class ResumedRun(RuleBasedStateMachine):
    """One run directory through saves, kills at any file operation, full disks, damage and resumptions.

    `saved` has the undamaged checkpoints of the run's own line: of each step a number that only it has.
    """

    def __init__(self):
        super().__init__()
        self.folder, self.config, self.numbers = TemporaryDirectory(), load_config([], []), itertools.count(1)
        self.run, self.saved, self.step, self.running, self.own = Path(self.folder.name), {}, 0, True, None

    def teardown(self):
        self.folder.cleanup()

    def killed(self, action, at):
        """Whether `action` was killed at its file operation `at`."""
        operations = itertools.count(1)

        def counted(function):
            def call(*arguments, **options):
                if next(operations) == at:
                    raise KeyboardInterrupt
                return function(*arguments, **options)

            return call

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(checkpoints, "flush_to_disk", counted(lambda path: None))
            for module, name in ((os, "rename"), (shutil, "rmtree"), (os, "link")):
                patch.setattr(module, name, counted(getattr(module, name)))
            try:
                action()
            except KeyboardInterrupt:
                self.running = False
                return True
        return False

    def number_of(self, path):
        return read_state(path)["tokens_trained"]

    @precondition(lambda self: self.running)
    @rule(
        again=st.booleans(), keep=st.integers(1, 3), full=st.sampled_from([False] * 4 + [True]), at=st.integers(1, 40)
    )
    def save(self, again, keep, full, at):
        """The next step, or, after a reward that fails, the same one again; most of these end whole."""
        again = again and self.own == self.step > 0
        self.step += not again
        number = self.saved.get(self.step) if again else next(self.numbers)
        state = RunState(self.step, tokens_trained=number)

        def fail(folder):
            raise OSError(28, "No space left")

        actor = fake_actor(save=fail) if full else fake_actor()

        def write():
            config = self.config.updated(checkpoint={"keep": keep})
            save_checkpoint(actor, state, config, self.run, same_weights=again)

        with (self.run / "metrics.jsonl").open("a") as file:
            file.write(json.dumps({"step": self.step}) + "\n")
        if full and not again:
            with pytest.raises(UserError, match="cannot be written"):
                write()
            self.running = False
            return
        before = dict(self.saved)
        if self.killed(write, at):
            newest, options = find_resume(self.run, "auto"), before | {self.step: number}
            allowed = [number] if again else list(options.values())[-2:]  # a step that was not whole is the one lost
            assert self.number_of(newest) in allowed if newest else not before
            left = [*map(self.number_of, saved_steps(self.run))]
            self.saved = {s: n for s, n in options.items() if n in left}
            assert not newest or self.number_of(newest) == self.saved[max(self.saved)]
            return
        self.own = self.step
        self.saved = dict(sorted((before | {self.step: number}).items())[-keep:])
        assert [*map(self.number_of, saved_steps(self.run))][-len(self.saved) :] == list(self.saved.values())

    @precondition(lambda self: self.running)
    @rule()
    def stop(self):
        self.running = False

    @precondition(lambda self: not self.running and len(self.saved) > 1)
    @rule()
    def damage_newest(self):
        (self.run / "checkpoints" / f"step_{max(self.saved):06d}" / "optimizer.pt").write_bytes(b"")
        del self.saved[max(self.saved)]

    @precondition(lambda self: not self.running)
    @rule(back=st.integers(0, 3), at=st.integers(1, 12))
    def resume(self, back, at):
        """By auto, or from an earlier step of the line, after which what is later lies aside."""
        steps = sorted(self.saved)
        (self.run / "model").mkdir(exist_ok=True)
        if not steps:
            shutil.rmtree(self.run / "model")
            assert find_resume(self.run, "auto") is None
            self.running, self.step, self.own = True, 0, None
            return
        step = steps[-1 - min(back, len(steps) - 1)]
        path = find_resume(self.run, str(self.run / "checkpoints" / f"step_{step:06d}") if back else "auto")
        assert self.number_of(path) == self.saved[step]
        later = saved_after(self.run, step)
        if self.killed(lambda: set_aside(self.run, later, step), at):
            self.saved = {s: n for s, n in self.saved.items() if (self.run / "checkpoints" / f"step_{s:06d}").exists()}
            assert self.number_of(find_resume(self.run, "auto")) == self.saved[max(self.saved)]
            return
        assert saved_after(self.run, step) == [] and (self.run / "model").exists() == (not later)
        assert all(list(self.run.glob(f"abandoned_*/{path.name}")) for path in later)
        self.saved = {s: n for s, n in self.saved.items() if s <= step}
        self.running, self.step, self.own = True, step, None

    @invariant()
    def nothing_is_left_after_recovery(self):
        if self.saved and not self.running:
            assert find_resume(self.run, "auto") is not None
            assert not [p for p in self.run.rglob(".*") if p.name.endswith((".partial", ".replaced"))]


ResumedRun.TestCase.settings = settings(max_examples=60, stateful_step_count=20)
TestResumedRun = ResumedRun.TestCase


# --- random states ----------------------------------------------------------------------------------------------------


def test_random_states_return_through_a_file(path):
    """A rank that the saving run did not have keeps its own."""

    def draw():
        return torch.rand(3).tolist(), np.random.rand(3).tolist(), np.random.normal(), random.gauss(0, 1)

    draw()  # leaves half of a pair of normal numbers in both generators that draw pairs
    torch.save(random_states(), path / "random_0.pt")
    expected = draw()
    assert draw() != expected
    for rank in (0, 1):
        load_checkpoint(fake_actor(accelerator=SimpleNamespace(process_index=rank)), path)
        assert (draw() == expected) == (rank == 0)
